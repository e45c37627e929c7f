"""Peak memory of the folder path as the folder grows.

python -m benchmarks.memory --folder FOLDER [--images 1000 20000]

FOLDER has images in subfolders; runs of `unsplit distances` see links to some of them.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.common import print_table
from unsplit.data.readers.folders import find_files

CLUSTERS = 20
SETTINGS = ("--backbone", "single-layer", "--cv", "2", "--epochs", "1", "--device", "cpu")

# Runs in a process of its own, because peaks are kept per process and its children.
PROGRAM = """
import resource, subprocess, sys
subprocess.run([sys.executable, "-m", "unsplit", *sys.argv[1:]], check=True, capture_output=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def peak_mebibytes(paths: list[str]) -> float:
    """Largest resident memory of any process of one run."""
    with tempfile.TemporaryDirectory() as folder:
        for i, path in enumerate(paths):
            cluster = Path(folder, "images", f"cluster {i % CLUSTERS}")
            cluster.mkdir(parents=True, exist_ok=True)
            (cluster / f"{i}{Path(path).suffix}").symlink_to(Path(path).resolve())
        command = ("distances", f"{folder}/images", "--out", f"{folder}/out", "--seed", "0")
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *command, *SETTINGS],
            check=True,
            capture_output=True,
            text=True,
        )
    per_unit = 1 if sys.platform == "darwin" else 1024
    return int(done.stdout) * per_unit / 2**20


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", required=True)
    parser.add_argument("--images", type=int, nargs="+", default=[1000, 20_000])
    args = parser.parse_args()
    paths = find_files(args.folder)[0].paths
    rows = []
    for n in args.images:
        # Every so many, so that all runs see all kinds.
        some = (paths * (n // len(paths) + 1))[:n] if n > len(paths) else paths[:: len(paths) // n]
        start = time.perf_counter()
        peak = peak_mebibytes(some[:n])
        rows.append((f"{n:,}", f"{peak:,.0f}", time.perf_counter() - start))
        print(*rows[-1], flush=True)
    header = ("images", "peak MiB of the largest process", "seconds")
    print_table("`unsplit distances FOLDER`, streamed", header, rows)


if __name__ == "__main__":
    main()
