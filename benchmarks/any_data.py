"""Clusters of images, clouds, drawings, speech and cells: are the right ones close?

python -m benchmarks.any_data --data ../shared/data [--only NAME] [--device auto] [--epochs N]

Q is the chance that two clusters of one category are closer than two of different categories.
"""

import argparse
import io
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import unsplit
from benchmarks.common import as_options, print_table
from unsplit.metrics import majority_categories, quality
from unsplit.overclustering import artificial

PAPER = {"cv": 0.2, "loss": "pairwise"}
BOTH: list[tuple[str, dict[str, Any]]] = [("paper's hold-out", PAPER), ("5-fold cross-fit", {})]


class Problem(NamedTuple):
    """Data, its over-clustering, the truth, ways to estimate, and networks to choose from."""

    title: str
    X: Any
    clusters: NDArray[Any]
    categories: NDArray[Any]
    ways: list[tuple[str, dict[str, Any]]]
    candidates: tuple[str, ...] = ()


def used(X: Any, clusters: NDArray[Any], categories: NDArray[Any]) -> tuple[Any, Any, Any]:
    kept = np.flatnonzero(clusters >= 0)
    return X[kept], clusters[kept], categories[kept]


def tiny_imagenet(folder: Path) -> Iterator[Problem]:
    from PIL import Image

    with zipfile.ZipFile(folder / "tiny-imagenet-60.zip") as archive:
        names = [name for name in archive.namelist() if name.endswith(".JPEG")]
        images = [Image.open(io.BytesIO(archive.read(name))).convert("RGB") for name in names]
    X = np.stack([np.asarray(image) for image in images])
    category = np.unique([name.split("/")[-2] for name in names], return_inverse=True)[1]
    clusters = artificial(category, 50, 0.3, 0)
    yield Problem(
        "60 ImageNet categories, 50 a cluster, 30 % noise", *used(X, clusters, category), BOTH
    )


def modelnet(folder: Path) -> Iterator[Problem]:
    data = np.load(folder / "modelnet40.train.npz")
    names = ("single-layer", "pointnet++")
    ways: list[tuple[str, dict[str, Any]]] = [(n, {"backbone": n, "cv": 3}) for n in names]
    for size in (10, 50):
        clusters = artificial(data["label"], size, 0.0, 0)
        found = used(data["points"], clusters, data["label"])
        yield Problem(f"ModelNet40, {size} a cluster", *found, ways, names)


def omniglot(folder: Path) -> Iterator[Problem]:
    images = np.load(folder / "omniglot-evaluation.npz")["images"]
    # A third of the size still shows the strokes.
    small = images.reshape(659, 20, 35, 3, 35, 3).mean(axis=(3, 5))
    X = (255 * small).astype(np.uint8).reshape(-1, 35, 35)
    category = np.repeat(np.arange(659), 20)
    yield Problem(
        "Omniglot, 10 drawings a cluster", X, artificial(category, 10, 0.0, 0), category, BOTH
    )


def speech(folder: Path) -> Iterator[Problem]:
    data = np.load(folder / "free-spoken-digits.npz")
    names = np.char.add(data["digit"].astype(str), data["speaker"])
    groups = np.unique(names, return_inverse=True)[1]
    clusters = artificial(groups, 10, 0.0, 0)
    sounds = unsplit.read(folder / "free-spoken-digits.npz").X
    # The file does not say that it has 8,000 samples a second.
    X = replace(sounds, rate=8000)
    yield Problem("spoken digits by digit and speaker, 10 a cluster", X, clusters, groups, BOTH)


def cells(folder: Path) -> Iterator[Problem]:
    import h5py
    import scipy.sparse

    with h5py.File(folder / "mouse-bladder-cells.h5") as file:
        X, types = scipy.sparse.csr_array(file["X"][:]), file["Y"][:]
    clusters = artificial(types, 10, 0.0, 0)
    ways = [*BOTH, ("5-fold cross-fit, mlp", {"backbone": "mlp"})]
    yield Problem("bladder cells, raw counts, 10 a cluster", X, clusters, types, ways)


DATA: dict[str, Callable[[Path], Iterator[Problem]]] = {
    "tiny-imagenet": tiny_imagenet,
    "modelnet40": modelnet,
    "omniglot": omniglot,
    "speech": speech,
    "cells": cells,
}


def estimated(problem: Problem, device: str, epochs: int) -> Iterator[tuple[Any, ...]]:
    """A row of the table for each way to estimate."""
    kept = problem.clusters >= 0
    majorities = majority_categories(problem.clusters[kept], problem.categories[kept])
    for way, settings in problem.ways:
        start = time.perf_counter()
        found = unsplit.pairwise_tvd(
            problem.X,
            problem.clusters,
            random_state=0,
            device=device,
            **as_options(epochs=epochs, **settings),
        )
        seconds = time.perf_counter() - start
        scores = [quality(found.divergence(d), majorities) for d in ("tv", "lecam", "overlap")]
        yield (way, *scores, found.mean_accuracy, len(found.history.epoch), seconds)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--only", nargs="*", default=list(DATA), choices=list(DATA))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    header = ("estimator", "Q of tv", "lecam", "overlap", "A", "epochs", "seconds")
    for name in args.only:
        for problem in DATA[name](args.data):
            rows = []
            for row in estimated(problem, args.device, args.epochs):
                rows.append(row)
                print(problem.title, *row, flush=True)
            k = len(np.unique(problem.clusters[problem.clusters >= 0]))
            print_table(f"{problem.title} (k = {k:,})", header, rows)
            if problem.candidates:
                print(
                    unsplit.select(
                        problem.X,
                        problem.clusters,
                        problem.candidates,
                        device=args.device,
                        training=unsplit.TrainConfig(epochs=args.epochs),
                        random_state=0,
                    ),
                    flush=True,
                )


if __name__ == "__main__":
    main()
