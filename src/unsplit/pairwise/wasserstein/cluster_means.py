"""Means of clusters under many maps, and the distances between them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unsplit._typing import Index
from unsplit.pairwise.wasserstein.maps import LipschitzMaps

Array = NDArray[np.float64]

ROWS_AT_ONCE = 4096
ELEMENTS_AT_ONCE = 2**22

# A difference shorter than this has no direction.
NO_LENGTH = 1e-6


@dataclass(frozen=True, eq=False)
class ClusterMeans:
    """Means of clusters under M models of B maps and, as the first map, the identity.

    Parameters
    ----------
    raw : ndarray of shape (M, k, d)
        Means of the observations themselves.
    mapped : ndarray of shape (M, 1 + B, k, h)
        Means of the outputs of :class:`LipschitzMaps`; zeros for the identity.
    counts : ndarray of shape (M, k)
        Number of observations in each mean; without any, the mean is zero.
    signs : ndarray of shape (1 + B, h)
    keeps, kind : ndarray of shape (1 + B,)
        How :class:`LipschitzMaps` computes distances from ``mapped`` and ``raw``, and the kind of
        each map.  The identity keeps everything, and is the only map of kind 0.
    """

    raw: Array
    mapped: Array
    counts: Index
    signs: Array
    keeps: Array
    kind: Index

    @classmethod
    @torch.no_grad()
    def of(
        cls, maps: LipschitzMaps, x: Tensor, clusters: Tensor, used: Tensor, k: int
    ) -> "ClusterMeans":
        """Means over the rows that each model uses.

        Parameters
        ----------
        maps : LipschitzMaps
        x : Tensor of shape (n, d)
        clusters : integer Tensor of shape (n,)
        used : boolean Tensor of shape (M, n)
            Which rows each of the M models uses.
        k : int
            Number of clusters.
        """
        n_models, (n_maps, h) = len(used), maps.signs.shape
        raw = torch.zeros(n_models, k, x.shape[1], dtype=torch.double)
        mapped = torch.zeros(n_models, 1 + n_maps, k, h, dtype=torch.double)
        for at in torch.arange(len(x), device=x.device).split(ROWS_AT_ONCE):
            # Matrix products, because index_add is not deterministic on a GPU.
            here, place = torch.unique(clusters[at], return_inverse=True)
            is_member = place == torch.arange(len(here), device=x.device)[:, None]
            member = (is_member & used[:, None, at]).to(x)
            raw[:, here.cpu()] += (member @ x[at]).cpu()
            mapped[:, 1:, here.cpu()] += (member[:, None] @ maps(x[at][None])).cpu()
        counts = torch.stack([clusters[rows].bincount(minlength=k) for rows in used]).cpu()
        size = counts.clamp_min(1)[..., None]
        signs = torch.cat([torch.zeros(1, h), maps.signs.cpu()]).double()
        keeps = torch.cat([torch.ones(1), maps.keeps.cpu()]).double()
        kind = torch.cat([torch.zeros(1, dtype=torch.long), maps.kind.cpu()])
        means = raw / size, mapped / size[:, None]
        return cls(*(t.numpy() for t in (*means, counts, signs, keeps, kind)))

    @property
    def n_clusters(self) -> int:
        """Number of clusters, k."""
        return self.raw.shape[1]

    def kinds(self) -> list[Index]:
        """Numbers of the maps of each kind, without the identity."""
        return [np.flatnonzero(self.kind == kind) for kind in np.unique(self.kind[1:])]

    def products(self, other: "ClusterMeans", rows: slice) -> Array:
        """(m_i − m_j)·(m'_i − m'_j) under every map, shape (M, 1 + B, rows, k).

        Differences are of these means and of those of ``other``.
        """
        raw = _products(self.raw, other.raw, rows)[:, None]
        mapped = _products(self.signs[:, None] * self.mapped, other.mapped, rows)
        return self.keeps[:, None, None] * raw + mapped

    def lengths(self, rows: slice) -> Array:
        """|m_i − m_j| under every map, shape (M, 1 + B, rows, k)."""
        return np.sqrt(np.maximum(self.products(self, rows), 0.0))

    def parts(self) -> Iterator[slice]:
        """Slices of the clusters, small enough to hold all their pairs in memory."""
        n_models, n_maps, k, _ = self.mapped.shape
        step = max(1, ELEMENTS_AT_ONCE // (n_models * n_maps * k))
        return (slice(start, min(start + step, k)) for start in range(0, k, step))


def _products(a: Array, b: Array, rows: slice) -> Array:
    """(a_i − a_j)·(b_i − b_j) for i in ``rows`` and all j, shape (..., rows, k)."""
    same = np.einsum("...ih,...ih->...i", a, b)
    crossed = a[..., rows, :] @ b.swapaxes(-1, -2) + b[..., rows, :] @ a.swapaxes(-1, -2)
    return same[..., rows, None] + same[..., None, :] - crossed


def row_masks(rows: Sequence[Index], x: Tensor) -> Tensor:
    """Which rows of x are in each of M sets of row indices, shape (M, n)."""
    masks = torch.zeros(len(rows), len(x), dtype=torch.bool)
    for mask, index in zip(masks, rows, strict=True):
        mask[torch.from_numpy(index)] = True
    return masks.to(x.device)
