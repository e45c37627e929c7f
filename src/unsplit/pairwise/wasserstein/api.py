"""Lower bounds on the 1-Wasserstein distance between all pairs of clusters.

**The bound.**  W1(P, Q) is the largest E_P f − E_Q f over 1-Lipschitz functions f.  Let φ be a map
that never lengthens a distance, and m_i the mean of φ over cluster i.  For every unit vector u the
function u·φ is 1-Lipschitz.  The best u for a pair points from m_j to m_i and gives |m_i − m_j|.
Trained outputs z_i = w_i·φ could not do better, because (w_i − w_j)/|w_i − w_j| is just another u.
So the cluster means are the best heads for all pairs at once, and only φ has to be learned.

**Many maps.**  One φ cannot serve many pairs.  At any x, the gradients of all u·φ come from one
contraction: in one dimension two of them can be 1 only for the same u, and the best φ for several
clusters tends to be an isometry, which gives only the distance of the means.  Several maps that
are contractions one by one can do more: W1(i, j) ≥ max_b |m_i^b − m_j^b|.  The network has some
dozens of small maps (:class:`LipschitzMaps`).  Each kind of map is trained to raise the mean over
pairs of this maximum; the identity is added without training.  All pairs share all maps.

**Training.**  With the directions u_ij fixed, the sum over pairs is linear in φ(x): members of
cluster i are pushed along Σ_j u_ij.  This linear function touches the true goal from below, so
minibatches have unbiased gradients, and only the cluster means are compared k² times.

**Held-out values.**  The map and direction of a pair are chosen on training rows and evaluated on
held-out rows, so the expected value is at most W1, before it is cut off at zero.  One number per
kind of map comes from the other folds: how much trained maps lose on new rows.  Those folds were
trained on the held-out rows; with few clusters, where this could matter, rows are set aside.

X is centred and divided by one number, and results are multiplied by it, so distances stay
Euclidean and in the unit of X.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from unsplit._typing import Index
from unsplit.data.labels import encode_labels
from unsplit.data.memory import memory_errors
from unsplit.data.rows.base import canonical_order
from unsplit.data.rows.kinds import VectorRows, numeric_matrix
from unsplit.devices import (
    check_seed,
    choose_device,
    generator_of,
    private_randomness,
    usual_settings,
)
from unsplit.errors import check_flag, check_whole
from unsplit.networks.network import OwnNumbers
from unsplit.networks.training.group import Fold
from unsplit.networks.training.loop import mean_of_others, own
from unsplit.pairwise.folds import crossfit_folds, require_folds
from unsplit.pairwise.memory import LESS_DATA
from unsplit.pairwise.statistics import CROSSFIT_VARIANCE, NULL_REACH
from unsplit.pairwise.wasserstein.maps import (
    NO_LENGTH,
    ROWS_AT_ONCE,
    Array,
    ClusterMeans,
    LipschitzMaps,
    train,
)
from unsplit.pairwise.wasserstein.result import PairwiseWasserstein


@usual_settings()
def pairwise_wasserstein(
    X: ArrayLike,
    labels: ArrayLike,
    *,
    cv: int = 5,
    epochs: int = 10,
    n_maps: int = 16,
    device: str | torch.device = "auto",
    random_state: int | np.random.Generator | np.random.RandomState | None = None,
    progress: bool = False,
) -> PairwiseWasserstein:
    """Estimate lower bounds on the 1-Wasserstein distance between all pairs of clusters.

    One network serves all pairs.  Distances are Euclidean and in the unit of X: features are not
    standardised.

    Parameters
    ----------
    X : array-like or SciPy sparse matrix of shape (n, d)
        Vectors; a sparse matrix is made dense.
    labels : array-like of shape (n,)
        The clusters: integers or strings; −1 and missing values mean noise and are left out.
    cv : int
        Folds of cross-fitting: every observation is evaluated by functions that were trained
        without it.
    epochs : int
        Passes over the training rows, of at least ten steps each.
    n_maps : int
        Number of maps of each kind; all pairs share them.
    device : str or torch.device
        "auto" uses CUDA if it is available, else MPS, else the CPU.
    random_state : int, Generator, RandomState or None
        The same seed gives the same result, whatever the order of the rows and the names of the
        clusters.  The global random state is not changed.
    progress : bool
        Show a progress bar.

    Returns
    -------
    PairwiseWasserstein
        Distances and standard errors; can be saved, made a data frame, and merged.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.standard_normal((100, 2)) + shift for shift in (0, 0, 3)])
    >>> labels = np.repeat(["a", "b", "c"], 100)
    >>> result = pairwise_wasserstein(X, labels, epochs=5, random_state=0)
    >>> np.abs(result.distance - 3 * np.sqrt(2) * np.array([[0, 0, 1], [0, 0, 1], [1, 1, 0]])) < 0.5
    array([[ True,  True,  True],
           [ True,  True,  True],
           [ True,  True,  True]])
    """
    check_whole("cv", cv, 2, "5 is usual")
    check_whole("epochs", epochs, 1)
    check_whole("n_maps", n_maps, 1)
    check_flag("progress", progress)
    check_seed(random_state)
    where = choose_device(device)
    values = numeric_matrix(X)
    with memory_errors("making X dense", LESS_DATA):
        values = values if isinstance(values, np.ndarray) else values.toarray()
    encoded = encode_labels(labels, len(values))
    require_folds(cv, encoded.clusters)
    keys = VectorRows(values, torch.device("cpu")).keys
    order, renumbered = canonical_order(keys, encoded.clusters)
    clusters, k = renumbered[order], len(encoded.cluster_ids)
    # Rows with mean zero and mean squared length one, and the length that is now one.
    centred = values[order].astype(np.float64)
    centred -= centred.mean(axis=0)
    scale = float(np.sqrt(np.einsum("ij,ij->", centred, centred) / len(centred))) or 1.0
    x = torch.from_numpy((centred / scale).astype(np.float32)).to(where)
    rng = generator_of(random_state)
    folds = crossfit_folds(clusters, cv, rng)
    seed = int(rng.integers(2**63))
    with memory_errors("comparing the clusters", LESS_DATA), private_randomness(seed):
        with OwnNumbers():
            maps = LipschitzMaps(len(folds), n_maps, x.shape[1]).to(where)
        means, history = train(maps, x, clusters, folds, epochs, rng, progress)
        choice = choose_maps(maps, x, clusters, folds, means)
        sums = heldout_sums(maps, x, clusters, folds, means, choice)
    # Back to the order of the names.
    number = np.empty(k, np.int64)
    number[encoded.clusters[order]] = clusters
    value, stderr = (scale * part[np.ix_(number, number)] for part in combine_folds(*sums))
    return PairwiseWasserstein(
        cluster_ids=encoded.cluster_ids,
        sizes=np.bincount(encoded.clusters[encoded.clusters >= 0]),
        distance=np.maximum(value, 0.0),
        stderr=stderr,
        n_heldout=sums[2].sum(axis=0)[number],
        history=scale * history,
    )


# --- held-out values ------------------------------------------------------------------------------


def choose_maps(
    maps: LipschitzMaps, x: Tensor, clusters: Index, folds: Sequence[Fold], means: ClusterMeans
) -> Index:
    """Which map to use for each pair in each fold, shape (K, k, k); 0 is the identity.

    Trained maps look better on training rows than they are, wide maps most of all.  So a map is
    used only if its gain over the identity on training rows is larger than what the best maps of
    its kind lose, on average over pairs, on new rows: the rows of the other folds, or rows that
    were set aside.
    """
    k = means.n_clusters
    validated = ClusterMeans.of(maps, x, clusters, [f.watch for f in folds])
    judge = mean_of_others if all(fold.watches_test for fold in folds) else own
    chosen, best_gain = np.zeros((len(folds), k, k), np.int64), np.zeros((len(folds), k, k))
    for kind in means.kinds():
        longest, gain, lost = _best_of_kind(kind, means, validated)
        gain -= judge(lost)[:, None, None]
        better = gain > best_gain  # False where the loss is unknown (NaN)
        chosen[better], best_gain[better] = longest[better], gain[better]
    chosen = np.triu(chosen, 1)
    return chosen + chosen.swapaxes(1, 2)  # ties must not be broken differently for [j, i]


def _best_of_kind(
    kind: Index, means: ClusterMeans, validated: ClusterMeans
) -> tuple[Index, Array, Array]:
    """The map of a kind that moves each pair furthest apart, and its gain over the identity.

    Both have shape (K, k, k).  The third result, of shape (K,), is how much of that gain is lost on
    the validation rows, on average over pairs; NaN where there are none.
    """
    n_folds, k = len(means.raw), means.n_clusters
    best, gain = np.empty((n_folds, k, k), np.int64), np.empty((n_folds, k, k))
    seen, lost = validated.counts > 0, np.zeros(n_folds)
    for rows in means.parts():
        length = means.lengths(rows)
        validated_length = means.products(validated, rows) / np.maximum(length, NO_LENGTH)
        longest = kind[length[:, kind].argmax(axis=1)]
        gained, kept = (
            np.take_along_axis(part, longest[:, None], 1)[:, 0] - part[:, 0]
            for part in (length, validated_length)
        )
        lost += ((gained - kept) * (seen[:, rows, None] & seen[:, None])).sum(axis=(1, 2))
        best[:, rows], gain[:, rows] = longest, gained
    n_seen = seen.sum(axis=1)
    return best, gain, lost / np.where(n_seen > 1, n_seen * (n_seen - 1), np.nan)


@torch.no_grad()
def heldout_sums(
    maps: LipschitzMaps,
    x: Tensor,
    clusters: Index,
    folds: Sequence[Fold],
    means: ClusterMeans,
    choice: Index,
) -> tuple[Array, Array, Index]:
    """Sums over held-out rows of the functions f_ij of all pairs.

    f_ij is zero halfway between the training means, and f_ji = −f_ij.

    Returns
    -------
    first : ndarray of shape (K, k, k)
        At [i, j], the sum of f_ij over the held-out rows of cluster i in each fold.
    second : ndarray of shape (k, k)
        At [i, j], the sum of its square over all folds.
    counts : ndarray of shape (K, k)
        Held-out rows.
    """
    k, fold_of = means.n_clusters, np.full(len(clusters), -1)
    for f, fold in enumerate(folds):
        fold_of[fold.test] = f
    first, second = np.zeros((len(folds), k, k)), np.zeros((k, k))
    counts = np.stack([np.bincount(clusters[f.test], minlength=k) for f in folds])
    for i in range(k):
        members = torch.from_numpy(np.flatnonzero((clusters == i) & (fold_of >= 0)))
        for part in members.split(ROWS_AT_ONCE):
            rows = x[part.to(x.device)]
            raw, mapped = (t.cpu().double().numpy() for t in (rows, maps(rows[None])))
            for f in np.unique(fold_of[part]):
                at = fold_of[part] == f
                values = _values(raw[at], mapped[f][:, at], means, choice[f, i], (int(f), i))
                first[f, i] += values.sum(axis=0)
                second[i] += np.square(values).sum(axis=0)
    return first, second, counts


def _values(
    raw: Array, mapped: Array, means: ClusterMeans, choice: Index, at: tuple[int, int]
) -> Array:
    """f_ij of some rows for all j, shape (n, k); ``at`` is the fold, whose model is used, and i."""
    f, i = at
    mine, others = means.mapped[f, choice, i], means.mapped[f, choice, np.arange(len(choice))]
    along = means.keeps[choice, None] * (means.raw[f, i] - means.raw[f])
    across = means.signs[choice] * (mine - others)
    lengths = (along * (means.raw[f, i] - means.raw[f])).sum(1) + (across * (mine - others)).sum(1)
    doubled = (along * (means.raw[f, i] + means.raw[f])).sum(1) + (across * (mine + others)).sum(1)
    values = raw @ along.T - doubled / 2
    for b in np.unique(choice[choice > 0]):
        j = np.flatnonzero(choice == b)
        values[:, j] += mapped[b - 1] @ across[j].T
    return values / np.maximum(np.sqrt(np.maximum(lengths, 0.0)), NO_LENGTH)


def combine_folds(first: Array, second: Array, counts: Index) -> tuple[Array, Array]:
    """Bounds and their standard errors, (k, k), from what :func:`heldout_sums` gives.

    Both clusters of a pair have the same weight in a fold, n_i n_j / (n_i + n_j), because functions
    of different folds differ by constants.  Errors are widened as those of TVDs are, since folds
    share training data (docs/statistics.md).
    """
    n = counts[:, :, None].astype(float)
    other = n.swapaxes(1, 2)
    weight = n * other / np.maximum(n + other, 1.0)
    side, total = first / np.maximum(n, 1.0), weight.sum(axis=0)
    known = total > 0
    total = np.maximum(total, 0.25)
    value = (weight * (side + side.swapaxes(1, 2))).sum(axis=0) / total
    size = np.maximum(n.sum(axis=0), 2.0)
    spread = np.maximum(second - first.sum(axis=0) ** 2 / size, 0.0) / (size - 1)
    variance = spread * (weight**2 / np.maximum(n, 1.0)).sum(axis=0) / total**2
    stderr = np.sqrt(variance + variance.T)
    z = value / np.maximum(stderr, NO_LENGTH)
    stderr *= np.sqrt(1 + (CROSSFIT_VARIANCE - 1) * np.exp(-0.5 * (z / NULL_REACH) ** 2))
    stderr[~known] = np.inf
    np.fill_diagonal(stderr, 0.0)
    return value, stderr
