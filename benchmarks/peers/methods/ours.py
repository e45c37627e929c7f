"""Our own: one training, and every ranking and stopping rule on what it gave."""

import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import unsplit
from benchmarks.peers.task import Outcome, Task
from unsplit import ClusterMerger
from unsplit.merging.options import MergeOptions

WITHOUT_NEIGHBOURS = "unsplit, without neighbours"
# One setting of the merge changed, the same networks and neighbours.  Under the names of recorded
# results: ``rank_by`` was ``statistic``.
MERGED_OTHERWISE: dict[str, dict[str, Any]] = {
    "unsplit, statistic=lecam": {"rank_by": "lecam"},
    "unsplit, statistic=tv": {"rank_by": "tv"},
    "unsplit, statistic=overlap": {"rank_by": "overlap"},
}
RULES: dict[str, dict[str, Any]] = {
    "unsplit, alpha=0.05": {"alpha": 0.05},
    "unsplit, max_tvd=0.5": {"max_tvd": 0.5},
}
# One setting changed, other networks.
TRAINED_OTHERWISE: dict[str, dict[str, Any]] = {
    "unsplit, loss=pairwise": {"training": unsplit.TrainConfig(loss="pairwise")},
    "unsplit, cv=3": {"cv": 3},
    "unsplit, cv=10": {"cv": 10},
    "unsplit, holdout=0.2": {"cv": 0.2},
    "unsplit, epochs=10": {"training": unsplit.TrainConfig(epochs=10)},
    "unsplit, epochs=30": {"training": unsplit.TrainConfig(epochs=30)},
    "unsplit, backbone=single-layer": {"backbone": "single-layer"},
}
# The same tree; then observations go where their neighbours are.
REFINED = "unsplit, refined"


def unsplit_family(task: Task) -> dict[str, Outcome]:
    """Network and neighbours once, then each way to merge; all times include the training."""
    start = time.process_time()
    merged = _merge_anew(task)
    seconds = time.process_time() - start
    return {
        "unsplit": _outcome(merged.tree_, task, seconds),
        REFINED: _refined(merged, task, seconds),
        WITHOUT_NEIGHBOURS: _again(merged, task, seconds, {"neighbours": None}),
    }


def merged_otherwise(task: Task) -> dict[str, Outcome]:
    """The same network and neighbours as by default, with one setting of the merge changed."""
    again = partial(_again, _merge_anew(task), task, 0.0)
    outcomes = {name: again(merge_options) for name, merge_options in MERGED_OTHERWISE.items()}
    return outcomes | {
        name: replace(again(merge_options), at=None, tree=False)
        for name, merge_options in RULES.items()
    }


def trained_otherwise(name: str) -> Callable[[Task], Outcome]:
    """With one setting of the training changed."""

    def run(task: Task) -> Outcome:
        return _outcome(_merge_anew(task, **TRAINED_OTHERWISE[name]).tree_, task, None)

    return run


def _merge_anew(task: Task, **settings: Any) -> ClusterMerger:
    merger = ClusterMerger(device="cpu", random_state=task.seed, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of partitions, and of small clusters
        return merger.fit(task.X, initial_labels=task.clusters)


def _again(
    merged: ClusterMerger, task: Task, before: float, merge_options: dict[str, Any]
) -> Outcome:
    start = time.process_time()
    given = {"neighbours": merged.neighbours_, "random_state": task.seed}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        tree = unsplit.merge(merged.pairwise_, **given | merge_options)
    return _outcome(tree, task, before + time.process_time() - start)


def _refined(merged: ClusterMerger, task: Task, before: float) -> Outcome:
    def at(n: int) -> Any:
        gaps = MergeOptions(n_clusters=n).gaps(merged.tree_.strategy)
        cut = merged.tree_.cut(n_clusters=n)
        return merged._refined(cut.labels(task.clusters), cut, gaps)

    start = time.process_time()
    found = merged.refined_labels_
    return Outcome(found, at, seconds=before + time.process_time() - start)


def _outcome(tree: unsplit.MergeTree, task: Task, seconds: float | None) -> Outcome:
    def at(n: int) -> Any:
        return tree.cut(n_clusters=n).labels(task.clusters)

    return Outcome(tree.labels(task.clusters), at, tree=True, seconds=seconds)
