"""Exact optimal transport between samples of one size, and the function that attains it."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

Array = NDArray[np.float64]


def exact_distance(a: Array, b: Array) -> float:
    """W1 of two samples (n, d): the cheapest way to match them.

    Examples
    --------
    >>> exact_distance(np.array([[0.0], [1.0]]), np.array([[5.0], [3.0]]))
    3.5
    """
    cost = cdist(a, b)
    return float(cost[linear_sum_assignment(cost)].mean())


def exact_distances(X: Array, clusters: NDArray[np.int64], rng: np.random.Generator) -> Array:
    """W1 of all pairs; of the larger cluster as many observations are drawn as the smaller has."""
    parts = [X[clusters == c] for c in range(int(clusters.max()) + 1)]
    found = np.zeros((len(parts), len(parts)))
    for i, j in zip(*np.triu_indices(len(parts), 1), strict=True):
        found[i, j] = found[j, i] = exact_distance(*same_size((parts[i], parts[j]), rng))
    return found


def same_size(parts: Sequence[Array], rng: np.random.Generator) -> list[Array]:
    """As many rows of each, drawn at random."""
    n = min(len(part) for part in parts)
    return [rng.permutation(part)[:n] for part in parts]


def value_of_best_function(train: Sequence[Array], test: Sequence[Array]) -> float:
    """What the function that attains W1 between two training samples gives between two others.

    It is known at the training observations only, and extended by f(x) = min |x − b| + f(b) over
    those of the second sample, as large as a 1-Lipschitz function can be.
    """
    a, b = train
    at_b = best_function(a, b)
    first, second = (np.min(cdist(rows, b) + at_b, axis=1).mean() for rows in test)
    return float(first - second)


def best_function(a: Array, b: Array) -> Array:
    """Values at b (n,) of a 1-Lipschitz f with mean f(a) − mean f(b) = W1 for samples of one size.

    Where a goes to b, f falls by |a − b|.  So with b_i the partner of a_i it must be that
    f(a_i) ≤ f(a_j) − |a_j − b_j| + |a_i − b_j| for all j: lengths of shortest paths are such an f.

    Examples
    --------
    >>> a, b = np.array([[0.0], [1.0]]), np.array([[3.0], [5.0]])
    >>> best_function(a, b)
    array([-3., -5.])
    """
    cost = cdist(a, b)
    partner = linear_sum_assignment(cost)[1]
    cost = cost[:, partner]
    step = cost - np.diag(cost)
    f, before = np.zeros(len(a)), None
    while before is None or (f < before - 1e-9).any():
        f, before = np.minimum(f, np.min(f + step, axis=1)), f
    at_b = np.empty(len(b))
    at_b[partner] = f - np.diag(cost)
    return at_b
