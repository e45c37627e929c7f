"""Lower bounds on the 1-Wasserstein distance between all pairs of clusters.

**The bound.**  W1(P, Q) is the largest E_P f − E_Q f over 1-Lipschitz functions f.  Let φ be a map
that never lengthens a distance, and m_i the mean of φ over cluster i.  For every unit vector u the
function u·φ is 1-Lipschitz; the best u for a pair points from m_j to m_i, and gives |m_i − m_j|.
Outputs z_i = w_i·φ could not do better, as (w_i − w_j)/|w_i − w_j| is but another u: class means
are the best heads for all pairs at once, and nothing but φ has to be learned.

**Many maps.**  One φ cannot serve many pairs.  At any x, the gradients of all u·φ come from one
contraction: in one dimension two of them can be 1 only for the same u, and the best φ for several
clusters tends to be an isometry, which gives no more than the distance of means.  Maps that need
not be contractions *together* can: W1(i, j) ≥ max_b |m_i^b − m_j^b|.  The network has some dozens
of small ones (:class:`unsplit.lipschitz.FoldingMaps`), trained for the mean over pairs of this
maximum, and the identity beside them.  What the restriction costs is that pairs share maps.

**Training.**  With the directions u_ij held, the sum over pairs is linear in φ(x): members of
cluster i are pushed along Σ_j u_ij.  It touches the true goal from below, so batches have unbiased
gradients and every epoch raises the goal; k² is met between class means only.

**Honesty.**  Map and direction of a pair are chosen on training rows and valued on rows held out,
so the expected value is at most W1.  On its training rows a trained map looks better than it is,
and more so than the identity; how much more, in the mean over pairs, is seen on the other folds,
or on rows set aside (:func:`unsplit.sampling.crossfit_folds`), and taken off before the choice.

X is centred and divided by one number, which is given back: the metric stays Euclidean.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from unsplit.data.arrays import VectorRows, numeric_matrix
from unsplit.devices import choose_device
from unsplit.errors import InputError
from unsplit.estimation import canonical_order
from unsplit.labels import encode_labels
from unsplit.lipschitz import FoldingMaps
from unsplit.potentials import NO_LENGTH, ROWS_AT_ONCE, Array, ClassMeans, choose_maps, train
from unsplit.randomness import generator_of, private_randomness
from unsplit.sampling import Fold, Index, crossfit_folds
from unsplit.stats import CROSSFIT_VARIANCE, NULL_REACH

# Maps: the most, and for each pair where there are few pairs; and layers of each.
MOST_MAPS = 32
MAPS_PER_PAIR = 4
DEPTH = 3


@dataclass(frozen=True, eq=False)
class PairwiseWasserstein:
    """Lower bounds on the 1-Wasserstein distance between all pairs of clusters.

    Parameters
    ----------
    cluster_ids : ndarray of shape (k,)
        The clusters' names as given, sorted.  All (k, k) arrays are in this order.
    distance : ndarray of shape (k, k)
        Bounds in the unit of X, cut off below zero; zero where nothing is known.
    stderr : ndarray of shape (k, k)
        Their standard errors; zero on the diagonal, infinite where nothing is known, because the
        two clusters were never held out in the same fold.
    n_heldout : ndarray of shape (k,)
        Observations of each cluster that were held out and counted.
    history : ndarray of shape (epochs + 1,)
        Mean over pairs of the bound on training rows, before each epoch and at the end.
    """

    cluster_ids: NDArray[Any]
    distance: Array
    stderr: Array
    n_heldout: Index
    history: Array

    def __post_init__(self) -> None:
        for array in vars(self).values():
            array.flags.writeable = False


def pairwise_wasserstein(
    X: ArrayLike,
    labels: ArrayLike,
    *,
    cv: int = 5,
    epochs: int = 15,
    width: int = 8,
    device: str | torch.device = "auto",
    random_state: int | np.random.Generator | np.random.RandomState | None = None,
    progress: bool = False,
) -> PairwiseWasserstein:
    """Bound the 1-Wasserstein distance between all pairs of clusters from below with one network.

    The ground distance is Euclidean, in the unit of X: features are not brought to one scale.

    Parameters
    ----------
    X : array-like or SciPy sparse matrix of shape (n, d)
        Vectors; a sparse matrix is made dense.
    labels : array-like of shape (n,)
        Integers or strings; −1 and missing values mean noise, left out.
    cv : int
        Folds of cross-fitting: every observation is valued by functions that did not see it.
    epochs : int
        Passes over the training rows, of at least ten steps.
    width : int
        Directions of space that one map folds, even.
    device : str or torch.device
        "auto" takes CUDA, else MPS, else the CPU.
    random_state : int, Generator, RandomState or None
        The same seed gives the same result, whatever the order of the rows and the names of the
        clusters.  No global random state is touched.
    progress : bool
        Show a bar.

    Returns
    -------
    PairwiseWasserstein

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.standard_normal((100, 2)) + shift for shift in (0, 0, 3)])
    >>> result = pairwise_wasserstein(X, np.repeat(["a", "b", "c"], 100), random_state=0)
    >>> np.abs(result.distance - 3 * np.sqrt(2) * np.array([[0, 0, 1], [0, 0, 1], [1, 1, 0]])) < 0.5
    array([[ True,  True,  True],
           [ True,  True,  True],
           [ True,  True,  True]])
    """
    _check_settings(cv, epochs, width)
    where = choose_device(device)
    values = numeric_matrix(X)
    rows = VectorRows(values if isinstance(values, np.ndarray) else values.toarray(), _CPU)
    encoded = encode_labels(labels, len(rows))
    order, renumbered = canonical_order(rows.keys, encoded.clusters)
    clusters, k = renumbered[order], len(encoded.cluster_ids)
    x, scale = _in_common_unit(rows.values[order], where)
    rng = generator_of(random_state)
    folds = crossfit_folds(clusters, cv, rng)
    n_maps = min(MOST_MAPS, MAPS_PER_PAIR * k * (k - 1) // 2)
    with private_randomness(int(rng.integers(2**63)), where):
        maps = FoldingMaps(cv, n_maps, x.shape[1], width, DEPTH).to(where)
        means, history = train(maps, x, clusters, folds, epochs, rng, progress)
        choice = choose_maps(maps, x, clusters, folds, means)
        sums = heldout_sums(maps, x, clusters, folds, means, choice)
    # Back to the order of the names.
    number = np.empty(k, np.int64)
    number[encoded.clusters[order]] = clusters
    distance, stderr = (scale * part[np.ix_(number, number)] for part in combine_folds(*sums))
    n_heldout = sums[2].sum(axis=0)[number]
    return PairwiseWasserstein(encoded.cluster_ids, distance, stderr, n_heldout, scale * history)


_CPU = torch.device("cpu")


def _check_settings(cv: int, epochs: int, width: int) -> None:
    if not isinstance(cv, (int, np.integer)) or cv < 2:
        raise InputError(f"cv must be a whole number of at least 2, got {cv!r}; 5 is usual.")
    if not isinstance(epochs, (int, np.integer)) or epochs < 1:
        raise InputError(f"epochs must be a whole number of at least 1, got {epochs!r}.")
    if not isinstance(width, (int, np.integer)) or width < 2 or width % 2:
        raise InputError(f"width must be an even number of at least 2, got {width!r}; 8 is usual.")


def _in_common_unit(values: NDArray[Any], device: torch.device) -> tuple[Tensor, float]:
    """Rows with mean zero and mean squared length one, and the length that is now one."""
    centred = values.astype(np.float64)
    centred -= centred.mean(axis=0)
    scale = float(np.sqrt(np.einsum("ij,ij->", centred, centred) / len(centred))) or 1.0
    return torch.from_numpy((centred / scale).astype(np.float32)).to(device), scale


@torch.no_grad()
def heldout_sums(
    maps: FoldingMaps,
    x: Tensor,
    clusters: Index,
    folds: Sequence[Fold],
    means: ClassMeans,
    choice: Index,
) -> tuple[Array, Array, Index]:
    """Sums over held-out rows of the functions f_ij of all pairs.

    At [i, j] are the sums over cluster i, of f_ij, shape (K, k, k), and of its square, over all
    folds, (k, k).  Constants are such that f_ij is zero halfway between the training means, and
    f_ji = −f_ij.  Then the counts of rows, (K, k).
    """
    k, fold_of = means.n_clusters, np.full(len(clusters), -1)
    for f, fold in enumerate(folds):
        fold_of[fold.test] = f
    first, second = np.zeros((len(folds), k, k)), np.zeros((k, k))
    counts = np.stack([np.bincount(clusters[f.test], minlength=k) for f in folds])
    for i in range(k):
        members = torch.from_numpy(np.flatnonzero((clusters == i) & (fold_of >= 0)))
        for part in members.split(ROWS_AT_ONCE):
            raw, folded = x[part.to(x.device)], maps(x[part.to(x.device)][None])
            for f in np.unique(fold_of[part]):
                at = torch.from_numpy(fold_of[part] == f)
                arrays = (t.double().cpu().numpy() for t in (raw[at], folded[f, :, at]))
                values = _values(*arrays, means, choice[f, i], f, i)
                first[f, i] += values.sum(axis=0)
                second[i] += np.square(values).sum(axis=0)
    return first, second, counts


def _values(raw: Array, folded: Array, means: ClassMeans, choice: Index, f: int, i: int) -> Array:
    """f_ij of some rows for all j, shape (n, k), as the model of fold f has them."""
    mine, others = means.folded[f, choice, i], means.folded[f, choice, np.arange(len(choice))]
    along, across = means.raw[f, i] - means.raw[f], means.signs * (mine - others)
    length = np.sqrt(np.maximum((along**2).sum(1) + (across * (mine - others)).sum(1), 0.0))
    length = np.maximum(length, NO_LENGTH)
    middle = (along * (means.raw[f, i] + means.raw[f])).sum(1) / 2
    middle += (across * (mine + others)).sum(1) / 2
    values = raw @ along.T - middle
    for b in np.unique(choice[choice > 0]):
        j = np.flatnonzero(choice == b)
        values[:, j] += folded[b - 1] @ across[j].T
    return values / length


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
    return np.maximum(value, 0.0), stderr
