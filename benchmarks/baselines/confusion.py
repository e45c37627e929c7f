"""Merging until a classifier tells all clusters apart."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import confusion_matrix
from sklearn.model_selection import PredefinedSplit, cross_val_predict

from unsplit._typing import Index
from unsplit.data.labels import encode_labels
from unsplit.data.rows.kinds import numeric_matrix
from unsplit.devices import generator_of
from unsplit.errors import InputError


@dataclass(frozen=True, eq=False)
class ConfusionMerges:
    """The merges of :func:`confusion_merging`, in order.

    Parameters
    ----------
    cluster_ids : ndarray of shape (k,)
        The initial clusters' names as given, sorted.
    initial : ndarray of shape (n,)
        Initial cluster of each observation as an index into ``cluster_ids``; −1 for noise.
    merges : ndarray of shape (m, 2)
        As in a SciPy linkage: clusters 0 … k−1 are the initial ones, merge t makes cluster k+t.
    confusion : ndarray of shape (m,)
        Symmetric confusion of each merged pair at the time of its merge.
    """

    cluster_ids: NDArray[Any]
    initial: Index
    merges: Index
    confusion: NDArray[np.float64]

    def __post_init__(self) -> None:
        for array in (self.cluster_ids, self.initial, self.merges, self.confusion):
            array.flags.writeable = False

    @property
    def n_clusters(self) -> int:
        """Clusters left at the end."""
        return len(self.cluster_ids) - len(self.merges)

    @property
    def labels(self) -> Index:
        """Final cluster of each observation, shape (n,); see :meth:`cut`."""
        return self.cut(self.n_clusters)

    def cut(self, n_clusters: int) -> Index:
        """Cluster of each observation when ``n_clusters`` were left.

        Parameters
        ----------
        n_clusters : int

        Returns
        -------
        ndarray of shape (n,)
            Clusters are numbered from 0 in the order of their first initial cluster; −1 is noise.

        Examples
        --------
        >>> import unsplit
        >>> X, labels = unsplit.datasets.gaussians([[0, 0], [0, 0], [9, 0]], 50, random_state=0)
        >>> merges = confusion_merging(X, labels, n_estimators=10, random_state=0)
        >>> np.bincount(merges.cut(3)), np.bincount(merges.cut(2))
        (array([50, 50, 50]), array([100,  50]))
        """
        k = len(self.cluster_ids)
        if not self.n_clusters <= n_clusters <= k:
            raise InputError(
                f"n_clusters must lie between {self.n_clusters} and {k}, got {n_clusters}; "
                "a lower threshold merges further."
            )
        node = np.arange(k)
        for t, pair in enumerate(self.merges[: k - n_clusters]):
            node[np.isin(node, pair)] = k + t
        _, first, inverse = np.unique(node, return_index=True, return_inverse=True)
        new = np.argsort(np.argsort(first))[inverse]
        return np.where(self.initial < 0, -1, new[self.initial])


def confusion_merging(
    X: ArrayLike,
    labels: ArrayLike,
    *,
    threshold: float = 0.025,
    n_folds: int = 5,
    n_estimators: int = 100,
    n_jobs: int | None = None,
    random_state: int | np.random.Generator | np.random.RandomState | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> ConfusionMerges:
    """Merge the two clusters that a random forest confuses most, and repeat until it confuses few.

    This is the loop called *clustification* in github.com/epigen/unsupervised_analysis.  As there:
    each round predicts every observation by stratified, shuffled cross-validation with
    scikit-learn's default forest; C_ij is the share of cluster i predicted as j; the confusion of
    a pair is the *mean* of C_ij and C_ji; the largest is merged unless it is below the threshold.
    Unlike there: the seed covers the folds as well as the forest, and rounds are not limited to
    100.

    A cluster smaller than ``n_folds`` is spread over as many folds as it has members.  A cluster
    of one is never seen when it is predicted, so it confuses by at least 1/2 and gets merged.

    Parameters
    ----------
    X : array-like or SciPy sparse matrix of shape (n, d)
    labels : array-like of shape (n,)
        Integers or strings; −1 and missing values mean noise, left out.
    threshold : float
        Stop when the largest confusion is below; 0 merges everything into one cluster.
    n_folds, n_estimators : int
        Folds of the cross-validation and trees of the forest.
    n_jobs : int, optional
        Cores the forest may use, −1 for all; one unless told.
    random_state : int, Generator, RandomState or None
        The same seed gives the same merges.
    progress : callable, optional
        Called in every round with the number of clusters and the largest confusion.

    Returns
    -------
    ConfusionMerges

    Examples
    --------
    >>> import unsplit
    >>> X, labels = unsplit.datasets.gaussians([[0, 0], [0, 0], [9, 0]], 50, random_state=0)
    >>> confusion_merging(X, labels, n_estimators=10, random_state=0).merges
    array([[0, 1]])
    """
    _check_choices(threshold, n_folds, n_estimators)
    values = numeric_matrix(X)
    encoded = encode_labels(labels, values.shape[0])
    used = encoded.clusters >= 0
    rows, clusters = _for_trees(values[used]), encoded.clusters[used]
    rng = generator_of(random_state)
    forest = RandomForestClassifier(n_estimators, n_jobs=n_jobs)
    merges: list[Index] = []
    confusions: list[float] = []
    for pair, confusion in _closest_merges(forest, rows, clusters, n_folds, rng):
        if progress is not None:
            progress(len(encoded.cluster_ids) - len(merges), confusion)
        if confusion < threshold:
            break
        merges.append(pair)
        confusions.append(confusion)
    pairs = np.array(merges, np.int64).reshape(-1, 2)
    return ConfusionMerges(encoded.cluster_ids, encoded.clusters, pairs, np.array(confusions))


def _closest_merges(
    forest: RandomForestClassifier,
    rows: Any,
    clusters: Index,
    n_folds: int,
    rng: np.random.Generator,
) -> Iterator[tuple[Index, float]]:
    """Yield the pair that is confused most and its confusion, and merge it before the next."""
    node, k = clusters.copy(), int(clusters.max()) + 1
    for n_merges in range(k - 1):
        forest = forest.set_params(random_state=int(rng.integers(2**31)))
        pair, confusion = _most_confused(forest, rows, node, n_folds, rng)
        yield pair, confusion
        node[np.isin(node, pair)] = k + n_merges


def _check_choices(threshold: float, n_folds: int, n_estimators: int) -> None:
    if not 0 <= threshold <= 1:
        raise InputError(f"threshold must lie between 0 and 1, got {threshold}; 0.025 is usual.")
    if n_folds < 2:
        raise InputError(f"n_folds must be at least 2, got {n_folds}; 5 is usual.")
    if n_estimators < 1:
        raise InputError(f"n_estimators must be at least 1, got {n_estimators}; 100 is usual.")


def _for_trees(values: Any) -> Any:
    """In the types scikit-learn's trees take."""
    values = values.astype(np.float32)
    if scipy.sparse.issparse(values):
        # Unlike csr_array, csr_matrix takes 32-bit indices wherever they suffice.
        parts = (values.data, values.indices, values.indptr)
        return scipy.sparse.csr_matrix(parts, shape=values.shape)
    return values


def _most_confused(
    forest: Any, rows: Any, node: Index, n_folds: int, rng: np.random.Generator
) -> tuple[Index, float]:
    """The pair with the largest symmetric confusion, and that confusion."""
    folds = PredefinedSplit(_deal(node, n_folds, rng))
    active, true = np.unique(node, return_inverse=True)
    predicted = cross_val_predict(forest, rows, true, cv=folds)
    share = confusion_matrix(true, predicted, normalize="true")
    i, j = np.triu_indices(len(active), 1)
    confusion = (share[i, j] + share[j, i]) / 2
    best = int(confusion.argmax())
    return active[[i[best], j[best]]], float(confusion[best])


def _deal(node: Index, n_folds: int, rng: np.random.Generator) -> Index:
    """A fold for each observation, dealt in turn, cluster after cluster, in random order.

    What a shuffled StratifiedKFold does, without its complaints about small clusters.
    """
    fold = np.empty(len(node), np.int64)
    fold[np.lexsort((rng.random(len(node)), node))] = np.arange(len(node)) % n_folds
    return fold
