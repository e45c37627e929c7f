"""Merging a few hundred photographs: quality and time of several networks, on any device.

python -m benchmarks.photos --data ../shared/data [--ways convnet vectors] [--device cpu] [--write]

Every case is a line of benchmarks/results/photos.jsonl.gz, and is not computed again.  Half of the
categories are for choosing settings (--half chosen), the others for the report.  --write puts the
table into docs/photos.md.
"""

import argparse
import io
import platform
import time
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from benchmarks import markdown, results_file
from unsplit import ClusterMerger, TrainConfig
from unsplit.metrics import category_counts, correct_merges, majority_categories, purity
from unsplit.overclustering import artificial

RESULTS = Path(__file__).parent / "results" / "photos.jsonl.gz"
PAGE = Path(__file__).parents[1] / "docs" / "photos.md"
BEGIN, END = "<!-- table of photos -->\n", "<!-- end of table -->"

N_PHOTOS, N_CLUSTERS = 480, 12
CHARACTERS = 24  # of Omniglot, 20 drawings each

# A network by name, or given features; "vectors" are compared with the network for vectors.
WAYS = ("convnet", "resnet18", "vectors")
TITLES = {
    "tiny": "Tiny-ImageNet, 64 px",
    "imagenette": "Imagenette, 112 px",
    "omniglot": "Omniglot, 35 px",
}
FILES = {"tiny": "tiny-imagenet-60", "imagenette": "imagenette-112"}

Numbers = dict[str, Any]


class Case(NamedTuple):
    """Which photographs, and how they are cut into clusters."""

    data: str
    n_categories: int
    cut: str  # "random" or "k-means"
    seed: int = 0

    @property
    def title(self) -> str:
        """What a reader of the table sees."""
        n_clusters = 2 * CHARACTERS if self.data == "omniglot" else N_CLUSTERS
        cut = "at random" if self.cut == "random" else "by k-means"
        draw = "" if self.seed == 0 else f", draw {self.seed + 1}"
        return f"{TITLES[self.data]}: {self.n_categories} categories{draw}, {cut} into {n_clusters}"


CUTS = ("random", "k-means")
CASES = [
    *(Case("tiny", n, cut) for n in (6, 4) for cut in CUTS),
    *(Case("imagenette", 4, cut) for cut in CUTS),
    Case("omniglot", CHARACTERS, "random"),
    *(Case("tiny", n, cut, seed=1) for n in (6, 4) for cut in CUTS),
]


class Problem(NamedTuple):
    """Images, vectors if there are any, the over-clustering and the truth."""

    images: NDArray[np.uint8]
    vectors: NDArray[np.float32] | None
    clusters: NDArray[Any]
    categories: NDArray[np.int64]


@cache
def archive(folder: Path, name: str) -> tuple[list[str], NDArray[np.int64]]:
    """Names of the images in a zip file, and the category of each."""
    with zipfile.ZipFile(folder / f"{name}.zip") as file:
        names = [n for n in file.namelist() if n.endswith(".JPEG")]
    return names, np.unique([n.split("/")[-2] for n in names], return_inverse=True)[1]


