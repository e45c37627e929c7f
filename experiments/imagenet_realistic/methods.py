"""Ways to merge an over-clustering, and how many merges of each are right."""

import time
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import unsplit
from benchmarks.baselines import euclidean
from benchmarks.common import as_options
from experiments.artificial import DIVERGENCES, PAPER
from experiments.core import Result
from experiments.imagenet_realistic.overclustering import Overclustering
from unsplit import PairwiseTVD
from unsplit.errors import PartitionWarning
from unsplit.merging.neighbours.graph import Connections, NeighbourGraph, graph_of_scores
from unsplit.merging.pairs import mean_rank

FOLDS = 5


def by_features(case: Overclustering) -> Result:
    """Mean Euclidean distance over all pairs of images of two clusters: the paper's baseline."""
    return {"CM": {"euclidean": linked(case, euclidean(case.features, case.labels))}}


def linked(case: Overclustering, distances: NDArray[np.float64]) -> list[int]:
    """CM of average linkage."""
    return case.right(unsplit.merge(distances, n_clusters=1).linkage)


def trained_once(
    case: Overclustering, X: Any, features: NDArray[np.float32], **choices: Any
) -> Result:
    """Cross-fitted once; CM for every way to rank pairs by what came out.

    ``X`` are all images of the subset, as :meth:`Overclustering.with_outside` has them, and
    ``features`` their rows of the representation.
    """
    _, labels = case.with_outside()
    start = time.monotonic()
    result = unsplit.pairwise_tvd(X, labels, cv=FOLDS, **as_options(**choices))
    seconds = time.monotonic() - start
    graph = unsplit.neighbour_graph(features, labels)
    return {
        "CM": ranked(case, result) | with_graph(case, result, graph),
        "A": float(result.mean_accuracy),
        "auto": _found(result),
        "networks": FOLDS,
        "epochs run": len(result.history.epoch),
        "training seconds": round(seconds, 2),
    }


def ranked(case: Overclustering, result: PairwiseTVD) -> dict[str, list[int]]:
    """CM of many ways to merge by one estimate.

    "default" is what :func:`unsplit.merge` does when told a number of clusters, which is average
    linkage of overlap where most images are in no cluster.  "valleys first" is what it did
    elsewhere when stored results were made; now the graph of scores goes first there.
    "+ euclidean" goes by the mean rank among both distances.
    """
    forgotten = replace(result, n_noise=0)  # that there are images in no cluster
    right = {
        "default": case.right(unsplit.merge(result, n_clusters=1).linkage),
        "valleys first": case.right(unsplit.merge(forgotten, n_clusters=1).linkage),
    }
    right |= {f"average {name}": linked(case, result.divergence(name)) for name in DIVERGENCES}
    far = euclidean(case.features, case.labels)
    for name in ("lecam", "overlap"):
        both = mean_rank(result.divergence(name), far)
        right[f"average {name} + euclidean"] = linked(case, both)
    return right


def with_graph(
    case: Overclustering, result: PairwiseTVD, graph: NeighbourGraph
) -> dict[str, list[int]]:
    """CM by edges between clusters: among scores, among features, and with overlap.

    ``graph`` connects the features.  "overlap + graph" goes by the mean rank among both.
    """
    by_scores = graph_of_scores(result)
    assert by_scores is not None

    def by_edges(neighbours: NeighbourGraph) -> list[int]:
        tree = unsplit.merge(result, n_clusters=1, neighbours=neighbours, rank_by="edges")
        return case.right(tree.linkage)

    both = mean_rank(result.divergence("overlap"), Connections(graph).distances())
    return {
        "graph of scores": by_edges(by_scores),
        "graph of features": by_edges(graph),
        "average overlap + graph": linked(case, both),
    }


def retrained(
    case: Overclustering, X: Any, merges: int, random_state: int, **choices: Any
) -> Result:
    """The paper's method: train, merge the closest pair, train anew.

    Few images are held out, so many pairs are as close as others; chance decides between them.
    "paper, once" is average linkage of the first training's accuracies.
    """
    rng = np.random.default_rng(random_state)
    labels, k = case.labels.copy(), int(case.labels.max()) + 1
    made, epochs, start = [], 0, time.monotonic()
    first: PairwiseTVD | None = None
    for node in range(k, k + merges):
        seed = int(rng.integers(2**31))
        result = unsplit.pairwise_tvd(
            X, labels, random_state=seed, **as_options(**PAPER, **choices)
        )
        first = result if first is None else first
        epochs += len(result.history.epoch)
        pair = result.cluster_ids[closest(result.balanced_accuracy, rng)]
        made.append(pair)
        labels[np.isin(labels, pair)] = node
    seconds = time.monotonic() - start
    assert first is not None
    return {
        "CM": {"paper": case.right(made), "paper, once": linked(case, first.tvd)},
        "A": float(first.mean_accuracy),
        "networks": merges,
        "epochs run": epochs,
        "training seconds": round(seconds, 2),
    }


def published(
    case: Overclustering, X: Any, merges: int, random_state: int, **choices: Any
) -> Result:
    """The paper's method in one call: :func:`unsplit.paper`."""
    k, start = int(case.labels.max()) + 1, time.monotonic()
    tree, distances = unsplit.paper(
        X, case.labels, n_clusters=k - merges, random_state=random_state, **as_options(**choices)
    )
    return {
        "CM": {"published": case.right(tree.linkage)[:merges]},
        "A": float(distances[np.triu_indices(k, 1)].mean()),
        "networks": merges,
        "training seconds": round(time.monotonic() - start, 2),
    }


def closest(distances: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.int64]:
    """A closest pair, any of them.

    Examples
    --------
    >>> closest(np.array([[0, 3, 2], [3, 0, 4], [2, 4, 0]]), np.random.default_rng(0))
    array([0, 2])
    """
    i, j = np.triu_indices(len(distances), 1)
    between = distances[i, j]
    one = rng.choice(np.flatnonzero(between == between.min()))
    return np.array([i[one], j[one]])


def _found(result: PairwiseTVD) -> int:
    """How many clusters remain if nobody says a number."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PartitionWarning)
        return unsplit.merge(result).n_clusters
