"""From observations and an over-clustering to a merge tree: what estimator and commands run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unsplit._typing import Index
from unsplit.data.labels import encode_labels
from unsplit.data.rows.vectors import VectorRows
from unsplit.errors import InputError
from unsplit.merging.api import merge
from unsplit.merging.inputs import Link, constraints
from unsplit.merging.loop import MergeRecord
from unsplit.merging.neighbours.api import graph_of_scores, neighbour_graph
from unsplit.merging.neighbours.graph import NeighbourGraph
from unsplit.merging.options import (
    check_rules,
    check_strategy,
    exactly,
    looks_like_partition,
)
from unsplit.merging.ranking import Estimate
from unsplit.merging.tree import MergeTree
from unsplit.pairwise.api import Settings, fit
from unsplit.pairwise.heldout_scores import Fitted, Progress
from unsplit.pairwise.result import PairwiseTVD
from unsplit.randomness import generator_of

# The blurred only ranks pairs and looks for valleys; more folds made neither better.
BLURRED_FOLDS = 3


@dataclass(frozen=True)
class MergeOptions:
    """The choices of :func:`unsplit.merge`, under the same names."""

    n_clusters: int | None = None
    max_tvd: float | None = None
    alpha: float | None = None
    strategy: str = "linkage"
    statistic: str = "auto"
    linkage: str = "average"
    must_link: Sequence[Link] = ()
    cannot_link: Sequence[Link] = ()
    min_clusters: int | None = None
    max_clusters: int | None = None

    def check(self, cluster_ids: NDArray[Any]) -> None:
        """Refuse before the work starts what would be refused at its end."""
        check_strategy(self.strategy, self.linkage, True, self.n_clusters, True)
        check_rules(self.n_clusters, self.max_tvd, self.alpha)
        fewest, most = self.min_clusters, self.max_clusters
        if self.n_clusters is not None:
            fewest, most = exactly(self.n_clusters, fewest, most, len(cluster_ids))
        constraints(cluster_ids, self.must_link, self.cannot_link, fewest, most)


@dataclass(frozen=True, eq=False)
class Merged:
    """Networks, the neighbours or the blurred estimate where there is one, and the tree."""

    fitted: Fitted
    blurred: PairwiseTVD | None
    neighbours: NeighbourGraph | None
    tree: MergeTree


def merge_overclustering(
    X: Any,
    labels: ArrayLike,
    merge_options: MergeOptions,
    settings: Settings,
    random_state: object = None,
    progress: bool | Progress = False,
    on_merge: Callable[[MergeRecord], None] | None = None,
    done: MergeRecord | None = None,
    batch: ArrayLike | None = None,
    features: Any = None,
) -> Merged:
    """Estimate all distances, look for neighbours, and merge.

    Neighbours are looked for in ``features``, or in X if these are vectors or counts.  A second
    estimate, of blurred densities, is made where the answer depends on it.
    """
    merge_options.check(encode_labels(labels, np.size(labels)).cluster_ids)
    seeds = generator_of(random_state).integers(2**63, size=4)
    fitted = fit(X, labels, settings, seeds[0], progress, batch)
    graph = _neighbours(features, labels, fitted, settings, batch)
    blurred = None
    if _needs_blurred(merge_options, graph is not None) and looks_like_partition(fitted.result):
        changed = _blurred_settings(fitted.rows.kind, settings)
        if changed is not None:
            blurred = fit(X, labels, changed, seeds[1], progress, batch).result
    tree = merge(
        fitted.result,
        **vars(merge_options),
        blurred=blurred,
        neighbours=graph,
        homes=None if isinstance(fitted.rows, VectorRows) else fitted.homes(),
        estimate=_estimate(
            X, labels, fitted, merge_options.strategy, settings, int(seeds[2]), batch
        ),
        random_state=int(seeds[3]),
        on_merge=on_merge,
        done=done,
    )
    return Merged(fitted, blurred, graph, tree)


def _neighbours(
    features: Any, labels: ArrayLike, fitted: Fitted, settings: Settings, batch: ArrayLike | None
) -> NeighbourGraph | None:
    """The graph of neighbours: of vectors as they are, of other data by what networks see."""
    if features is None:
        if not isinstance(fitted.rows, VectorRows):
            return graph_of_scores(fitted.result)
        features = fitted.rows.values
    elif np.shape(features)[:1] != (len(fitted.rows),):
        raise InputError(
            f"X has {len(fitted.rows)} observations but features has shape {np.shape(features)}; "
            "pass one row of features for each."
        )
    with_batches = None if fitted.subclusters.n_batches == 1 else batch
    return neighbour_graph(features, labels, batch=with_batches, device=settings.device)


def _blurred_settings(kind: str, settings: Settings) -> Settings | None:
    """How to look at blurred densities; only of vectors, as nobody knows how to blur others."""
    if kind not in ("vectors", "counts"):
        return None
    blurred = replace(settings, blurred=True, cv=min(settings.cv, BLURRED_FOLDS))
    if kind == "counts":
        blurred = replace(blurred, backbone="mlp", training=None)
    return blurred


def _needs_blurred(merge_options: MergeOptions, has_neighbours: bool) -> bool:
    if merge_options.strategy == "compose":
        return True
    looks_for_valleys = merge_options.max_tvd is None and merge_options.alpha is None
    return merge_options.strategy == "linkage" and looks_for_valleys and not has_neighbours


def _estimate(
    X: Any,
    labels: ArrayLike,
    fitted: Fitted,
    strategy: str,
    settings: Settings,
    seed: int,
    batch: ArrayLike | None,
) -> Estimate | None:
    """How to estimate anew once clusters have been merged."""
    if strategy == "retrain":
        clusters = encode_labels(labels, len(fitted.rows)).clusters
        return Retraining(X, clusters, settings, seed, batch)
    return Warm(fitted, seed) if strategy == "warm" else None


@dataclass(frozen=True, eq=False)
class Retraining:
    """The paper's way: train from scratch for every new set of clusters.

    The seed depends on how many are left, so that an interrupted run can be taken up again.
    """

    X: Any
    clusters: Index
    settings: Settings
    seed: int
    batch: ArrayLike | None = None

    def __call__(self, groups: Index) -> PairwiseTVD:
        """Estimate for groups of the initial clusters."""
        labels = np.where(self.clusters < 0, -1, groups[self.clusters])
        rng = np.random.default_rng([self.seed, int(groups.max())])
        return fit(self.X, labels, self.settings, rng, batch=self.batch).result


class Warm:
    """Train on from the last weights after every merge."""

    def __init__(self, fitted: Fitted, seed: int) -> None:
        self.fitted = fitted
        self.rng = np.random.default_rng(seed)
        self.groups = np.arange(fitted.result.n_clusters)

    def __call__(self, groups: Index) -> PairwiseTVD:
        """Estimate for groups of the initial clusters, which join groups of the last call."""
        step = np.empty(int(self.groups.max()) + 1, np.int64)
        step[self.groups] = groups
        self.fitted = self.fitted.merged(step, self.rng)
        self.groups = groups
        return self.fitted.result
