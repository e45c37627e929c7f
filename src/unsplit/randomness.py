"""Random numbers that leave the global random state alone."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from unsplit.errors import InputError

if TYPE_CHECKING:
    import torch


def generator_of(random_state: object) -> np.random.Generator:
    """Turn any ``random_state`` into a NumPy generator; None gives different numbers every time.

    Examples
    --------
    >>> bool(generator_of(3).random() == generator_of(3).random())
    True
    """
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31 - 1))
    if random_state is None or isinstance(random_state, (int, np.integer)):
        return np.random.default_rng(random_state)
    raise InputError(
        "random_state must be a whole number, a numpy Generator or RandomState, or None, got "
        f"{random_state!r}."
    )


@contextmanager
def private_randomness(seed: int, device: "torch.device") -> Iterator[None]:
    """Seed torch inside the ``with`` block and restore the caller's state afterwards."""
    import torch  # here, so that modules without torch can use generator_of

    cuda = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda):
        torch.default_generator.manual_seed(seed)
        if cuda:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield
