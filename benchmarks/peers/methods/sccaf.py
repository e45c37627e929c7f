"""SCCAF (Miao et al. 2020), re-implemented: merge what a logistic regression confuses, in rounds.

Same steps and defaults as ``SCCAF_optimize_all`` of version 0.0.10, but clusters keep their names
from round to round.  There they are sorted as strings once and as numbers once, so that with more
than ten clusters the wrong ones are merged.
"""

import random
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier

from benchmarks.peers.task import Outcome, Task

Matrix = NDArray[np.float64]
Index = NDArray[np.int64]

MIN_ACCURACY = 0.9
SHARE_CUTOFF, SHARE_STEP = 0.5, 0.01  # R1: confused, of those predicted right
TOTAL_CUTOFF, TOTAL_STEP = 0.05, 0.001  # R2: confused, of all
OUTER_ROUNDS, OUTER_ROUNDS_AT_LEAST, INNER_ROUNDS = 10, 3, 10
REPEATS = 3
MOST_TRAINED = 100


def sccaf(task: Task) -> Outcome:
    """Rounds with ever lower cutoffs, until the accuracy on held-out observations suffices."""
    rng = np.random.default_rng(task.seed)
    labels, cutoffs = task.clusters, (SHARE_CUTOFF, TOTAL_CUTOFF)
    for outer in range(OUTER_ROUNDS):
        labels, answer, accuracy, (share, total) = _optimize(task.X, labels, cutoffs, rng)
        cutoffs = share - SHARE_STEP, total - TOTAL_STEP
        unchanged = answer.max() == task.clusters.max() and outer >= OUTER_ROUNDS_AT_LEAST
        if unchanged or accuracy >= MIN_ACCURACY:
            break
    return Outcome(automatic=answer)


def _optimize(
    X: Matrix, labels: Index, cutoffs: tuple[float, float], rng: np.random.Generator
) -> tuple[Index, Index, float, tuple[float, float]]:
    """Merge at fixed cutoffs.

    Returns labels to go on from, labels to answer, and the last round's least accuracy and largest
    confusions.  Where all would be one, that is the answer, but the next cutoffs get a chance.
    """
    for _ in range(INNER_ROUNDS):
        share, total, accuracy = _confusions(X, labels, rng)
        largest = (1.0 if np.isnan(share).any() else float(share.max()), float(total.max()))
        if accuracy > MIN_ACCURACY:
            break
        groups = _communities((share > cutoffs[0]) | (total > cutoffs[1]), rng)
        if groups.max() == 0:
            return labels, groups[labels], accuracy, largest
        if groups.max() + 1 == len(groups):
            break
        labels = groups[labels]
    return labels, labels, accuracy, largest


def _confusions(X: Matrix, labels: Index, rng: np.random.Generator) -> tuple[Matrix, Matrix, float]:
    """R1 and R2, each the least of three divisions into training and test, and the accuracy."""
    counts, shares, accuracies = [], [], []
    for _ in range(REPEATS):
        trained = _training(labels, rng)
        # One against all others, as liblinear did it by itself when SCCAF was written.
        lasso = LogisticRegression(C=0.5, l1_ratio=1.0, solver="liblinear", random_state=1)
        model = OneVsRestClassifier(lasso).fit(X[trained], labels[trained])
        table = _table(labels[~trained], model.predict(X[~trained]), int(labels.max()) + 1)
        counts.append(table)
        right = np.diag(table)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = table / right
        np.fill_diagonal(ratio, 0.0)
        shares.append(np.maximum(ratio, ratio.T))
        accuracies.append(right.sum() / max(table.sum(), 1))
    least = np.minimum.reduce(counts)
    total = (least + least.T) / max(least.sum(), 1)
    np.fill_diagonal(total, 0.0)
    return np.minimum.reduce(shares), total, float(min(accuracies))


def _training(labels: Index, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Half of every cluster but at most 100; nine tenths of those below ten."""
    trained = np.zeros(len(labels), bool)
    for cluster in range(int(labels.max()) + 1):
        members = rng.permutation(np.flatnonzero(labels == cluster))
        share = 0.5 if len(members) >= 10 else 0.9
        trained[members[: min(round(share * len(members)), MOST_TRAINED)]] = True
    return trained


def _table(true: Index, predicted: Index, k: int) -> Matrix:
    table = np.zeros((k, k))
    np.add.at(table, (true, predicted), 1)
    return table


def _communities(adjacency: NDArray[np.bool_], rng: np.random.Generator) -> Index:
    """Louvain's communities of the graph, at resolution 1."""
    igraph = _package()
    np.fill_diagonal(adjacency, False)
    # It draws from the global generator unless told.
    igraph.set_random_number_generator(random.Random(int(rng.integers(2**31))))
    try:
        graph = igraph.Graph.Adjacency(adjacency | adjacency.T, mode="undirected")
        return np.array(graph.community_multilevel().membership, np.int64)
    finally:
        igraph.set_random_number_generator(random)


def _package() -> Any:
    try:
        import igraph
    except ImportError:
        raise ImportError("SCCAF needs igraph: pip install unsplit[peers]") from None
    return igraph
