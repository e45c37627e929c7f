"""Results in one compressed file, a line of JSON each: the same results make the same bytes."""

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Line = dict[str, Any]


def read(path: Path) -> list[Line]:
    """All results so far, none if there is no file."""
    if not path.exists():
        return []
    text = gzip.decompress(path.read_bytes()).decode()
    return [json.loads(line) for line in text.splitlines()]


def write(path: Path, lines: Iterable[Line]) -> None:
    """Replace the file at once, so that whoever interrupts this loses no result."""
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.part")
    unfinished.write_bytes(gzip.compress(text.encode(), mtime=0))
    unfinished.replace(path)


def add(path: Path, *lines: Line) -> None:
    """Write results after those that are there."""
    write(path, [*read(path), *lines])
