"""How wide the neighbour graph is where two clusters meet.

Two parts of one cluster meet along a border as wide as the parts themselves; two clusters that only
touch meet in a narrow neck.  To measure it, the observations of both are ordered from deep inside
one to deep inside the other, and the edges across each place in this order are counted.  At a neck
few edges cross, although many do on either side.
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

# The border is searched for this far from where the sizes of the clusters put it, as a share of the
# smaller size, because some observations may lie on the other side.
SLACK = 0.2

# Keeps the equations from being singular if some observations are not connected to the others.
LEAK = 1e-3
TOLERANCE = 1e-4
MOST_ITERATIONS = 200

# The 1 % quantile of the neck at borders within structureless data, by dimension and size of the
# smaller cluster: python -m benchmarks.neck_table
DIMENSIONS = (1.1, 1.5, 2.0, 2.6, 3.5, 5.0)
SIZES = (12, 32, 70, 170, 600)
NARROWEST = (
    (0.37, 0.20, 0.19, 0.10, 0.04),
    (0.39, 0.33, 0.31, 0.33, 0.04),
    (0.53, 0.33, 0.31, 0.33, 0.36),
    (0.53, 0.35, 0.35, 0.35, 0.41),
    (0.54, 0.40, 0.37, 0.37, 0.41),
    (0.54, 0.41, 0.38, 0.37, 0.41),
)
_LOG_DIMENSIONS, _LOG_SIZES = np.log(DIMENSIONS), np.log(SIZES)


def neck(adjacency: sparse.csr_array, left: NDArray[np.int64], right: NDArray[np.int64]) -> float:
    """Edges across the border divided by the largest number of edges on either side.

    Parameters
    ----------
    adjacency : sparse matrix of shape (n, n)
    left, right : ndarrays of row indices
        The two clusters.

    Returns
    -------
    float
        1 if the graph is no narrower at the border; 0 if no edge connects the two.

    Examples
    --------
    >>> line = sparse.csr_array(np.eye(8, k=1) + np.eye(8, k=-1))
    >>> neck(line, np.arange(4), np.arange(4, 8))
    1.0
    """
    rows = np.concatenate([left, right])
    within = adjacency[rows][:, rows]
    crossing = edges_across(within, -potential(within, len(left)))
    border, slack = len(left) - 1, max(1, int(SLACK * min(len(left), len(right))))
    first = max(0, border - slack)
    place = first + int(np.argmin(crossing[first : border + slack + 1]))
    widest = min(crossing[: place + 1].max(), crossing[place:].max())
    return float(crossing[place] / widest) if widest else 0.0


def narrowest_usual(dimension: float, smaller: float) -> float:
    """The 1 % quantile of the neck at borders within structureless data.

    Parameters
    ----------
    dimension : float
        Local dimension of the two clusters.
    smaller : float
        Number of observations in the smaller one.

    Examples
    --------
    >>> narrowest_usual(2.0, 70)
    0.31
    """
    size = math.log(max(smaller, 1))
    by_dimension = [np.interp(size, _LOG_SIZES, row) for row in NARROWEST]
    found = np.interp(math.log(dimension), _LOG_DIMENSIONS, by_dimension)
    return round(float(found), 12)


def potential(adjacency: sparse.csr_array, n_left: int) -> NDArray[np.float64]:
    """Voltage of each observation if a current flows from the first ``n_left`` to the others.

    It falls steadily from one cluster to the other, whatever their shapes are.
    """
    n = adjacency.shape[0]
    current = np.full(n, -1 / (n - n_left))
    current[:n_left] = 1 / n_left
    return _voltage(adjacency, adjacency.sum(axis=1) + LEAK, current)


def _voltage(
    adjacency: sparse.csr_array, degree: NDArray[np.float64], right: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Solve (degree − adjacency) · voltage = right by conjugate gradients, scaled by the degrees.

    The numbers are those of :func:`scipy.sparse.linalg.cg`, in half the time for small matrices.
    """
    solution, residual = np.zeros(len(right)), right.copy()
    direction, before = np.zeros(len(right)), np.inf
    enough = TOLERANCE * np.linalg.norm(right)
    for _ in range(MOST_ITERATIONS):
        if np.linalg.norm(residual) < enough:
            break
        scaled = residual / degree
        now = np.dot(residual, scaled)
        direction *= now / before
        direction += scaled
        changed = degree * direction - adjacency @ direction
        step = now / np.dot(direction, changed)
        solution += step * direction
        residual -= step * changed
        before = now
    return solution


def edges_across(adjacency: sparse.csr_array, position: NDArray[np.float64]) -> NDArray[np.float64]:
    """Number of edges across each of the n − 1 places between consecutive observations."""
    rank = np.empty(len(position), np.int64)
    rank[np.argsort(position, kind="stable")] = np.arange(len(position))
    edges = adjacency.tocoo()
    first, last = rank[edges.coords[0]], rank[edges.coords[1]]
    once = first < last
    begun, ended = (np.bincount(end[once], minlength=len(position)) for end in (first, last))
    return np.cumsum(begun - ended)[:-1].astype(np.float64)
