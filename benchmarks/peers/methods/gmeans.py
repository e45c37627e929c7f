"""G-means (Hamerly and Elkan 2003): split what is not Gaussian along the line between two halves.

Written from the paper: one cluster to start from, two children on the main principal component, an
Anderson–Darling test of the projection onto the line between them, and k-means of all after every
round of splits.
"""

import warnings

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from benchmarks.peers.task import Outcome, Task

Matrix = NDArray[np.float64]

# Of the corrected statistic, at a level of 0.0001, as the paper has it.
CRITICAL = 1.8692
# The correction for small samples has no meaning below.
FEWEST = 8


def gmeans(task: Task) -> Outcome:
    """Split until every cluster looks Gaussian."""
    centres = task.X.mean(axis=0, keepdims=True)
    while True:
        model = _k_means(task.X, centres)
        parts = [
            _split(task.X[model.labels_ == c], centre)
            for c, centre in enumerate(model.cluster_centers_)
        ]
        centres = np.concatenate(parts)
        if len(centres) == len(parts):
            return Outcome(automatic=model.labels_.astype(np.int64))


def _split(X: Matrix, centre: Matrix) -> Matrix:
    """The two children's centres if the observations do not look Gaussian, else their own."""
    if len(X) < FEWEST:
        return centre[None]
    _, lengths, directions = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    # The paper's: half of a Gaussian has its mean this far out on the main component.
    step = directions[0] * lengths[0] * np.sqrt(2 / (np.pi * len(X)))
    children = _k_means(X, np.stack([centre + step, centre - step])).cluster_centers_
    values = X @ (children[0] - children[1])
    if values.std() <= 1e-9 * max(1.0, float(np.abs(values).max())):
        return centre[None]
    return children if anderson_darling(values) > CRITICAL else centre[None]


def anderson_darling(values: Matrix) -> float:
    """The statistic for a normal distribution of unknown mean and variance, corrected for size."""
    n = len(values)
    z = np.sort((values - values.mean()) / values.std(ddof=1))
    weights = 2 * np.arange(1, n + 1) - 1
    statistic = -n - np.mean(weights * (log_ndtr(z) + log_ndtr(-z[::-1])))
    return float(statistic * (1 + 4 / n - 25 / n**2))


def _k_means(X: Matrix, centres: Matrix) -> KMeans:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct observations
        return KMeans(len(centres), init=centres, n_init=1).fit(X)
