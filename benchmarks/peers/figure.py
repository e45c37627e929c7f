"""The figures of the page: data held back, and how many clusters to start from."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.peers.compare import CHANGED, OURS, REFINED, with_ours
from benchmarks.peers.problems.families import HELD_BACK
from benchmarks.peers.read import Score
from benchmarks.peers.texts import FAMILY_TITLES
from unsplit.plots.style import INK

WITHOUT_GRAPH = f"{CHANGED}without neighbours"
N_BEST = 9  # bars of a panel
OUR_COLOUR, GREY = "#4477AA", "#C4C8CC"
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


def draw_held_back(scores: Sequence[Score], path: Path) -> None:
    """Mean index of methods that stop by themselves, on data held back, best first.

    Of methods that were run on all trials of a family the best are shown.
    """
    import matplotlib.pyplot as plt

    held = [s for s in scores if s.half == HELD_BACK]
    families = [name for name in FAMILY_TITLES if any(s.family == name for s in held)]
    figure, axes = plt.subplots(1, max(len(families), 1), figsize=(10.5, 4), layout="constrained")
    for ax, family in zip(np.atleast_1d(axes), families, strict=False):
        pairs = with_ours([s for s in held if s.family == family], "automatic")
        means = {
            name: np.mean([score.ari for score, _ in of])
            for name, of in pairs.items()
            if len(of) == len(pairs[OURS]) and name != WITHOUT_GRAPH
        }
        found = sorted(means, key=lambda name: means[name])[-N_BEST:]
        values = [float(means[name]) for name in found]
        colours = [OUR_COLOUR if name in (OURS, REFINED) else GREY for name in found]
        ax.barh(found, values, color=colours)
        for y, value in enumerate(values):
            ax.text(value, y, f" {value:.2f}", va="center", fontsize=10, color=INK)
        n_sets = len({s.problem for s in held if s.family == family})
        title = FAMILY_TITLES[family].removesuffix(" data").removesuffix(" groups")
        ax.set_title(f"{title}, {n_sets} sets", fontsize=11, color=INK)
        ax.set_xlim(0, 1)
        ax.set_xlabel("mean ARI", color=INK)
        ax.tick_params(labelsize=10, left=False)
        ax.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
        ax.spines[["right", "top"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=140)
    plt.close(figure)
