"""Images in files: a look at all of them first, then decoded as a dataset."""

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from unsplit.data.readers.broken import check_max_broken, leave_out, reason
from unsplit.data.readers.folders import FileList
from unsplit.data.readers.pixels import open_image, square_pixels
from unsplit.data.rows.pixels import GREY_MODES, pillow
from unsplit.data.rows.workers import decode_in_workers
from unsplit.errors import InputError

LARGEST_AUTO_SIZE = 224
_BATCH = 64
# At this size all of a JPEG is read and little computed.
_GLANCE = 8


class Paths:
    """Many paths in one piece of memory, which worker processes share.

    Examples
    --------
    >>> Paths(["a.png", "b/é.png"])[1]
    'b/é.png'
    """

    def __init__(self, paths: Sequence[str]) -> None:
        texts = [os.fsencode(path) for path in paths]
        # Tensors, because torch sends those to other processes without a copy.
        self.text = torch.frombuffer(bytearray(b"".join(texts)), dtype=torch.uint8)
        self.ends = torch.tensor([0, *map(len, texts)]).cumsum(0)

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __getitem__(self, index: int) -> str:
        if not 0 <= index < len(self):
            raise IndexError(f"no path {index} among {len(self)}")
        start, end = self.ends.numpy()[index : index + 2]
        return os.fsdecode(self.text.numpy()[start:end].tobytes())


class ImageFiles(Dataset[Tensor]):
    """Image files as uint8 tensors of shape (channels, size, size).

    The short side is scaled to ``size`` and the middle is taken.  Orientation noted by a camera is
    respected; what is transparent becomes white.

    Parameters
    ----------
    paths : sequence of str
    size : int
    channels : int
        3, or 1 for shades of grey.
    depth : int
        Bits of the brightest pixel of images with more than 8; the upper 8 are kept.

    Attributes
    ----------
    keys : ndarray of uint64 of shape (n,), optional
        What :func:`inspect` found, so that the order of files does not matter.
    """

    keys: NDArray[np.uint64] | None = None

    # Workers may start in a clean process; see unsplit.data.rows.workers.
    self_contained = True

    def __init__(self, paths: Sequence[str], size: int, channels: int = 3, depth: int = 16) -> None:
        pillow()
        self.paths = Paths(paths)
        self.size = size
        self.channels = channels
        self.depth = depth

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Tensor:
        path = self.paths[index]
        try:
            image = open_image(_content(path))
            pixels = square_pixels(image, self.size, self.channels, self.depth)
        except Exception as error:  # Pillow raises whatever it stumbles over
            raise InputError(
                f"{path} cannot be read ({reason(error)}); restore it, or start again without it."
            ) from error
        return torch.from_numpy(pixels)


@dataclass(frozen=True, eq=False)
class Inspected:
    """What a look at every file found.

    Parameters
    ----------
    usable : ndarray of bool of shape (n,)
        Which images can be read to their end.
    keys : ndarray of uint64 of shape (n,)
        A hash of each file's content; 0 where there is none.
    size, channels, depth : int
        As for :class:`ImageFiles`.
    """

    usable: NDArray[np.bool_]
    keys: NDArray[np.uint64]
    size: int
    channels: int
    depth: int


def inspect(
    images: FileList,
    size: int | Literal["auto"] = "auto",
    workers: int | None = None,
    max_broken: float = 0.05,
    progress: Callable[[int, int], None] | None = None,
) -> Inspected:
    """Read every image once: which are broken, and how the others are best decoded.

    Parameters
    ----------
    images : FileList
    size : int or "auto"
        Of decoded images.  "auto": the median of the short sides, at most 224.
    workers : int, optional
        Processes; None: see :func:`unsplit.data.rows.workers.default_workers`.
    max_broken : float
        Share of broken images above which this is an error; up to it, they are named in a warning.
    progress : callable, optional
        Told how many images of how many were read, now and then.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from PIL import Image
    >>> from unsplit.data.readers.folders import find_images
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name, shade in [("black", 0), ("white", 255)]:
    ...     (folder / name).mkdir()
    ...     Image.new("L", (40, 30), shade).save(folder / name / "1.png")
    >>> seen = inspect(find_images(folder))
    >>> seen.size, seen.channels, seen.usable
    (30, 1, array([ True,  True]))
    """
    if size != "auto" and (type(size) is not int or size < 1):
        raise InputError(f'size must be "auto" or a number of pixels from 1 up, got {size!r}.')
    check_max_broken(max_broken)
    key, side, grey, depth = _look_at_all(_Looks(images.paths), workers, progress).T
    usable = side > 0
    broken = images.only(~usable)
    paths = dict(zip(broken.row_ids.tolist(), broken.paths, strict=True))
    leave_out(list(paths), len(usable), "images", lambda name: _why(paths[name]), max_broken)
    middling = min(LARGEST_AUTO_SIZE, int(np.median(side[usable])))
    return Inspected(
        usable,
        keys=key.view(np.uint64),
        size=middling if size == "auto" else size,
        channels=1 if grey[usable].all() else 3,
        depth=int(depth.max()),
    )


class _Looks(Dataset[Tensor]):
    """What is to be known of each file: key, short side (0 if broken), whether grey, depth."""

    self_contained = True

    def __init__(self, paths: Sequence[str]) -> None:
        pillow()
        self.paths = Paths(paths)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Tensor:
        try:
            data = _content(self.paths[index])
        except OSError:
            return torch.zeros(4, dtype=torch.int64)
        key = int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), signed=True)
        try:
            facts = _look(data)
        except Exception:  # Pillow raises whatever it stumbles over
            facts = (0, 0, 0)
        return torch.tensor([key, *facts])


def _look(data: bytes) -> tuple[int, int, int]:
    """Short side, whether grey, and depth of an image that can be decoded to its end."""
    image = open_image(data)
    side, grey = min(image.size), image.mode in GREY_MODES
    square_pixels(image, _GLANCE, channels=3)
    deep = image.mode.startswith("I")
    depth = int(np.asarray(image).max()).bit_length() if deep else 0
    return side, int(grey), max(8, depth)


def _look_at_all(
    looks: _Looks, workers: int | None, progress: Callable[[int, int], None] | None
) -> NDArray[np.int64]:
    n = len(looks)
    facts = np.empty((n, 4), np.int64)
    batches = (np.arange(i, min(i + _BATCH, n)) for i in range(0, n, _BATCH))
    done = 0
    for batch in decode_in_workers(looks, batches, workers):
        facts[done : done + len(batch)] = batch
        done += len(batch)
        if progress is not None:
            progress(done, n)
    return facts


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _why(path: str) -> str:
    try:
        _look(_content(path))
    except Exception as error:
        return reason(error)
    return "it can be read now"
