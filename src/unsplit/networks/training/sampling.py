"""Which observations a network trains on, and in which order they are drawn."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from unsplit._typing import Index

# A pass over very few rows is too little to see A move.
MIN_STEPS = 10


@dataclass(frozen=True)
class Fold:
    """One network's share of the observations, as row indices.

    ``train`` makes the weights, ``watch`` chooses the epoch, ``test`` is counted.
    """

    train: Index
    watch: Index
    test: Index

    @property
    def watches_test(self) -> bool:
        """Whether the counted rows are the watched ones."""
        return np.array_equal(self.watch, self.test)


def balanced_draws(clusters: Index, n_draws: int, rng: np.random.Generator) -> Index:
    """Positions into ``clusters`` that visit every cluster equally often.

    Each run of k draws holds every cluster once; within a cluster, members come in random order
    and none comes again before all have come.  With clusters of one size and
    ``n_draws = len(clusters)`` this is a plain shuffled epoch.
    """
    sizes = np.bincount(clusters)
    present = np.flatnonzero(sizes)
    rounds = -(-n_draws // len(present))
    visits = rng.permuted(np.tile(present, (rounds, 1)), axis=1).ravel()[:n_draws]
    wanted = np.bincount(visits, minlength=len(sizes))
    passes = -(-wanted // np.maximum(sizes, 1))
    # Every member once per pass, passes in turn, members shuffled within each.
    members = np.repeat(np.arange(len(clusters)), passes[clusters])
    turn = np.arange(len(members)) - np.repeat(
        np.cumsum(passes[clusters]) - passes[clusters], passes[clusters]
    )
    members = members[np.lexsort((rng.random(len(members)) + turn, clusters[members]))]
    starts = np.cumsum(passes * sizes) - passes * sizes
    # The t-th visit to a cluster takes the t-th entry of its list.
    by_cluster = np.argsort(visits, kind="stable")
    visit_rank = np.arange(n_draws) - np.repeat(np.cumsum(wanted) - wanted, wanted)
    drawn = np.empty(n_draws, np.int64)
    drawn[by_cluster] = members[starts[visits[by_cluster]] + visit_rank]
    return drawn


def epoch_minibatches(
    train: Sequence[Index], clusters: Index, batch_size: int, rng: np.random.Generator
) -> Tensor:
    """Row indices (steps, m, b) of one epoch for m networks, each drawing from its own rows."""
    longest = max(len(rows) for rows in train)
    batch_size = min(batch_size, longest)
    steps = max(-(-longest // batch_size), MIN_STEPS)
    draws = [rows[balanced_draws(clusters[rows], steps * batch_size, rng)] for rows in train]
    return torch.from_numpy(np.stack(draws)).unflatten(1, (steps, batch_size)).transpose(0, 1)
