"""Pages for tests in a browser, made without training."""

import numpy as np
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import pdist, squareform

import unsplit
from tests.merging_cases import gaussian_estimate
from unsplit.merging.decision import BY_RULE, REQUESTED, USERS_RULE, Ending
from unsplit.merging.review import Merge
from unsplit.merging.tree import MergeTree
from unsplit.report.api import Content, make_page
from unsplit.report.collect import Source, collect

NAN = float("nan")

HOSTILE = [
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 2'>",
    '" onmouseover="window.hacked = 3',
    "'; window.hacked = 4; '",
    "<!-- <script>",
    "שלום עולם",
    "مرحبا <b>42</b>",
    "{{ 7 * 7 }} ${window.hacked = 5}",
    "back\\slash & ampersand \u2028 line",
    "x" * 300,
]


def linked_tree(points, n_clusters, names=None):
    """A tree of average linkage, without evidence: quick for thousands of clusters."""
    k = len(points)
    table = linkage(points, "average")
    heights = table[:, 2] / table[-1, 2]
    sizes = np.full(2 * k - 1, 7)
    merges = []
    for step, (left, right) in enumerate(table[:, :2].astype(int).tolist()):
        sizes[k + step] = sizes[left] + sizes[right]
        numbers = (float(heights[step]), float(heights[step]))
        merges.append(
            Merge(
                *(left, right, int(sizes[left]), int(sizes[right]), *numbers),
                *[NAN] * 8,
                *(BY_RULE, USERS_RULE, NAN, f"height {heights[step]:.3f}"),
            )
        )
    return MergeTree(
        cluster_ids=np.arange(k) if names is None else np.array(names),
        sizes=sizes[:k].copy(),
        merges=tuple(merges),
        taken=np.arange(k - 1) < k - n_clusters,
        statistic="distance",
        strategy="average linkage",
        ending=Ending(REQUESTED, n_clusters),
    )


def large_page(k, n_clusters, names=None, seed=0):
    """A tree and its page for many clusters of seven observations each, without scores."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(max(2, k // 8), 2)) * 9
    points = centres[rng.integers(len(centres), size=k)] + rng.normal(size=(k, 2))
    tree = linked_tree(points, n_clusters, names)
    distances = squareform(pdist(points))
    labels = np.repeat(np.arange(k), 7)
    X = points[labels] + 0.1 * rng.normal(size=(len(labels), 2))
    kept = collect(Source(X, labels, k, ["width", "height"]))
    return tree, make_page(Content(tree, distances / distances.max(), kept, labels))


def scored_page(n_groups=8, pieces=5, names=None, stopping=None):
    """An estimate with scores, its tree and its page: groups in a row, each in pieces."""
    means = np.repeat(2.6 * np.arange(n_groups), pieces)[:, None] + np.zeros((1, 4))
    k = len(means)
    names = [f"c{i}" for i in range(k)] if names is None else names
    result, X = gaussian_estimate(means, 12, names=names)
    labels = np.empty(len(X), np.int64)
    labels[result.scores.rows] = result.scores.clusters
    tree = unsplit.merge(result, **(stopping or {"max_tvd": 0.5}))
    # Named like pixels, so that exemplars are drawn.
    names = ["p_0_0", "p_0_1", "p_1_0", "p_1_1"]
    kept = collect(Source(X, labels, k, names, picture=X[:, :2]), result)
    page = make_page(Content(tree, result, kept, labels, np.array([f"row {i}" for i in labels])))
    return result, tree, page
