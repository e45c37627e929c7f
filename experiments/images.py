"""Photographs in ImageNet's layout: a folder for every category, in a folder or in a zip file."""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

import unsplit
from unsplit import InputError

SUFFIXES = (".jpeg", ".jpg", ".png")
HERE = "tiny-imagenet-60.zip"


def images(data: Path | None) -> tuple[Any, NDArray[Any]]:
    """Images and the name of each one's category.

    ``data`` is a zip file with images of one size, a folder that holds :data:`HERE`, or a folder
    of any images, which are then read from disk as they are needed.
    """
    if data is None:
        raise InputError("this experiment needs photographs; name a folder or zip with --data.")
    if (data / HERE).is_file():
        data = data / HERE
    if data.is_file():
        return _from_zip(data)
    found = unsplit.read(data / "train" if (data / "train").is_dir() else data)
    return found.X, np.asarray(found.labels)


def gratings(n_categories: int, n_each: int, random_state: int) -> tuple[Any, NDArray[Any]]:
    """Images that take no file: stripes, whose direction is the category, at any place, in noise.

    Examples
    --------
    >>> X, y = gratings(3, 5, 0)
    >>> X.shape, X.dtype, np.unique(y).tolist()
    ((15, 8, 8, 3), dtype('uint8'), [0, 1, 2])
    """
    rng = np.random.default_rng(random_state)
    y = np.repeat(np.arange(n_categories), n_each)
    angle, shift = np.pi * y / n_categories, rng.uniform(0, 2 * np.pi, len(y))
    across, down = np.meshgrid(np.arange(8), np.arange(8))
    along = np.cos(angle)[:, None, None] * across + np.sin(angle)[:, None, None] * down
    wave = np.sin(along + shift[:, None, None])[..., None] + rng.normal(0, 0.5, (len(y), 8, 8, 3))
    return np.clip(128 + 60 * wave, 0, 255).astype(np.uint8), y


def small_network(features: int = 32) -> nn.Module:
    """What a CPU can train in seconds, where the network itself is not the question."""
    return nn.Sequential(
        nn.Conv2d(3, features, 5, padding=2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()
    )


def _from_zip(path: Path) -> tuple[Any, NDArray[Any]]:
    from PIL import Image

    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.lower().endswith(SUFFIXES)]
        if not names:
            raise InputError(f"there are no images in {path}; pass one in ImageNet's layout.")
        pictures = [
            np.asarray(Image.open(io.BytesIO(archive.read(name))).convert("RGB")) for name in names
        ]
    return np.stack(pictures), np.array([name.split("/")[-2] for name in names])
