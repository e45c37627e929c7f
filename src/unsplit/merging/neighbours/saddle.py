"""How deep the density falls between two clusters.

Two parts of one cluster meet where the density is about that of the lower of their peaks; two
clusters that touch meet in a saddle below both (Chaudhuri et al. 2014; Chazal et al. 2013).  The
density is counted: how many observations lie within the distance in which the lower peak has a
given number.  So no dimension has to be estimated, and the error of a count is known.
"""

import math
from functools import cached_property

import numpy as np
from scipy import sparse

from unsplit._typing import Index, Matrix
from unsplit.merging import limits
from unsplit.merging.neighbours.graph import nearest

# Observations around a peak: the root of their number, but at least so many.
FEWEST_AROUND = 15
# With fewer, a count says nothing.
FEWEST = 5
# Peaks and saddles are those of the densest tenth, because single observations scatter.
DENSEST = 0.1


class Saddles:
    """Depths of the saddles between clusters.

    Parameters
    ----------
    X : ndarray of shape (n, d)
    adjacency : sparse matrix of shape (n, n)
        The neighbour graph.
    """

    def __init__(self, X: Matrix, adjacency: sparse.csr_array) -> None:
        self.X, self.adjacency = X, adjacency
        self.around = min(max(FEWEST_AROUND, math.isqrt(len(X))), len(X) // 3)
        self.known = self.around >= FEWEST

    @cached_property
    def distances(self) -> Matrix:
        """Distances to the nearest observations; searched for when a pair has few dimensions."""
        return nearest(self.X, self.around)[1]

    def depth(self, left: Index, right: Index) -> tuple[float, float]:
        """Log density of the lower peak minus that of the saddle, and the limit for one cluster.

        The depth is 0 if the density does not fall.

        Parameters
        ----------
        left, right : ndarrays of row indices
            The two clusters, connected by an edge at least.
        """
        edges = self.adjacency[left][:, right].tocoo()
        i, j = left[edges.coords[0]], right[edges.coords[1]]
        at_peak = self.distances[:, self.around - 1]
        radius = max(float(np.quantile(at_peak[side], DENSEST)) for side in (left, right))
        lower = np.minimum(*((self.distances[end] <= radius).sum(axis=1) for end in (i, j)))
        saddle = max(float(np.quantile(lower, 1 - DENSEST)), 0.5)
        at_border = len(np.unique(i)) + len(np.unique(j))
        return math.log(self.around / saddle), self.limit(at_border)

    def limit(self, at_border: int) -> float:
        """The deepest saddle within one cluster, given the observations at the border.

        Examples
        --------
        >>> X = np.random.default_rng(0).random((900, 2))
        >>> saddles = Saddles(X, sparse.csr_array((900, 900)))
        >>> saddles.around, round(saddles.limit(300), 2), round(saddles.limit(20), 2)
        (30, 0.38, 0.79)
        """
        narrow = min(1.0, self.around / max(at_border, 1))
        errors = limits.ERRORS + limits.ERRORS_OF_A_NARROW_BORDER * narrow
        return limits.LEAST_DEPTH + errors / math.sqrt(self.around)
