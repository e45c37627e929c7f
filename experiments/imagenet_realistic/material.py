"""Photographs, and what is known of them without their labels."""

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from experiments.core import Setting
from experiments.imagenet_realistic.checkpoint import SIDE, load_published
from experiments.imagenet_realistic.config import FULL, QUICK, Plan
from experiments.imagenet_realistic.deepcluster import Learned, learn, standardized
from experiments.imagenet_realistic.pseudo_labels import whitened
from experiments.images import gratings, images
from unsplit import InputError

SEED = 0
CACHE = Path(__file__).parent / "cache"

# Files beside the images: rows in their order, or a network that its authors published.
STORED = ("tiny-imagenet-60.sscd64.npy", "features.npy")
PUBLISHED = "deepcluster.pth.tar"

Features = NDArray[np.float32]


@lru_cache(maxsize=1)
def photographs(setting: Setting) -> tuple[Any, NDArray[Any]]:
    """Images and their categories; made up for the quick form."""
    if setting.quick and setting.data is None:
        return gratings(4, 40, SEED)
    return images(setting.data)


def pictures(X: Any, rows: NDArray[np.int64], side: int | None = None) -> NDArray[np.uint8]:
    """Some of the images as an array (m, H, W, 3), of this many pixels a side if they have more.

    Examples
    --------
    >>> X = np.arange(4, dtype=np.uint8).repeat(3).reshape(1, 2, 2, 3)
    >>> pictures(X, np.array([0]), 1)[0, 0, 0]
    array([2, 2, 2], dtype=uint8)
    """
    some = X[rows] if isinstance(X, np.ndarray) else np.stack([_channels_last(X[i]) for i in rows])
    if side is None or min(some.shape[1:3]) <= side:
        return some
    return _resized(torch.from_numpy(some), side)


def features(name: str, setting: Setting) -> Features:
    """The representation of this name, a row for every image, as in ``numbers.NAMES``."""
    if name == "deepcluster-small":
        return learned(setting, small=True).features
    return _stored(setting) if name == "sscd" else _deepcluster(setting)


@lru_cache(maxsize=1)
def _stored(setting: Setting) -> Features:
    X, categories = photographs(setting)
    if setting.quick and setting.data is None:
        return frequencies(X)
    assert setting.data is not None
    return stored_features(setting.data, STORED, len(categories))


def stored_features(data: Path, names: Sequence[str], n_images: int) -> Features:
    """The first of these files beside the images, a row for each of them."""
    for name in names:
        path = _folder(data) / name
        if path.is_file():
            found = np.load(path).astype(np.float32)
            if len(found) != n_images:
                raise InputError(
                    f"{path} has {len(found):,} rows for {n_images:,} images; it must have "
                    "one for each, in their order."
                )
            return found
    raise InputError(
        f"there is no {' or '.join(names)} in {_folder(data)}; put features of the images "
        "there, a row for each in their order."
    )


@lru_cache(maxsize=1)
def _deepcluster(setting: Setting) -> Features:
    path = published(setting)
    return learned(setting).features if path is None else _of_published(path, setting)


def published(setting: Setting) -> Path | None:
    """The published network beside the images, if there is one; then none is trained."""
    if setting.data is None:
        return None
    path = _folder(setting.data) / PUBLISHED
    return path if path.is_file() else None


@lru_cache(maxsize=2)
def learned(setting: Setting, small: bool = False) -> Learned:
    """DeepCluster trained on all of the images; ``small`` by a network that a CPU can train."""
    X, categories = photographs(setting)
    config = QUICK if setting.quick else FULL
    plan = config.small if small else config.plan
    some = np.concatenate([pictures(X, rows, plan.side) for rows in _batches(len(categories))])
    return learned_once(some, plan, setting, CACHE)


def learned_once(some: NDArray[np.uint8], plan: Plan, setting: Setting, cache: Path) -> Learned:
    """DeepCluster trained on these images, or as it was kept; the quick form keeps nothing."""
    if setting.quick:
        return learn(some, plan, setting.device, SEED)
    path = cache / f"deepcluster-{_key(some, plan)}.npz"
    if path.is_file():
        with np.load(path) as kept:
            float32 = kept["features"].astype(np.float32)
            columns = kept["loss"].tolist(), kept["stability"].tolist()
            return Learned(float32, *columns, float(kept["seconds"]))
    new = learn(some, plan, setting.device, SEED)
    cache.mkdir(exist_ok=True)
    unfinished = path.with_suffix(".part.npz")
    np.savez(unfinished, **new._replace(features=new.features.astype(np.float16))._asdict())
    unfinished.replace(path)
    return new


def _key(some: NDArray[np.uint8], plan: Plan) -> str:
    """Names the images and how they are learned from."""
    few = some[:: max(1, len(some) // 64)].tobytes()
    return hashlib.blake2b(few + repr((len(some), plan)).encode(), digest_size=6).hexdigest()


@torch.no_grad()
def _of_published(path: Path, setting: Setting) -> Features:
    X, categories = photographs(setting)
    network = load_published(path).to(setting.device)
    parts = []
    for rows in _batches(len(categories)):
        some = torch.from_numpy(pictures(X, rows)).to(setting.device)
        large = F.interpolate(standardized(some), (SIDE, SIDE), mode="bilinear", antialias=True)
        parts.append(network(large).float())
    plan = (QUICK if setting.quick else FULL).plan
    return whitened(torch.cat(parts), plan.components).cpu().numpy()


def frequencies(X: NDArray[np.uint8]) -> Features:
    """What repeats in images, wherever it is: enough for those that are made up.

    Examples
    --------
    >>> frequencies(gratings(2, 3, 0)[0]).shape
    (6, 40)
    """
    grey = X.mean(axis=3)
    strength = np.abs(np.fft.rfft2(grey - grey.mean(axis=(1, 2), keepdims=True)))
    flat = strength.reshape(len(X), -1)
    return (flat / np.linalg.norm(flat, axis=1, keepdims=True)).astype(np.float32)


def _batches(n: int) -> list[NDArray[np.int64]]:
    return np.array_split(np.arange(n), -(-n // 256))


def _folder(data: Path) -> Path:
    return data if data.is_dir() else data.parent


def _channels_last(image: torch.Tensor) -> NDArray[np.uint8]:
    return np.broadcast_to(np.moveaxis(image.numpy(), 0, -1), (*image.shape[1:], 3))


def _resized(some: torch.Tensor, side: int) -> NDArray[np.uint8]:
    small = F.interpolate(some.movedim(-1, 1).float(), (side, side), mode="area")
    return small.round().to(torch.uint8).movedim(1, -1).contiguous().numpy()
