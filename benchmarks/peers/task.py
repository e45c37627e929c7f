"""What is compared: problems with a known answer, the task a method sees, and what it answers."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Problem:
    """Observations and the groups they truly belong to.

    Parameters
    ----------
    name : str
    X : ndarray of shape (n, d)
        Scaled as a sensible user would.
    y : ndarray of shape (n,)
        True groups, numbered from 0; −1 for noise, which is clustered but not scored.
    """

    name: str
    X: NDArray[np.float64]
    y: NDArray[np.int64]

    @property
    def n_true(self) -> int:
        """Number of true groups."""
        return len(np.unique(self.y[self.y >= 0]))


@dataclass(frozen=True, eq=False)
class Task:
    """What a method may see.

    Parameters
    ----------
    X : ndarray of shape (n, d)
    clusters : ndarray of shape (n,)
        The over-clustering: 0 … k−1, each of them used, no noise.
    seed : int
    """

    X: NDArray[np.float64]
    clusters: NDArray[np.int64]
    seed: int

    @property
    def k(self) -> int:
        """Number of clusters to start from."""
        return int(self.clusters.max()) + 1


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a method answers.

    Parameters
    ----------
    automatic : ndarray of shape (n,), optional
        The labels it stops at by itself.
    at : callable, optional
        The labels when so many groups are asked for, shape (n,).
    tree : bool
        Whether ``at`` are cuts of one tree, so that a best cut has a meaning.
    seconds : float, optional
        Time of this one, where a family shares work and knows better than the total.
    """

    automatic: NDArray[np.int64] | None = None
    at: Callable[[int], NDArray[np.int64]] | None = None
    tree: bool = False
    seconds: float | None = None


# One piece of work may answer for several methods: their names, and what each of them says.
Method = Callable[[Task], dict[str, Outcome]]
