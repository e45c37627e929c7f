"""Arrays as short text for a page: numbers in base64, and images as PNG."""

import base64
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

# The largest 16-bit number means "unknown".
STEPS = 65_534


def packed(values: ArrayLike, kind: Any = np.uint16) -> str:
    """Whole numbers as base64, little-endian.

    Examples
    --------
    >>> packed([1, 2])
    'AQACAA=='
    """
    array = np.ascontiguousarray(np.asarray(values).astype(np.dtype(kind).newbyteorder("<")))
    return base64.b64encode(array.tobytes()).decode("ascii")


def shares(values: ArrayLike) -> str:
    """Numbers from 0 to 1 as 16-bit numbers in base64; NaN as 65,535.

    Examples
    --------
    >>> base64.b64decode(shares([0, 1, np.nan])).hex()
    '0000feffffff'
    """
    array = np.asarray(values, np.float64)
    scaled = np.round(STEPS * np.clip(array, 0.0, 1.0))
    return packed(np.where(np.isnan(array), STEPS + 1, scaled))


def png(pixels: NDArray[np.uint8]) -> str:
    """An image of shape (height, width, 3) as the address of a PNG, for ``src``.

    Examples
    --------
    >>> png(np.zeros((1, 1, 3), np.uint8))[:22]
    'data:image/png;base64,'
    """
    height, width, _ = pixels.shape
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(lines.tobytes(), 9)
    content = b"".join(_chunk(*c) for c in ((b"IHDR", header), (b"IDAT", body), (b"IEND", b"")))
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + content).decode()


def sheet(tiles: NDArray[np.uint8], columns: int) -> NDArray[np.uint8]:
    """Put tiles of one size side by side, row by row, into one image.

    Examples
    --------
    >>> sheet(np.zeros((3, 2, 4, 3), np.uint8), columns=2).shape
    (4, 8, 3)
    """
    n, height, width, _ = tiles.shape
    lines = -(-n // columns)
    padded = np.zeros((lines * columns, height, width, 3), np.uint8)
    padded[:n] = tiles
    rows = padded.reshape(lines, columns, height, width, 3).swapaxes(1, 2)
    return np.ascontiguousarray(rows.reshape(lines * height, columns * width, 3))


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
