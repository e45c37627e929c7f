"""Small pictures of observations: thumbnails, rendered clouds, waveforms and spectrograms."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unsplit._typing import Index

if TYPE_CHECKING:
    from unsplit.data.rows.base import Rows

Bytes = NDArray[np.uint8]

LARGEST_SIDE = 64
# Pixels of all tiles together: a page of 500 clusters stays below ten megabytes.
MOST_PIXELS = 1_500_000
BACKGROUND, INK = 246, np.array([0, 90, 140])


def side_of(n_tiles: int) -> int:
    """The side of so many square tiles in pixels.

    Examples
    --------
    >>> side_of(40), side_of(2500)
    (64, 24)
    """
    return int(np.clip((MOST_PIXELS / max(n_tiles, 1)) ** 0.5, 16, LARGEST_SIDE))


def grid_of(names: Sequence[str] | None) -> tuple[int, int] | None:
    """The rows and columns of an image whose pixels are features, such as "pixel_0_7".

    Parameters
    ----------
    names : sequence of str, or None
        Names of the features; all of them must end in a row and a column.

    Examples
    --------
    >>> grid_of(["p_0_0", "p_0_1", "p_1_0", "p_1_1"]), grid_of(["age", "height"])
    ((2, 2), None)
    """
    found = [re.fullmatch(r"\D*(\d+)[_x,](\d+)", str(name)) for name in names or ()]
    if len(found) < 4 or not all(found):
        return None
    places = [(int(m[1]), int(m[2])) for m in found if m is not None]
    height, width = (max(p) - min(p) + 1 for p in zip(*places, strict=True))
    low = min(places)
    complete = [(low[0] + r, low[1] + c) for r in range(height) for c in range(width)]
    return (height, width) if places == complete and min(height, width) > 1 else None


def tiles_of_grid(values: NDArray[Any], shape: tuple[int, int]) -> Bytes:
    """Rows of features as grey images, dark where values are large.

    Parameters
    ----------
    values : ndarray of shape (t, height · width)
    shape : (int, int)

    Examples
    --------
    >>> tiles_of_grid(np.array([[0.0, 1.0, 1.0, 0.0]]), (2, 2))[0, :, :, 0]
    array([[255,   0],
           [  0, 255]], dtype=uint8)
    """
    low, high = float(values.min(initial=0.0)), float(values.max(initial=0.0))
    share = (values - low) / ((high - low) or 1.0)
    grey = np.round(255 * (1 - share)).astype(np.uint8).reshape(-1, *shape)
    return np.repeat(grey[..., None], 3, axis=3)


def tiles_of_rows(rows: "Rows", index: Index, sound: bool = False) -> Bytes:
    """Draw some observations of any kind but vectors, shape (t, side, side, 3).

    Parameters
    ----------
    rows : Rows
    index : ndarray of shape (t,)
    sound : bool
        Whether sequences are sounds, which have a spectrogram.
    """
    import torch

    side, tiles = side_of(len(index)), []
    draw = {"images": _image, "points": _cloud}.get(rows.kind, _sound if sound else _waveform)
    for row in index.tolist():
        one = rows.take(torch.tensor([row], device=rows.device))[0].float().cpu()
        tiles.append(draw(one, side))
    return np.stack(tiles) if tiles else np.zeros((0, 1, 1, 3), np.uint8)


def _image(pixels: Any, side: int) -> Bytes:
    from torch.nn.functional import interpolate

    values = pixels[:3] if len(pixels) >= 3 else pixels[:1].repeat(3, 1, 1)
    values = interpolate(values[None], (side, side), mode="area")[0].permute(1, 2, 0).numpy()
    # Bytes are drawn as they are, other numbers from their smallest to their largest.
    if values.min() < 0 or values.max() > 255 or values.max() <= 1:
        low, high = float(values.min()), float(values.max())
        values = 255 * (values - low) / ((high - low) or 1.0)
    return np.round(values).astype(np.uint8)


def _cloud(points: Any, side: int) -> Bytes:
    """A cloud seen from the front and a little from above; near points are darker."""
    xyz = points.numpy()[:, :3].astype(np.float64)
    xyz = xyz - (xyz.min(axis=0) + xyz.max(axis=0)) / 2
    turn, tilt = np.deg2rad(35), np.deg2rad(25)
    x = np.cos(turn) * xyz[:, 0] - np.sin(turn) * xyz[:, 1]
    depth = np.sin(turn) * xyz[:, 0] + np.cos(turn) * xyz[:, 1]
    y = np.cos(tilt) * xyz[:, 2] - np.sin(tilt) * depth
    reach = 1.05 * max(float(np.abs(np.concatenate([x, y])).max()), 1e-12)
    columns = ((x / reach + 1) / 2 * (side - 1)).round().astype(np.int64)
    lines = ((1 - y / reach) / 2 * (side - 1)).round().astype(np.int64)
    tile = np.full((side, side, 3), BACKGROUND, np.uint8)
    far = (depth - depth.min()) / (float(np.ptp(depth)) or 1.0)
    for point in np.argsort(-depth):
        shade = INK + 0.6 * far[point] * (BACKGROUND - INK)
        tile[lines[point], columns[point]] = shade.astype(np.uint8)
    return tile


def _waveform(sequence: Any, side: int) -> Bytes:
    """Each channel as a band, from its smallest to its largest value in every column."""
    values = sequence.numpy()
    channels, present = values[:-1], values[-1] > 0  # the last channel says where there are values
    tile = np.full((side, side, 3), BACKGROUND, np.uint8)
    channels = channels[:4, present]
    if channels.size == 0:
        return tile
    height = side // len(channels)
    for band, channel in enumerate(channels):
        low, high = float(channel.min()), float(channel.max())
        level = (channel - low) / ((high - low) or 1.0) * (height - 1)
        for column, part in enumerate(np.array_split(level, min(side, len(level)))):
            top, bottom = height - 1 - int(part.max()), height - 1 - int(part.min())
            start = column * side // min(side, len(level))
            end = (column + 1) * side // min(side, len(level))
            tile[band * height + top : band * height + bottom + 1, start:end] = INK
    return tile


def _sound(sequence: Any, side: int) -> Bytes:
    """The waveform above, and the spectrogram below it: dark is loud, and high is above."""
    samples = sequence.numpy()[0, sequence.numpy()[-1] > 0].astype(np.float64)
    upper = side // 3
    tile = _waveform(sequence, side)
    loud = spectrogram(samples, side, side - upper)[..., None]
    tile[:upper] = tile[np.linspace(0, side - 1, upper).astype(np.int64)]
    tile[upper:] = BACKGROUND + loud * (INK - BACKGROUND)
    return tile


def spectrogram(samples: NDArray[np.float64], width: int, height: int) -> NDArray[np.float64]:
    """How loud each pitch is over time, from 0 (60 dB below the loudest, or less) to 1.

    Low pitches have more lines than high ones, as they have for the ear.

    Parameters
    ----------
    samples : ndarray of shape (n,)
    width, height : int
        Columns and lines; the highest pitch comes first.

    Examples
    --------
    >>> high, low = np.sin(2.5 * np.arange(900)), np.sin(0.3 * np.arange(900))
    >>> [int(spectrogram(sound, 4, 8).sum(axis=1).argmax()) for sound in (high, low)]
    [1, 6]
    """
    window = min(256, len(samples))
    starts = np.linspace(0, len(samples) - window, width).astype(np.int64)
    parts = samples[starts[:, None] + np.arange(window)] * np.hanning(window + 2)[1:-1]
    power = np.abs(np.fft.rfft(parts - parts.mean(axis=1, keepdims=True), axis=1)) ** 2
    edges = np.linspace(0, 1, height + 1) ** 1.6 * power.shape[1]
    first = np.minimum(edges[:-1].astype(np.int64), power.shape[1] - 1)
    last = np.maximum(np.ceil(edges[1:]).astype(np.int64), first + 1)
    lines = np.stack([power[:, a:b].mean(axis=1) for a, b in zip(first, last, strict=True)])
    decibels = 10 * np.log10(lines[::-1] / (lines.max() or 1.0) + 1e-12)
    return np.clip(1 + decibels / 60, 0.0, 1.0)


def exemplar_rows(
    features: NDArray[np.float64], clusters: Index, k: int, per_cluster: int
) -> Index:
    """Choose observations of every cluster, from the most typical to the less typical.

    Parameters
    ----------
    features : ndarray of shape (m, d)
        Vectors in which the distance from the mean of a cluster says how typical one is.
    clusters : ndarray of shape (m,)
    k, per_cluster : int

    Returns
    -------
    ndarray
        Positions in ``features``, ordered by cluster.

    Examples
    --------
    >>> exemplar_rows(np.array([[0.0], [5.0], [1.0], [9.0]]), np.array([0, 0, 0, 1]), 2, 2)
    array([2, 1, 3])
    """
    chosen = [np.zeros(0, np.int64)]
    for cluster in range(k):
        inside = np.flatnonzero(clusters == cluster)
        if len(inside) == 0:
            continue
        away = np.linalg.norm(features[inside] - features[inside].mean(axis=0), axis=1)
        order = inside[np.argsort(away, kind="stable")]
        steps = np.linspace(0, len(order) - 1, min(per_cluster, len(order)))
        chosen.append(order[np.unique(steps.round().astype(np.int64))])
    return np.concatenate(chosen)
