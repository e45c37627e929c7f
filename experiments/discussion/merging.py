"""Distances in, groups out: spectral clustering, and merging."""

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import SpectralClustering
from sklearn.metrics import adjusted_rand_score

import unsplit
from benchmarks.common import as_options
from experiments.artificial import DIVERGENCES, PAPER
from experiments.core import Result
from experiments.discussion.overclusterings import Problem
from unsplit import PairwiseTVD
from unsplit.errors import PartitionWarning
from unsplit.metrics import (
    category_counts,
    correct_merges,
    majority_categories,
    n_unique_majorities,
    purity,
    quality,
)
from unsplit.networks.training.progress import EpochRecord
from unsplit.pairwise.statistics import mean_accuracy

STATISTICS = ("tv", "lecam", "overlap")


def run_spectral(given: Problem, seed: int, device: str, epochs: int) -> Result:
    """Spectral clustering of 1 − distance against the average-linkage tree of the same matrix."""
    result, price = timed(
        lambda: unsplit.pairwise_tvd(
            given.X,
            given.labels,
            device=device,
            random_state=seed,
            **as_options(epochs=epochs, **given.network),
        )
    )
    _, price_of_a = timed(lambda: mean_accuracy(result.balanced_accuracy))
    groups = n_unique_majorities(given.labels, given.categories)
    found: dict[str, dict[str, float]] = {"linkage": {}, "spectral": {}}
    for name in STATISTICS:
        matrix = result.divergence(name)
        tree = unsplit.merge(matrix, n_clusters=groups)
        found["linkage"][name] = agreement(given, tree.groups)
        found["spectral"][name] = agreement(given, spectral_groups(matrix, groups, seed))
    return about(given, result) | {
        "groups": groups,
        "ARI": found,
        "highest ARI": agreement(given, _by_majority(given)),
        "CPU seconds": price,
        "CPU seconds of A": price_of_a,
    }


def spectral_groups(matrix: NDArray[np.float64], n_groups: int, seed: int) -> NDArray[np.int64]:
    """Spectral clustering by 1 − distance."""
    # Slightly above zero, because the spectral embedding needs a connected graph.
    similarity = np.clip(1 - matrix, 1e-6, 1.0)
    drawn = int(np.random.default_rng(seed).integers(2**31))
    model = SpectralClustering(n_groups, affinity="precomputed", random_state=drawn)
    return model.fit_predict(similarity).astype(np.int64)


def _by_majority(given: Problem) -> NDArray[np.int64]:
    """The right groups: more than that no merging can do, for clusters are not pure."""
    majority = majority_categories(given.labels, given.categories)
    return np.unique(majority, return_inverse=True)[1].astype(np.int64)


def run_merging(given: Problem, strategy: str, seed: int, device: str, epochs: int) -> Result:
    """One way of merging down to as many clusters as there are majority categories; the whole tree.

    "paper" trains one network, whose hard accuracy on a fifth held out ranks, and trains it anew
    after every merge.
    """
    groups = n_unique_majorities(given.labels, given.categories)
    same: dict[str, Any] = {
        "epochs": epochs,
        "device": device,
        "random_state": seed,
    } | given.network
    if strategy == "paper":
        result = unsplit.pairwise_tvd(given.X, given.labels, **as_options(**PAPER, **same))
        (tree, _), price = timed(
            lambda: unsplit.paper(given.X, given.labels, n_clusters=groups, **as_options(**same))
        )
        return _judged(given, groups, tree, result, result.n_clusters - groups, price)
    trainings = 0

    def count(record: EpochRecord) -> None:
        nonlocal trainings
        trainings += record.epoch == 0

    merger = unsplit.ClusterMerger(groups, **as_options(**same), progress=count)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PartitionWarning)
        _, price = timed(lambda: merger.fit(given.X, initial_labels=given.labels))
    return _judged(given, groups, merger.tree_, merger.pairwise_, trainings, price)


def _judged(
    given: Problem,
    groups: int,
    tree: unsplit.MergeTree,
    result: PairwiseTVD,
    trainings: int,
    price: float,
) -> Result:
    k = tree.n_initial
    first = [(merge.left, merge.right) for merge in tree.merges[: k - groups]]
    right = correct_merges(first, category_counts(given.labels, given.categories))
    return about(given, result) | {
        "groups": groups,
        "merges": k - groups,
        "correct": int(right[-1]),
        "ARI": agreement(given, tree.cut(n_clusters=groups).groups),
        "trainings": int(trainings),
        "CPU seconds": price,
    }


def about(given: Problem, result: PairwiseTVD) -> Result:
    """What is known of the distances and of the clusters."""
    majority = majority_categories(given.labels, given.categories)
    return {
        "k": result.n_clusters,
        "n": int((given.labels >= 0).sum()),
        "purity": purity(given.labels, given.categories),
        "A": float(result.mean_accuracy),
        "1-Q": {name: 1 - quality(result.divergence(name), majority) for name in DIVERGENCES},
    }


def agreement(given: Problem, groups: NDArray[np.int64]) -> float:
    """ARI of observations with their categories, once each cluster is in one of the groups."""
    used = given.labels >= 0
    _, cluster = np.unique(given.labels[used], return_inverse=True)
    return float(adjusted_rand_score(given.categories[used], groups[cluster]))


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What came of it, and its seconds of processor time: others on the machine do not count."""
    start = time.process_time()
    found = work()
    return found, time.process_time() - start
