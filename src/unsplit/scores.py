"""Held-out scores of all observations for all clusters, stored as what they are made of."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unsplit.ensemble import BLOCK_ELEMENTS
from unsplit.sampling import Index

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class HeldoutScores:
    """Scores z = features · weightsᵀ + bias, never as one n × k matrix unless asked for.

    With h features, n·h + K·k·h numbers stand for n·k, which is what keeps a large k affordable.
    Rows are ordered by fold, then by cluster.

    Parameters
    ----------
    features : ndarray of shape (m, h)
        Of the held-out observations, each from the network that did not see it.
    weights, bias : ndarrays of shape (K, k, h) and (K, k)
        The heads of the K folds.
    clusters, folds, rows : ndarrays of shape (m,)
        Cluster index, fold, and row in the data of each held-out observation.
    """

    features: Floats
    weights: Floats
    bias: Floats
    clusters: Index
    folds: Index
    rows: Index

    @property
    def n_folds(self) -> int:
        """Number of networks."""
        return len(self.bias)

    @property
    def n_clusters(self) -> int:
        """Number of clusters, k."""
        return self.bias.shape[1]

    @cached_property
    def counts(self) -> Index:
        """Held-out observations of each cluster in each fold, shape (K, k)."""
        flat = np.bincount(
            self.folds * self.n_clusters + self.clusters,
            minlength=self.n_folds * self.n_clusters,
        )
        return flat.reshape(self.n_folds, self.n_clusters)

    def fold_rows(self, fold: int) -> slice:
        """Where a fold's observations stand."""
        start, stop = np.searchsorted(self.folds, [fold, fold + 1])
        return slice(int(start), int(stop))

    def of(self, rows: slice, clusters: slice, device: torch.device) -> Tensor:
        """Scores of some rows of one fold for some clusters."""
        fold = int(self.folds[rows.start])
        features, weights, bias = (
            torch.from_numpy(part).to(device)
            for part in (
                self.features[rows],
                self.weights[fold, clusters],
                self.bias[fold, clusters],
            )
        )
        return torch.addmm(bias, features, weights.T)

    def fold_blocks(self, fold: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        """Scores (b, k) and cluster indices (b,) of one fold, a bounded number at a time."""
        rows = self.fold_rows(fold)
        step = max(1, BLOCK_ELEMENTS // self.n_clusters)
        for start in range(rows.start, rows.stop, step):
            block = slice(start, min(start + step, rows.stop))
            scores = self.of(block, slice(None), device)
            yield scores, torch.from_numpy(self.clusters[block]).to(device)

    def blocks(self, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        """The blocks of all folds."""
        for fold in range(self.n_folds):
            yield from self.fold_blocks(fold, device)

    def dense(self) -> Floats:
        """All scores, shape (m, k)."""
        return torch.cat([scores for scores, _ in self.blocks(torch.device("cpu"))]).numpy()

    def renamed(self, new_index: Index) -> "HeldoutScores":
        """The same scores with cluster c called ``new_index[c]``."""
        old_index = np.argsort(new_index)
        clusters = new_index[self.clusters]
        order = np.lexsort((self.rows, clusters, self.folds))
        return HeldoutScores(
            features=self.features[order],
            weights=self.weights[:, old_index],
            bias=self.bias[:, old_index],
            clusters=clusters[order],
            folds=self.folds[order],
            rows=self.rows[order],
        )
