"""Evidence from held-out scores about two clusters, also after merges."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from unsplit._typing import Index
from unsplit.devices import available_memory, require_memory
from unsplit.merging.contrast import Contrast
from unsplit.pairwise.result import PairwiseTVD
from unsplit.pairwise.scores import HeldoutScores, log_of_shares

# Of four bytes each.  Fixed, so that results do not depend on the memory of the machine.
MOST_SCORES = 2**28


class Evidence(Protocol):
    """Compares two clusters, also after merges."""

    def merge(self, a: int, b: int) -> Sequence[int]:
        """Merge b into a."""

    def contrast(self, a: int, b: int) -> Contrast:
        """Compare two slots by their scores."""

    def known_p_value(self, a: int, b: int) -> float | None:
        """p-value of "same distribution" if it is known already; otherwise None."""


class Mixtures:
    """Evidence from one estimate, computed when it is needed.

    A merged cluster is the mixture of its members.  This needs no memory, but time for every
    member of the two clusters.

    Parameters
    ----------
    result : PairwiseTVD
        The estimate.
    lookup : bool
        Whether p-values of initial clusters are taken from the result, which is faster if most
        pairs are compared.
    """

    def __init__(self, result: PairwiseTVD, lookup: bool = True) -> None:
        self.result = result
        self.lookup = lookup
        self.slot = result.scores.clusters.copy()
        self.members = [[slot] for slot in range(result.n_clusters)]

    def merge(self, a: int, b: int) -> Sequence[int]:
        """Add the members of b to a."""
        self.members[a] += self.members[b]
        self.slot[self.slot == b] = a
        return (a,)

    def contrast(self, a: int, b: int) -> Contrast:
        """Score differences between the two mixtures."""
        scores, sizes = self.result.scores, self.result.sizes
        index = np.flatnonzero((self.slot == a) | (self.slot == b))
        z_a, z_b = (scores.composed(index, self.members[slot], sizes) for slot in (a, b))
        difference = (z_a - z_b).astype(np.float64)
        return _contrast(scores, difference, self.slot[index] == a, scores.strata[index])

    def known_p_value(self, a: int, b: int) -> float | None:
        """From the result, if ``lookup`` is set and neither cluster has changed."""
        if self.lookup and len(self.members[a]) == len(self.members[b]) == 1:
            return float(self.result.p_value[a, b])
        return None


def evidence_of(result: PairwiseTVD, lookup: bool) -> Evidence:
    """The faster kind of evidence if it needs at most a gibibyte, otherwise the smaller one."""
    few = len(result.scores.rows) * result.n_clusters <= MOST_SCORES
    return Columns(result, lookup) if few else Mixtures(result, lookup)


class Columns:
    """Evidence from one estimate, with the scores of all observations kept: O(n) per merge.

    Parameters
    ----------
    result : PairwiseTVD
        The estimate.
    lookup : bool
        As for :class:`Mixtures`.
    """

    def __init__(self, result: PairwiseTVD, lookup: bool = True) -> None:
        scores, k = result.scores, result.n_clusters
        require_memory(
            5 * len(scores.rows) * k,
            available_memory(),
            f"composing the scores of {len(scores.rows):,} observations for {k:,} clusters",
            'use strategy="linkage", which needs only the matrix',
        )
        self.result = result
        self.lookup = lookup
        # Sorted by row, not by cluster, so that sums do not depend on the names of the clusters.
        order = np.argsort(scores.rows, kind="stable")
        self.z = _columns(scores, order)
        self.slot = scores.clusters[order].copy()
        self.strata = scores.strata[order]
        self.batch = self.strata % scores.n_batches
        # By batch; a single row if there are no batches.
        self.sizes = scores.subcluster_sizes(result.sizes).astype(float)

    def merge(self, a: int, b: int) -> Sequence[int]:
        """Compose the score columns of the two."""
        of_batches = log_of_shares(self.sizes[:, [a, b]])
        log_shares = (of_batches if len(of_batches) == 1 else of_batches[self.batch]).T
        self.z[:, a] = np.logaddexp(self.z[:, a] + log_shares[0], self.z[:, b] + log_shares[1])
        self.sizes[:, a] += self.sizes[:, b]
        self.slot[self.slot == b] = a
        return (a,)

    def contrast(self, a: int, b: int) -> Contrast:
        """Score differences between the two."""
        index = np.flatnonzero((self.slot == a) | (self.slot == b))
        difference = (self.z[index, a] - self.z[index, b]).astype(np.float64)
        of_a, strata = self.slot[index] == a, self.strata[index]
        return _contrast(self.result.scores, difference, of_a, strata)

    def known_p_value(self, a: int, b: int) -> float | None:
        """From the result, if ``lookup`` is set and neither cluster has changed."""
        if not self.lookup:
            return None
        unchanged = self.sizes[:, [a, b]].sum(axis=0) == self.result.sizes[[a, b]]
        return float(self.result.p_value[a, b]) if unchanged.all() else None


def _columns(scores: HeldoutScores, order: Index) -> NDArray[np.float32]:
    """All scores with rows in this order, in column-major memory, without a copy."""
    z = np.empty((len(order), scores.n_clusters), np.float32, order="F")
    place, done = np.argsort(order), 0
    for block, _ in scores.blocks():
        z[place[done : done + len(block)]] = block.numpy()
        done += len(block)
    return z


def _contrast(
    scores: HeldoutScores,
    difference: NDArray[np.float64],
    of_a: NDArray[np.bool_],
    strata: Index,
) -> Contrast:
    n_strata, n_batches = len(scores.bias), scores.n_batches
    return Contrast.within_batches(difference, of_a, strata, n_strata, n_batches)
