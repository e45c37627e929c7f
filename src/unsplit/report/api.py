"""Make a page from a tree, and from what is known about its clusters and observations."""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unsplit._typing import Index
from unsplit.data.labels import encode_labels
from unsplit.devices import version_of
from unsplit.errors import InputError, shown
from unsplit.merging.neighbours.graph import NeighbourGraph
from unsplit.merging.tree import MergeTree
from unsplit.pairwise.result import PairwiseTVD
from unsplit.report import sections
from unsplit.report.collect import Source, collect
from unsplit.report.kept import Kept
from unsplit.report.page import Report, rendered
from unsplit.report.view import MOST_LEAVES, view_of
from unsplit.report.words import answer


def report(
    tree: MergeTree,
    distances: PairwiseTVD | ArrayLike | None = None,
    X: Any = None,
    labels: ArrayLike | None = None,
    *,
    row_ids: ArrayLike | None = None,
    feature_names: Sequence[str] | None = None,
    picture: ArrayLike | None = None,
    neighbours: NeighbourGraph | None = None,
) -> Report:
    """Make a page about a merge: the answer, the tree, the data, and pairs to review.

    Parameters
    ----------
    tree : MergeTree
        The result of a merge.
    distances : PairwiseTVD or array-like of shape (k, k), optional
        The distances that the tree was made from.  A matrix must lie in [0, 1].
    X : array-like, SciPy sparse matrix, list of sequences, or torch Dataset, optional
        The observations, for a picture and for exemplars.
    labels : array-like of shape (n,), optional
        The initial cluster of every observation; needed with X.
    row_ids : array-like of shape (n,), optional
        Names of the observations, for the table of labels.
    feature_names : sequence of d str, optional
        Names of the features.  If all end in a row and a column, such as "pixel_0_7", they are
        drawn as images.
    picture : array-like of shape (n, 2), optional
        Where to draw each observation, for example ``adata.obsm["X_umap"]``; otherwise t-SNE or
        PCA place them.
    neighbours : NeighbourGraph, optional
        The neighbour graph, for the number of edges between clusters.

    Returns
    -------
    Report
        A notebook shows it; ``save`` writes it to a file.

    Examples
    --------
    >>> import unsplit
    >>> X, labels = unsplit.datasets.gaussians([[0, 0], [0, 0], [9, 0]], 40, random_state=0)
    >>> result = unsplit.pairwise_tvd(X, labels, cv=2, epochs=2, random_state=0)
    >>> unsplit.merge(result, n_clusters=2).report(result, X, labels)
    Report: ... MB of HTML; write it with save(path)
    """
    clusters = None if labels is None else _clusters(tree, labels)
    kept = Kept()
    more = {"feature_names": feature_names, "picture": picture, "neighbours": neighbours}
    for name, value in more.items():
        if value is not None and X is None:
            raise InputError(f"{name} is about X, which is missing; pass X and labels as well.")
    n = None if clusters is None else len(clusters)
    if row_ids is not None and np.shape(row_ids) != (n,):
        raise InputError(
            f"row_ids must name each observation in labels, got {shown(row_ids)}; pass one id for "
            "each label."
        )
    if X is not None:
        if clusters is None:
            raise InputError("labels is required with X; pass the initial cluster of every row.")
        rows = _n_rows(X)
        if rows not in (None, n):
            raise InputError(
                f"X has {rows:,} observations, but labels has {n:,}; pass one label for each "
                "observation."
            )
        source = Source(X, clusters, tree.n_initial, feature_names, picture)
        estimate = distances if isinstance(distances, PairwiseTVD) else None
        kept = collect(source, estimate, neighbours)
    ids = None if row_ids is None else np.asarray(row_ids)
    return make_page(Content(tree, distances, kept, clusters, ids))


@dataclass(frozen=True, eq=False)
class Content:
    """Everything that a page is made from.

    Parameters
    ----------
    tree : MergeTree
    distances : PairwiseTVD, array-like of shape (k, k) or None
    kept : Kept
        What is kept of the observations.
    clusters : ndarray of shape (n,) or None
        Index of each observation's initial cluster.
    row_ids : ndarray of shape (n,) or None
    about : mapping
        Settings, versions and the command, each as a table of names and values.
    """

    tree: MergeTree
    distances: PairwiseTVD | ArrayLike | None = None
    kept: Kept = field(default_factory=Kept)
    clusters: Index | None = None
    row_ids: NDArray[Any] | None = None
    about: Mapping[str, Any] = field(default_factory=dict)


def make_page(content: Content, most_leaves: int = MOST_LEAVES) -> Report:
    """Put all sections together.

    Parameters
    ----------
    content : Content
    most_leaves : int
        A larger tree is folded to so many leaves.
    """
    tree, kept = content.tree, content.kept
    view = view_of(tree, most_leaves)
    estimate = content.distances if isinstance(content.distances, PairwiseTVD) else None
    history = None if estimate is None else estimate.history
    noise = 0 if content.clusters is None else int((content.clusters < 0).sum())
    noise = noise if estimate is None else estimate.n_noise
    if estimate is not None and estimate.has_scores and not len(kept.borders):
        kept = sections.with_borders(kept, view, estimate)
    review = sections.review_section(view, kept)
    return Report(
        rendered(
            {
                "answer": answer(tree, noise, len(view.leaves) if view.folded else None),
                "look": sections.look_first(view, review),
                "tree": sections.tree_section(view),
                "matrix": sections.matrix_section(view, _matrix(content), estimate),
                "picture": sections.picture_section(view, kept),
                "exemplars": sections.exemplar_section(view, kept),
                "features": sections.feature_section(view, kept),
                "edges": sections.edge_section(view, kept),
                "review": review,
                "labels": sections.label_section(view, content.clusters, content.row_ids),
                "training": sections.training_section(history),
                "about": _about(tree) | dict(content.about),
            }
        )
    )


def _about(tree: MergeTree) -> dict[str, Any]:
    """What is known about a run from its tree alone."""
    versions = {"python": platform.python_version()}
    versions |= {name: version_of(name) for name in ("unsplit", "numpy", "scikit-learn")}
    rows = {"strategy": tree.strategy, "statistic": tree.statistic, "stopped": tree.stopped}
    return {
        "tables": [
            {"title": "Settings", "rows": list(rows.items())},
            {"title": "Versions", "rows": list(versions.items())},
        ],
        "command": "",
        "again": 'unsplit.merge(distances, constraints="unsplit-review.json")',
    }


def _n_rows(X: Any) -> int | None:
    """The number of observations; None where only reading them would tell."""
    if len(getattr(X, "shape", ())):
        return int(X.shape[0])
    return len(X) if hasattr(X, "__len__") else None


def _clusters(tree: MergeTree, labels: ArrayLike) -> Index:
    encoded = encode_labels(labels, at_least=1)
    tree.labels(labels)  # refuses clusters that the tree does not know
    order = np.argsort(tree.cluster_ids)
    place = order[np.searchsorted(tree.cluster_ids, encoded.cluster_ids, sorter=order)]
    return np.where(encoded.clusters < 0, -1, place[encoded.clusters])


def _matrix(content: Content) -> NDArray[np.float64] | None:
    if content.distances is None:
        return None
    from unsplit.plots.matrix import distances_data

    data = distances_data(content.tree, content.distances)  # refuses what does not fit the tree
    found = np.empty_like(data.tvd)
    found[np.ix_(data.order, data.order)] = data.tvd
    return found
