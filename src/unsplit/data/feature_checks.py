"""Warnings of features that are no measurements or drown all others, and of dependent rows."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsplit._typing import Index
from unsplit.errors import DependenceWarning, FeatureWarning, option, warn

# The fewest rows of which anything can be said, and the most that are looked at.
FEWEST_ROWS = 10
SAMPLED_ROWS = 10_000

# Columns drown the others if at most a quarter of all hold this share of the variance and spread
# this many times as far as the others usually do.
MOST_OF_VARIANCE = 0.8
TIMES_AS_FAR = 5

# Whether the next observation of a cluster is nearer than the one so many later.  Both are as near
# if the order is random, and if it is that of larger groups, such as of known categories.
LATER = 8
# The order is said to matter from this share on, if chance would hardly reach it.  It is the
# share for two features with a serial correlation of about 0.6, or ten with one of about 0.3.
NEARER, STANDARD_ERRORS = 0.7, 5.0
# float64 values that are compared (32 MiB), and the most of one observation.
MOST_NUMBERS, MOST_OF_ONE = 2**22, 2**12

SCALE = "scale them, by sklearn.preprocessing.StandardScaler or --scale of the command line"


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
