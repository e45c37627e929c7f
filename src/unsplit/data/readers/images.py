"""Image files: inspected once, then decoded as a dataset."""

import os
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from unsplit.data.readers.broken import content_of, leave_out, reason, shown_place
from unsplit.data.readers.folders import FileList
from unsplit.data.readers.isolated import parse_into
from unsplit.data.readers.pixels import content_key, open_image, square_pixels
from unsplit.data.rows.datasets import default_workers
from unsplit.data.rows.pixels import pillow
from unsplit.errors import InputError

LARGEST_AUTO_SIZE = 224


class Paths:
    """Many paths in one block of memory, which worker processes share.

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

    The short side is scaled to ``size`` and the middle is cut out.  Images are turned upright as
    the camera noted; transparent pixels become white.

    Parameters
    ----------
    paths : sequence of str
    size : int
    channels : int
        3, or 1 for shades of grey.
    depth : int
        Number of bits that images of more than 8 bits use; the upper 8 of them are kept.

    Attributes
    ----------
    keys : ndarray of uint64 of shape (n,), optional
        Hash of each file's content, as :func:`inspect` returns it; with it, results do not depend
        on the order of the files, and a file that has changed since is refused.

    Examples
    --------
    >>> import tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "a.png")
    >>> pillow().new("RGB", (40, 30)).save(path)
    >>> ImageFiles([path], size=16)[0].shape
    torch.Size([3, 16, 16])
    """

    keys: NDArray[np.uint64] | None = None

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
            data = content_of(path)
            # Only what was decoded before, within limits of time and memory, is decoded here.
            if self.keys is not None and content_key(data) % 2**64 != self.keys[index]:
                raise ValueError("it has changed since the start")
            image = open_image(data)
            pixels = square_pixels(image, self.size, self.channels, self.depth)
        except Exception as error:  # Pillow raises many types of error on damaged files
            raise InputError(
                f"{shown_place(path)} cannot be read ({reason(error)}); restore it, or remove it "
                "and start again."
            ) from error
        return torch.from_numpy(pixels)


def inspect(
    images: FileList,
    size: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[ImageFiles, FileList]:
    """Read every image once, to find broken ones and to choose how to decode the others.

    Parameters
    ----------
    images : FileList
    size : int, optional
        Width and height of decoded images; by default the median short side, at most 224.
    progress : callable, optional
        Called with the number of images read so far and the number of all.

    Returns
    -------
    ImageFiles
        The images that can be read to their end, with ``keys``.
    FileList
        The same images; a warning names the others.

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
    >>> files, kept = inspect(find_images(folder))
    >>> files.size, files.channels, kept.labels.tolist()
    (30, 1, ['black', 'white'])
    """
    pillow()
    # Key, short side, whether grey, and depth of each.
    facts = np.zeros((len(images.row_ids), 4), np.int64)
    # At least one, because a damaged image can crash the process that decodes it.
    workers = max(1, default_workers(len(facts)))
    look = "unsplit.data.readers.pixels:look_at"
    why = parse_into(facts, look, images.paths, workers, progress)
    kept = images.only(leave_out(why, images.row_ids, "images"))
    key, side, grey, depth = np.delete(facts, list(why), axis=0).T
    size = size or min(LARGEST_AUTO_SIZE, int(np.median(side)))
    files = ImageFiles(kept.paths, size, 1 if grey.all() else 3, int(depth.max()))
    files.keys = key.view(np.uint64)
    return files, kept
