"""FINCH (Sarfraz et al. 2019): everyone joins his first neighbour, then the groups' means do.

With Euclidean distances, as the data need not have an origin the package's cosine could use.
"""

import contextlib
import io
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import silhouette_score

from benchmarks.peers.task import Outcome, Task

Index = NDArray[np.int64]


def finch(task: Task) -> Outcome:
    """FINCH of the observations."""
    return _outcome(task, task.X, np.arange(len(task.X)))


def finch_of_clusters(task: Task) -> Outcome:
    """FINCH of the clusters' means."""
    means = np.stack([task.X[task.clusters == c].mean(axis=0) for c in range(task.k)])
    return _outcome(task, means, task.clusters)


def _outcome(task: Task, points: NDArray[np.float64], leaves: Index) -> Outcome:
    """It offers a few partitions and chooses none; automatic is the one of highest silhouette.

    ``at`` is the package's own way to a number, which cannot exceed its finest partition.  All
    come from one hierarchy, so that the best has a meaning, though they need not be nested.
    """
    FINCH = _package()

    def at(n: int) -> Index:
        if n == 1:  # the package leaves this one out
            return np.zeros(len(leaves), np.int64)
        with contextlib.redirect_stdout(io.StringIO()):  # it prints when n is too large
            wanted = FINCH(points, req_clust=n, distance="euclidean")[2]
        return np.asarray(wanted, np.int64)[leaves]

    partitions = FINCH(points, distance="euclidean")[0].reshape(len(points), -1)[leaves]
    answers = list(partitions.T.astype(np.int64))
    if len(answers) > 1:
        answers.sort(key=lambda labels: float(silhouette_score(task.X, labels)))
    return Outcome(automatic=answers[-1], at=at, tree=True)


def _package() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns that faster neighbours are not installed
        try:
            from finch import FINCH
        except ImportError:
            raise ImportError("FINCH needs finch-clust: pip install unsplit[peers]") from None
    return FINCH
