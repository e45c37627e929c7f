"""Held-out scores of all observations for all clusters, and the divergences computed from them.

A margin is the score of an observation for its own cluster minus its score for another cluster;
it estimates a log density ratio.  The mean of a function of the margin over the held-out
observations of two clusters, both with weight one half, is therefore an f-divergence of the pair.
All results are symmetric (k, k) arrays in [0, 1] with a zero diagonal.

A cluster without held-out observations counts as if every margin were zero: there is no evidence
either way.

With batches, pairs are compared within each batch in which both clusters have held-out
observations, and the results are averaged over these batches.  Pairs without such a batch get the
distance 1.

Torch is imported where scores become tensors: everything else about an estimate can be loaded and
used without it.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unsplit._typing import Index, Matrix
from unsplit.devices import ALONE, BLOCK_ELEMENTS, Ranks, device_for_sums, usual_settings
from unsplit.errors import InputError
from unsplit.pairwise import statistics as stats

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Floats = NDArray[np.float32]

# Numbers that are whole or half are added without rounding in single precision below this.
LARGEST_EXACT = 2**22


class Divergence(NamedTuple):
    """A distance of two clusters; if it is none of the margins, :func:`divergence` computes it.

    It must lie in [0, 1]: 0 if all margins are 0, 1 if all are infinite.

    Parameters
    ----------
    caption : str
        What it is called in figures and on the page.
    of_margin : callable, optional
        The function of the margin.
    from_mean : callable
        How the divergence follows from its balanced mean.
    """

    caption: str
    of_margin: "Callable[[Tensor], Tensor] | None" = None
    from_mean: Callable[[Matrix], Matrix] = np.asarray


def hit(margin: "Tensor") -> "Tensor":
    """1 if the own cluster has the higher score, 1/2 for a tie: the mean is balanced accuracy."""
    return (margin > 0).float() + (margin == 0).float() / 2


def _log2_sigmoid(margin: "Tensor") -> "Tensor":
    from torch.nn import functional as F

    return F.logsigmoid(margin) / math.log(2)


DIVERGENCES = {
    # Total variation: sup |P(Z) − Q(Z)|.
    "tv": Divergence("total variation distance", hit, lambda mean: 2 * mean - 1),
    # Le Cam / triangular: ½∫(p − q)²/(p + q), from soft accuracy.
    "lecam": Divergence("Le Cam distance", lambda m: m.sigmoid(), lambda mean: 2 * mean - 1),
    # Jensen–Shannon in bits, from the logistic loss.
    "js": Divergence("Jensen–Shannon divergence", _log2_sigmoid, lambda mean: 1 + mean),
    # Hellinger: √(1 − ∫√(pq)); bounded terms, since √(pq)/((p+q)/2) = sech of half the log ratio.
    "hellinger": Divergence(
        "Hellinger distance",
        lambda margin: 1 / (margin / 2).cosh(),
        lambda mean: np.sqrt(np.clip(1 - mean, 0, 1)),
    ),
    "overlap": Divergence("overlap"),
    "auc": Divergence("how well the network tells them apart"),
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
    def of(
        self, rows: "slice | Tensor", clusters: "slice | Tensor", out: "Tensor | None" = None
    ) -> "Tensor":
        """Compute the scores of some rows for some clusters, where memory may be reused."""
        import torch

        weights = self.weights[clusters].T
        return torch.addmm(self.bias[clusters], self.features[rows], weights, out=out)

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
    batch_sizes : ndarray of shape (B, k), optional
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
    batch_sizes: Index | None = None
    groups: Index | None = None

    @property
    def n_batches(self) -> int:
        """Number of batches, B; 1 without batches."""
        return 1 if self.batch_sizes is None else len(self.batch_sizes)

    @cached_property
    def n_folds(self) -> int:
        """Number of networks, K."""
        return len(self.bias) // self.n_batches

    @cached_property
    def strata(self) -> Index:
        """Stratum of each held-out observation, shape (m,)."""
        return self.folds if self.batches is None else self.folds * self.n_batches + self.batches

    @cached_property
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

    def dense(self, order: Literal["C", "F"] = "C") -> Floats:
        """All scores as one array, shape (m, k); "F" puts those for one cluster side by side."""
        z, done = np.empty((len(self.rows), self.n_clusters), np.float32, order), 0
        for block, _ in self.blocks():
            z[done : done + len(block)] = block.numpy()
            done += len(block)
        return z

    def composed(self, index: Index, unions: Sequence[Sequence[int]], sizes: Index) -> Floats:
        """Scores of held-out observations for unions of clusters, shape (len(index), unions).

        The density of a union is the mixture of its members' densities, so its score follows from
        theirs without training: the logarithm of the mean of their exponentials, weighted by size.
        """
        columns, lengths = np.concatenate(unions), [len(members) for members in unions]
        starts, union_of = np.cumsum([0, *lengths[:-1]]), np.repeat(np.arange(len(unions)), lengths)
        counts = self.sizes_in_batches(sizes)[:, columns]
        totals = np.maximum(np.add.reduceat(counts, starts, axis=1), 1)[:, union_of]
        features, weights = self.features[index], self.weights[:, columns].transpose(0, 2, 1)
        z = np.empty((len(index), len(columns)), np.float32)
        ends = np.searchsorted(self.strata[index], np.arange(len(self.bias) + 1)).tolist()
        with np.errstate(divide="ignore"):  # none of the members may occur in the batch
            log_shares = np.log(counts / totals).astype(np.float32)
            bias = self.bias[:, columns] + log_shares[np.arange(len(self.bias)) % len(counts)]
            for (start, stop), weight, offset in zip(pairwise(ends), weights, bias, strict=True):
                if start < stop:
                    z[start:stop] = features[start:stop] @ weight + offset
            if len(columns) == len(unions):  # nothing to add up
                return z
            top = np.maximum.reduceat(z, starts, axis=1)
            top = np.maximum(top, np.finfo(np.float32).min)  # −∞ − −∞ would be no number
            total = np.add.reduceat(np.exp(z - top[:, union_of]), starts, 1, np.float64)
            return (top + np.log(total)).astype(np.float32)

    def some(self, index: Index | slice) -> "HeldoutScores":
        """Return the scores of some of the observations, in their order."""
        return replace(self, **self._rows_at(index))

    def _rows_at(self, index: Index | slice) -> dict[str, Any]:
        """The fields with one entry for each observation, of some of them."""
        names = ("features", "clusters", "folds", "rows", "batches", "groups")
        fields = {name: getattr(self, name) for name in names}
        return {name: of[index] for name, of in fields.items() if of is not None}

    def sizes_in_batches(self, sizes: Index) -> Index:
        """Sizes of the clusters in each batch, shape (B, k); without batches, ``sizes`` itself."""
        return sizes[None] if self.batch_sizes is None else self.batch_sizes

    @property
    def are_few(self) -> bool:
        """Whether there are so few scores that one thread should add them up."""
        return int(self.counts.sum()) * self.n_clusters <= BLOCK_ELEMENTS

    @property
    def by_content(self) -> Index:
        """The observations in an order that neither the order of rows nor names change."""
        return np.argsort(self.features.sum(axis=1), kind="stable")

    def clusters_by_content(self) -> Index:
        """The clusters in an order that neither the order of rows nor names change, shape (k,)."""
        least = np.full(self.n_clusters, np.inf)
        np.minimum.at(least, self.clusters, self.features.sum(axis=1))
        # Those that share this observation, or have none, are ordered by their weights.
        return np.lexsort((*self.bias[::-1], least))

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
            batch_sizes=None if self.batch_sizes is None else self.batch_sizes[:, old_index],
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
    batch_sizes : ndarray of shape (B, k), optional
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

    def __init__(self, counts: Index, n_folds: int, batch_sizes: Index | None = None) -> None:
        # Not the fields of a HeldoutScores, which are missing.
        known = {"counts": counts, "n_folds": n_folds, "n_clusters": counts.shape[1]}
        self.__dict__.update(known, batch_sizes=batch_sizes)

    def renamed(self, new_index: Index) -> "ScoreCounts":
        """Return the same counts with cluster c renamed to ``new_index[c]``."""
        old = np.argsort(new_index)
        batch_sizes = None if self.batch_sizes is None else self.batch_sizes[:, old]
        return ScoreCounts(self.counts[:, old], self.n_folds, batch_sizes)

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


# --- divergences --------------------------------------------------------------------------------


def divergence(scores: HeldoutScores, name: str) -> Matrix:
    """Compute one divergence for every pair of clusters."""
    _, of_margin, from_mean = DIVERGENCES[name]
    if of_margin is not None:
        directed = directed_means(scores, of_margin)
        return _as_distance(from_mean((directed + directed.T) / 2))
    if name == "overlap":
        of_batches = (1 - _cosine(inner) for inner in inner_products(scores))
        return _as_distance(mean_over_batches(scores, of_batches, 1.0))
    n_pairs = np.einsum("fi,fj->ij", scores.counts, scores.counts).astype(float)
    # Without batches, a cluster without held-out observations counts as a coin toss.
    unknown = 0.5 if scores.batch_sizes is None else 1.0
    area = np.where(n_pairs > 0, rank_sums(scores) / np.maximum(n_pairs, 1), unknown)
    return _as_distance(2 * area - 1)


def directed_means(
    scores: HeldoutScores, function: "Callable[[Tensor], Tensor]", ranks: Ranks = ALONE
) -> Matrix:
    """Average function(z_i − z_j) over the held-out observations of cluster i, at [i, j].

    Of several ``ranks``, each takes a part of the observations.
    """
    import torch

    same, different = function(torch.tensor([0.0, math.inf], device="cpu")).tolist()
    means = mean_over_batches(scores, _means(scores, function, same, ranks), different)
    np.fill_diagonal(means, same)
    return means


def mean_over_batches(
    scores: HeldoutScores, of_batches: Iterable[Matrix], unknown: float
) -> Matrix:
    """Average (k, k) matrices of the batches; ``unknown`` for pairs that share no batch."""
    if scores.batch_sizes is None:
        return next(iter(of_batches))
    k = scores.n_clusters
    total, weight = np.zeros((k, k)), np.zeros((k, k))
    for counts, of_batch in zip(scores.batch_counts, of_batches, strict=True):
        weights = stats.pair_weights(counts)
        total += weights * of_batch
        weight += weights
    return np.divide(total, weight, out=np.full((k, k), unknown), where=weight > 0)


def _means(
    scores: HeldoutScores, function: "Callable[[Tensor], Tensor]", nothing: float, ranks: Ranks
) -> Iterator[Matrix]:
    """Yield :func:`directed_means` of each batch; ``nothing`` where nothing was held out."""
    import torch

    k, device = scores.n_clusters, device_for_sums()
    part = scores if ranks.size == 1 else scores.some(ranks.part(len(scores.rows)))
    for batch, counts in enumerate(scores.batch_counts):
        # Sums of halves are exact in single precision up to here, in half of the memory.
        exact = function is hit and counts.max(initial=0) < LARGEST_EXACT
        kind = torch.float32 if exact else torch.float64
        sums = torch.zeros(k, k, dtype=kind, device=device)
        for block, clusters in part.blocks(device, batch):
            own = block.gather(1, clusters[:, None])
            # Rows are ordered by cluster, so runs can be summed: unlike index_add, this gives the
            # same sums every time, also on a GPU.
            present, lengths = torch.unique_consecutive(clusters, return_counts=True)
            sums[present] += torch.segment_reduce(function(own - block), "sum", lengths=lengths)
        sums = ranks.sum(sums)
        means = np.divide(sums.cpu().numpy(), np.maximum(counts, 1)[:, None], dtype=np.float64)
        means[counts == 0] = nothing
        yield means


def inner_products(scores: HeldoutScores) -> Iterator[Matrix]:
    """Yield for each batch the inner products ⟨p_i, p_j⟩ of the densities.

    They are estimated from all held-out observations, not only those of clusters i and j: with π
    the softmax of the scores, as the mean of π_i π_j, in which every cluster has the same weight.
    """
    import torch

    k, device = scores.n_clusters, device_for_sums()
    for batch, counts in enumerate(torch.from_numpy(scores.batch_counts).to(device)):
        total = torch.zeros(k, k, dtype=torch.float64, device=device)
        for block, clusters in scores.blocks(device, batch):
            share = torch.softmax(block, dim=1)
            total += (share / counts[clusters][:, None]).T @ share
        yield total.cpu().numpy()


def _cosine(inner: Matrix) -> Matrix:
    length = np.sqrt(np.maximum(np.diag(inner), np.finfo(float).tiny))
    return inner / length / length[:, None]


def _as_distance(values: Matrix) -> Matrix:
    values = np.clip((values + values.T) / 2, 0.0, 1.0)
    np.fill_diagonal(values, 0.0)
    return values


def p_values(scores: HeldoutScores) -> Matrix:
    """Test every pair for "same distribution"; small clusters are compared across folds."""
    counts, n_folds = scores.counts, scores.n_folds
    small = stats.across_folds(counts.sum(axis=0), len(counts), n_folds)
    return stats.rank_sum_p_value(rank_sums(scores, small), counts, n_folds)


def rank_sums(scores: HeldoutScores, small: NDArray[np.bool_] | None = None) -> Matrix:
    """Compute the Mann–Whitney U of every pair (i, j), summed over the strata.

    Within a stratum, observations of i are compared with observations of j by the score
    difference z_i − z_j.  U counts how often that of i is higher; a tie counts one half.

    Clusters that are ``small`` are compared with each other across all strata.
    """
    import torch

    k, device = scores.n_clusters, device_for_sums()
    small = np.zeros(k, bool) if small is None else small
    # Small clusters come last, so that each pair is counted once, from the first of the two.  Equal
    # rows may differ in the last digit, which depends on their place, and this not on names.
    by_content, n_large = scores.clusters_by_content(), k - int(small.sum())
    place = np.argsort(by_content[np.argsort(small[by_content], kind="stable")])
    strata = list(scores.renamed(place).on(device))
    U = torch.zeros(k, k, dtype=torch.float64, device=device)
    clusters = torch.arange(k, device=device)
    for stratum in strata if n_large else []:
        _add_rank_sums(U, [stratum], clusters[:n_large])
    if strata and n_large < k:
        _add_rank_sums(U, strata, clusters[n_large:])
    return (U.triu() + U.triu(1).T).cpu().numpy()[np.ix_(place, place)]


def _add_rank_sums(U: "Tensor", strata: list[StratumScores], clusters: "Tensor") -> None:
    """Add U between ``clusters`` and those after them, observations compared across the strata."""
    import torch

    own = [torch.cat([z.gather(1, c[:, None])[:, 0] for z, c in s.blocks()]) for s in strata]
    step = max(1, BLOCK_ELEMENTS // (8 * max(len(U), sum(len(part) for part in own))))
    for some in clusters.split(step):
        first = int(some[0])
        U[some, first:] += _rank_sums_of(strata, own, some, first)


def _rank_sums_of(
    strata: list[StratumScores], own: "list[Tensor]", some: "Tensor", first: int
) -> "Tensor":
    """Compute U between the clusters ``some`` and all clusters from ``first`` on."""
    import torch

    k, n_some, device = len(strata[0].bias) - first, len(some), some.device
    clusters, local, below, above = [], [], [], []
    for stratum, z in zip(strata, own, strict=True):
        mine = torch.isin(stratum.clusters, some).nonzero()[:, 0]
        others = slice(int(torch.searchsorted(stratum.clusters, first)), None)
        clusters.append(stratum.clusters[others] - first)
        local.append(torch.searchsorted(some, stratum.clusters[mine]))
        # z_i − z_j for i in some: of the observations of j (below), and of those of i (above).
        below.append(stratum.of(others, some).T - z[others])
        above.append(z[mine][:, None] - stratum.of(mine, slice(first, None)))
    pair_below = torch.arange(n_some, device=device)[:, None] * k + torch.cat(clusters)
    pair_above = torch.cat(local)[:, None] * k + torch.arange(k, device=device)
    # One integer key orders by pair, then by value, so that one search counts all pairs.
    values = torch.cat([torch.cat(below, dim=1).flatten(), torch.cat(above).flatten()])
    _, rank = torch.unique(values, return_inverse=True)
    key = torch.cat([pair_below.flatten(), pair_above.flatten()]) * len(values) + rank
    key_below, key_above = key.split([pair_below.numel(), pair_above.numel()])
    key_below = key_below.sort().values
    start = torch.searchsorted(key_below, pair_above.flatten() * len(values))
    lower = torch.searchsorted(key_below, key_above) - start
    upper = torch.searchsorted(key_below, key_above, right=True) - start
    # Halves are added without rounding, in any order.
    won = ((lower + upper).double() / 2).view(-1, k)
    result = torch.zeros(n_some, k, dtype=torch.float64, device=device)
    return result.index_add(0, torch.cat(local), won)
