"""Clusters of images, clouds, drawings, speech and cells: are the right ones close?

python -m benchmarks.any_data --data ../shared/data [--only NAME] [--device auto] [--epochs N]

Q is the chance that two clusters of one category are closer than two of different categories.
"""

import argparse
import io
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import unsplit
from benchmarks.common import print_table
from unsplit.data.audio import read_audio
from unsplit.data.ragged import Ragged
from unsplit.metrics import majority_categories, quality
from unsplit.overclustering import artificial

Problem = tuple[str, Any, NDArray[Any], NDArray[Any], list[tuple[str, dict[str, Any]]]]

PAPER = {"holdout": 0.2, "loss": "pairwise"}
BOTH: list[tuple[str, dict[str, Any]]] = [("paper's hold-out", PAPER), ("5-fold cross-fit", {})]


def used(X: Any, clusters: NDArray[Any], categories: NDArray[Any]) -> tuple[Any, ...]:
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
    yield ("60 ImageNet categories, 50 a cluster, 30 % noise", *used(X, clusters, category), BOTH)


def modelnet(folder: Path) -> Iterator[Problem]:
    data = np.load(folder / "modelnet40.train.npz")
    networks = [(name, {"backbone": name, "cv": 3}) for name in ("single-layer", "pointnet++")]
    for size in (10, 50):
        clusters = artificial(data["label"], size, 0.0, 0)
        found = used(data["points"], clusters, data["label"])
        yield (f"ModelNet40, {size} a cluster", *found, networks)


def omniglot(folder: Path) -> Iterator[Problem]:
    images = np.load(folder / "omniglot-evaluation.npz")["images"]
    # A third of the size still shows the strokes.
    small = images.reshape(659, 20, 35, 3, 35, 3).mean(axis=(3, 5))
    X = (255 * small).astype(np.uint8).reshape(-1, 35, 35)
    category = np.repeat(np.arange(659), 20)
    yield ("Omniglot, 10 drawings a cluster", X, artificial(category, 10, 0.0, 0), category, BOTH)


def speech(folder: Path) -> Iterator[Problem]:
    data = np.load(folder / "free-spoken-digits.npz")
    groups = np.unique(data["digit"] * 100 + data["speaker"], return_inverse=True)[1]
    clusters = artificial(groups, 10, 0.0, 0)
    sounds = read_audio(folder / "free-spoken-digits.npz").sounds
    rate = Rated(sounds, 8000)
    yield ("spoken digits by digit and speaker, 10 a cluster", rate, clusters, groups, BOTH)


def Rated(sounds: Ragged, rate: int) -> Any:  # noqa: N802
    from unsplit.data.audio import Audio

    return Audio(sounds, None, np.arange(len(sounds)), rate, {})


def cells(folder: Path) -> Iterator[Problem]:
    import h5py
    import scipy.sparse

    with h5py.File(folder / "mouse-bladder-cells.h5") as file:
        X, types = scipy.sparse.csr_array(file["X"][:]), file["Y"][:]
    clusters = artificial(types, 10, 0.0, 0)
    ways = [*BOTH, ("5-fold cross-fit, mlp", {"backbone": "mlp"})]
    yield ("bladder cells, raw counts, 10 a cluster", X, clusters, types, ways)


DATA: dict[str, Callable[[Path], Iterator[Problem]]] = {
    "tiny-imagenet": tiny_imagenet,
    "modelnet40": modelnet,
    "omniglot": omniglot,
    "speech": speech,
    "cells": cells,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--only", nargs="*", default=list(DATA), choices=list(DATA))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    for name in args.only:
        for title, X, clusters, categories, ways in DATA[name](args.data):
            rows = []
            for way, settings in ways:
                start = time.perf_counter()
                found = unsplit.pairwise_tvd(
                    X, clusters, random_state=0, device=args.device, epochs=args.epochs, **settings
                )
                seconds = time.perf_counter() - start
                kept = clusters >= 0
                majorities = majority_categories(clusters[kept], categories[kept])
                scores = [
                    quality(found.divergence(d), majorities) for d in ("tv", "lecam", "overlap")
                ]
                epochs = len(found.history.epoch)
                rows.append((way, *scores, found.mean_accuracy, epochs, seconds))
                print(title, *rows[-1], flush=True)
            k = len(np.unique(clusters[clusters >= 0]))
            header = ("estimator", "Q of tv", "lecam", "overlap", "A", "epochs", "seconds")
            print_table(f"{title} (k = {k:,})", header, rows)


if __name__ == "__main__":
    main()
