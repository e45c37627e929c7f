"""Two borders with almost the same TVD: one cuts through a cluster, the other follows a valley.

Without a neighbour graph, `auto` merges the first pair and keeps the second apart.

python examples/valley.py docs/images/valley.png
"""

import sys

import numpy as np
from matplotlib.figure import Figure
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs

import unsplit
from unsplit.merging.evidence import Mixtures

COLOURS = np.array(["#4477AA", "#EE6677"])


def main() -> None:
    whole, _ = make_blobs(1500, centers=[[0, 0]], random_state=0)
    halves, _ = make_blobs(1500, centers=[[-1.9, 0], [1.9, 0]], random_state=0)
    figure = Figure(figsize=(8, 4.6), layout="constrained")
    axes = figure.subplots(2, 2, height_ratios=[3, 2])
    for top, bottom, X in zip(*axes, (whole, halves), strict=True):
        labels = KMeans(2, n_init=10, random_state=0).fit_predict(X)
        tvd = unsplit.pairwise_tvd(X, labels, random_state=0).tvd[0, 1]
        blurred = unsplit.pairwise_tvd(X, labels, blurred=True, random_state=0)
        contrast = Mixtures(blurred).contrast(0, 1)
        top.scatter(*X.T, s=3, color=COLOURS[labels])
        top.set_aspect("equal")
        top.set_title(f"cut in two by k-means, TVD {tvd:.2f}", fontsize=10)
        p = contrast.unimodality
        bottom.hist(contrast.window, bins=40, color="#777777")
        bottom.axvline(0, color="black", linewidth=1)
        verdict = "no valley: merged" if p >= 0.05 else "valley: kept apart"
        bottom.set_title(f"{verdict} (dip p = {p:.2g})", fontsize=10)
        bottom.set_xlabel("score difference (blurred estimate)")
        for ax in (top, bottom):
            ax.set_yticks([])
            ax.spines[["left", "right", "top"]].set_visible(False)
        top.set_xticks([])
        top.spines["bottom"].set_visible(False)
    figure.savefig(sys.argv[1], dpi=150)


if __name__ == "__main__":
    main()
