"""The observations that a network is trained on, and the order in which they are drawn."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from unsplit._typing import Index

# Fewer steps than this per epoch are too few for A to change.
MIN_STEPS = 10


@dataclass(frozen=True)
class Fold:
    """The observations of one network, as row indices.

    ``train`` is for training, ``watch`` for choosing the epoch, and ``test`` is held out for the
    estimate.
    """

    train: Index
    watch: Index
    test: Index

    @property
    def watches_test(self) -> bool:
        """Whether the epoch is chosen on the test rows."""
        return np.array_equal(self.watch, self.test)


def balanced_draws(clusters: Index, n_draws: int, rng: np.random.Generator) -> Index:
    """Draw rows so that every cluster is drawn equally often; positions in ``clusters``.

    Each run of k draws has one row of every cluster.  The members of a cluster come in random
    order, and all of them come before any is repeated.  If all clusters have the same size and
    ``n_draws = len(clusters)``, this is a plain shuffled epoch.
    """
    sizes = np.bincount(clusters)
    present = np.flatnonzero(sizes)
    rounds = -(-n_draws // len(present))
    visits = rng.permuted(np.tile(present, (rounds, 1)), axis=1).ravel()[:n_draws]
    wanted = np.bincount(visits, minlength=len(sizes))
    passes = -(-wanted // np.maximum(sizes, 1))
    # Each pass has every member once, in random order.
    members = np.repeat(np.arange(len(clusters)), passes[clusters])
    turn = np.arange(len(members)) - np.repeat(
        np.cumsum(passes[clusters]) - passes[clusters], passes[clusters]
    )
    members = members[np.lexsort((rng.random(len(members)) + turn, clusters[members]))]
    starts = np.cumsum(passes * sizes) - passes * sizes
    # The t-th draw from a cluster takes the t-th entry of its list.
    by_cluster = np.argsort(visits, kind="stable")
    visit_rank = np.arange(n_draws) - np.repeat(np.cumsum(wanted) - wanted, wanted)
    drawn = np.empty(n_draws, np.int64)
    drawn[by_cluster] = members[starts[visits[by_cluster]] + visit_rank]
    return drawn


def epoch_minibatches(
    train: Sequence[Index], clusters: Index, batch_size: int, rng: np.random.Generator
) -> Tensor:
    """Draw one epoch for m networks, each from its own rows; row indices (steps, m, b)."""
    longest = max(len(rows) for rows in train)
    batch_size = min(batch_size, longest)
    steps = max(-(-longest // batch_size), MIN_STEPS)
    draws = [rows[balanced_draws(clusters[rows], steps * batch_size, rng)] for rows in train]
    return torch.from_numpy(np.stack(draws)).unflatten(1, (steps, batch_size)).transpose(0, 1)
