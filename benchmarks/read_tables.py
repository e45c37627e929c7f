"""Time and memory for reading a large table from a .parquet file.

    python -m benchmarks.read_tables --rows 1000000 --columns 50

Three processes read the same file: one does nothing but load the libraries, one reads the file as
`unsplit.read` does, one with pandas and makes a matrix of it.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from benchmarks.markdown import table

READERS = {
    "only the libraries": "",
    "unsplit.read": "X = unsplit.read(path, 'cluster').X",
    "unsplit.read, ten columns": "X = unsplit.read(path, 'cluster', features=names[:10]).X",
    "pandas": "X = pd.read_parquet(path).drop(columns='cluster').to_numpy(dtype='float32')",
}
PROGRAM = """
import resource, sys, time
import pandas as pd, pyarrow.parquet, torch, unsplit, unsplit.data.readers.api
path, names = sys.argv[1], [f"x{{i}}" for i in range(int(sys.argv[2]))]
start = time.perf_counter()
{reader}
seconds = time.perf_counter() - start
print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def write(path: Path, n_rows: int, n_columns: int, at_once: int = 100_000) -> None:
    """Write random features as float64, and a cluster for each row, part by part."""
    rng = np.random.default_rng(0)
    names = [f"x{i}" for i in range(n_columns)]
    types = [pa.field(name, pa.float64()) for name in names]
    schema = pa.schema([*types, pa.field("cluster", pa.int64())])
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        for start in range(0, n_rows, at_once):
            n = min(at_once, n_rows - start)
            columns = [*rng.normal(size=(n_columns, n)), rng.integers(0, 100, n)]
            writer.write_table(pa.table(columns, schema=schema))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=50)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.parquet"
        write(path, options.rows, options.columns)
        for name, reader in READERS.items():
            program = PROGRAM.format(reader=reader)
            command = [sys.executable, "-c", program, str(path), str(options.columns)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            seconds, memory = map(float, done.stdout.split())
            rows.append((name, f"{seconds:.1f}", f"{memory:,.0f}"))
        print(f"{path.stat().st_size / 2**20:,.0f} MiB on disk")
    print(table(["reader", "seconds", "peak memory, MiB"], rows))


if __name__ == "__main__":
    main()
