"""Sound and point clouds on a CPU: the network that is chosen there beside that of a GPU.

python -m benchmarks.small_networks [--data FOLDER] [--only NAME] [--networks auto large]

Each group of real sounds or shapes is cut at random into two clusters.  Half of the speakers and of
the categories are for choosing (--half chosen), the others for the report.
"""

import argparse
import resource
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import print_table
from unsplit import ClusterMerger
from unsplit.data.rows.sequences import Ragged
from unsplit.metrics import category_counts, correct_merges
from unsplit.overclustering import artificial

RATE = 8000


class Problem(NamedTuple):
    """Observations and the group of each, and the name of the larger network."""

    X: Any
    groups: NDArray[np.int64]
    network: str


def spoken(folder: Path, half: str, n_digits: int, each: int) -> Problem:
    """Recordings of digits; those of one digit by one of three speakers are a group."""
    data = np.load(folder / "free-spoken-digits.npz")
    speakers = np.unique(data["speaker"])
    rng = np.random.default_rng(0)
    digits = rng.choice(10, n_digits, replace=False)
    drawn = [
        rng.choice(
            np.flatnonzero((data["speaker"] == s) & (data["digit"] == d)), each, replace=False
        )
        for s in (speakers[:3] if half == "chosen" else speakers[3:])
        for d in digits
    ]
    audio, offsets = data["audio"], data["offsets"]
    sounds = [audio[offsets[i] : offsets[i + 1]] for i in np.concatenate(drawn)]
    return Problem(Ragged.of(sounds, RATE), np.repeat(np.arange(len(drawn)), each), "logmel")


def shapes(folder: Path, half: str, n_categories: int, each: int, n_points: int) -> Problem:
    """The first points of shapes; those of one category are a group."""
    data = np.load(folder / "modelnet40.train.npz")
    rng = np.random.default_rng(0)
    sizes = np.bincount(data["label"])
    usable = [c for c in range(half != "chosen", 40, 2) if sizes[c] >= each]
    drawn = [
        rng.choice(np.flatnonzero(data["label"] == c), each, replace=False)
        for c in rng.choice(usable, n_categories, replace=False)
    ]
    X = data["points"][np.concatenate(drawn), :n_points].astype(np.float32)
    return Problem(X, np.repeat(np.arange(n_categories), each), "pointnet++")


CASES: dict[str, Callable[[Path, str], Problem]] = {
    "144 sounds": partial(spoken, n_digits=4, each=12),
    "540 sounds": partial(spoken, n_digits=5, each=36),
    "40 clouds of 32 points": partial(shapes, n_categories=2, each=20, n_points=32),
    "400 clouds of 32 points": partial(shapes, n_categories=10, each=40, n_points=32),
    "240 clouds of 256 points": partial(shapes, n_categories=6, each=40, n_points=256),
    "240 clouds of 1,024 points": partial(shapes, n_categories=6, each=40, n_points=1024),
}
HEAD = ("data", "network", "A", "right merges", "left", "wrong", "epochs", "processor s", "MiB")


def measure(given: Problem, network: str) -> list[Any]:
    """Merge once with default settings, and compare with the truth."""
    clusters = artificial(given.groups, int(np.bincount(given.groups)[0]) // 2, 0.0, 0)
    start = time.process_time()
    merger = ClusterMerger(backbone=network, device="cpu", random_state=0)
    merger.fit(given.X, initial_labels=clusters)
    seconds = time.process_time() - start
    tree, k, n_true = merger.tree_, clusters.max() + 1, given.groups.max() + 1
    counts = category_counts(clusters, given.groups)
    right = np.append(0, correct_merges(tree.linkage[:, :2], counts))
    made = k - tree.n_clusters
    return [
        merger.backbone_,
        f"{merger.pairwise_.mean_accuracy:.3f}",
        f"{right[k - n_true]} of {k - n_true}",
        f"{tree.n_clusters} of {n_true}",
        made - right[made],
        merger.n_iter_,
        f"{seconds:.1f}",
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--networks", nargs="+", choices=("auto", "large"), default=["auto"])
    parser.add_argument("--half", choices=("chosen", "report"), default="report")
    arguments = parser.parse_args()
    table = []
    for name in arguments.only:
        given = CASES[name](arguments.data, arguments.half)
        for network in arguments.networks:
            chosen = given.network if network == "large" else network
            table.append([name, *measure(given, chosen)])
            print(*table[-1], flush=True)
    print_table(f"Half: {arguments.half}", HEAD, table)


if __name__ == "__main__":
    main()
