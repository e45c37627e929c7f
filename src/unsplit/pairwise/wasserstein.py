"""Lower bounds on the 1-Wasserstein distance between all pairs of clusters, and their result.

NumPy only; torch is imported when bounds are computed (:mod:`unsplit.pairwise.lipschitz_maps`).
"""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unsplit._typing import Index, Matrix
from unsplit.data.array_files import FINITE, LARGEST, Array, load_checked, save_arrays
from unsplit.data.labels import encode_labels
from unsplit.data.saving import data_frame
from unsplit.devices import check_seed, choose_device, memory_errors, usual_settings
from unsplit.errors import check_flag, check_whole

if TYPE_CHECKING:
    import torch

FORMAT = "unsplit.PairwiseWasserstein/2"
_ARRAYS = {
    "cluster_ids": Array("ids", ("k",), 2),
    "sizes": Array("i8", ("k",), 1, LARGEST),
    "distance": Array("f8", ("k", "k"), 0, FINITE),
    # Infinite for pairs that could not be compared.
    "stderr": Array("f8", ("k", "k"), 0),
    "n_heldout": Array("i8", ("k",), 0, LARGEST),
    "history": Array("f8", ("epochs",), -FINITE, FINITE),
}


@dataclass(frozen=True, eq=False, repr=False)
class PairwiseWasserstein:
    """Lower bounds on the 1-Wasserstein distance between all pairs of clusters.

    :func:`unsplit.merge` takes it together with ``n_clusters``.

    Parameters
    ----------
    cluster_ids : ndarray of shape (k,)
        The clusters' names as given, sorted.  All (k, k) arrays are in this order.
    sizes : ndarray of shape (k,)
        Observations of each cluster.
    distance : ndarray of shape (k, k)
        Lower bounds in the unit of X, never negative; zero for pairs that could not be compared.
    stderr : ndarray of shape (k, k)
        Standard errors of ``distance``.  Zero on the diagonal, infinite for pairs that could not
        be compared because the two clusters were never held out in the same fold.
    n_heldout : ndarray of shape (k,)
        Observations of each cluster that were held out and counted.
    history : ndarray of shape (epochs + 1,)
        Mean over pairs of the bound on the training rows, before each epoch and at the end.  If it
        still rises at the end, more epochs are needed.

    Examples
    --------
    >>> import unsplit
    >>> X, labels = unsplit.datasets.gaussians([[0, 0], [0, 0], [9, 0]], 50, random_state=0)
    >>> result = unsplit.pairwise_wasserstein(X, labels, epochs=3, random_state=0)
    >>> unsplit.merge(result, n_clusters=2).mapping
    {0: 0, 1: 0, 2: 1}
    """

    cluster_ids: NDArray[Any]
    sizes: Index
    distance: Matrix
    stderr: Matrix
    n_heldout: Index
    history: NDArray[np.float64]

    def __post_init__(self) -> None:
        for array in vars(self).values():
            array.flags.writeable = False

    @property
    def n_clusters(self) -> int:
        """Number of clusters, k."""
        return len(self.cluster_ids)

    @property
    def comparable(self) -> NDArray[np.bool_]:
        """Pairs that could be compared, shape (k, k)."""
        return np.isfinite(self.stderr)

    def table(self) -> dict[str, NDArray[Any]]:
        """One row per pair, closest pair first, as a dictionary of columns.

        Returns
        -------
        dict of str to ndarray
            Ready for a data frame or a file.  ``distance`` is NaN and ``stderr`` infinite for
            pairs that could not be compared, which come last.

        Examples
        --------
        >>> import unsplit
        >>> X, labels = unsplit.datasets.gaussians([[0, 0], [0, 0], [9, 0]], 50, random_state=0)
        >>> table = unsplit.pairwise_wasserstein(X, labels, epochs=3, random_state=0).table()
        >>> table["cluster_a"][0], table["cluster_b"][0]
        (np.int64(0), np.int64(1))
        """
        i, j = np.triu_indices(self.n_clusters, 1)
        distance = np.where(self.comparable, self.distance, np.nan)
        order = np.argsort(distance[i, j], kind="stable")  # NaN comes last
        i, j = i[order], j[order]
        return {
            "cluster_a": self.cluster_ids[i],
            "cluster_b": self.cluster_ids[j],
            "distance": distance[i, j],
            "stderr": self.stderr[i, j],
            "n_a": self.n_heldout[i],
            "n_b": self.n_heldout[j],
        }

    def to_frame(self) -> Any:
        """:meth:`table` as a pandas DataFrame.

        Returns
        -------
        pandas.DataFrame

        Examples
        --------
        >>> import unsplit
        >>> X, labels = unsplit.datasets.gaussians([[0, 0], [0, 0], [9, 0]], 50, random_state=0)
        >>> frame = unsplit.pairwise_wasserstein(X, labels, epochs=3, random_state=0).to_frame()
        >>> frame[["cluster_a", "cluster_b"]].values.tolist()[0]
        [0, 1]
        """
        return data_frame(self.table())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one .npz file without pickle.

        An existing file is replaced only when the new one is complete.

        Parameters
        ----------
        path : str or path-like

        Examples
        --------
        >>> import tempfile, unsplit
        >>> X, labels = unsplit.datasets.gaussians([[0, 0], [9, 0]], 50, random_state=0)
        >>> result = unsplit.pairwise_wasserstein(X, labels, epochs=3, random_state=0)
        >>> path = f"{tempfile.mkdtemp()}/distances.npz"
        >>> result.save(path)
        >>> bool((PairwiseWasserstein.load(path).distance == result.distance).all())
        True
        """
        save_arrays(path, FORMAT, {}, {name: getattr(self, name) for name in _ARRAYS})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "PairwiseWasserstein":
        """Read a file that :meth:`save` wrote.

        A file that was changed, is damaged or holds impossible values is refused.

        Parameters
        ----------
        path : str or path-like

        Returns
        -------
        PairwiseWasserstein

        Examples
        --------
        >>> import tempfile, unsplit
        >>> X, labels = unsplit.datasets.gaussians([[0, 0], [9, 0]], 50, random_state=0)
        >>> path = f"{tempfile.mkdtemp()}/distances.npz"
        >>> unsplit.pairwise_wasserstein(X, labels, epochs=3, random_state=0).save(path)
        >>> PairwiseWasserstein.load(path).n_clusters
        2
        """
        arrays, _ = load_checked(path, FORMAT, _ARRAYS)
        return cls(**arrays)

    def __repr__(self) -> str:
        k = self.n_clusters
        table = self.table()
        pairs = zip(table["cluster_a"], table["cluster_b"], table["distance"], strict=True)
        closest = ", ".join(f"{a}–{b} {value:.3g}" for a, b, value in list(pairs)[:3])
        return (
            f"PairwiseWasserstein: {k:,} clusters, {k * (k - 1) // 2:,} pairs, "
            f"{int(self.n_heldout.sum()):,} of {int(self.sizes.sum()):,} held out\n"
            f"  closest {closest}"
        )


@usual_settings()
def pairwise_wasserstein(
    X: ArrayLike,
    labels: ArrayLike,
    *,
    cv: int = 5,
    epochs: int = 10,
    n_maps: int = 16,
    device: "str | torch.device" = "auto",
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
    from unsplit.data.rows.kinds import numeric_matrix
    from unsplit.pairwise.heldout_scores import require_folds
    from unsplit.pairwise.lipschitz_maps import bounds

    where, values = choose_device(device), numeric_matrix(X)
    with memory_errors("comparing the clusters", "use fewer features or fewer clusters"):
        values = values if isinstance(values, np.ndarray) else values.toarray()
        encoded = encode_labels(labels, len(values))
        require_folds(cv, encoded.clusters)
        how = cv, epochs, n_maps, where, random_state, progress
        distance, stderr, n_heldout, history = bounds(values, encoded.clusters, *how)
    sizes = np.bincount(encoded.clusters[encoded.clusters >= 0])
    return PairwiseWasserstein(encoded.cluster_ids, sizes, distance, stderr, n_heldout, history)
