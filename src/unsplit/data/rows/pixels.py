"""Pixels of PIL images: grey or RGB, 8 bits, without transparency."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

GREY_MODES = frozenset(["1", "L", "LA", "I", "I;16", "I;16L", "I;16B", "I;16N"])


def pillow() -> Any:
    """Import and return the module ``PIL.Image``, or say what to install.

    Examples
    --------
    >>> pillow().__name__
    'PIL.Image'
    """
    try:
        from PIL import Image
    except ImportError:
        raise ImportError("reading images needs Pillow: pip install unsplit[images]") from None
    return Image


def grey_or_rgb(image: Any, channels: int, depth: int = 16) -> Any:
    """Convert a PIL image of any mode to mode L or RGB; transparent pixels become white.

    Parameters
    ----------
    image : PIL.Image.Image
    channels : int
        1 for grey (mode L), 3 for colour (mode RGB).
    depth : int
        Number of bits that pixels of more than 8 bits use; the upper 8 of them are kept.

    Examples
    --------
    >>> image = pillow().new("RGBA", (1, 1), (9, 9, 9, 0))
    >>> grey_or_rgb(image, channels=3).getpixel((0, 0))
    (255, 255, 255)
    """
    if image.mode == "F":
        raise ValueError("floating-point pixels have no known range; save 8- or 16-bit pixels")
    if image.mode.startswith("I"):
        shades = np.clip(np.asarray(image).astype(np.int64) >> (depth - 8), 0, 255)
        image = pillow().fromarray(shades.astype(np.uint8))
    elif "A" in image.getbands() or "transparency" in image.info:
        white = pillow().new("RGBA", image.size, "white")
        white.alpha_composite(image.convert("RGBA"))
        image = white
    mode = "L" if channels == 1 else "RGB"
    return image if image.mode == mode else image.convert(mode)


def channels_first(image: Any) -> NDArray[np.uint8]:
    """Return the pixels of a PIL image in mode L or RGB, shape (C, H, W).

    Parameters
    ----------
    image : PIL.Image.Image

    Examples
    --------
    >>> channels_first(pillow().new("RGB", (4, 2))).shape
    (3, 2, 4)
    """
    pixels = np.asarray(image)
    return pixels[None].copy() if pixels.ndim == 2 else pixels.transpose(2, 0, 1).copy()
