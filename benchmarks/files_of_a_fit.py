"""Which files a fit passes through: python -m benchmarks.files_of_a_fit

Runs ClusterMerger.fit on a small array, and prints every file of the package in which a function is
called, in the order of the first call, with its first sentence.
"""

import sys
from pathlib import Path
from types import FrameType

import unsplit
from unsplit import ClusterMerger, datasets

PACKAGE = Path(unsplit.__file__).parent


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


def main() -> None:
    files = files_of_a_fit()
    for file in files:
        first = (PACKAGE / file).read_text("utf-8").split('"""')[1].splitlines()[0]
        print(f"{file}: {first}")
    print(f"{len(files)} files")


if __name__ == "__main__":
    main()
