"""The figure of the page: the index against the number of clusters to start from."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.peers.compare import OURS
from benchmarks.peers.read import Score

SHOWN = (
    OURS,
    "Leiden",
    "HDBSCAN, hundredths",
    "SCCAF",
    "FINCH of clusters",
    "CHOIR",
    "confusion loop",
)


def of_initial_number(scores: Sequence[Score]) -> list[Score]:
    """Automatic answers where that number varies: k-means over-clusterings, first seed."""
    return [
        s
        for s in scores
        if (s.mode, s.overclustering, s.seed) == ("automatic", "k-means", 0)
        and s.family != "battery"
    ]


def draw_initial_number(scores: Sequence[Score], path: Path) -> None:
    """Mean index over the data sets against the initial number, a line for each method."""
    import matplotlib.pyplot as plt

    of: dict[tuple[str, float], list[float]] = defaultdict(list)
    for s in of_initial_number(scores):
        of[s.method, s.factor].append(s.ari)
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for method in SHOWN:
        # Means over fewer data sets could not be compared.
        found = {
            factor: float(np.mean(values))
            for (name, factor), values in sorted(of.items())
            if name == method and len(values) == len(of.get((OURS, factor), ()))
        }
        if found:
            width = 2.5 if method == OURS else 1.2
            axes.plot(list(found), list(found.values()), "o-", label=method, lw=width)
    axes.set(
        xscale="log",
        xlabel="initial clusters for every true one",
        ylabel="mean ARI of the data sets",
    )
    axes.set_xticks([1.5, 2, 3, 4, 6, 8, 10], ["1.5", "2", "3", "4", "6", "8", "10"])
    axes.minorticks_off()
    figure.legend(loc="outside right center", frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
