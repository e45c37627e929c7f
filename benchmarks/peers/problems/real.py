"""Real data as vectors, prepared as one who does not know the groups would."""

import gzip
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from benchmarks.peers.problems.batteries import MORE_FILE, stored
from benchmarks.peers.problems.features import axis_quantiles, log_mel
from benchmarks.peers.problems.files import find
from benchmarks.peers.task import Problem


def digits(_: Path, __: int) -> Problem:
    """1,797 handwritten digits, 8 × 8 pixels as they are."""
    X, y = load_digits(return_X_y=True)
    return _problem("digits", X, y)


def bladder_cells(folder: Path, _: int) -> Problem:
    """2,100 cells: log-normalised counts, 2,000 variable genes, 30 principal components."""
    import h5py

    with h5py.File(find(folder, "mouse-bladder-cells.h5")) as file:
        counts, y = file["X"][:].astype(np.float32), file["Y"][:]
    counts *= 1e4 / counts.sum(axis=1, keepdims=True)
    logs = np.log1p(counts, out=counts)  # 174 MB, so in place
    X = logs[:, np.argsort(-logs.var(axis=0), kind="stable")[:2000]]
    return _problem("bladder cells", _components(X, 30), y)


def pbmc68k(folder: Path, _: int) -> Problem:
    """700 blood cells: 765 scaled genes, clipped at 10 as is usual, 30 principal components.

    The groups are those of ``bulk_labels``, ten kinds of 8 to 240 cells.
    """
    import h5py

    with h5py.File(find(folder, "pbmc68k_reduced.h5ad")) as file:
        X, y = file["X"][:], file["obs"]["bulk_labels"]
    return _problem("pbmc68k", _components(X.clip(-10, 10), 30), y)


def fashion_mnist(folder: Path, seed: int) -> Problem:
    """2,000 images of clothes, 50 principal components of the pixels, which are 0 to 1."""
    with gzip.open(find(folder, "train-labels-idx1-ubyte.gz")) as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)
    rows = np.random.default_rng(seed).choice(len(labels), 2000, replace=False)
    with gzip.open(find(folder, "train-images-idx3-ubyte.gz")) as file:
        images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 28 * 28)
    return _problem("fashion-mnist", _components(images[rows] / 255, 50), labels[rows])


def imagenet(folder: Path, seed: int) -> Problem:
    """Ten random categories of 200 images: self-supervised features, whitened, unit length."""
    with zipfile.ZipFile(find(folder, "tiny-imagenet-60.zip")) as archive:
        names = [name for name in archive.namelist() if name.endswith(".JPEG")]
    category = np.unique([name.split("/")[-2] for name in names], return_inverse=True)[1]
    rows = some_of_each(category, 10, 200, np.random.default_rng(seed))
    X = np.load(find(folder, "tiny-imagenet-60.sscd64.npy"), mmap_mode="r")
    return _problem("imagenet", X[rows], category[rows])


def modelnet(folder: Path, seed: int) -> Problem:
    """Ten random categories of at most 200 objects: quantiles along the axes, 30 components."""
    data = np.load(find(folder, "modelnet40.train.npz"))
    label = data["label"]
    rows = some_of_each(label, 10, 200, np.random.default_rng(seed))
    X = axis_quantiles(data["points"][rows].astype(np.float64))
    return _problem("modelnet40", _components(X, 30), label[rows])


def spoken_digits(folder: Path, seed: int) -> Problem:
    """2,000 recordings by six speakers: log-mel bands in 16 time steps, 40 components."""
    data = np.load(find(folder, "free-spoken-digits.npz"))
    audio, offsets, digit = data["audio"], data["offsets"], data["digit"]
    rows = np.random.default_rng(seed).choice(len(digit), 2000, replace=False)
    X = np.stack([log_mel(audio[offsets[row] : offsets[row + 1]]) for row in rows])
    return _problem("spoken digits", _components(X, 40), digit[rows])


def _problem(name: str, X: NDArray[Any], groups: NDArray[Any]) -> Problem:
    y = np.unique(groups, return_inverse=True)[1].astype(np.int64)
    return Problem(name, np.ascontiguousarray(X, np.float64), y)


def _components(X: NDArray[Any], number: int) -> NDArray[Any]:
    return PCA(number, random_state=0).fit_transform(X)


def some_of_each(
    category: NDArray[Any], n_categories: int, at_most: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Rows of random categories, of each at most so many."""
    chosen = rng.choice(np.unique(category), n_categories, replace=False)
    members = (rng.permutation(np.flatnonzero(category == c))[:at_most] for c in chosen)
    return np.concatenate(list(members))


REAL: dict[str, Callable[[Path, int], Problem]] = {
    "digits": digits,
    "bladder cells": bladder_cells,
    "pbmc68k": pbmc68k,
    "fashion-mnist": fashion_mnist,
    "imagenet": imagenet,
    "modelnet40": modelnet,
    "spoken digits": spoken_digits,
}
# Principal components of images, texts and cells, as the file has them.
MORE_REAL: dict[str, Callable[[Path, int], Problem]] = {
    "20 newsgroups": stored("20 newsgroups", MORE_FILE, "real__20news"),
    "mnist": stored("mnist", MORE_FILE, "real__mnist"),
    "worm cells": stored("worm cells", MORE_FILE, "real__worm"),
}
