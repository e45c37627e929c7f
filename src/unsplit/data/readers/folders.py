"""Folders with a subfolder for each cluster, and tables that list images."""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unsplit.data.readers.broken import cannot_be_opened
from unsplit.data.readers.observations import read_file
from unsplit.data.readers.parsers import CLOUD_ENDINGS
from unsplit.data.readers.tables import listing
from unsplit.errors import InputError, SkippedWarning, warn

IMAGE_ENDINGS = (
    ".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp",
    ".ppm", ".pgm", ".pbm", ".pnm", ".jp2",
)  # fmt: skip

ENDINGS = {
    "images": IMAGE_ENDINGS,
    "sounds": (".wav", ".wave"),
    "point clouds": CLOUD_ENDINGS,
}

# Folders that are found beside a folder called "train".
PARTS = frozenset(["train", "val", "valid", "validation", "test"])


@dataclass(frozen=True, eq=False)
class FileList:
    """Files and the cluster of each.

    Parameters
    ----------
    folder : str
        The folder that ``row_ids`` are relative to.
    row_ids : ndarray of str of shape (n,)
        Path of each file, unique; a table may hold absolute paths.
    labels : ndarray of str of shape (n,)
        Cluster of each file.
    names : ndarray of str of shape (n,), optional
        Path of each file, if it differs from ``row_ids``, as in .tar files.

    Examples
    --------
    >>> FileList("birds", np.array(["owls/1.png"]), np.array(["owls"])).paths
    ['birds/owls/1.png']
    """

    folder: str
    row_ids: NDArray[np.str_]
    labels: NDArray[np.str_]
    names: NDArray[np.str_] | None = None

    @property
    def paths(self) -> list[str]:
        """Path of each file, with the folder."""
        names = self.row_ids if self.names is None else self.names
        return [os.path.join(self.folder, name) for name in names.tolist()]

    def only(self, keep: NDArray[np.bool_]) -> "FileList":
        """Return the files that a mask of shape (n,) keeps.

        Examples
        --------
        >>> files = FileList("birds", np.array(["a/1.png", "b/1.png"]), np.array(["a", "b"]))
        >>> files.only(np.array([False, True])).row_ids.tolist()
        ['b/1.png']
        """
        names = None if self.names is None else self.names[keep]
        return FileList(self.folder, self.row_ids[keep], self.labels[keep], names)


def listed_images(path: Path) -> FileList:
    r"""List the images of a table with the columns ``path`` and ``cluster``; none is opened.

    Paths are absolute or relative to the folder of the table.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "images.csv"
    >>> _ = path.write_text("path,cluster\nb.png,owls\na/1.jpg,eagles\n")
    >>> found = listed_images(path)
    >>> found.row_ids.tolist(), found.labels.tolist()
    (['b.png', 'a/1.jpg'], ['owls', 'eagles'])
    """
    found = read_file(path).arrays
    names, labels = (
        np.array(["" if value is None else str(value) for value in found[column].tolist()])
        for column in ("path", "cluster")
    )
    if not len(names) or "" in names:
        raise InputError(
            f"{path} must name an image in every line; write its path, and leave the cluster empty "
            "for noise."
        )
    kept, times = np.unique(names, return_counts=True)
    if (times > 1).any():
        raise InputError(
            f"{path} lists {listing(kept[times > 1].tolist()[:1])} more than once; list every "
            "image only once."
        )
    return FileList(str(path.parent), names, labels)


def lists_images(path: Path) -> bool:
    """Return whether a file is a table with the columns of a list of images."""
    if path.suffix.lower() not in (".csv", ".tsv") or not path.is_file():
        return False
    try:
        with path.open(encoding="utf-8-sig", errors="replace") as lines:
            names = lines.readline().strip().replace("\t", ",").replace(";", ",").split(",")
    except OSError:
        return False  # reading it says what is wrong
    return {"path", "cluster"} <= {name.strip(' "') for name in names}


