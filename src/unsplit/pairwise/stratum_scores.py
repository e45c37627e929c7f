"""Held-out scores as tensors: where the stored parts are multiplied."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from unsplit.devices import BLOCK_ELEMENTS


class StratumScores(NamedTuple):
    """Scores of one stratum, as tensors on one device; rows are ordered by cluster.

    Parameters
    ----------
    features, weights, bias, clusters : Tensors of shape (n, h), (k, h), (k,) and (n,)
        As in :class:`unsplit.pairwise.scores.HeldoutScores`.
    """

    features: Tensor
    weights: Tensor
    bias: Tensor
    clusters: Tensor

    def of(self, rows: slice, clusters: slice) -> Tensor:
        """Compute the scores of some rows for some clusters."""
        return torch.addmm(self.bias[clusters], self.features[rows], self.weights[clusters].T)

    def blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield scores (b, k) and cluster indices (b,), a limited number of rows at a time."""
        step = max(1, BLOCK_ELEMENTS // len(self.bias))
        for start in range(0, len(self.clusters), step):
            rows = slice(start, start + step)
            yield self.of(rows, slice(None)), self.clusters[rows]
