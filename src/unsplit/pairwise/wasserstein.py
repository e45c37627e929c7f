"""The result of :func:`unsplit.pairwise_wasserstein`, in NumPy only."""

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsplit._typing import Index, Matrix
from unsplit.data.array_files import FINITE, LARGEST, Array, load_checked, save_arrays
from unsplit.data.saving import data_frame

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
