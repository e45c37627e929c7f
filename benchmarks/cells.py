"""Simulated cells end to end on the command line: time, peak memory and what is found.

python -m benchmarks.cells [--cells 100000] [--genes 2000] [--types 20] [--clusters 100] [--counts]

Counts of each cell are drawn around the mean of its type, at a depth of its own; the file has them
in X and in a layer, fifty principal components, and clusters made by k-means on these components.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import scipy.sparse
from numpy.typing import NDArray
from sklearn.cluster import MiniBatchKMeans
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score

from benchmarks.common import print_table

CHUNK = 5_000
COMPONENTS = 50

# Runs in a process of its own, because peaks are kept per process and its children.
PROGRAM = """
import resource, subprocess, sys
subprocess.run([sys.executable, "-m", "unsplit", *sys.argv[1:]], check=True, capture_output=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_maxrss, used.ru_utime + used.ru_stime)
"""


def simulate(n: int, n_genes: int, n_types: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """Return counts (n, genes), about 1,000 a cell, and the type of each cell."""
    share = rng.lognormal(0, 1.2, n_genes)
    changes = rng.lognormal(0, 1.0, (n_types, n_genes))
    # One gene in twenty is a marker of a type; the others are the same in all types.
    profiles = share * np.where(rng.uniform(size=changes.shape) < 0.05, changes, 1.0)
    profiles /= profiles.sum(axis=1, keepdims=True)
    types = rng.integers(n_types, size=n)
    depth = rng.lognormal(np.log(1_000), 0.4, n)
    parts = [
        scipy.sparse.csr_matrix(
            rng.poisson(profiles[types[some]] * depth[some, None]).astype(np.float32)
        )
        for some in np.array_split(np.arange(n), max(1, n // CHUNK))
    ]
    return scipy.sparse.vstack(parts, format="csr"), types


def components(counts: Any) -> NDArray[np.float32]:
    """Principal components of normalised, log-transformed counts, as scanpy computes them."""
    totals = np.asarray(counts.sum(axis=1)).ravel()
    logged = (scipy.sparse.diags(1e3 / totals) @ counts).tocsr().log1p().astype(np.float32)
    found: NDArray[np.float32] = PCA(COMPONENTS, svd_solver="arpack", random_state=0).fit_transform(
        logged
    )
    return found


def write_cells(path: Path, args: argparse.Namespace) -> NDArray[np.int64]:
    """Write the file, and return the true types."""
    counts, types = simulate(args.cells, args.genes, args.types, np.random.default_rng(0))
    pca = components(counts)
    model = MiniBatchKMeans(args.clusters, n_init=3, batch_size=4096, random_state=0)
    names = model.fit_predict(pca).astype(str).astype(object)
    obs = pd.DataFrame({"clusters": pd.Categorical(names)})
    obs["clusters"] = obs["clusters"].cat.rename_categories(
        obs["clusters"].cat.categories.astype(object)
    )
    adata = anndata.AnnData(counts, obs, obsm={"X_pca": pca}, layers={"counts": counts})
    for frame in (adata.obs, adata.var):  # anndata 0.12 cannot write the strings of pandas 3
        frame.index = frame.index.astype(object)
    adata.write_h5ad(path)
    return types


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cells", type=int, default=100_000)
    parser.add_argument("--genes", type=int, default=2_000)
    parser.add_argument("--types", type=int, default=20)
    parser.add_argument("--clusters", type=int, default=100)
    parser.add_argument("--counts", action="store_true", help="compare by counts, not components")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder, "cells.h5ad"), Path(folder, "out")
        types = write_cells(path, args)
        command = ["merge", str(path), "--labels", "clusters", "--out", str(out), "--seed", "0"]
        command += ["--also", "h5ad", *(["--use-rep", "layers/counts"] if args.counts else [])]
        start = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *command], check=True, capture_output=True, text=True
        )
        seconds = time.perf_counter() - start
        result = json.loads((out / "result.json").read_text())
        merged = pd.read_csv(out / "labels.csv")["new"]
        size = path.stat().st_size / 2**20
    largest, cpu_seconds = map(float, done.stdout.split())
    peak = largest * (1 if sys.platform == "darwin" else 1024) / 2**20
    names = ("cells", "file, MiB", "by", "clusters", "left", "ARI", "s", "CPU s", "peak MiB")
    found = (args.clusters, result["n_clusters"], adjusted_rand_score(types, merged))
    row = (f"{args.cells:,}", f"{size:,.0f}", result["representation"], *found)
    cost = (f"{seconds:,.0f}", f"{cpu_seconds:,.0f}", f"{peak:,.0f}")
    print_table("Simulated cells, end to end", names, [(*row, *cost)])
    print(result["seconds"])


if __name__ == "__main__":
    main()
