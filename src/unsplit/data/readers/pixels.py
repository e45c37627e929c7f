"""Images as Pillow reads them: upright, square, 8 bits per channel, without transparency."""

import hashlib
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsplit.data.readers.broken import content_of
from unsplit.data.rows.pixels import GREY_MODES, channels_first, grey_or_rgb, pillow

# No format that would run another program, as PostScript does.
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "TIFF", "WEBP", "PPM", "JPEG2000")

# Decoded, such an image takes up to 0.7 GB; the largest cameras have 150 million.
MOST_PIXELS = 178_956_970

# So small that scaling takes no time, while all of a file is still read.
_GLANCE = 8


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


def content_key(data: bytes) -> int:
    """Return a hash of the content of a file, as a signed number of 64 bits.

    Examples
    --------
    >>> content_key(b"a") == content_key(b"a") != content_key(b"b")
    True
    """
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), signed=True)


def look_at(path: str) -> tuple[int, int, int, int]:
    """Decode an image; return a hash of its file, its short side, whether it is grey, its depth.

    Parameters
    ----------
    path : str

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "grey.png")
    >>> pillow().new("L", (40, 30)).save(path)
    >>> look_at(path)[1:]
    (30, 1, 8)
    """
    data = content_of(path)
    key = content_key(data)
    image = open_image(data)
    side, grey = min(image.size), image.mode in GREY_MODES
    square_pixels(image, _GLANCE, channels=3)
    deep = image.mode.startswith("I")
    depth = int(np.asarray(image).max()).bit_length() if deep else 0
    return key, side, int(grey), max(8, depth)


def square_pixels(image: Any, size: int, channels: int, depth: int = 16) -> NDArray[np.uint8]:
    """Scale the short side of a PIL image to ``size`` and return the pixels of its middle, upright.

    Parameters
    ----------
    image : PIL.Image.Image
        A JPEG that has not been decoded yet is changed: it is decoded at a lower resolution,
        which is faster.
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
    from PIL import ImageOps

    # Twice the final size, so that the lower resolution cannot be seen after scaling.
    image.draft(None, (2 * size, 2 * size))
    image.load()  # before the orientation is read: Pillow turns TIFF images itself
    image = grey_or_rgb(_upright(image), channels, depth)
    return channels_first(ImageOps.fit(image, (size, size), pillow().Resampling.BILINEAR))


def _upright(image: Any) -> Any:
    """Turn an image as its camera noted; with damaged metadata it stays as it is."""
    from PIL import ImageOps

    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # Pillow raises many types of error here, and the pixels are fine
        return image