def chosen_categories(n: int, case: Case, half: str) -> NDArray[np.int64]:
    """Categories of one half, drawn at random."""
    rng = np.random.default_rng([case.seed, case.n_categories])
    drawn = rng.choice(n // 2, case.n_categories, replace=False)
    return drawn + (0 if half == "chosen" else n - n // 2)


def problem(case: Case, folder: Path, half: str) -> Problem:
    """Read the images of a case and cut them into clusters."""
    if case.data == "omniglot":
        return _characters(case, folder, half)
    names, category = archive(folder, FILES[case.data])
    wanted = chosen_categories(int(category.max()) + 1, case, half)
    each = N_PHOTOS // case.n_categories
    index = np.concatenate([np.flatnonzero(category == c)[:each] for c in wanted])
    vectors = np.load(folder / f"{FILES[case.data]}.sscd64.npy")[index].astype(np.float32)
    if case.cut == "random":
        clusters = artificial(category[index], N_PHOTOS // N_CLUSTERS, 0.0, case.seed)
    else:
        clusters = KMeans(N_CLUSTERS, n_init=3, random_state=case.seed).fit_predict(vectors)
    images = decoded(folder / f"{FILES[case.data]}.zip", [names[i] for i in index])
    return Problem(images, vectors, clusters, category[index])


def _characters(case: Case, folder: Path, half: str) -> Problem:
    images = np.load(folder / "omniglot-evaluation.npz")["images"]
    wanted = chosen_categories(len(images), case, half)
    # A third of the size still shows the strokes.
    small = 255 * images[wanted].reshape(-1, 35, 3, 35, 3).mean(axis=(2, 4))
    category = np.repeat(wanted, images.shape[1])
    return Problem(small.astype(np.uint8), None, artificial(category, 10, 0.0, case.seed), category)


def decoded(path: Path, names: list[str]) -> NDArray[np.uint8]:
    """Pixels (n, h, w, 3) of images in a zip file."""
    from PIL import Image

    with zipfile.ZipFile(path) as file:
        images = (Image.open(io.BytesIO(file.read(name))).convert("RGB") for name in names)
        return np.stack([np.asarray(image) for image in images])


def measure(given: Problem, way: str, device: str, epochs: int) -> Numbers:
    """Merge once, and compare with the truth."""
    X = given.vectors if way == "vectors" else given.images
    merger = ClusterMerger(
        backbone="mlp" if way == "vectors" else way,
        device=device,
        training=TrainConfig(epochs=epochs),
        random_state=0,
    )
    start, processor = time.perf_counter(), time.process_time()
    merger.fit(X, initial_labels=given.clusters)
    seconds, processor = time.perf_counter() - start, time.process_time() - processor
    tree, history = merger.tree_, merger.history_
    n_true = len(set(majority_categories(given.clusters, given.categories)))
    counts = category_counts(given.clusters, given.categories)
    right = correct_merges(tree.linkage[:, :2], counts)
    k = len(counts)

    def ari(tree: Any) -> float:
        return float(adjusted_rand_score(given.categories, tree.labels(given.clusters)))

    return {
        "A": merger.pairwise_.mean_accuracy,
        "purity": purity(given.clusters, given.categories),
        "possible": k - n_true,
        "right": int(right[k - n_true - 1]),
        "ari": ari(tree.cut(n_clusters=n_true)),
        "auto_clusters": tree.n_clusters,
        "auto_wrong": k - tree.n_clusters - int(right[k - tree.n_clusters - 1])
        if k > tree.n_clusters
        else 0,
        "auto_ari": ari(tree),
        "true_clusters": n_true,
        "epochs": len(history.epoch),
        "most_epochs": epochs,
        "seconds": seconds,
        "processor_seconds": processor,
        "seconds_an_epoch": float(history.seconds[-1]) / len(history.epoch),
        "machine": _machine(device),
    }


def _machine(device: str) -> Numbers:
    gpu = torch.cuda.get_device_name() if device.startswith("cuda") else None
    return {"threads": torch.get_num_threads(), "gpu": gpu, "processor": platform.machine()}


def name_of(case: Case, way: str, device: str, half: str, epochs: int) -> str:
    """What the numbers of a case are kept under."""
    limit = "" if epochs == TrainConfig.epochs else f"-{epochs}-epochs"
    return f"{half}/{case.data}-{case.n_categories}-{case.cut}-{case.seed}-{way}-{device}{limit}"


def known() -> dict[str, Numbers]:
    """All numbers so far, each under its name."""
    return {line["case"]: line for line in results_file.read(RESULTS)}


def run(arguments: argparse.Namespace) -> None:
    """Measure what is asked for and not yet known."""
    done = known()
    for case in [case for case in CASES if case.data in arguments.only][: arguments.first]:
        given: Problem | None = None
        for way in arguments.ways:
            where = (arguments.device, arguments.half, arguments.epochs)
            name = name_of(case, way, *where)
            if name in done or (way == "vectors" and case.data == "omniglot"):
                continue
            given = given or problem(case, arguments.data, arguments.half)
            found = measure(given, way, arguments.device, arguments.epochs)
            results_file.add(RESULTS, {"case": name, **found})
            print(case.title, way, {n: v for n, v in found.items() if n != "machine"}, flush=True)


def rows(half: str) -> Iterator[tuple[Any, ...]]:
    """Rows of the table: all whole runs."""
    done = known()
    for case in CASES:
        for device in ("cpu", "cuda"):
            for way in WAYS:
                found = done.get(name_of(case, way, device, half, TrainConfig.epochs))
                if found is None:
                    continue
                left = f"{found['auto_clusters']} of {found['true_clusters']}"
                network = "given vectors" if way == "vectors" else f"`{way}`"
                yield (
                    case.title, f"{found['purity']:.2f}", network, device.upper(),
                    f"{found['right']} of {found['possible']}", f"{found['A']:.3f}",
                    f"{found['ari']:.2f}", f"{left}, {found['auto_wrong']} wrong",
                    f"{found['auto_ari']:.2f}", f"{found['seconds']:.0f}",
                    f"{found['processor_seconds']:.0f}",
                )  # fmt: skip


HEADER = (
    "pictures", "purity", "network", "on", "right merges", "A", "ARI, number given",
    "clusters left by *auto*", "its ARI", "seconds", "processor seconds",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=["convnet", "vectors"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--half", choices=("chosen", "reported"), default="reported")
    parser.add_argument("--epochs", type=int, default=TrainConfig.epochs)
    parser.add_argument("--only", nargs="+", choices=TITLES, default=list(TITLES))
    parser.add_argument("--first", type=int, help="only so many of the cases")
    parser.add_argument("--write", action="store_true", help="put the table into the page")
    arguments = parser.parse_args()
    run(arguments)
    table = markdown.table(HEADER, rows(arguments.half)) + "\n"
    if arguments.write:
        page = PAGE.read_text("utf-8")
        before, after = page.split(BEGIN)[0], page.split(END)[1]
        PAGE.write_text(f"{before}{BEGIN}{table}{END}{after}", "utf-8")
    else:
        print(table)


if __name__ == "__main__":
    main()
