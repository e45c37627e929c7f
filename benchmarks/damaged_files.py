"""Read damaged files of cells and tables, and look for crashes, hangs and tracebacks.

.h5ad, .parquet and Arrow files are parsed in the program itself, by HDF5 and Arrow.  Each of these
formats is written in several ways; copies with other bytes, cut short or with exchanged parts are
read in another process.  A case that ends this process, or takes longer than a limit, is named by
its number, with which it can be repeated.

    python -m benchmarks.damaged_files --cases 5000 [--format h5ad] [--only 1234]
"""

import argparse
import json
import multiprocessing
import resource
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

LABELS = "leiden"
# Longest time for one file.
SECONDS = 40.0
BYTES = 6 * 2**30


def frame(n: int = 40) -> Any:
    """A table with columns of many types."""
    import pandas as pd

    rng = np.random.default_rng(0)
    names = [f"cell {i}" for i in range(n)]
    return pd.DataFrame(
        {
            LABELS: pd.Categorical([f"c{i % 4}" for i in range(n)]),
            "depth": rng.standard_normal(n),
            "count": rng.integers(0, 9, n),
            "small": rng.random(n).astype(np.float32),
            "kept": rng.random(n) < 0.5,
            "batch": [f"day {i % 2}" for i in range(n)],
        },
        index=np.array(names, object),
    )


def cells(path: Path, sparse: bool, compression: str | None) -> None:
    """Write an .h5ad file."""
    import anndata
    import pandas as pd
    import scipy.sparse

    obs = frame()[[LABELS, "depth", "batch"]]
    for name in (LABELS, "batch"):  # anndata 0.12 cannot write the strings of pandas 3
        values = obs[name].astype(object)
        obs[name] = values.astype(pd.CategoricalDtype(pd.Index(sorted(set(values)), dtype=object)))
    X = np.random.default_rng(1).poisson(1.0, (len(obs), 6)).astype(np.float32)
    adata = anndata.AnnData(scipy.sparse.csr_matrix(X) if sparse else X, obs)
    adata.obs.index = adata.obs.index.astype(object)
    adata.var.index = adata.var.index.astype(object)
    if not sparse:
        adata.obsm["X_pca"] = np.random.default_rng(2).standard_normal((len(obs), 3))
    adata.uns["leiden"] = {"params": {"resolution": 1.0}}
    adata.write_h5ad(path, compression=compression)


def parquet(path: Path, **options: Any) -> None:
    """Write a .parquet file."""
    frame().to_parquet(path, **options)


def arrow(path: Path, compression: str | None) -> None:
    """Write an Arrow file."""
    import pyarrow as pa

    table = pa.Table.from_pandas(frame())
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(str(path), table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=15)


WAYS: dict[str, list[Callable[[Path], None]]] = {
    "h5ad": [
        lambda path: cells(path, False, None),
        lambda path: cells(path, True, None),
        lambda path: cells(path, False, "gzip"),
        lambda path: cells(path, True, "lzf"),
    ],
    "parquet": [
        lambda path: parquet(path, compression=None),
        lambda path: parquet(path, compression="snappy"),
        lambda path: parquet(path, compression="zstd", data_page_version="2.0"),
        lambda path: parquet(path, compression="gzip", row_group_size=10, use_dictionary=False),
        lambda path: parquet(
            path,
            compression=None,
            use_dictionary=["batch"],
            column_encoding={"depth": "BYTE_STREAM_SPLIT", "count": "DELTA_BINARY_PACKED"},
        ),
    ],
    "feather": [
        lambda path: arrow(path, None),
        lambda path: arrow(path, "lz4"),
        lambda path: arrow(path, "zstd"),
    ],
}


def damaged(whole: bytes, rng: np.random.Generator) -> bytes:
    """Return a copy with a few other bytes or bits, cut short, or with a part somewhere else."""
    data = bytearray(whole)
    how = rng.integers(6)
    if how == 0:
        del data[rng.integers(len(data)) :]
    elif how == 1:
        start, length = rng.integers(len(data)), rng.integers(1, 65)
        data[start : start + length] = bytes([rng.choice([0, 255])]) * len(
            data[start : start + length]
        )
    elif how == 2:
        start, target, length = *rng.integers(len(data), size=2), rng.integers(1, 129)
        part = data[start : start + length]
        data[target : target + len(part)] = part
    elif how == 3:
        del data[(start := rng.integers(len(data))) : start + rng.integers(1, 65)]
    for _ in range(rng.integers(1, 5)):
        if data:
            place = rng.integers(len(data))
            other = data[place] ^ (1 << rng.integers(8)), rng.integers(256), 255, 0
            data[place] = other[rng.integers(4)]
    return bytes(data)


def case(ending: str, sources: list[bytes], number: int) -> bytes:
    """The damaged file of a number."""
    rng = np.random.default_rng([sorted(WAYS).index(ending), number])
    return damaged(sources[number % len(sources)], rng)


def read_cases(
    ending: str,
    sources: list[bytes],
    numbers: range,
    folder: Path,
    line: Connection,
) -> None:
    """Read damaged files one after the other, and tell how each went."""
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("ignore")
    import unsplit

    path = folder / f"damaged.{ending}"
    for number in numbers:
        path.write_bytes(case(ending, sources, number))
        line.send((number, "begun", ""))
        how, why = "read", ""
        try:
            unsplit.read(path, labels=LABELS)
        except unsplit.InputError as error:
            how, why = "refused", str(error)
            if "\n" in why or len(why) > 1_000:
                how = "no sentence"
        except BaseException:
            how, why = "traceback", traceback.format_exc()
        line.send((number, how, why))


def sources_of(ending: str, folder: Path) -> list[bytes]:
    """Whole files of a format."""
    found = []
    for way in WAYS[ending]:
        way(folder / f"whole.{ending}")
        found.append((folder / f"whole.{ending}").read_bytes())
    return found


def fuzz(ending: str, cases: range) -> Counter[str]:
    """Read damaged files of a format; print what should not happen, and count what did."""
    counts: Counter[str] = Counter()
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as name:
        sources, left = sources_of(ending, Path(name)), cases
        while len(left):
            ours, theirs = context.Pipe()
            args = (ending, sources, left, Path(name), theirs)
            process = context.Process(target=read_cases, args=args)
            process.start()
            theirs.close()
            last, how, why = listened(ours, left[0] - 1, counts)
            if how == "begun":
                process.kill()
                counts[why] += 1
                print(f"{ending} {last}: {why}", flush=True)
            process.join()
            left = range(last + 1, cases.stop)
    return counts


def listened(line: Connection, last: int, counts: Counter[str]) -> tuple[int, str, str]:
    """Count what a process tells until it ends or says nothing; its last words."""
    first, how, why = last, "begun", "hang"
    try:
        # The first answer waits for imports.
        while line.poll(SECONDS if last > first else 5 * SECONDS):
            last, how, why = line.recv()
            if how == "begun":
                why = "hang"
                continue
            counts[how] += 1
            if how in ("traceback", "no sentence"):
                print(f"{last}: {how}: {why}", flush=True)
    except EOFError:
        why = "crash"
    return last, how, why


def main() -> None:
    """Read damaged files and print what happened."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=5_000, help="for each format")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--format", choices=sorted(WAYS), action="append")
    parser.add_argument("--only", type=int, help="the number of one case")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    cases = range(options.first, options.first + options.cases)
    if options.only is not None:
        cases = range(options.only, options.only + 1)
    found = {}
    for ending in options.format or sorted(WAYS):
        found[ending] = fuzz(ending, cases)
        print(ending, dict(found[ending]), flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
