"""Held-out scores of all observations for all clusters, stored as what they are made of."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

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

    def on(self, device: torch.device) -> Iterator["FoldScores"]:
        """The folds that have observations, one at a time on ``device``."""
        ends = np.searchsorted(self.folds, np.arange(self.n_folds + 1))
        for fold, (start, stop) in enumerate(pairwise(ends)):
            if start < stop:
                parts = (
                    self.features[start:stop],
                    self.weights[fold],
                    self.bias[fold],
                    self.clusters[start:stop],
                )
                yield FoldScores(*(torch.from_numpy(part).to(device) for part in parts))

    def blocks(self, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        """Scores (b, k) and cluster indices (b,), a bounded number of rows at a time."""
        for fold in self.on(device):
            yield from fold.blocks()

    def dense(self) -> Floats:
        """All scores, shape (m, k)."""
        return torch.cat([scores for scores, _ in self.blocks(torch.device("cpu"))]).numpy()

    def composed(self, index: Index, members: Sequence[int], sizes: Index) -> Floats:
        """Scores of the held-out observations at ``index`` for a union of clusters.

        A union's density is the mixture of its members', so its score is the logarithm of their
        mean, weighted by size: no training.
        """
        columns = np.asarray(members)
        log_share = np.log(sizes[columns] / sizes[columns].sum()).astype(np.float32)
        result = np.empty(len(index), np.float32)
        for fold in np.unique(self.folds[index]):
            inside = self.folds[index] == fold
            z = self.features[index[inside]] @ self.weights[fold, columns].T
            z += self.bias[fold, columns] + log_share
            result[inside] = np.logaddexp.reduce(z, axis=1)
        return result

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


class FoldScores(NamedTuple):
    """One fold's share of :class:`HeldoutScores` as tensors; rows are ordered by cluster."""

    features: Tensor
    weights: Tensor
    bias: Tensor
    clusters: Tensor

    def of(self, rows: slice, clusters: slice) -> Tensor:
        """Scores of some rows for some clusters."""
        return torch.addmm(self.bias[clusters], self.features[rows], self.weights[clusters].T)

    def blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Scores (b, k) and cluster indices (b,), a bounded number of rows at a time."""
        step = max(1, BLOCK_ELEMENTS // len(self.bias))
        for start in range(0, len(self.clusters), step):
            rows = slice(start, start + step)
            yield self.of(rows, slice(None)), self.clusters[rows]
