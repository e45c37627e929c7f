"""Ways to merge by one estimate, by features alone, or by both."""

import time
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import HDBSCAN
from sklearn.metrics import adjusted_rand_score

import unsplit
from benchmarks.baselines import euclidean
from benchmarks.common import as_options
from benchmarks.peers.communities import communities, connected
from experiments.core import Result
from experiments.imagenet_realistic.methods import FOLDS, linked, with_graph
from experiments.imagenet_realistic.overclustering import Overclustering
from unsplit import PairwiseTVD
from unsplit.merging.neighbours.graph import NeighbourGraph, graph_of_scores
from unsplit.merging.pairs import mean_rank

DIVERGENCES = ("tv", "lecam", "overlap")


def trained(X: Any, labels: NDArray[np.int64], **choices: Any) -> tuple[PairwiseTVD, float]:
    """Cross-fitted once; the estimate and the seconds it took."""
    start = time.monotonic()
    result = unsplit.pairwise_tvd(X, labels, cv=FOLDS, **as_options(**choices))
    return result, time.monotonic() - start


def merged(case: Overclustering, result: PairwiseTVD, graph: NeighbourGraph) -> Result:
    """Correct merges of every way, and what *auto* finds; ``graph`` is that of the features."""
    by_scores = graph_of_scores(result)
    right = {f"average {name}": linked(case, result.divergence(name)) for name in DIVERGENCES}
    right["default"] = _right(case, result)
    far = euclidean(case.features, case.labels)
    both = mean_rank(result.divergence("overlap"), far)
    right["average overlap + euclidean"] = linked(case, both)
    return {
        "CM": right | with_graph(case, result, graph),
        "A": float(result.mean_accuracy),
        "auto": {
            "network": found(case, result),
            "graph of scores": found(case, result, by_scores),
            "graph of features": found(case, result, graph),
        },
    }


def found(case: Overclustering, result: PairwiseTVD, graph: NeighbourGraph | None = None) -> Result:
    """How many clusters *auto* leaves, and how well they agree with the categories."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        tree = unsplit.merge(result, neighbours=graph, random_state=0)
    labels = np.array([tree.mapping[label] for label in case.labels])
    return agreement(case, labels)


def agreement(case: Overclustering, labels: NDArray[Any]) -> Result:
    """Number of clusters, and ARI over the images that are in an initial cluster."""
    return {
        "clusters": len(np.unique(labels[labels >= 0])),
        "ARI": round(float(adjusted_rand_score(case.categories, labels)), 4),
    }


def by_features(case: Overclustering, clusterings: dict[str, NDArray[np.int64]]) -> Result:
    """What needs no network: Euclidean distance, and clusterings of all images of the draw.

    The clusterings have the images that are in initial clusters first.
    """
    inside = len(case.rows)
    return {
        "CM": {"euclidean": linked(case, euclidean(case.features, case.labels))},
        "auto": {name: agreement(case, all_of[:inside]) for name, all_of in clusterings.items()},
    }


def clustered(R: NDArray[np.float32]) -> dict[str, NDArray[np.int64]]:
    """What others find in features: HDBSCAN with clusters of a hundredth, Leiden as it comes."""
    hundredth = HDBSCAN(min_cluster_size=max(5, len(R) // 100), copy=True)
    return {
        "HDBSCAN": hundredth.fit_predict(R),
        "Leiden": communities(connected(R.astype(np.float64)), resolution=1.0, seed=0),
    }


def _right(case: Overclustering, result: PairwiseTVD) -> list[int]:
    return case.right(unsplit.merge(result, n_clusters=1).linkage)
