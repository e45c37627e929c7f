"""Rows for observations of any type: vectors and counts here; and warnings of their features."""

import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy.sparse
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.decomposition import TruncatedSVD
from torch import Tensor
from torch.utils.data import Dataset

from unsplit._typing import Index
from unsplit.data.labels import is_gap
from unsplit.data.rows.base import (
    LARGEST,
    Rows,
    as_array,
    blocks_of,
    is_mapped,
    kind_of,
    odd_numbers,
    plain_array,
    refuse_gaps,
    refuse_gaps_in_columns,
    require_numbers,
    scrambled,
)
from unsplit.data.rows.datasets import DatasetRows
from unsplit.data.rows.sequences import Ragged, RaggedRows
from unsplit.devices import available_memory, require_memory
from unsplit.errors import (
    DependenceWarning,
    FeatureWarning,
    InputError,
    InputWarning,
    option,
    shown,
    warn,
)

# Types of numbers that need no conversion, so that a mapped array can stay on disk.
FLOATS = (np.float16, np.float32, np.float64)

# Number of components of counts, as is usual for single cells and texts.
COMPONENTS = 50

# The fewest rows of which anything can be said, and the most that are looked at.
FEWEST_ROWS = 10
SAMPLED_ROWS = 10_000

# Columns drown the others if at most a quarter of all hold this share of the variance and spread
# this many times as far as the others usually do.
MOST_OF_VARIANCE = 0.8
TIMES_AS_FAR = 5

# Whether the next observation of a cluster is nearer than one some places later.  Both are as near
# if the order is random, and if it is that of larger groups, such as of known categories.
LATER = 8
# The order is said to matter from this share on, if chance would hardly reach it.  It is the
# share for two features with a serial correlation of about 0.6, or ten with one of about 0.3.
NEARER, STANDARD_ERRORS = 0.7, 5.0
# float64 values that are compared (32 MiB), and the most of one observation.
MOST_NUMBERS, MOST_OF_ONE = 2**22, 2**12

SCALE = "scale them, by sklearn.preprocessing.StandardScaler or --scale of the command line"


def observations(X: Any, device: torch.device, kind: str | None = None) -> Rows:
    """Wrap observations of any type as rows that a network can take.

    Parameters
    ----------
    X : array-like, SciPy sparse matrix, list of sequences, Ragged, torch Dataset or Rows
    device : torch.device
    kind : str, optional
        What they are, such as "images"; if None,
        :func:`unsplit.data.rows.base.kind_of` decides.

    Examples
    --------
    >>> observations(np.zeros((5, 8, 8), np.uint8), torch.device("cpu")).kind
    'images'
    """
    if isinstance(X, Rows):
        return X
    if isinstance(X, Dataset):
        return DatasetRows.of(X, device, kind)
    if scipy.sparse.issparse(X):
        rows = CountRows if kind in (None, "counts") else VectorRows
        return rows(numeric_matrix(X), device)
    if isinstance(X, Ragged) or differ_in_length(X):
        if kind == "points":
            raise InputError(
                "point clouds differ in their number of points; take the same number of points "
                "from each."
            )
        return RaggedRows(X if isinstance(X, Ragged) else Ragged.of(X), device)
    values = as_array(list(X) if _is_list(X) else X)
    if kind is None and values.ndim > 2:
        kind = kind_of(values.shape, values.dtype)
    if kind in ("images", "points", "sequences"):
        return Rows.of(values, kind, device)
    matrix = numeric_matrix(flat(values))
    if kind == "counts":
        return CountRows(numeric_matrix(scipy.sparse.csr_array(matrix)), device)
    square = len(matrix) == matrix.shape[1] > 2 and not is_mapped(matrix)
    if square and not matrix.diagonal().any() and np.allclose(matrix, matrix.T):
        warn(
            "X is square and symmetric with zeros on its diagonal, as distances are, but its "
            "columns are used as features; pass the features that the distances are from, or pass "
            "distances between clusters to unsplit.merge.",
            InputWarning,
        )
    return VectorRows(matrix, device)


