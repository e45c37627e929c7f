"""From observations and an over-clustering to a merge tree, for the estimator and the CLI."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from unsplit._typing import Index
from unsplit.data.labels import EncodedLabels, encode_labels
from unsplit.data.rows.vectors import VectorRows, numeric_matrix
from unsplit.devices import generator_of
from unsplit.errors import InputError
from unsplit.merging.api import MATRICES_OF_SCORES, check_memory, merge_with
from unsplit.merging.neighbours.api import graph_of_scores, graph_of_vectors
from unsplit.merging.neighbours.graph import NeighbourGraph
from unsplit.merging.options import MergeOptions, looks_like_partition
from unsplit.merging.state import MergeRecord
from unsplit.merging.tree import MergeTree
from unsplit.pairwise.api import Settings, fit
from unsplit.pairwise.heldout_scores import Fitted, Progress
from unsplit.pairwise.result import PairwiseTVD

__all__ = ["MergeOptions", "Merged", "Retraining", "merge_overclustering"]

# The blurred estimate only ranks pairs and shows valleys; more folds improved neither.
BLURRED_FOLDS = 3


@dataclass(frozen=True, eq=False)
class Merged:
    """The trained networks, the neighbour graph or the blurred estimate if any, and the tree."""

    fitted: Fitted
    blurred: PairwiseTVD | None
    neighbours: NeighbourGraph | None
    tree: MergeTree


def merge_overclustering(
    X: Any,
    labels: ArrayLike | EncodedLabels,
    merge_options: MergeOptions,
    settings: Settings,
    random_state: object = None,
    progress: bool | Progress = False,
    on_merge: Callable[[MergeRecord], None] | None = None,
    done: MergeRecord | None = None,
    batch: ArrayLike | None = None,
    features: Any = None,
) -> Merged:
    """Estimate all distances, find neighbours, and merge.

    The neighbour graph is made from ``features``, or from X if X holds vectors or counts.  A
    second estimate, of blurred densities, is made only if the result depends on it.
    """
    encoded = encode_labels(labels)
    merge_options.constraints(encoded.cluster_ids)  # refuses impossible ones before any training
    features = _checked_features(features, len(encoded.clusters))
    check_memory(len(encoded.cluster_ids), MATRICES_OF_SCORES)
    seeds = generator_of(random_state).integers(2**63, size=4)
    fitted = fit(X, encoded, settings, seeds[0], progress, batch)
    graph = _neighbours(features, encoded, fitted, settings, batch)
    blurred = None
    if _needs_blurred(merge_options, graph is not None) and looks_like_partition(fitted.result):
        changed = _blurred_settings(fitted.rows.kind, settings)
        if changed is not None:
            blurred = fit(X, encoded, changed, seeds[1], progress, batch).result
    retraining = None
    if merge_options.strategy == "retrain":
        retraining = Retraining(X, encoded.clusters, settings, int(seeds[2]), batch)
    tree = merge_with(
        fitted.result,
        merge_options,
        blurred,
        graph,
        int(seeds[3]),
        homes=None if isinstance(fitted.rows, VectorRows) else fitted.homes(),
        estimate=retraining,
        on_merge=on_merge,
        done=done,
    )
    return Merged(fitted, blurred, graph, tree)


def _checked_features(features: Any, n: int) -> Any:
    """The features as a matrix of numbers, checked before any training; None if there are none."""
    if features is None:
        return None
    try:
        matrix = numeric_matrix(features)
    except InputError as error:
        raise InputError(str(error).replace("X", "features", 1)) from None
    if matrix.shape[0] != n:
        raise InputError(
            f"features must have one row for each of the {n} observations in X, got shape "
            f"{matrix.shape}; pass the features of the same observations."
        )
    return matrix


def _neighbours(
    features: Any,
    labels: EncodedLabels,
    fitted: Fitted,
    settings: Settings,
    batch: ArrayLike | None,
) -> NeighbourGraph | None:
    """The neighbour graph of the features if there are any, otherwise of the networks' scores."""
    if features is None:
        if not isinstance(fitted.rows, VectorRows):
            return graph_of_scores(fitted.result)
        features = fitted.rows.values
    with_batches = None if fitted.subclusters.n_batches == 1 else batch
    return graph_of_vectors(features, labels, with_batches, settings.device)


def _blurred_settings(kind: str, settings: Settings) -> Settings | None:
    """Settings for the blurred estimate; None for data other than vectors, which cannot blur."""
    if kind not in ("vectors", "counts"):
        return None
    blurred = replace(settings, blurred=True, cv=min(settings.cv, BLURRED_FOLDS))
    if kind == "counts":
        blurred = replace(blurred, backbone="mlp", training=None)
    return blurred


def _needs_blurred(merge_options: MergeOptions, has_neighbours: bool) -> bool:
    if merge_options.strategy == "compose":
        return True
    chosen = (merge_options.max_tvd, merge_options.alpha, merge_options.rule)
    looks_for_valleys = all(choice is None for choice in chosen)
    return merge_options.strategy == "linkage" and looks_for_valleys and not has_neighbours


@dataclass(frozen=True, eq=False)
class Retraining:
    """Train from scratch for every new set of clusters, as in the paper.

    The seed depends on the number of clusters left, so that an interrupted run can be resumed.
    """

    X: Any
    clusters: Index
    settings: Settings
    seed: int
    batch: ArrayLike | None = None

    def __call__(self, groups: Index) -> PairwiseTVD:
        """The estimate for groups of the initial clusters, numbered from 0."""
        clusters = np.where(self.clusters < 0, -1, groups[self.clusters])
        labels = EncodedLabels(np.arange(int(groups.max()) + 1), clusters)
        rng = np.random.default_rng([self.seed, int(groups.max())])
        # What is left may share no batch: such groups are only joined to complete the tree.
        return fit(self.X, labels, self.settings, rng, batch=self.batch, shared=False).result
