"""Which files a fit passes through: python -m benchmarks.files_of_a_fit [--write]

Runs ClusterMerger.fit on a small array, notes every file of the package in which a function is
called, in the order of the first call, and writes the list into docs/architecture.md.
"""

import argparse
import sys
from pathlib import Path
from types import FrameType

import unsplit
from unsplit import ClusterMerger, datasets

PACKAGE = Path(unsplit.__file__).parent
PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
BEGIN, END = "<!-- files of a fit -->\n", "<!-- end of files -->"


def files_of_a_fit() -> list[str]:
    """Paths within the package, in the order in which they are first entered."""
    X, labels = datasets.gaussians([[0, 0, 0], [2, 0, 0], [9, 0, 0]], 100, random_state=0)
    merger = ClusterMerger(epochs=2, cv=2, device="cpu", random_state=0)
    merger.fit(X, initial_labels=labels)  # everything is imported now
    files: dict[str, None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE):
            files[path.relative_to(PACKAGE).as_posix()] = None

    sys.setprofile(note)
    try:
        merger.fit(X, initial_labels=labels)
    finally:
        sys.setprofile(None)
    return list(files)


def described(file: str) -> str:
    """A line of the list: the path and the first sentence of the file."""
    first = (PACKAGE / file).read_text("utf-8").split('"""')[1].split("\n")[0]
    return f"1. `{file}`: {first}\n"


def list_of(files: list[str]) -> str:
    """The list as it stands on the page, between its two marks."""
    return BEGIN + "".join(described(file) for file in files) + END


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="put the list into the page")
    args = parser.parse_args()
    files = files_of_a_fit()
    if args.write:
        page = PAGE.read_text("utf-8")
        before, after = page.split(BEGIN)[0], page.split(END)[1]
        PAGE.write_text(before + list_of(files) + after, "utf-8")
    else:
        print("".join(described(file) for file in files), end="")


if __name__ == "__main__":
    main()
