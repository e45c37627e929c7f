"""Which files a fit and a merge pass through: python -m benchmarks.files_of_a_fit

Runs ClusterMerger.fit and ``unsplit merge … --report`` on a small array, and prints every file of
the package in which a function is called, in the order of the first call, with the number of its
functions that were called and the file's first sentence.
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType

import numpy as np
from click.testing import CliRunner

import unsplit
from unsplit import ClusterMerger, datasets
from unsplit.cli import main as command_line

PACKAGE = Path(unsplit.__file__).parent
X, LABELS = datasets.gaussians([[0, 0, 0], [2, 0, 0], [9, 0, 0]], 100, random_state=0)


def functions_entered(work: Callable[[], object]) -> dict[str, set[str]]:
    """Names of functions by paths within the package, in the order of the first call.

    The work is done twice, because the first time things are imported.
    """
    work()
    codes: dict[CodeType, None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and not frame.f_code.co_name.startswith("<"):
            codes[frame.f_code] = None

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    entered: dict[str, set[str]] = {}
    for code in codes:
        path = Path(code.co_filename)
        if path.suffix == ".py" and path.is_relative_to(PACKAGE):
            entered.setdefault(path.relative_to(PACKAGE).as_posix(), set()).add(code.co_qualname)
    return entered


def fit() -> None:
    """Merge three clusters that an array holds."""
    ClusterMerger(training=unsplit.TrainConfig(epochs=2), cv=2, device="cpu", random_state=0).fit(
        X, initial_labels=LABELS
    )


def merge_with_report() -> None:
    """Merge the same from files, and write the page."""
    with tempfile.TemporaryDirectory() as folder:
        data, clusters, out = (f"{folder}/{name}" for name in ("data.npy", "labels.npy", "out"))
        np.save(data, X)
        np.save(clusters, LABELS)
        quick = ("--epochs", "2", "--cv", "2", "--device", "cpu", "--seed", "0", "--report")
        arguments = ["merge", data, "--labels", clusters, "--out", out, *quick]
        CliRunner().invoke(command_line, arguments, catch_exceptions=False)


def main() -> None:
    for title, work in (("fit", fit), ("unsplit merge … --report", merge_with_report)):
        entered = functions_entered(work)
        print(f"{title}:")
        for file, functions in entered.items():
            first = (PACKAGE / file).read_text("utf-8").split('"""')[1].splitlines()[0]
            print(f"  {file} ({len(functions)}): {first}")
        n_functions = sum(map(len, entered.values()))
        print(f"{title}: {len(entered)} files, {n_functions} functions\n")


if __name__ == "__main__":
    main()