def differ_in_length(X: Any) -> bool:
    """Return whether X is a list of sequences that do not fit into one array.

    Examples
    --------
    >>> differ_in_length([[1, 2], [3]]), differ_in_length([[1, 2], [3, 4]])
    (True, False)
    """
    if not _is_list(X) or not all(hasattr(x, "__len__") for x in X):
        return False
    try:
        return len({np.shape(x) for x in X}) > 1
    except ValueError:  # one of the sequences is itself irregular
        return True


def _is_list(X: Any) -> bool:
    """Return whether X is a list, or a 1-D object array of sequences."""
    return isinstance(X, (list, tuple)) or (
        isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 1
    )


def is_table(X: Any) -> bool:
    """Whether X is a table as scikit-learn takes it, not a Dataset, sound, images or the like.

    Examples
    --------
    >>> is_table([[1, 2], [3, 4]]), is_table([[1, 2], [3]]), is_table(np.zeros((5, 8, 8)))
    (True, False, False)
    """
    if isinstance(X, (Dataset, Rows, Ragged)):
        return False
    if isinstance(X, (list, tuple)):
        return not differ_in_length(X)
    return len(getattr(X, "shape", (0, 0))) <= 2


class VectorRows(Rows):
    """Rows of a matrix, handed out as float32 tensors on ``device``.

    Dense values stay on the device, or on disk if they are mapped from a file; sparse rows are made
    dense a batch at a time.  One of the dense rows is subtracted from all, so that a large common
    offset, such as that of time stamps, does not use up float32's digits.

    Examples
    --------
    >>> rows = VectorRows(np.array([[1.0, 2.0], [3.0, 5.0]]), torch.device("cpu"))
    >>> rows.take(torch.tensor([1])) - rows.take(torch.tensor([0]))
    tensor([[2., 3.]])
    """

    kind = "vectors"
    stackable = True

    def __init__(self, values: Any, device: torch.device, origin: Any = None) -> None:
        self.n_features = int(values.shape[1])
        self.sparse = scipy.sparse.issparse(values)
        if not (self.sparse or is_mapped(values)):
            _require_copy(values)
        super().__init__(values, self.kind, device, origin)

    def _fits(self) -> bool:
        return not self.sparse and super()._fits()

    def _fetched(self, places: Tensor) -> Tensor:
        if not self.sparse:
            return super()._fetched(places)
        return torch.from_numpy(self.values[places.cpu().numpy()].toarray().astype(np.float32))

    @cached_property
    def origin(self) -> NDArray[Any]:
        """One of the rows, whatever their order; zero for sparse rows."""
        return np.zeros(1) if self.sparse else np.array(self.values[np.argmin(self.keys)])

    @cached_property
    def keys(self) -> NDArray[np.uint64]:
        """A 64-bit hash of each row, which depends only on its content."""
        multipliers = odd_numbers(self.n_features)
        if self.sparse:
            bits = _bits(self.values.data) * multipliers[self.values.indices]
            sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(bits, dtype=np.uint64)])
            return sums[self.values.indptr[1:]] - sums[self.values.indptr[:-1]]
        parts = [
            (_bits(block) * multipliers).sum(axis=1, dtype=np.uint64)
            for block in blocks_of(self.values)
        ]
        return np.concatenate(parts)

    def first(self, n: int) -> Self:
        """Return the first n rows, without the others but with the same origin."""
        return self._with(self.values[:n].copy()) if self.sparse else super().first(n)

    def another(self, X: Any) -> Self:
        """Wrap new observations for a network that was trained on these."""
        values = numeric_matrix(X if scipy.sparse.issparse(X) else flat(as_array(X)))
        if self.sparse:
            values = scipy.sparse.csr_array(values)
        elif scipy.sparse.issparse(values):
            values = values.toarray()
        if values.shape[1] != self.n_features:
            raise InputError(
                f"X has {values.shape[1]} features, but the network was trained on "
                f"{self.n_features}; pass the same features."
            )
        return self._with(values)

    def _with(self, values: Any) -> Self:
        return type(self)(values, self.device, self.origin)


