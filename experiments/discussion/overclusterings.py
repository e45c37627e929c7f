"""Observations whose categories are known, and how they were cut into too many clusters."""

import zipfile
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from torch import nn

from experiments.artificial import some_of_each
from experiments.discussion.config import Case, Size
from experiments.images import HERE as PICTURES
from unsplit import InputError, TrainConfig
from unsplit.networks.training.loop import USUAL
from unsplit.overclustering import artificial, greedy_dense

FEATURES = "tiny-imagenet-60.sscd64.npy"

# Algorithm 1 takes the densest of many: so many clusters, out of at most so many a category.
GREEDY, POOL = 20, {"digits": 150, "imagenet": 400}


class Problem(NamedTuple):
    """Observations, their categories and clusters (−1: none), and the network that suits them.

    ``training`` is how the library usually trains it.
    """

    X: NDArray[Any]
    categories: NDArray[Any]
    labels: NDArray[np.int64]
    network: dict[str, Any]
    training: TrainConfig = USUAL


def problem(case: Case, size: Size, seed: int, folder: Path | None) -> Problem:
    """Observations of some categories, drawn and over-clustered by the seed.

    Examples
    --------
    >>> found = problem(("digits", "noise 0.3"), Size(10, 20, 10), 0, None)
    >>> found.X.shape, np.bincount(found.labels).sum(), found.labels.max() + 1
    ((200, 64), np.int64(200), np.int64(20))
    """
    data, clusters = case
    X, categories = _data(data, folder)
    n_each = POOL[data] if clusters == "greedy" else size.n_each
    rows = some_of_each(categories, size.n_categories, n_each, seed)
    X, categories = X[rows], categories[rows]
    labels = _overclustered(clusters, X, categories, size.cluster, seed)
    if data != "digit images":
        return Problem(X, categories, labels, {})
    network = {"backbone": convolutions, "augment": False}
    return Problem(X, categories, labels, network, replace(USUAL, weight_decay=0.1))


def convolutions() -> nn.Module:
    """A small network for 8 × 8 pixels; what it sees is not already where the digits differ."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )


def _overclustered(
    clusters: str, X: NDArray[Any], categories: NDArray[Any], size: int, seed: int
) -> NDArray[np.int64]:
    if clusters == "greedy":
        return greedy_dense(X, GREEDY, size)
    if clusters == "k-means":
        model = KMeans(len(X) // size, n_init=3, random_state=seed)
        return model.fit_predict(X).astype(np.int64)
    return artificial(categories, size, float(clusters.removeprefix("noise ")), seed)


@lru_cache(maxsize=3)
def _data(data: str, folder: Path | None) -> tuple[NDArray[Any], NDArray[Any]]:
    if data == "imagenet":
        return _features(folder)
    X, y = load_digits(return_X_y=True)
    return (X.reshape(-1, 8, 8, 1).astype(np.float32) if data == "digit images" else X), y


def _features(folder: Path | None) -> tuple[NDArray[Any], NDArray[Any]]:
    """Features learned without labels, and the category in each image's path."""
    missing = [n for n in (FEATURES, PICTURES) if folder is None or not (folder / n).is_file()]
    if folder is None or missing:
        raise InputError(
            f"what is left to do needs {' and '.join(missing)}; name the folder with --data."
        )
    with zipfile.ZipFile(folder / PICTURES) as archive:
        names = [name for name in archive.namelist() if name.endswith(".JPEG")]
    categories = np.array([name.split("/")[-2] for name in names])
    return np.load(folder / FEATURES).astype(np.float32), categories
