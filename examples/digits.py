"""Which pieces of an over-clustering are the same digit?

Handwritten digits (bundled with scikit-learn) are cut by k-means into 40 clusters, four times too
many.  One network then compares all 780 pairs.  Writes to demo-output/: pairs.csv, pairs.npz and
digits.png.
"""

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits

import unsplit

OUT = Path("demo-output")


def main() -> None:
    X, digit = load_digits(return_X_y=True)
    labels = KMeans(40, n_init=4, random_state=0).fit_predict(X)
    print("1,797 handwritten digits, cut by k-means into 40 clusters; comparing all 780 pairs …")
    result = unsplit.pairwise_tvd(X, labels, random_state=0, progress=True)
    print(result)

    majority = unsplit.metrics.majority_categories(labels, digit)
    print("\nThe true digits are used from here on only, to judge the distances:")
    for name in ("tv", "lecam", "overlap"):
        q = unsplit.metrics.quality(result.divergence(name), majority)
        print(f"  Q of {name:8s} {q:.3f}   (chance that a same-digit pair is the closer one)")

    OUT.mkdir(exist_ok=True)
    result.save(OUT / "pairs.npz")
    frame = result.to_frame()
    frame.to_csv(OUT / "pairs.csv", index=False)
    print(f"\nThe closest pairs ({OUT}/pairs.csv has all):")
    print(frame.head(8)[["cluster_a", "cluster_b", "tvd", "low", "high"]].round(2).to_string())
    draw(X, labels, majority, result).savefig(OUT / "digits.png", dpi=110)
    print(f"\nFigure: {OUT}/digits.png")


def draw(
    X: np.ndarray, labels: np.ndarray, majority: np.ndarray, result: unsplit.PairwiseTVD
) -> Figure:
    """The distances in tree order, and what the closest pairs look like."""
    distance = result.divergence("lecam")
    order = leaves_list(linkage(squareform(distance), "average", optimal_ordering=True))
    figure = plt.figure(figsize=(11, 5.4), layout="constrained")
    panels: Any = figure.subfigures(1, 2, width_ratios=[1.35, 1])
    left, right = panels
    axes = left.subplots()
    image = axes.imshow(distance[np.ix_(order, order)], cmap="viridis", vmin=0, vmax=1)
    axes.set_xticks(range(len(order)), majority[order], fontsize=7)
    axes.set_yticks(range(len(order)), majority[order], fontsize=7)
    axes.set_title("All pairs of 40 clusters, labelled by their majority digit", fontsize=11)
    left.colorbar(image, ax=axes, shrink=0.8, label="Le Cam distance (0 same, 1 different)")

    upper = np.column_stack(np.triu_indices(len(order), 1))
    closest = upper[np.argsort(distance[upper[:, 0], upper[:, 1]])][:8]
    right.suptitle("The eight closest pairs, mean images", fontsize=11)
    cells = right.subplots(4, 4)
    for index, (i, j) in enumerate(closest):
        row, column = divmod(index, 2)
        for offset, cluster in enumerate((i, j)):
            cell = cells[row, 2 * column + offset]
            cell.imshow(X[labels == cluster].mean(axis=0).reshape(8, 8), cmap="gray_r")
            cell.set_axis_off()
            cell.set_title(f"cluster {cluster}", fontsize=8)
    return figure


if __name__ == "__main__":
    main()
