"""Where images are: a folder with a subfolder for each cluster, or a table of paths."""

import csv
import os
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unsplit.data.readers.tables import listing
from unsplit.errors import InputError, SkippedWarning

ENDINGS = (
    ".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp",
    ".ppm", ".pgm", ".pbm", ".pnm", ".jp2",
)  # fmt: skip

# What stands beside a folder called "train".
PARTS = frozenset(["train", "val", "valid", "validation", "test"])


@dataclass(frozen=True, eq=False)
class ImageList:
    """Images and the cluster of each.

    Parameters
    ----------
    folder : str
        What ``row_ids`` are relative to.
    row_ids : ndarray of str of shape (n,)
        Path of each image, unique; a table may hold absolute ones.
    labels : ndarray of str of shape (n,)
    """

    folder: str
    row_ids: NDArray[np.str_]
    labels: NDArray[np.str_]

    @property
    def paths(self) -> list[str]:
        """Where each image is."""
        return [os.path.join(self.folder, name) for name in self.row_ids.tolist()]

    def only(self, keep: NDArray[np.bool_]) -> "ImageList":
        """Those of the images that a mask of shape (n,) keeps."""
        return ImageList(self.folder, self.row_ids[keep], self.labels[keep])


def find_images(path: str | os.PathLike[str]) -> ImageList:
    r"""List images and their clusters; none is opened.

    Parameters
    ----------
    path : str or path
        A folder in which every subfolder is a cluster and holds its images, at any depth.  In a
        folder that has only ``train``, or ``train`` and ``val`` or ``test``, that is ``train``.
        Hidden files and files that are not called as images are, are passed over.  Or a ``.csv``
        or ``.tsv`` file with columns ``path``, relative to the file's folder or absolute, and
        ``cluster``.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "images.csv"
    >>> _ = path.write_text("path,cluster\nb.png,owls\na/1.jpg,eagles\n")
    >>> found = find_images(path)
    >>> found.row_ids.tolist(), found.labels.tolist()
    (['b.png', 'a/1.jpg'], ['owls', 'eagles'])
    """
    path = Path(path)
    if path.is_dir():
        return _list_folder(path)
    if not path.exists():
        raise InputError(f"there is no folder or table {path}; check its name.")
    if path.suffix.lower() not in (".csv", ".tsv"):
        raise InputError(f"{path} is no folder of images and no .csv or .tsv file; name one.")
    return _list_table(path)


def _list_folder(folder: Path) -> ImageList:
    folder = _training_part(folder)
    clusters = {name: list(_images_below(folder, name)) for name in _subfolders(folder)}
    empty = [name for name, found in clusters.items() if not found]
    filled = [name for name, found in clusters.items() if found]
    advice = (
        "put the images of each cluster into a subfolder, or list them in a .csv file with columns "
        "path and cluster"
    )
    if not filled:
        loose = sum(_is_image(entry.name) for entry in _entries(folder) if entry.is_file())
        held = f"{loose:,} images but none in a subfolder" if loose else "no images"
        raise InputError(f"{folder} holds {held}; {advice}.")
    if len(filled) == 1:
        raise InputError(
            f"{folder} has images in one subfolder only ({filled[0]!r}), so there is no pair to "
            f"compare; {advice}."
        )
    if empty:
        _warn(f"{folder} has subfolders without images, which are ignored: {listing(empty)}.")
    names = [name for cluster in filled for name in clusters[cluster]]
    sizes = [len(clusters[cluster]) for cluster in filled]
    return ImageList(str(folder), np.array(names), np.repeat(filled, sizes))


def _training_part(folder: Path) -> Path:
    parts = _subfolders(folder)
    inner = folder / "train"
    if "train" not in parts or not PARTS.issuperset(parts) or not _subfolders(inner):
        return folder
    if len(parts) > 1:
        rest = listing([part for part in parts if part != "train"])
        _warn(f"of {folder} only the images in 'train' are used, not those in {rest}.")
    return inner


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """What a folder holds, by name, without what is hidden."""
    try:
        with os.scandir(folder) as entries:
            seen = [entry for entry in entries if not entry.name.startswith(".")]
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError(f"{folder} cannot be opened: {reason}; check who may read it.") from None
    return sorted(seen, key=lambda entry: entry.name)


def _subfolders(folder: Path) -> list[str]:
    return [entry.name for entry in _entries(folder) if entry.is_dir()]


def _images_below(folder: Path, name: str) -> Iterator[str]:
    """Images at any depth, relative to ``folder``."""
    for entry in _entries(folder / name):
        below = f"{name}/{entry.name}"
        # A link may lead back to where it is.
        if entry.is_dir(follow_symlinks=False):
            yield from _images_below(folder, below)
        elif _is_image(entry.name) and not entry.is_dir():
            yield below


def _is_image(name: str) -> bool:
    return name.lower().endswith(ENDINGS)


def _list_table(path: Path) -> ImageList:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            names, labels = _read_columns(path, file)
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} is not a table in UTF-8 ({error}); save it again.") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError(f"{path} cannot be opened: {reason}; check who may read it.") from None
    if not names:
        raise InputError(f"{path} names its columns but lists no images; add a line for each.")
    kept, times = np.unique(names, return_counts=True)
    if (times > 1).any():
        raise InputError(
            f"{path} lists {str(kept[times > 1][0])!r} more than once; list every image once."
        )
    return ImageList(str(path.parent), np.array(names), np.array(labels))


def _read_columns(path: Path, file: Iterable[str]) -> tuple[list[str], list[str]]:
    rows = csv.reader(file, delimiter="," if path.suffix.lower() == ".csv" else "\t")
    header = [name.strip() for name in next(rows, [])]
    if not {"path", "cluster"} <= set(header):
        held = f"its columns: {listing(header)}" if header else "it is empty"
        raise InputError(
            f"{path} must have the columns 'path' and 'cluster' ({held}); name them in its first "
            "line."
        )
    columns = header.index("path"), header.index("cluster")
    pairs: list[tuple[str, str]] = []
    for row in filter(None, rows):
        if len(row) <= max(columns) or not row[columns[0]].strip():
            raise InputError(
                f"line {rows.line_num} of {path} has no path or no cluster; write both, leaving "
                "the cluster empty for noise."
            )
        pairs.append((row[columns[0]].strip(), row[columns[1]].strip()))
    return [name for name, _ in pairs], [label for _, label in pairs]


def _warn(sentence: str) -> None:
    warnings.warn(sentence, SkippedWarning, stacklevel=4)