def find_files(folder: str | os.PathLike[str]) -> tuple[FileList, str]:
    """List the files of a folder in which every subfolder is a cluster, and say of which kind.

    The kind is that of most files: "images", "sounds" or "point clouds"; no file is opened.  A
    cluster holds its files at any depth.  If the only subfolders are ``train``, or ``train``
    and ``val`` or ``test``, the clusters are the subfolders of ``train``.  Hidden files are
    ignored, and so are files of other types beside the subfolders.  Files of other types in a
    cluster, and clusters without files, are skipped with a warning.  Files of the kind beside the
    subfolders belong to no cluster and are refused.  Links to folders of clusters and to files
    are followed; links to folders inside a cluster are not, as they may lead back.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name in ("owls", "eagles"):
    ...     (folder / name).mkdir()
    ...     (folder / name / "1.PNG").touch()
    >>> found, kind = find_files(folder)
    >>> found.row_ids.tolist(), found.labels.tolist(), kind
    (['eagles/1.PNG', 'owls/1.PNG'], ['eagles', 'owls'], 'images')
    """
    top = Path(folder)
    inner = _training_folder(top)
    clusters = {name: sorted(_files_below(inner, name)) for name in _subfolders(inner)}
    beside = [entry.name for entry in _entries(inner) if not _is_folder(entry)]
    inside = [_kind(name) for names in clusters.values() for name in names]
    kinds = [kind for kind in inside if kind] or [kind for kind in map(_kind, beside) if kind]
    if not kinds:
        supported = "; ".join(f"{kind}: {', '.join(ENDINGS[kind])}" for kind in ENDINGS)
        raise InputError(
            f"{top} has no files of a supported type ({supported}); put the files of each "
            "cluster into a subfolder of its own."
        )
    kind = Counter(kinds).most_common(1)[0][0]
    advice = f"put the {kind} of each cluster into a subfolder of its own"
    advice += ", or list them in a .csv file with the columns path and cluster" * (kind == "images")
    loose = [name for name in beside if _kind(name) == kind]
    if loose:
        raise InputError(
            f"{inner} has {kind} outside of its subfolders ({listing(loose, 1)}); {advice}."
        )
    filled = {name: [f for f in files if _kind(f) == kind] for name, files in clusters.items()}
    named = [name for name, files in filled.items() if files]
    if len(named) == 1:
        raise InputError(
            f"{inner} has {kind} in only one subfolder ({named[0]!r}), so there is no pair of "
            f"clusters to compare; {advice}."
        )
    left_out = {
        f"{top} beside train": [n for n in _subfolders(top) if inner != top and n != "train"],
        f"{inner} of types other than {', '.join(ENDINGS[kind])}": [
            file for files in clusters.values() for file in files if _kind(file) != kind
        ],
        f"{inner} without {kind}": [name for name in filled if name not in named],
    }
    for where, names in left_out.items():
        if names:
            sentence = f"left out {len(names):,} files or folders in {where}: {listing(names, 3)}."
            warn(sentence, SkippedWarning)
    files = [file for name in named for file in filled[name]]
    _refuse_other_bytes(inner, files)
    labels = np.repeat(named, [len(filled[name]) for name in named])
    return FileList(str(inner), np.array(files), labels), kind


def _kind(name: str) -> str | None:
    ending = os.path.splitext(name)[1].lower()
    return next((kind for kind, endings in ENDINGS.items() if ending in endings), None)


def _training_folder(folder: Path) -> Path:
    """Return the folder that holds the clusters: ``folder``, or its subfolder ``train``."""
    parts, inner = _subfolders(folder), folder / "train"
    is_split = "train" in parts and PARTS.issuperset(parts)
    return inner if is_split and _subfolders(inner) else folder


def _refuse_other_bytes(folder: Path, names: list[str]) -> None:
    """Raise an error if the bytes of a name are no text, which no result could show."""
    # Python reads a byte that is no text as one of these.
    odd = [name for name in names if any("\udc80" <= sign <= "\udcff" for sign in name)]
    if odd:
        raise InputError(
            f"{folder} has {len(odd):,} paths that are not valid UTF-8, such as "
            f"{listing(odd[:1])}; rename the files and folders."
        )


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """List what a folder holds and is not hidden, sorted by name."""
    try:
        with os.scandir(folder) as entries:
            seen = [entry for entry in entries if not entry.name.startswith(".")]
    except OSError as error:
        raise cannot_be_opened(folder, error) from None
    return sorted(seen, key=lambda entry: entry.name)


def _subfolders(folder: Path) -> list[str]:
    return [entry.name for entry in _entries(folder) if _is_folder(entry)]


def _files_below(folder: Path, name: str) -> Iterator[str]:
    """Yield files at any depth below a subfolder, relative to ``folder``.

    Links to nowhere, links in a circle and named pipes are listed too, so that they are reported
    as broken.  Links to folders are not followed, because they may lead back to where they are.
    """
    # A list instead of recursion, because folders may be nested deeper than Python can call.
    waiting = [name]
    while waiting:
        above = waiting.pop()
        for entry in _entries(folder / above):
            below = f"{above}/{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                waiting.append(below)
            elif not _is_folder(entry):
                yield below


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # such as a link that leads to itself
        return False
