"""Photographs, what is known of them without their labels, and estimates that were kept."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.core import Setting, Trial, name_of
from experiments.imagenet_realistic.deepcluster import Learned
from experiments.imagenet_realistic.material import (
    Features,
    frequencies,
    learned_once,
    pictures,
    stored_features,
)
from experiments.imagenet_realistic.overclustering import Index, Overclustering
from experiments.imagenette.config import FULL, QUICK, Config
from experiments.images import gratings, images
from unsplit import InputError, PairwiseTVD
from unsplit.overclustering import greedy_dense
from unsplit.pairwise.divergences import HeldoutScores

CACHE = Path(__file__).parent / "cache"
IMAGES = "imagenette-112.zip"
FEATURES = ("imagenette-112.sscd64.npy", "features.npy")


def config_of(setting: Setting) -> Config:
    """Everything, or what takes half a minute."""
    return QUICK if setting.quick else FULL


@lru_cache(maxsize=1)
def photographs(setting: Setting) -> tuple[Any, NDArray[Any]]:
    """Images and their categories; made up for the quick form."""
    if setting.quick and setting.data is None:
        return gratings(4, 40, 0)
    if setting.data is None:
        raise InputError("this experiment needs photographs; name a folder or zip with --data.")
    here = setting.data / IMAGES
    return images(here if here.is_file() else setting.data)


@lru_cache(maxsize=1)
def of_side(setting: Setting, side: int) -> NDArray[np.uint8]:
    """All images with this many pixels a side, or with as many as they have."""
    X, categories = photographs(setting)
    parts = np.array_split(np.arange(len(categories)), -(-len(categories) // 256))
    return np.concatenate([pictures(X, rows, side) for rows in parts])


@lru_cache(maxsize=2)
def features(name: str, setting: Setting) -> Features:
    """The representation of this name, a row for every image: "sscd" or "deepcluster"."""
    if name == "deepcluster":
        return learned(setting).features
    if setting.quick and setting.data is None:
        return frequencies(photographs(setting)[0])
    assert setting.data is not None
    return stored_features(setting.data, FEATURES, len(photographs(setting)[1]))


@lru_cache(maxsize=1)
def learned(setting: Setting) -> Learned:
    """DeepCluster trained on these images, or as it was kept."""
    config = config_of(setting)
    some = of_side(setting, config.side)
    return learned_once(some, config.plan, setting, CACHE)


def half_of(categories: NDArray[Any], which: str) -> NDArray[Any]:
    """Names of the chosen categories: "all", the "first" half of them, or the "second".

    Examples
    --------
    >>> half_of(np.array(["c", "a", "b", "a"]), "first"), half_of(np.array(["c", "a"]), "second")
    (array(['a'], dtype='<U1'), array(['c'], dtype='<U1'))
    """
    names = np.unique(categories)
    middle = len(names) // 2
    return {"all": names, "first": names[:middle], "second": names[middle:]}[which]


def drawn(categories: NDArray[Any], names: NDArray[Any], share: float, draw: int) -> Index:
    """Rows of a random share of each of these categories.

    Examples
    --------
    >>> drawn(np.array(["a", "a", "b", "b"]), np.array(["a"]), 0.5, draw=1).shape
    (1,)
    """
    rng = np.random.default_rng([7, draw])
    rows = [rng.permutation(np.flatnonzero(categories == name)) for name in names]
    return np.sort(np.concatenate([some[: round(share * len(some))] for some in rows]))


@lru_cache(maxsize=4)
def overclustering(
    representation: str, which: str, draw: int, s: int, setting: Setting
) -> Overclustering:
    """Algorithm 1 on the features of a draw; most of its images are in no cluster."""
    config = config_of(setting)
    categories = photographs(setting)[1]
    R, names = features(representation, setting), half_of(categories, which)
    rows = drawn(categories, names, config.share, draw)
    labels = greedy_dense(R[rows], config.clusters_each * len(names), s)
    inside = labels >= 0
    some = rows[inside]
    return Overclustering(some, labels[inside], categories[some], R[some], rows[~inside])


def kept_estimate(
    trial: Trial, setting: Setting, estimate: Callable[[], tuple[PairwiseTVD, float]]
) -> tuple[PairwiseTVD, float]:
    """An estimate and the seconds it took, from the cache if a trial was trained before.

    Then another way to merge can be tried without a GPU.
    """
    name = hashlib.blake2b(name_of(trial).encode(), digest_size=8).hexdigest()
    path = CACHE / f"estimate-{name}.npz"
    seconds = path.with_suffix(".seconds")
    if not setting.quick and seconds.is_file():
        return PairwiseTVD.load(path), float(seconds.read_text("utf-8"))
    result, took = estimate()
    if not setting.quick:
        CACHE.mkdir(exist_ok=True)
        in_short(result).save(path, scores=True)
        seconds.write_text(f"{took:.2f}\n", "utf-8")
    return result, took


def in_short(result: PairwiseTVD) -> PairwiseTVD:
    """The same estimate with scores instead of features, which are fewer for few clusters."""
    old = result.scores
    eye = np.eye(old.n_clusters, dtype=np.float32)
    scores = HeldoutScores(
        features=old.dense(),
        weights=np.repeat(eye[None], old.n_folds, axis=0),
        bias=np.zeros((old.n_folds, old.n_clusters), np.float32),
        clusters=old.clusters,
        folds=old.folds,
        rows=old.rows,
    )
    return replace(result, scores=scores)
