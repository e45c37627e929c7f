"""Pixels of images as Pillow reads them: upright, 8 bits, grey or RGB, without transparency."""

from contextlib import suppress
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

GREY_MODES = frozenset(["1", "L", "LA", "I", "I;16", "I;16L", "I;16B", "I;16N"])
# No format that would run another program, as PostScript does.
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "TIFF", "WEBP", "PPM", "JPEG2000")
# Decoded, such an image takes up to 0.7 GB; the largest cameras have 150 million.
MOST_PIXELS = 178_956_970


def pillow() -> Any:
    """Import and return the module ``PIL.Image``, or say what to install."""
    try:
        from PIL import Image
    except ImportError:
        raise ImportError("reading images needs Pillow: pip install unsplit[images]") from None
    return Image


def open_image(data: bytes) -> Any:
    """Open the content of an image file as a PIL image; only its header is read.

    Examples
    --------
    >>> file = BytesIO()
    >>> pillow().new("L", (4, 2)).save(file, "PNG")
    >>> open_image(file.getvalue()).size
    (4, 2)
    """
    image = pillow().open(BytesIO(data), formats=FORMATS)
    if image.width * image.height > MOST_PIXELS:
        raise ValueError(f"it has {image.width:,} x {image.height:,} pixels, which is too many")
    return image


def grey_or_rgb(image: Any, channels: int, depth: int = 16) -> Any:
    """Convert a PIL image of any mode to mode L or RGB; transparent pixels become white.

    ``depth`` is the number of bits that pixels of more than 8 bits use; the upper 8 are kept.

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
    """Return the pixels of a PIL image in mode L or RGB, shape (C, H, W)."""
    pixels = np.asarray(image)
    return pixels[None].copy() if pixels.ndim == 2 else pixels.transpose(2, 0, 1).copy()


def square_pixels(image: Any, size: int, channels: int, depth: int = 16) -> NDArray[np.uint8]:
    """Scale the short side of a PIL image to ``size`` and return the pixels of its middle, upright.

    A JPEG that has not been decoded yet is decoded at a lower resolution, which is faster.

    Examples
    --------
    >>> square_pixels(pillow().new("RGB", (9, 6), (255, 0, 7)), 2, channels=3)[:, 0, 0]
    array([255,   0,   7], dtype=uint8)
    """
    from PIL import ImageOps

    # Twice the final size, so that the lower resolution cannot be seen after scaling.
    image.draft(None, (2 * size, 2 * size))
    image.load()  # before the orientation is read: Pillow turns TIFF images itself
    with suppress(
        Exception
    ):  # damaged metadata make Pillow raise anything, but the pixels are fine
        image = ImageOps.exif_transpose(image)
    image = grey_or_rgb(image, channels, depth)
    return channels_first(ImageOps.fit(image, (size, size), pillow().Resampling.BILINEAR))
