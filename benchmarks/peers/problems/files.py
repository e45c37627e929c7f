"""Where the files of the problems are, and how to get those that are missing."""

from pathlib import Path

CACHE = Path(__file__).parents[3] / "local" / "peers_data"
DEBIAN = Path("/usr/share/datasets/fashion-mnist")

FETCH = "run python -m benchmarks.peers.problems.fetch"

# What a package registry has; all else comes with the data folder.
HOW_TO_GET = {
    "pbmc68k_reduced.h5ad": f"{FETCH}, which takes it from the scanpy wheel",
    "train-images-idx3-ubyte.gz": f"{FETCH}, which takes it from Debian's dataset-fashion-mnist",
    "train-labels-idx1-ubyte.gz": f"{FETCH}, which takes it from Debian's dataset-fashion-mnist",
}


def find(folder: Path, name: str) -> Path:
    """The file in the data folder, in the cache, or where Debian installs it."""
    for place in (folder, CACHE, DEBIAN):
        if (place / name).exists():
            return place / name
    how = HOW_TO_GET.get(name, "pass the data folder that holds it")
    raise FileNotFoundError(f"there is no {name} in {folder} or {CACHE}; {how}.")
