"""How narrow the graph of neighbours is between two clusters.

Two clusters that are parts of one whole meet in a border as wide as the clusters are; two wholes
that touch meet in a neck.  Order the observations of both from deep inside the one to deep inside
the other, and count the edges that cross each place in this order: a neck is where few cross though
many do on either side.
"""

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.interpolate import RegularGridInterpolator
from scipy.sparse.linalg import cg

# The border is looked for this far from where the clusters' sizes put it, as a share of the
# smaller one: there may be observations of either beyond it.
SLACK = 0.2

# Keeps observations without a way to the others from making the equations singular.
LEAK = 1e-3
TOLERANCE = 1e-4
MOST_ITERATIONS = 200

# The neck that only one in a hundred borders within structureless data falls below, by the number
# of dimensions and the size of the smaller cluster: python -m benchmarks.neck_table
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


def neck(adjacency: sparse.csr_array, left: NDArray[np.int64], right: NDArray[np.int64]) -> float:
    """Edges across the border over the most edges across a place on either side of it.

    Parameters
    ----------
    adjacency : sparse matrix of shape (n, n)
    left, right : ndarrays of row indices
        The two clusters.

    Returns
    -------
    float
        At most 1, where nothing is narrower than elsewhere; 0 where no edge connects the two.

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
    """The neck that a border within structureless data falls below once in a hundred times.

    Parameters
    ----------
    dimension : float
        How many dimensions the two clusters have.
    smaller : float
        Observations in the smaller of them.

    Examples
    --------
    >>> narrowest_usual(2.0, 70)
    0.31
    """
    at = (
        np.clip(np.log(dimension), np.log(DIMENSIONS[0]), np.log(DIMENSIONS[-1])),
        np.clip(np.log(max(smaller, 1)), np.log(SIZES[0]), np.log(SIZES[-1])),
    )
    return round(float(_TABLE(at)), 12)


def potential(adjacency: sparse.csr_array, n_left: int) -> NDArray[np.float64]:
    """Voltage at each observation if a current enters evenly at the first and leaves at the rest.

    It falls steadily on the way from the one cluster to the other, whatever shape they have.
    """
    n = adjacency.shape[0]
    current = np.full(n, -1 / (n - n_left))
    current[:n_left] = 1 / n_left
    degree = adjacency.sum(axis=1) + LEAK
    conductance = sparse.diags_array(degree) - adjacency
    scaled = sparse.diags_array(1 / degree)
    voltage, _ = cg(conductance, current, rtol=TOLERANCE, maxiter=MOST_ITERATIONS, M=scaled)
    return voltage


def edges_across(adjacency: sparse.csr_array, position: NDArray[np.float64]) -> NDArray[np.float64]:
    """How many edges lead across each of the n − 1 places between consecutive observations."""
    rank = np.empty(len(position), np.int64)
    rank[np.argsort(position, kind="stable")] = np.arange(len(position))
    edges = sparse.triu(adjacency, 1, format="coo")
    ends = np.sort(np.stack([rank[edges.coords[0]], rank[edges.coords[1]]]), axis=0)
    begun, ended = (np.bincount(end, minlength=len(position)) for end in ends)
    return np.cumsum(begun - ended)[:-1].astype(np.float64)


_TABLE = RegularGridInterpolator((np.log(DIMENSIONS), np.log(SIZES)), np.array(NARROWEST))
