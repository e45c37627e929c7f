"""Pixels of images as Pillow reads them: upright, square, of 8 bits, without holes."""

from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Nothing that would run another program, as PostScript does.
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "TIFF", "WEBP", "PPM", "JPEG2000")
GREY_MODES = frozenset(["1", "L", "LA", "I", "I;16", "I;16L", "I;16B", "I;16N"])

# EXIF orientation: what undoes it, by the names of PIL.Image.Transpose.
ORIENTATION_TAG = 0x0112
_TO_UNDO = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}


def pillow() -> Any:
    """The module ``PIL.Image``, or a polite error."""
    try:
        from PIL import Image
    except ImportError:
        raise ImportError("reading images needs Pillow: pip install unsplit[images]") from None
    return Image


def open_image(data: bytes) -> Any:
    """A PIL image of the content of a file; only its header is read."""
    return pillow().open(BytesIO(data), formats=FORMATS)


def square_pixels(image: Any, size: int, channels: int, depth: int = 16) -> NDArray[np.uint8]:
    """Pixels of the middle of a PIL image, upright, its short side scaled to ``size``.

    Parameters
    ----------
    image : PIL.Image.Image
        Changed if it is a JPEG that was not decoded yet: that is cheaper at a lower resolution.
    size, channels, depth : int
        As for :class:`unsplit.data.readers.images.ImageFiles`.

    Returns
    -------
    ndarray of shape (channels, size, size)

    Examples
    --------
    >>> from PIL import Image
    >>> square_pixels(Image.new("RGB", (9, 6), (255, 0, 7)), 2, channels=3)[:, 0, 0]
    array([255,   0,   7], dtype=uint8)
    """
    # Twice as large as needed, so that the scaling that follows hides how it was made smaller.
    image.draft(None, (2 * size, 2 * size))
    image.load()  # before its orientation is asked for: Pillow turns TIFF by itself
    undo = _TO_UNDO.get(_orientation(image))
    image = flat(image, channels, depth)
    if undo is not None:
        image = image.transpose(pillow().Transpose[undo])
    return channels_first(_scaled_middle(image, size))


def flat(image: Any, channels: int, depth: int = 16) -> Any:
    """A PIL image in mode L (one channel) or RGB (three), on white where it is transparent."""
    if image.mode == "F":
        raise ValueError("floating-point pixels, of which none is known to be white")
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
    """Pixels of a PIL image in mode L or RGB, shape (C, H, W)."""
    pixels = np.asarray(image)
    return pixels[None].copy() if pixels.ndim == 2 else pixels.transpose(2, 0, 1).copy()


def _orientation(image: Any) -> Any:
    try:
        return image.getexif().get(ORIENTATION_TAG)
    except Exception:  # damaged metadata; the pixels are whole
        return None


def _scaled_middle(image: Any, size: int) -> Any:
    width, height = image.size
    side = min(width, height)
    if side == size:
        left, top = (width - side) // 2, (height - side) // 2
        return image if width == height else image.crop((left, top, left + side, top + side))
    left, top = (width - side) / 2, (height - side) / 2
    box = (left, top, left + side, top + side)
    return image.resize((size, size), pillow().Resampling.BILINEAR, box)