def _require_copy(values: NDArray[Any]) -> None:
    """Raise an error if the float32 copy that networks read does not fit into memory."""
    n, d = values.shape
    available = available_memory()
    advice = (
        f"at most {available // (4 * n):,} of its features would fit: reduce them, or save X with "
        'numpy.save and pass numpy.load(path, mmap_mode="r"), which stays on disk'
    )
    require_memory(4 * n * d, available, f"X of shape ({n:,}, {d:,})", advice)


class CountRows(VectorRows):
    """Rows of a sparse matrix, handed out as sparse tensors.

    Examples
    --------
    >>> rows = CountRows(scipy.sparse.csr_array(np.eye(3)), torch.device("cpu"))
    >>> rows.take(torch.tensor([2])).to_dense()
    tensor([[0., 0., 1.]])
    """

    kind = "counts"
    stackable = False

    def stream(self, batches: Iterable[Tensor]) -> Iterator[Tensor]:
        """Yield what ``take`` returns for each of the batches, in order."""
        yield from map(self.take, batches)

    def take(self, index: Tensor) -> Tensor:
        """Rows at ``index`` (one-dimensional), a CSR tensor of shape (b, n_features)."""
        rows = self.values[index.cpu().numpy()]
        types = (rows.indptr, np.int64), (rows.indices, np.int64), (rows.data, np.float32)
        parts = (torch.from_numpy(part.astype(kind)) for part, kind in types)
        start, column, value = (part.to(self.device) for part in parts)
        shape = (len(index), self.n_features)
        with warnings.catch_warnings():
            # torch calls all of its sparse tensors a beta; this one only carries three arrays.
            warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
            return torch.sparse_csr_tensor(start, column, value, shape, check_invariants=False)


def flat(values: NDArray[Any]) -> NDArray[Any]:
    """Join all axes but the first into one, if there are more than two."""
    return values.reshape(len(values), math.prod(values.shape[1:])) if values.ndim > 2 else values


def numeric_matrix(X: ArrayLike) -> Any:
    """Return X as a contiguous array or a canonical CSR array of finite numbers, shape (n, d).

    Examples
    --------
    >>> numeric_matrix([[1, 2], [3, 4]])
    array([[1., 2.],
           [3., 4.]])
    """
    values = _numbers(X)
    if not scipy.sparse.issparse(values):
        if hasattr(X, "columns"):
            refuse_gaps_in_columns(values, X.columns, "X")
        refuse_gaps(values)
    elif not (np.abs(values.data) <= LARGEST).all():
        raise InputError(
            f"X has values that are NaN, infinite or larger than {LARGEST:g}; remove those rows or "
            "fill in the values first."
        )
    return values


def feature_matrix(features: Any, n: int) -> Any:
    """Return the features of n observations as :func:`numeric_matrix` does; errors name them."""
    try:
        matrix = numeric_matrix(features)
    except InputError as error:
        raise InputError(str(error).replace("X", "features", 1)) from None
    if matrix.shape[0] != n:
        raise InputError(
            f"features must have one row for each of the {n} observations in X, got shape "
            f"{matrix.shape}; pass the features of the same observations."
        )
    return matrix


def _numbers(X: ArrayLike) -> Any:
    """Return X as a contiguous array or a canonical CSR array, with unchecked values."""
    values: Any = plain_array(X) if scipy.sparse.issparse(X) else as_array(X)
    if values.ndim != 2:
        raise InputError(
            f"X must be a table with one row per observation, got shape {tuple(values.shape)}; "
            "reshape it to (observations, features)."
        )
    if values.dtype.kind in "OSU" and values.size:
        values = _parsed(values, getattr(X, "columns", range(values.shape[1])))
    require_numbers(values)
    if scipy.sparse.issparse(values):
        canonical = scipy.sparse.csr_array(values).astype(np.float64)
        canonical.sum_duplicates()
        canonical.eliminate_zeros()
        return canonical
    if is_mapped(values) and values.dtype in FLOATS:
        return np.asarray(values)
    kept = np.float32 if values.dtype in (np.float32, np.float16) else np.float64
    return np.ascontiguousarray(values, dtype=kept)


