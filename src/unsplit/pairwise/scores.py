"""Held-out scores of all observations for all clusters, stored as features and weights."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unsplit._typing import Index
from unsplit.devices import BLOCK_ELEMENTS, usual_settings
from unsplit.errors import InputError

if TYPE_CHECKING:
    import torch
    from torch import Tensor


Floats = NDArray[np.float32]


# Their names, and what they are called.  Here and not where they are computed, so that asking for a
# name loads no torch.
DIVERGENCES = {
    "tv": "total variation distance",
    "lecam": "Le Cam distance",
    "js": "Jensen–Shannon divergence",
    "hellinger": "Hellinger distance",
    "overlap": "overlap",
    "auc": "how well the network tells them apart",
}


def nothing_held_out() -> InputError:
    """The error that all clusters have one observation."""
    return InputError(
        "every cluster has only one observation, so none could be held out to compare clusters; "
        "pass clusters of at least two observations."
    )


class StratumScores(NamedTuple):
    """Scores of one stratum, as tensors on one device; rows are ordered by cluster.

    Parameters
    ----------
    features, weights, bias, clusters : Tensors of shape (n, h), (k, h), (k,) and (n,)
        As in :class:`HeldoutScores`.
    """

    features: "Tensor"
    weights: "Tensor"
    bias: "Tensor"
    clusters: "Tensor"

    @usual_settings()
    def of(self, rows: "slice | Tensor", clusters: "slice | Tensor") -> "Tensor":
        """Compute the scores of some rows for some clusters."""
        return self.bias[clusters].addmm(self.features[rows], self.weights[clusters].T)

    def among(self, kept: "Tensor") -> "StratumScores":
        """The scores of some clusters, numbered anew, for each other."""
        rows, number = kept[self.clusters], kept.cumsum(0) - 1
        return StratumScores(
            self.features[rows], self.weights[kept], self.bias[kept], number[self.clusters[rows]]
        )

    def blocks(self) -> Iterator[tuple["Tensor", "Tensor"]]:
        """Yield scores (b, k) and cluster indices (b,), a limited number of rows at a time."""
        step = max(1, BLOCK_ELEMENTS // len(self.bias))
        for start in range(0, len(self.clusters), step):
            rows = slice(start, start + step)
            yield self.of(rows, slice(None)), self.clusters[rows]


@dataclass(frozen=True, eq=False)
class HeldoutScores:
    """The scores z = features · weightsᵀ + bias, stored as these three parts.

    With h features, the parts take n·h + K·k·h numbers and not n·k, so that many clusters fit into
    memory.  Rows are ordered by stratum, then by cluster.  A stratum is a fold or, if there are
    batches, one batch of a fold, with the number fold · B + batch.  Scores can only be compared
    within a stratum.

    Parameters
    ----------
    features : ndarray of shape (m, h)
        Features of the held-out observations, from the network that was not trained on them.
    weights, bias : ndarrays of shape (S, k, h) and (S, k)
        Last layer of the network of each stratum; without batches, of each of the K folds.  A
        cluster that does not occur in a batch has the bias −∞ there, because its density is zero.
    clusters, folds, rows : ndarrays of shape (m,)
        Cluster index, fold, and row in the data of each held-out observation.
    batches : ndarray of shape (m,), optional
        Batch of each held-out observation.
    subclusters : ndarray of shape (B, k), optional
        Number of observations of each cluster in each batch, held out or not.
    groups : ndarray of shape (m,), optional
        Group of each held-out observation; every group is in one fold.
    """

    features: Floats
    weights: Floats
    bias: Floats
    clusters: Index
    folds: Index
    rows: Index
    batches: Index | None = None
    subclusters: Index | None = None
    groups: Index | None = None

    @property
    def n_batches(self) -> int:
        """Number of batches, B; 1 without batches."""
        return 1 if self.subclusters is None else len(self.subclusters)

    @property
    def n_folds(self) -> int:
        """Number of networks, K."""
        return len(self.bias) // self.n_batches

    @cached_property
    def strata(self) -> Index:
        """Stratum of each held-out observation, shape (m,)."""
        return self.folds if self.batches is None else self.folds * self.n_batches + self.batches

    @property
    def n_clusters(self) -> int:
        """Number of clusters, k."""
        return self.bias.shape[1]

    @cached_property
    def counts(self) -> Index:
        """Number of held-out observations of each cluster in each stratum, shape (S, k)."""
        flat = np.bincount(self.strata * self.n_clusters + self.clusters, minlength=self.bias.size)
        return flat.reshape(self.bias.shape)

    @property
    def batch_counts(self) -> Index:
        """Number of held-out observations of each cluster in each batch, shape (B, k)."""
        return self.counts.reshape(self.n_folds, self.n_batches, -1).sum(axis=0)

    def on(
        self, device: "str | torch.device" = "cpu", batch: int | None = None
    ) -> Iterator["StratumScores"]:
        """Yield the strata that have observations, one at a time, as tensors.

        Only those of one batch, if it is given.
        """
        # Torch is imported only here, where stored scores become tensors: everything else about
        # an estimate can be loaded and used without it.
        import torch

        ends = np.searchsorted(self.strata, np.arange(len(self.bias) + 1))
        for stratum, (start, stop) in enumerate(pairwise(ends)):
            if start < stop and batch in (None, stratum % self.n_batches):
                parts = (
                    self.features[start:stop],
                    self.weights[stratum],
                    self.bias[stratum],
                    self.clusters[start:stop],
                )
                yield StratumScores(*(torch.from_numpy(part).to(device) for part in parts))

    def blocks(
        self, device: "str | torch.device" = "cpu", batch: int | None = None
    ) -> Iterator[tuple["Tensor", "Tensor"]]:
        """Yield scores (b, k) and cluster indices (b,), a limited number of rows at a time.

        Parameters are those of :meth:`on`.
        """
        for stratum in self.on(device, batch):
            yield from stratum.blocks()

    def dense(self) -> Floats:
        """All scores as one array, shape (m, k)."""
        return np.concatenate([scores.numpy() for scores, _ in self.blocks()])

    def composed(self, index: Index, unions: Sequence[Sequence[int]], sizes: Index) -> Floats:
        """Scores of held-out observations for unions of clusters, shape (len(index), unions).

        The density of a union is the mixture of its members' densities, so its score follows from
        theirs without training: the logarithm of the mean of their exponentials, weighted by size.
        """
        columns, lengths = np.concatenate(unions), [len(members) for members in unions]
        counts, strata = self.subcluster_sizes(sizes), self.strata[index]
        log_shares = np.hstack([log_of_shares(counts[:, list(members)]) for members in unions])
        starts, union_of = np.cumsum([0, *lengths[:-1]]), np.repeat(np.arange(len(unions)), lengths)
        result = np.empty((len(index), len(unions)), np.float32)
        with np.errstate(divide="ignore"):  # none of the members may occur in the batch
            for stratum in np.flatnonzero(np.bincount(strata)):
                inside = np.flatnonzero(strata == stratum)
                z = self.features[index[inside]] @ self.weights[stratum, columns].T
                z += self.bias[stratum, columns] + log_shares[stratum % self.n_batches]
                top = np.maximum.reduceat(z, starts, axis=1)
                top = np.maximum(top, np.finfo(np.float32).min)  # −∞ − −∞ would be no number
                total = np.add.reduceat(np.exp(z - top[:, union_of]), starts, 1, np.float64)
                result[inside] = top + np.log(total)
        return result

    def some(self, index: Index | slice) -> "HeldoutScores":
        """Return the scores of some of the observations, in their order."""
        return replace(self, **self._rows_at(index))

    def _rows_at(self, index: Index | slice) -> dict[str, Any]:
        """The fields with one entry for each observation, of some of them."""
        names = ("features", "clusters", "folds", "rows", "batches", "groups")
        fields = {name: getattr(self, name) for name in names}
        return {name: of[index] for name, of in fields.items() if of is not None}

    def subcluster_sizes(self, sizes: Index) -> Index:
        """Sizes of the clusters in each batch, shape (B, k); without batches, ``sizes`` itself."""
        return sizes[None] if self.subclusters is None else self.subclusters

    @property
    def by_content(self) -> Index:
        """The observations in an order that neither the order of rows nor names change."""
        return np.argsort(self.features.sum(axis=1), kind="stable")

    def order_of_appearance(self) -> Index:
        """The clusters in the order in which they first appear in the data, shape (k,)."""
        if len(self.rows) == 0:
            raise nothing_held_out()
        first = np.full(self.n_clusters, np.iinfo(np.int64).max)
        np.minimum.at(first, self.clusters, self.rows)
        # Clusters without held-out observations have no first row; their weights order them, which
        # do not depend on names either.
        return np.lexsort((*self.bias[::-1], first))

    def renamed(self, new_index: Index) -> "HeldoutScores":
        """Return the same scores with cluster c renamed to ``new_index[c]``."""
        old_index = np.argsort(new_index)
        clusters = new_index[self.clusters]
        order = np.lexsort((clusters, self.strata))
        return replace(
            self,
            **self._rows_at(order) | {"clusters": clusters[order]},
            weights=self.weights[:, old_index],
            bias=self.bias[:, old_index],
            subclusters=None if self.subclusters is None else self.subclusters[:, old_index],
        )


class ScoreCounts(HeldoutScores):
    """What is left of the scores in a file without them: how many observations were held out.

    Everything else about the scores is an error that says how to keep them.

    Parameters
    ----------
    counts : ndarray of shape (S, k)
        Number of held-out observations of each cluster in each stratum.
    n_folds : int
        Number of networks, K.
    subclusters : ndarray of shape (B, k), optional
        Number of observations of each cluster in each batch, held out or not.

    Examples
    --------
    >>> scores = ScoreCounts(np.array([[3, 4], [2, 4]]), n_folds=2)
    >>> scores.n_folds, scores.n_clusters
    (2, 2)
    >>> scores.features
    Traceback (most recent call last):
    ...
    unsplit.errors.InputError: these distances were saved without the held-out scores, ...
    """

    def __init__(self, counts: Index, n_folds: int, subclusters: Index | None = None) -> None:
        # Not the fields of a HeldoutScores, which are missing.
        self.__dict__.update(counts=counts, _n_folds=n_folds, subclusters=subclusters)

    @property
    def n_folds(self) -> int:
        """Number of networks, K."""
        return int(self.__dict__["_n_folds"])

    @property
    def n_clusters(self) -> int:
        """Number of clusters, k."""
        return self.counts.shape[1]

    def renamed(self, new_index: Index) -> "ScoreCounts":
        """Return the same counts with cluster c renamed to ``new_index[c]``."""
        old = np.argsort(new_index)
        subclusters = None if self.subclusters is None else self.subclusters[:, old]
        return ScoreCounts(self.counts[:, old], self.n_folds, subclusters)

    def __getattr__(self, name: str) -> Any:
        if name in ("features", "weights", "bias", "clusters", "folds", "rows"):
            raise InputError(
                "these distances were saved without the held-out scores, which merging and other "
                "divergences need; save them with save(path, scores=True), or run the command with "
                "--also scores, and keep both files together."
            )
        raise AttributeError(name)


def log_of_shares(sizes: NDArray[np.generic]) -> Floats:
    """Logarithm of each size's share of the sum of its row; −∞ for size 0.

    Examples
    --------
    >>> log_of_shares(np.array([[1, 1], [0, 3]]))
    array([[-0.6931472, -0.6931472],
           [      -inf,  0.       ]], dtype=float32)
    """
    with np.errstate(divide="ignore"):
        return np.log(sizes / np.maximum(sizes.sum(axis=1, keepdims=True), 1)).astype(np.float32)
