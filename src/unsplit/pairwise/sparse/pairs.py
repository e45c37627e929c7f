"""Values for pairs of clusters of which only some are stored."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from unsplit._typing import Index, Matrix
from unsplit.errors import InputError, shown

Absent = Callable[[Index, Index], Matrix]

# All pairs of so many clusters fit into half a gibibyte.
MOST_FOR_ARRAYS = 8_000


@dataclass(frozen=True, eq=False)
class StoredPairs:
    """Pairs (left, right) of clusters with left < right, in order.

    Parameters
    ----------
    n_clusters : int
    left, right : ndarrays of shape (p,)
    """

    n_clusters: int
    left: Index
    right: Index

    @classmethod
    def of(cls, matrix: sparse.csr_array) -> "StoredPairs":
        """The pairs that have an entry on either side of the diagonal.

        Examples
        --------
        >>> pairs = StoredPairs.of(sparse.csr_array(np.array([[0, 1, 0], [2, 0, 0], [0, 3, 0]])))
        >>> pairs.left, pairs.right
        (array([0, 1]), array([1, 2]))
        """
        k = matrix.shape[0]
        found = matrix.tocoo()
        row, column = (side.astype(np.int64) for side in found.coords)
        keys = np.unique(np.minimum(row, column) * k + np.maximum(row, column))
        left, right = np.divmod(keys, k)
        return cls(k, left[left < right], right[left < right])

    def __len__(self) -> int:
        """Number of stored pairs, p."""
        return len(self.left)

    @cached_property
    def keys(self) -> Index:
        """One number for each pair, increasing."""
        return self.left * self.n_clusters + self.right

    def find(self, i: ArrayLike, j: ArrayLike) -> Index:
        """Positions of pairs, in either order; −1 for those that are not stored.

        Examples
        --------
        >>> StoredPairs(3, np.array([0, 1]), np.array([1, 2])).find([1, 2], [0, 0])
        array([ 0, -1])
        """
        i, j = np.asarray(i, np.int64), np.asarray(j, np.int64)
        key = np.minimum(i, j) * self.n_clusters + np.maximum(i, j)
        place = np.searchsorted(self.keys, key)
        if len(self) == 0:
            return np.full(key.shape, -1)
        known = self.keys[np.minimum(place, len(self) - 1)] == key
        return np.where(known, place, -1)


@dataclass(frozen=True, eq=False, repr=False)
class PairMatrix:
    """A symmetric (k, k) matrix of which some pairs are stored; the others follow from a rule.

    It is indexed like an array, ``matrix[i, j]``, with numbers or with arrays of numbers.

    Parameters
    ----------
    pairs : StoredPairs
    values : ndarray of shape (p,)
        One for each stored pair.
    absent : callable
        Takes arrays i and j and gives the values of pairs that are not stored.
    diagonal : float

    Examples
    --------
    >>> pairs = StoredPairs(3, np.array([0]), np.array([2]))
    >>> matrix = PairMatrix(pairs, np.array([0.25]), lambda i, j: np.ones(i.shape), 0.0)
    >>> float(matrix[2, 0]), float(matrix[0, 1])
    (0.25, 1.0)
    >>> matrix.toarray()
    array([[0.  , 1.  , 0.25],
           [1.  , 0.  , 1.  ],
           [0.25, 1.  , 0.  ]])
    """

    pairs: StoredPairs
    values: Matrix
    absent: Absent
    diagonal: float

    def __post_init__(self) -> None:
        self.values.flags.writeable = False

    @property
    def shape(self) -> tuple[int, int]:
        """The shape that the whole matrix would have."""
        return self.pairs.n_clusters, self.pairs.n_clusters

    def __len__(self) -> int:
        """Number of clusters, k."""
        return self.pairs.n_clusters

    def __getitem__(self, index: tuple[Any, Any]) -> Any:
        """Values of the pairs (i, j)."""
        i, j = np.broadcast_arrays(*(_clusters(side, self.pairs.n_clusters) for side in index))
        found = self.absent(i, j)
        place = self.pairs.find(i, j)
        if len(self.pairs):
            found = np.where(place >= 0, self.values[place], found)
        return np.where(i == j, self.diagonal, found)[()]

    def toarray(self) -> Matrix:
        """The whole matrix, if it is not too large."""
        k = len(self)
        if k > MOST_FOR_ARRAYS:
            raise InputError(
                f"all pairs of {k:,} clusters are too many for one array; index the pairs that you "
                "need, as in tvd[i, j], or use table(), which lists the stored ones."
            )
        i = np.arange(k)
        return np.asarray(self[i[:, None], i])

    def __repr__(self) -> str:
        k = len(self)
        return f"PairMatrix: {len(self.pairs):,} of {k * (k - 1) // 2:,} pairs are stored"


def _clusters(side: Any, k: int) -> NDArray[np.int64]:
    index = np.asarray(side)
    if index.dtype.kind not in "iu" or ((index < -k) | (index >= k)).any():
        raise InputError(
            f"a pair is indexed by two whole numbers below {k}, or two arrays of them, got "
            f"{shown(side)}; slices do not work because most pairs are not stored."
        )
    return np.where(index < 0, index + k, index).astype(np.int64)
