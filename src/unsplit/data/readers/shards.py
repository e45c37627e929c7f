"""Images in .tar files, as WebDataset stores them: a sample is the files that share a name.

A sample is an image and its label: ``0001.jpg`` and ``0001.cls``.  Nothing is unpacked.  The files
are listed once, and every image is then read from its place in the archive.
"""

import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from unsplit.data.readers.broken import place_in, reading, reason, refuse_unreadable
from unsplit.data.readers.folders import IMAGE_ENDINGS, FileList
from unsplit.errors import InputError, option, shown

ENDINGS = (".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst")
# How compressed files begin.
COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")
# Larger files are no labels.
MOST_BYTES = 2**20


def shards_of(path: str | os.PathLike[str]) -> list[Path]:
    """List the .tar files that a name stands for: a file, or those in a folder.

    Examples
    --------
    >>> shards_of("cells.csv")
    []
    """
    path = Path(path)
    if path.is_dir():
        return sorted(p for p in path.iterdir() if _is_shard(p) and p.name[0] != ".")
    return [path] if _is_shard(path) else []


def _is_shard(path: Path) -> bool:
    return path.name.lower().endswith(ENDINGS)


def find_samples(shards: list[Path], needed: bool = True) -> FileList:
    """List the images in .tar files and their clusters; no image is opened.

    The cluster of a sample is the content of its .cls; that there is none is an error if it is
    ``needed``.  The names of rows are the keys of the samples, with the name of their shard if keys
    repeat.

    Examples
    --------
    >>> import io, tempfile
    >>> path = Path(tempfile.mkdtemp()) / "0.tar"
    >>> with tarfile.open(path, "w") as archive:
    ...     for name, content in {"a/1.jpg": b"...", "a/1.cls": b"owl"}.items():
    ...         member = tarfile.TarInfo(name)
    ...         member.size = len(content)
    ...         archive.addfile(member, io.BytesIO(content))
    >>> found = find_samples([path])
    >>> found.row_ids.tolist(), found.labels.tolist()
    (['a/1'], ['owl'])
    """
    images: dict[tuple[Path, str], str] = {}
    named: dict[tuple[Path, str], str] = {}
    for shard in shards:
        _list_samples(shard, images, named)
    keys = [key for _, key in images]
    if len(set(keys)) < len(keys):
        keys = [f"{shard.name}/{key}" for shard, key in images]
    clusters = [named.get(place) for place in images]
    where = str(shards[0]) if len(shards) == 1 else f"{len(shards)} shards in {shards[0].parent}"
    if not keys:
        raise InputError(
            f"{where} hold no images ({', '.join(IMAGE_ENDINGS)}); images have names such as "
            "0001.jpg beside 0001.cls."
        )
    lacking = [key for key, cluster in zip(keys, clusters, strict=True) if cluster is None]
    if lacking and needed:
        raise InputError(
            f"{len(lacking):,} of {len(keys):,} images in {where} have no .cls, such as "
            f"{shown(lacking[0])}; add it, or name a file with their labels by key with "
            f"{option('labels')}."
        )
    names = np.array([cluster or "" for cluster in clusters])
    return FileList("", np.array(keys), names, np.array(list(images.values())))


def _list_samples(
    shard: Path,
    images: dict[tuple[Path, str], str],
    labels: dict[tuple[Path, str], str],
) -> None:
    """Note where the images in a shard are, and their labels; links are left out."""
    refuse_unreadable(shard)
    with reading(shard), shard.open("rb") as file:
        if file.read(6).startswith(COMPRESSED):
            raise InputError(
                f"{shard} is compressed, so single images cannot be read from it; unpack it to a "
                "plain .tar first."
            )
        file.seek(0)
        with tarfile.open(fileobj=file, mode="r:") as archive:
            for member in _members(archive):
                key, ending = _key(member.name)
                if not member.isreg() or member.issparse() or not key:
                    continue
                if ending == ".cls":
                    labels[shard, key] = _label(shard, archive, member)
                elif ending in IMAGE_ENDINGS and (shard, key) in images:
                    raise InputError(
                        f"{shard} has two images called {shown(key)}; give every sample one image."
                    )
                elif ending in IMAGE_ENDINGS:
                    images[shard, key] = place_in(shard, member.offset_data, member.size)


def _members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the members of an archive; one that does not end as it should is an error."""
    while (member := archive.next()) is not None:
        vars(archive)["members"].clear()  # millions of them would fill the memory
        yield member
    file: Any = archive.fileobj
    file.seek(archive.offset)
    # tarfile takes a damaged header for the end, which is a block of zeros.
    if file.read(tarfile.BLOCKSIZE).strip(b"\0") or file.tell() == archive.offset:
        raise ValueError("it ends where no file should end")


def _key(name: str) -> tuple[str, str]:
    """The key and the ending of a member; its name up to the first dot, and from there on.

    Names are only compared: a member called ``/etc/passwd`` or ``../x`` is no place on this disk.
    """
    folder, slash, file = name.removeprefix("./").rpartition("/")
    stem, dot, ending = file.partition(".")
    return (folder + slash + stem, dot + ending.lower()) if stem else ("", "")


def _label(shard: Path, archive: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    """The cluster in a .cls of a sample."""
    content: Any = archive.extractfile(member)
    try:
        if member.size > MOST_BYTES:
            raise ValueError(f"it has {member.size:,} bytes")
        return str(content.read().decode("utf-8").strip())
    except ValueError as error:
        raise InputError(
            f"{shown(member.name)} in {shard} is no label ({reason(error)}); write it as text in "
            "UTF-8."
        ) from None
