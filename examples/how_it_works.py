"""How Unsplit works: accuracy as a distance, all pairs at once, edges between pieces, merging.

python examples/how_it_works.py docs/images      # 25 seconds; writes how_*.png
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.datasets import make_moons

import unsplit
from unsplit.merging.pairs import Mixtures
from unsplit.plots.style import COLOURS, INK

Points = NDArray[np.float64]
Labels = NDArray[np.int64]

LEFT, RIGHT = "#4477AA", "#EE6677"
SIX = [(0.0, 0.0), (0.0, 0.0), (5.0, 0.0), (6.5, 0.0), (1.0, 6.0), (6.5, 5.0)]  # centres of A to F
BORDERS = ("through one group", "between two groups")
STEPS = (30, 12, 5, 2)  # of these numbers of clusters the last figure shows the tree


def bare(ax: Any, title: str) -> None:
    """Leave nothing but a title around the points."""
    ax.set_title(title, fontsize=11, color=INK)
    ax.set_aspect("equal", adjustable="datalim")
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set_visible(False)


def decides() -> Figure:
    """The two questions, each with a pair that is merged and one that is kept apart."""
    figure = Figure(figsize=(11, 2.8), layout="constrained")
    halves: Any = figure.subfigures(1, 2, wspace=0.06)
    told, connected = halves
    told.suptitle("Split at random: can a network tell them apart?", weight="bold", color=INK)
    connected.suptitle("Cut along a border: are they connected?", weight="bold", color=INK)
    verdicts = "merge", "keep apart"
    for ax, distance, verdict in zip(told.subplots(1, 2), (0.0, 5.0), verdicts, strict=True):
        result = told_apart(ax, distance)
        bare(ax, f"{result.balanced_accuracy[0, 1]:.0%} guessed right: {verdict}")
    for ax, X, verdict in zip(connected.subplots(1, 2), borders(), verdicts, strict=True):
        bare(ax, f"{crossed(ax, X)} edges across: {verdict}")
    return figure


def told_apart(ax: Any, distance: float) -> unsplit.PairwiseTVD:
    """Draw two clusters whose means are this far apart, and compare them."""
    X, labels = unsplit.datasets.gaussians([[0.0, 0.0], [distance, 0.0]], 400, random_state=1)
    ax.scatter(*X.T, s=7, alpha=0.7, linewidths=0, color=np.take([LEFT, RIGHT], labels))
    return unsplit.pairwise_tvd(X, labels, random_state=0)


def principle() -> Figure:
    """Three pairs of clusters, and the network's scores of held-out observations."""
    figure = Figure(figsize=(10, 4.6), layout="constrained")
    axes = figure.subplots(2, 3, height_ratios=[3, 2])
    for top, bottom, distance in zip(*axes, (0.0, 1.5, 5.0), strict=True):
        result = told_apart(top, distance)
        accuracy = f"{result.balanced_accuracy[0, 1]:.0%} guessed right"
        bare(top, f"{accuracy}: TVD {result.tvd[0, 1]:.2f}")
        contrast = Mixtures(result).contrast(0, 1)
        sides = [contrast.values[contrast.of_a], contrast.values[~contrast.of_a]]
        bottom.hist(sides, bins=40, histtype="stepfilled", alpha=0.6, color=[LEFT, RIGHT])
        bottom.axvline(0, color=INK, linewidth=1)
        bottom.set_yticks([])
        bottom.spines[["left", "right", "top"]].set_visible(False)
        bottom.set_xlabel("← red?      score of the network      blue? →", fontsize=9, color=INK)
    return figure


def all_pairs() -> Figure:
    """Six clusters, and the distances between them."""
    X, labels = unsplit.datasets.gaussians(SIX, 300, random_state=0)
    tvd = unsplit.pairwise_tvd(X, labels, random_state=0).tvd
    figure = Figure(figsize=(9, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.scatter(*X.T, s=5, alpha=0.6, linewidths=0, color=np.take(COLOURS, labels))
    for name, (x, y), colour in zip("ABCDEF", SIX, COLOURS, strict=False):
        shift = {"A": -0.7, "B": 0.7}.get(name, 0.0)  # their centres are the same
        box = {"boxstyle": "circle,pad=0.25", "facecolor": "white", "edgecolor": colour}
        left.text(x + shift, y, name, ha="center", va="center", bbox=box, color=INK)
    bare(left, "six clusters")
    right.imshow(tvd, cmap="Blues_r", vmin=0, vmax=1.3)
    for i, j in np.ndindex(tvd.shape):
        colour = "white" if tvd[i, j] < 0.6 else INK
        right.text(j, i, f"{tvd[i, j]:.2f}", ha="center", va="center", fontsize=9, color=colour)
    right.set_title("one network: TVD of all 15 pairs", fontsize=11, color=INK)
    right.set_xticks(range(6), "ABCDEF")
    right.set_yticks(range(6), "ABCDEF")
    right.tick_params(length=0)
    right.spines[:].set_visible(False)
    return figure


def neighbours() -> Figure:
    """A cut through one group beside a gap between two, with the edges that cross each."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for ax, X, where in zip(figure.subplots(1, 2), borders(), BORDERS, strict=True):
        bare(ax, f"a border {where}: {crossed(ax, X)} edges cross it")
    return figure


def borders() -> tuple[Points, Points]:
    """One group, and two with a gap between them, to be cut where the first feature is 0."""
    rng = np.random.default_rng(0)
    one = rng.normal(size=(500, 2)) * [1.6, 1.0]
    two = rng.normal(size=(500, 2)) * [0.75, 1.0] + np.repeat([[-2.1, 0], [2.1, 0]], 250, axis=0)
    return one, two


def crossed(ax: Any, X: Points) -> int:
    """Draw two sides and the edges of the neighbour graph between them; how many there are."""
    made = unsplit.neighbour_graph(X, X[:, 0] > 0)
    X = made.features  # its rows are ordered by content
    labels = (X[:, 0] > 0).astype(np.int64)
    graph = made.adjacency.tocoo()
    crossing = labels[graph.row] < labels[graph.col]
    ends = np.column_stack([graph.row[crossing], graph.col[crossing]])
    ax.add_collection(LineCollection(list(X[ends]), colors=INK, linewidths=0.5, alpha=0.6))
    ax.scatter(*X.T, s=9, alpha=0.7, linewidths=0, color=np.take([LEFT, RIGHT], labels))
    return len(ends)


def merging() -> Figure:
    """Two moons in thirty pieces, and what is left of them on the way."""
    X, _ = make_moons(1000, noise=0.06, random_state=1)
    pieces = KMeans(STEPS[0], n_init=10, random_state=0).fit_predict(X)
    tree = unsplit.ClusterMerger(random_state=0).fit(X, initial_labels=pieces).tree_
    figure = Figure(figsize=(11, 1.9), layout="constrained")
    for ax, k in zip(figure.subplots(1, len(STEPS)), STEPS, strict=True):
        labels = tree.cut(n_clusters=k).labels(pieces)
        ax.scatter(*X.T, s=5, linewidths=0, color=np.take(COLOURS, labels, mode="wrap"))
        stop = ": stop" if k == tree.n_clusters else ""
        bare(ax, f"{k} clusters{stop}")
    return figure


def main() -> None:
    for make in (decides, principle, all_pairs, neighbours, merging):
        path = Path(sys.argv[1]) / f"how_{make.__name__}.png"
        make().savefig(path, dpi=130)
        print(path)


if __name__ == "__main__":
    main()