def _parsed(values: NDArray[Any], names: Sequence[Any]) -> NDArray[np.float64]:
    """Return objects and strings that are numbers as numbers, and missing values as NaN.

    ``names`` are those of the columns, or their numbers.
    """
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        found = np.empty(values.shape)
    for (row, column), value in np.ndenumerate(values):
        try:
            found[row, column] = np.nan if is_gap(value) else float(value)
        except (TypeError, ValueError, OverflowError):
            raise InputError(
                f"X must hold numbers, got {shown(str(value))} in row {row}, column "
                f"{shown(names[column])}; encode text, categories (pandas.get_dummies) and dates "
                "as numbers first, or leave such columns out."
            ) from None
    return found


def _bits(values: NDArray[Any]) -> NDArray[np.uint64]:
    # Adding zero turns -0.0 into 0.0, so that equal values have equal bits.
    return scrambled((values.astype(np.float64) + 0.0).view(np.uint64))


def log_shares(counts: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
    """Divide counts by their row sums and take logarithms; negative values are no counts."""
    if (counts.data < 0).any():
        return counts
    totals = np.asarray(counts.sum(axis=1)).ravel()
    usual = float(np.median(totals[totals > 0])) if (totals > 0).any() else 1.0
    shares = scipy.sparse.diags_array(usual / np.maximum(totals, 1e-300)) @ counts
    return scipy.sparse.csr_array(shares).log1p()


def components_of_counts(counts: scipy.sparse.csr_array) -> NDArray[np.float64]:
    """Normalise counts by their row sums, take logarithms, and reduce them to components.

    Values that include negative ones are not counts and are only reduced.
    """
    counts = log_shares(counts)
    width = min(COMPONENTS, min(counts.shape) - 1)
    if width < 1:
        return counts.toarray()
    with np.errstate(invalid="ignore", divide="ignore"):  # if all rows are equal
        return TruncatedSVD(width, random_state=0).fit_transform(counts)


# --- warnings of features and of dependent rows ---------------------------------------------------


def warn_of_other_uses(
    X: NDArray[Any],
    names: Sequence[str],
    labels: NDArray[Any] | None,
    advice: Sequence[str] | None = None,
) -> None:
    """Warn of features that count the rows, or that have one value in each cluster.

    Such a column is more likely an id or another clustering than a measurement.  Messages call the
    features by their ``names``, and may have ``advice`` how to leave each of them out.
    """
    if len(X) < FEWEST_ROWS:
        return
    groups = None if labels is None else np.unique(labels.astype(str), return_inverse=True)[1]
    found = {}
    for j in range(X.shape[1]):
        # Most columns are no whole numbers, and the first rows show it.
        if not all((part == np.rint(part)).all() for part in (X[:1000, j], X[:, j])):
            continue
        if (np.diff(X[:, j]) == 1).all():
            found[j] = "counts the rows"
        elif groups is not None and _follows(X[:, j], groups):
            found[j] = "has one value in each cluster"
    for j, what in found.items():
        warn(
            f"{names[j]} {what} and is used as a feature; if it is not a measurement, leave it "
            f"out{'' if advice is None else f' with {advice[j]}'}.",
            FeatureWarning,
        )


def _follows(values: NDArray[Any], groups: Index) -> bool:
    """Whether a column has one value in each of at least two groups, most of them with rows."""
    first = np.unique(groups, return_index=True)[1]
    varies = len(groups) >= 2 * len(first) and (values != values[0]).any()
    return bool(varies and (values == values[first[groups]]).all())


def warn_of_scales(X: NDArray[Any], names: Sequence[str]) -> None:
    """Warn of few features that vary so much that distances between observations depend on them.

    Principal components and other centred columns may do so on purpose.
    """
    few = dominant(X)
    if len(few) == 0:
        return
    named = [names[j] for j in few[:3]]
    named += [f"{len(few) - 3} more"] if len(few) > 3 else []
    holds = "holds" if len(few) == 1 else "hold"
    warn(
        f"{' and '.join(named)} {holds} most of the variance of all {X.shape[1]} "
        "features, so distances between observations depend on little else; if features are in "
        f"different units, {SCALE}.",
        FeatureWarning,
    )


def dominant(X: NDArray[Any]) -> Index:
    """The features that drown all others, those that vary most first; usually none.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> dominant(rng.normal(50, [1, 1, 1, 9], size=(100, 4))), dominant(rng.normal(size=(100, 4)))
    (array([3]), array([], dtype=int64))
    """
    some = np.asarray(X[:: max(1, len(X) // SAMPLED_ROWS)], np.float64)
    none, n_features = np.zeros(0, np.int64), some.shape[1]
    if len(some) < FEWEST_ROWS or n_features < 2:
        return none
    with np.errstate(over="ignore", invalid="ignore"):  # numbers that are too large come later
        spread, middle = some.std(axis=0), np.abs(some.mean(axis=0))
    if not np.isfinite(spread).all() or not spread.any():
        return none
    order = np.argsort(-spread, kind="stable")
    share = np.cumsum(spread[order] ** 2) / (spread**2).sum()
    n_few = int(np.searchsorted(share, MOST_OF_VARIANCE)) + 1
    few, others = order[:n_few], order[n_few:]
    if n_few > max(1, n_features // 4) or not len(others):
        return none
    is_far = spread[few].min() >= TIMES_AS_FAR * np.median(spread[others])
    is_centred = (middle[few] < spread[few]).any()
    return few if is_far and not is_centred else none


def warn_of_order(X: NDArray[Any], clusters: Index) -> None:
    """Warn if observations (n, ...) that follow each other in a cluster resemble each other."""
    share, n = nearer_than_later(X, clusters)
    if share >= NEARER and (share - 0.5) * 2 * np.sqrt(n) >= STANDARD_ERRORS:
        warn(
            "observations that follow each other in a cluster resemble each other: "
            f"{100 * share:.0f} % are nearer to the next one than to the one {LATER} later, where "
            "chance is 50 %, so p-values and intervals are too sure of themselves; name the track, "
            f"session or donor of each with {option('groups')}.",
            DependenceWarning,
        )


def nearer_than_later(X: NDArray[Any], clusters: Index) -> tuple[float, int]:
    """The share of observations that are nearer to the next of their cluster than to a later one.

    It is 1/2 in a random order.  The second number is that of the observations.

    Examples
    --------
    >>> nearer_than_later(np.arange(40.0)[:, None], np.zeros(40, np.int64))
    (1.0, 16)
    """
    if X.ndim > 2 and not X.flags.c_contiguous:  # would be copied
        return 0.5, 0
    order = np.argsort(clusters, kind="stable")
    order = order[np.count_nonzero(clusters < 0) :]
    # Of images and other large observations, a part of the numbers is enough.
    n_values = math.prod(X.shape[1:])
    some = X.reshape(len(X), n_values)[:, :: max(1, n_values // MOST_OF_ONE)]
    most = min(SAMPLED_ROWS, MOST_NUMBERS // max(1, some.shape[1]))
    # Every second one at most, so that hardly any distance counts twice.
    first = np.arange(0, max(0, len(order) - LATER), max(2, len(order) // most))
    first = first[clusters[order[first]] == clusters[order[first + LATER]]]
    if not len(first):
        return 0.5, 0
    rows = np.stack([order[first], order[first + 1], order[first + LATER]])
    values = np.asarray(some[rows.ravel()], np.float64).reshape(*rows.shape, some.shape[1])
    spread = values.std(axis=(0, 1))
    values /= np.where(spread > 0, spread, 1.0)
    near, far = (((values[0] - other) ** 2).sum(axis=1) for other in values[1:])
    return float(((near < far) + (near == far) / 2).mean()), len(first)
