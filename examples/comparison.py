"""A picture of eleven data sets, cut by k-means and merged, beside three other clusterers.

python examples/comparison.py docs/images/comparison.png

Needs leidenalg and igraph (pip install leidenalg igraph).  Nothing is told to anyone but to Ward,
which gets the true number of groups.  Each panel has the adjusted Rand index of its labels and the
true groups; of data without groups, the number of clusters.
"""

import sys
import warnings

import igraph
import leidenalg
import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import HDBSCAN, AgglomerativeClustering, KMeans
from sklearn.datasets import make_blobs, make_circles, make_moons
from sklearn.metrics import adjusted_rand_score
from sklearn.neighbors import kneighbors_graph
from sklearn.preprocessing import StandardScaler

import unsplit

Points = NDArray[np.float64]
Labels = NDArray[np.int64]

N, PIECES = 1500, 30
TAB20 = plt.colormaps["tab20"](np.arange(20))
COLOURS = np.concatenate([TAB20[::2], TAB20[1::2]])
NOISE = (0.75, 0.75, 0.75, 1.0)


def sets(rng: np.random.Generator) -> list[tuple[str, Points, Labels]]:
    """Name, points and true group of each data set."""
    blobs, of_blobs = make_blobs(N, centers=5, cluster_std=0.9, random_state=8)
    varied = make_blobs(N, cluster_std=[1.0, 2.5, 0.5], random_state=170)
    stretched, groups = make_blobs(N, random_state=170)
    turn = np.linspace(0.5, 3 * np.pi, N // 3)
    arms = [
        np.column_stack([turn * np.cos(turn + a), turn * np.sin(turn + a)]) for a in (0, 2.1, 4.2)
    ]
    t = rng.uniform(0, 2 * np.pi, N)
    ring = np.column_stack([np.cos(t), np.sin(t)]) + rng.normal(scale=0.06, size=(N, 2))
    inside = rng.random(N) < 0.4
    ring[inside] = rng.normal(scale=0.15, size=(inside.sum(), 2))
    rare = np.concatenate(
        [
            rng.normal(size=(N - 90, 2)),
            rng.normal([5, 0], 0.25, (60, 2)),
            rng.normal([0, 5], 0.2, (30, 2)),
        ]
    )
    touching = np.concatenate([rng.normal([x, 0], 0.5, (N // 3, 2)) for x in (0, 2, 4)])
    skewed = rng.lognormal(sigma=0.9, size=(N, 2)) + np.repeat(
        [[0, 0], [0, 14], [14, 0]], N // 3, axis=0
    )
    return [
        ("circles", *make_circles(N, factor=0.5, noise=0.05, random_state=30)),
        ("moons", *make_moons(N, noise=0.07, random_state=30)),
        (
            "spirals",
            np.concatenate(arms) + rng.normal(scale=0.25, size=(N, 2)),
            np.repeat(np.arange(3), N // 3),
        ),
        ("a ring and its middle", ring, inside.astype(int)),
        ("groups", blobs, of_blobs),
        ("stretched", stretched @ [[0.6, -0.6], [-0.4, 0.8]], groups),
        ("of different spread", *varied),
        ("two rare groups", rare, np.repeat([0, 1, 2], [N - 90, 60, 30])),
        ("touching", touching, np.repeat(np.arange(3), N // 3)),
        ("skewed", skewed, np.repeat(np.arange(3), N // 3)),
        ("no groups", rng.random((N, 2)), np.zeros(N, int)),
    ]


def leiden(X: Points) -> Labels:
    """Leiden with its usual settings, on fifteen neighbours."""
    edges = np.column_stack(kneighbors_graph(X, 15).nonzero())
    graph = igraph.Graph(edges=edges.tolist(), n=len(X), directed=False).simplify()
    found = leidenalg.find_partition(graph, leidenalg.ModularityVertexPartition, seed=0)
    return np.array(found.membership)


def main(path: str) -> None:
    data = sets(np.random.default_rng(0))
    titles = ("k-means, 30 pieces", "Unsplit", "Leiden", "HDBSCAN", "Ward, given the number")
    figure, axes = plt.subplots(
        len(data), 5, figsize=(10.5, 2.05 * len(data)), layout="constrained"
    )
    for row, (name, X, truth) in zip(axes, data, strict=True):
        X = StandardScaler().fit_transform(X)
        pieces = KMeans(PIECES, n_init=3, random_state=0).fit_predict(X)
        with warnings.catch_warnings(action="ignore"):
            merger = unsplit.ClusterMerger(random_state=0).fit(X, initial_labels=pieces)
        n_groups = len(np.unique(truth))
        ward = AgglomerativeClustering(n_groups).fit_predict(X)
        found = (
            pieces,
            merger.labels_,
            leiden(X),
            HDBSCAN(min_cluster_size=15, copy=True).fit_predict(X),
            ward,
        )
        for axis, labels in zip(row, found, strict=True):
            colours = np.where(labels[:, None] < 0, NOISE, COLOURS[labels % 20])
            axis.scatter(*X.T, c=colours, s=2, linewidths=0)
            words = f"{adjusted_rand_score(truth, labels):.2f}"
            if n_groups == 1:
                words = f"{len(np.unique(labels[labels >= 0]))} found"
            place = {"transform": axis.transAxes, "ha": "right", "weight": "bold", "fontsize": 12}
            axis.text(0.98, 0.04, words, **place, backgroundcolor=(1, 1, 1, 0.8))
            axis.set(xticks=[], yticks=[])
        row[0].set_ylabel(name, fontsize=11)
        print(name, *(f"{adjusted_rand_score(truth, labels):.2f}" for labels in found), flush=True)
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set_title(title, fontsize=12)
    figure.savefig(path, dpi=80)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "comparison.png")
