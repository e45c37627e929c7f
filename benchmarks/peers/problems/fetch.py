"""Fetch the files that a package registry has: python -m benchmarks.peers.problems.fetch

Cells from the scanpy wheel with pip; clothes from a Debian package, with apt-get and dpkg-deb.
"""

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from benchmarks.peers.problems.files import CACHE


def fetch_pbmc68k(folder: Path) -> Path:
    with tempfile.TemporaryDirectory() as scratch:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "scanpy"]
        subprocess.run(pip, cwd=scratch, check=True)
        with zipfile.ZipFile(next(Path(scratch).glob("scanpy-*.whl"))) as wheel:
            content = wheel.read("scanpy/datasets/10x_pbmc68k_reduced.h5ad")
    path = folder / "pbmc68k_reduced.h5ad"
    path.write_bytes(content)
    return path


def fetch_fashion_mnist(folder: Path) -> Path:
    with tempfile.TemporaryDirectory() as scratch:
        # Without a folder that apt's own user may write to, it warns and downloads all the same.
        apt = ["apt-get", "--quiet", "download", "dataset-fashion-mnist"]
        subprocess.run(apt, cwd=scratch, check=True)
        package = next(Path(scratch).glob("*.deb"))
        subprocess.run(["dpkg-deb", "-x", package, scratch], check=True)
        for path in Path(scratch, "usr/share/datasets/fashion-mnist").glob("train-*.gz"):
            (folder / path.name).write_bytes(path.read_bytes())
    return folder / "train-images-idx3-ubyte.gz"


def main() -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    print(fetch_pbmc68k(CACHE))
    print(fetch_fashion_mnist(CACHE))


if __name__ == "__main__":
    main()
