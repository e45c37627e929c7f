"""Simulated tracks for tracks.py, made from still images.

A track shows one category in frames that change smoothly.  No still image is in two tracks.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from sklearn.datasets import load_digits
from torch.nn import functional as F

import unsplit

Array = NDArray[Any]

SHEETS = 14  # load_digits consists of forms with about 128 drawings each, by 13 writers
SCENE = 96  # side of the background that a digit crosses, in pixels


class Tracks(NamedTuple):
    """Frames (n, h, w, c) as bytes, the track of each (n,), the category of each track (k,)."""

    frames: Array
    track: Array
    categories: Array  # used for the evaluation only


def digit_tracks(n_videos: int, n_frames: int, n_views: int, rng: np.random.Generator) -> Tracks:
    """Make ten tracks for each video: handwritten digits that cross its background.

    The digits of a video come from one form, so mostly from one writer.  A track shows ``n_views``
    drawings of a digit that fade into each other, like an object seen from different sides.
    """
    X, digit = load_digits(return_X_y=True)
    drawings = resized(X.reshape(-1, 8, 8, 1) / 16, 24)
    films, categories = [], []
    for form in np.array_split(np.arange(len(digit)), SHEETS)[:n_videos]:
        scene, light = random_scene(rng), rng.uniform(0.3, 0.6)
        hands = list(dealt(form, digit[form], n_views, 2, rng))
        for i in rng.permutation(len(hands))[:10]:
            category, stills = hands[i]
            shown = light * moved(between(drawings[stills], n_frames), 24, 1.25, "zeros", rng)
            films.append(lit(shown + behind(scene, 24, n_frames, rng), rng))
            categories.append(category)
    return numbered(films, categories)


def photo_tracks(
    folder: str,
    n_categories: int,
    n_each: int,
    n_frames: int,
    n_views: int,
    rng: np.random.Generator,
) -> Tracks:
    """Make tracks from a folder of photographs, ``category/*.JPEG``, with a moving camera.

    The photographs of a track follow each other without fading, as if the object had turned.
    """
    found = unsplit.read(folder)
    labels = np.asarray(found.labels)
    names = rng.permutation(np.unique(labels))[:n_categories]
    chosen = np.flatnonzero(np.isin(labels, names))
    films, categories = [], []
    for category, stills in dealt(chosen, labels[chosen], n_views, n_each, rng):
        photos = np.stack([found.X[int(i)].movedim(0, -1).numpy() for i in stills]) / 255
        cast = np.repeat(np.arange(n_views), -(-n_frames // n_views))[:n_frames]
        films.append(lit(moved(resized(photos, 48)[cast], 32, 0.7, "reflection", rng), rng))
        categories.append(category)
    if len(set(categories)) < 2:
        raise SystemExit(f"{folder} must have two subfolders with at least {n_views} images each.")
    return numbered(films, categories)


def dealt(
    stills: Array, categories: Array, n_views: int, most: int, rng: np.random.Generator
) -> Iterator[tuple[Any, Array]]:
    """Assign ``n_views`` still images to each track, with at most ``most`` tracks per category."""
    for category in np.unique(categories):
        hand = rng.permutation(stills[categories == category])
        for start in range(0, min(most * n_views, len(hand) - n_views + 1), n_views):
            yield category, hand[start : start + n_views]


def numbered(films: list[Array], categories: list[Any]) -> Tracks:
    names = [f"track {number:03}" for number in range(len(films))]
    return Tracks(np.concatenate(films), np.repeat(names, len(films[0])), np.array(categories))


def between(stops: Array, n: int) -> Array:
    """Interpolate between the stops (s, …), shape (n, …)."""
    place = np.linspace(0, len(stops) - 1, n)
    before = place.astype(int)
    share = (place - before).reshape(n, *[1] * (stops.ndim - 1))
    return (1 - share) * stops[before] + share * stops[np.minimum(before + 1, len(stops) - 1)]


def glide(size: float, n: int, rng: np.random.Generator) -> Array:
    """Make a path through random values between ±size, shape (n,)."""
    return size * between(rng.uniform(-1, 1, 4), n)


def resized(images: Array, side: int) -> Array:
    """Resize images (n, h, w, c) to squares, shape (n, side, side, c)."""
    given = torch.from_numpy(images).movedim(-1, 1)
    made = F.interpolate(given, (side, side), mode="bicubic", antialias=True)
    return made.clamp(0, 1).movedim(1, -1).numpy()


def moved(images: Array, side: int, size: float, outside: str, rng: np.random.Generator) -> Array:
    """Rotate, shift and scale images (n, h, w, c) smoothly, shape (n, side, side, c)."""
    n = len(images)
    angle, squash = glide(0.26, n, rng), 1 + glide(0.15, n, rng)
    scale = size * (1 + glide(0.16, n, rng))
    cos, sin = scale * np.cos(angle), scale * np.sin(angle)
    right, down = (glide(0.3, n, rng) for _ in "xy")
    pose = np.array([[squash * cos, -squash * sin, right], [sin / squash, cos / squash, down]])
    given = torch.from_numpy(images).movedim(-1, 1)
    shape = [n, given.shape[1], side, side]
    grid = F.affine_grid(torch.from_numpy(pose).movedim(2, 0), shape, align_corners=False)
    seen = F.grid_sample(given, grid, padding_mode=outside, align_corners=False)
    return seen.movedim(1, -1).numpy()


def random_scene(rng: np.random.Generator) -> Array:
    """Make the background of a video: a grey level with coarse and fine structure."""
    coarse, fine = (gaussian_filter(rng.standard_normal((SCENE, SCENE)), s) for s in (20, 3))
    return rng.uniform(0.15, 0.45) + 0.1 * coarse / coarse.std() + 0.05 * fine / fine.std()


def behind(scene: Array, side: int, n: int, rng: np.random.Generator) -> Array:
    """Cut out the background along the path of an object, shape (n, side, side, 1)."""
    reach = 20
    corner = rng.integers(reach, SCENE - side - reach, 2)
    path = np.stack([corner[axis] + glide(reach, n, rng) for axis in (0, 1)], axis=1).astype(int)
    return np.stack([scene[y : y + side, x : x + side, None] for y, x in path])


def lit(shown: Array, rng: np.random.Generator) -> Array:
    """Add changing light and camera noise, and convert to bytes."""
    n = len(shown)
    gain, offset = (glide(size, n, rng)[:, None, None, None] for size in (0.25, 0.08))
    noise = 0.03 * rng.standard_normal(shown.shape)
    return (255 * np.clip((1 + gain) * shown + offset + noise, 0, 1)).astype(np.uint8)
