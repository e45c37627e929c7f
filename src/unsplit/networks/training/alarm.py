"""What processes that train together tell each other if memory runs out in one of them.

The others would wait for its next message for ever.  So each message of a step follows a short one
in which every process says whether it can go on; if one cannot, all give the step up, and compute
the batch in smaller parts.

Batch normalisation sends messages from within a backbone, and a process that cannot go on does not
know how many are still to come.  These are therefore as long as the short ones: it answers each of
them with zeros, until the others meet.  An error that comes while a message is sent is not covered.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn

from unsplit.data.memory import is_out_of_memory
from unsplit.devices import Ranks


class OutOfMemoryElsewhereError(MemoryError):
    """Memory ran out in another process."""


class Alarm:
    """Lets all processes give a step up if memory runs out in one of them.

    Parameters
    ----------
    ranks : Ranks
    norms : sequence of modules
        The batch normalisations of a network, whose messages are sent through :meth:`sum`.
    device : torch.device
        Of the network.

    Examples
    --------
    >>> from unsplit.devices import ALONE
    >>> alarm = Alarm(ALONE, [nn.BatchNorm1d(4)], torch.device("cpu"))
    >>> with alarm.watching():
    ...     alarm.sum(torch.ones(3))
    tensor([1., 1., 1.])
    """

    def __init__(self, ranks: Ranks, norms: list[nn.BatchNorm1d], device: torch.device) -> None:
        self.ranks = ranks
        # The sums of all channels and the number of observations.
        width = 1 + max(norm.num_features for norm in norms) if norms else 0
        # Last, how many cannot go on, and how many have met.  Made now: later there may be no room.
        where = device if norms else torch.device("cpu")
        self._words = torch.zeros(width + 2, device=where)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Raise the alarm if memory runs out in this block, here or elsewhere.

        Every message of the ranks in it is preceded by :meth:`meet`.
        """
        self.ranks.alarm = self
        try:
            yield
        except (MemoryError, RuntimeError) as error:
            here = is_out_of_memory(error) and not isinstance(error, OutOfMemoryElsewhereError)
            if here and self.ranks.size > 1:
                self._answer()
            raise
        finally:
            self.ranks.alarm = None

    def meet(self) -> None:
        """Wait for the others; raise an error if one of them cannot go on."""
        failed, _ = self._exchanged(0, 1)
        if failed:
            raise OutOfMemoryElsewhereError("in another process")

    def _answer(self) -> None:
        """Answer the messages of the others until all know that this process cannot go on."""
        met, failed = 0.0, 0.0
        while not met and failed < self.ranks.size:
            failed, met = self._exchanged(1, 0)

    def _exchanged(self, failed: int, met: int) -> list[float]:
        self._words.zero_()
        self._words[-2], self._words[-1] = failed, met
        dist.all_reduce(self._words)
        found: list[float] = self._words[-2:].tolist()
        return found

    def sum(self, values: Tensor) -> Tensor:
        """Add up what a batch normalisation sends, in a message as long as all others."""
        if self.ranks.size == 1:
            return values
        message = torch.zeros_like(self._words)
        message[: len(values)] = values
        dist.all_reduce(message)
        return message[: len(values)]
