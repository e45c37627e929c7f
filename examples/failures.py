"""Where `auto` fails: gaps made by removing data, pieces that mix groups, groups without a gap.

python examples/failures.py docs/images/failures.png
"""

import sys
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.cluster import KMeans

import unsplit
from unsplit.overclustering import greedy_dense
from unsplit.plots.style import COLOURS

Case = tuple[str, NDArray[np.float64], NDArray[np.int64], int]


def cases(rng: np.random.Generator) -> list[Case]:
    """Return title, observations, over-clustering and true number of groups of each case."""
    noise = rng.uniform(size=(2000, 2))
    radius = np.repeat([1.0, 2.0, 3.0], (250, 500, 750)) + 0.1 * rng.standard_normal(1500)
    angle = rng.uniform(0, 2 * np.pi, 1500)
    rings = radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    near = rng.standard_normal((1500, 2)) + np.repeat([[-1.0, 0.0], [1.0, 0.0]], 750, axis=0)
    balls = greedy_dense(noise, 20, 50)
    inside = balls >= 0  # with the other observations, they would come back as one cluster
    return [
        ("noise: densest half only, 20 balls", noise[inside], balls[inside], 1),
        ("three rings: k-means into 12", rings, _cut(rings, 12), 3),
        ("two Gaussians, 2 standard deviations apart", near, _cut(near, 12), 2),
    ]


def _cut(X: NDArray[np.float64], k: int) -> NDArray[np.int64]:
    return KMeans(k, n_init=10, random_state=0).fit_predict(X).astype(np.int64)


def show(ax: Any, case: Case) -> None:
    title, X, labels, n_true = case
    merger = unsplit.ClusterMerger(random_state=0).fit(X, initial_labels=labels)
    kept = merger.labels_ >= 0
    ax.scatter(*X[~kept].T, s=2, color="#dddddd")
    ax.scatter(*X[kept].T, s=3, color=np.take(COLOURS, merger.labels_[kept], mode="wrap"))
    ax.set_title(f"{title}:\nfound {merger.n_clusters_}, expected {n_true}", fontsize=10)
    ax.set_aspect("equal")
    ax.axis("off")


def main() -> None:
    figure = Figure(figsize=(10, 4.2), layout="tight")
    axes = figure.subplots(1, 3)
    for ax, case in zip(axes, cases(np.random.default_rng(0)), strict=True):
        show(ax, case)
    figure.savefig(sys.argv[1], dpi=120)


if __name__ == "__main__":
    main()
