"""Build the wheel, install it with each extra in a new environment, and run an example there.

    python -m benchmarks.wheel_check                       # all extras
    python -m benchmarks.wheel_check tables cells          # some of them
    python -m benchmarks.wheel_check --python python3.13   # another Python

The environment without extras is made first and copied for each extra, because torch takes long to
install.  pip takes the packages from where it is set up to.  All environments are removed at the
end.  The command prints one line per extra and exits with 1 if one failed.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]

# Every example makes its own data, uses what the extra is for, and fails if the result is wrong.
START = """
import subprocess, sys
from pathlib import Path
import numpy as np
import unsplit

assert "site-packages" in unsplit.__file__, unsplit.__file__
X, labels = unsplit.datasets.gaussians([[0, 0], [0, 0], [9, 0]], 60, random_state=0)
QUICK = ["--cv", "2", "--epochs", "3", "--seed", "0"]

def command(*arguments):
    subprocess.run([sys.executable, "-m", "unsplit", *arguments, *QUICK], check=True)
"""

EXAMPLES = {
    "none": """
np.save("data.npy", X)
np.save("labels.npy", labels)
command("merge", "data.npy", "--labels", "labels.npy", "--out", "out", "--n-clusters", "2")
assert unsplit.MergeTree.load("out/tree.npz").groups.tolist() == [0, 0, 1]
subprocess.run([Path(sys.executable).with_name("unsplit"), "--version"], check=True)
""",
    "tables": """
rows = [f"{a},{b},c{c}" for (a, b), c in zip(X, labels)]
Path("cells.csv").write_text("x,y,cluster\\n" + "\\n".join(rows))
command("merge", "cells.csv", "--labels", "cluster", "--out", "out", "--n-clusters", "2")
assert unsplit.MergeTree.load("out/tree.npz").to_frame()["merged"].tolist() == [True, False]
import pandas as pd
pd.read_csv("cells.csv").to_parquet("cells.parquet")
command("distances", "cells.parquet", "--labels", "cluster", "--out", "compared")
""",
    "figures": """
np.save("data.npy", X)
np.save("labels.npy", labels)
command("merge", "data.npy", "--labels", "labels.npy", "--out", "out", "--also", "figures")
names = {path.name for path in Path("out").glob("*.png")}
assert names == {"dendrogram.png", "distances.png", "merge_curve.png"}, names
""",
    "images": """
from PIL import Image
rng = np.random.default_rng(0)
for cluster, grey in {"dark": 40, "dark too": 40, "light": 200}.items():
    Path("photos", cluster).mkdir(parents=True)
    for i in range(12):
        pixels = np.clip(rng.normal(grey, 20, (16, 16, 3)), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(Path("photos", cluster, f"{i}.png"))
command("distances", "photos", "--out", "out")
assert unsplit.PairwiseTVD.load("out/distances.npz").tvd.shape == (3, 3)
""",
    "points": """
import trimesh
for cluster, mesh in {"ball": trimesh.creation.icosphere(2), "box": trimesh.creation.box()}.items():
    Path("meshes", cluster).mkdir(parents=True)
    for i in range(8):
        mesh.copy().apply_scale(1 + 0.02 * i).export(Path("meshes", cluster, f"{i}.off"))
command("distances", "meshes", "--out", "out")
assert unsplit.PairwiseTVD.load("out/distances.npz").tvd.shape == (2, 2)
""",
    "cells": """
import anndata
adata = anndata.AnnData(X.astype(np.float32))
adata.obs["leiden"] = [f"c{c}" for c in labels]
adata.obsm["X_pca"] = X
unsplit.anndata.merge(adata, groupby="leiden", n_clusters=2)
assert adata.obs["unsplit"].nunique() == 2
adata.write_h5ad("cells.h5ad")
command("merge", "cells.h5ad", "--labels", "leiden", "--out", "out", "--n-clusters", "2")
""",
    "spikes": """
import spikeinterface.core as si
recording, sorting = si.generate_ground_truth_recording(
    num_channels=4, num_units=3, durations=[20.0], seed=0
)
traces, spikes = recording.get_traces(), sorting.to_spike_vector()
spikes = spikes[(spikes["sample_index"] > 30) & (spikes["sample_index"] < len(traces) - 30)]
waves = np.stack([traces[t - 20 : t + 30].ravel() for t in spikes["sample_index"]])
halves = 2 * spikes["unit_index"] + np.arange(len(spikes)) % 2
merged = unsplit.ClusterMerger(n_clusters=3, cv=2, random_state=0)
merged.fit(waves.astype(np.float32), initial_labels=halves)
print(merged.tree_)
assert merged.tree_.groups.tolist() == [0, 0, 1, 1, 2, 2], merged.tree_.groups
""",
}


# The tests run with the pandas of unsplit[cells]; without anndata, pip chooses a newer one.
NOT_PINNED = {"tables": ("pandas",)}


def main() -> int:
    """Check the extras one after the other; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("extras", nargs="*", help=f"among {', '.join(EXAMPLES)}; all by default")
    parser.add_argument("--python", default=sys.executable, help="makes the environments")
    chosen = parser.parse_args()
    unknown = [extra for extra in chosen.extras if extra not in EXAMPLES]
    if unknown:
        parser.error(f"unknown extras: {', '.join(unknown)}; choose among {', '.join(EXAMPLES)}.")
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder, "none")
        wheel = build(Path(folder))
        print(f"{wheel.name}: {wheel.stat().st_size / 1e3:,.0f} kB", flush=True)
        subprocess.run([chosen.python, "-m", "venv", str(base)], check=True)
        passed = [check("none", wheel, base)]
        for extra in chosen.extras or EXAMPLES:
            if passed[0] and extra != "none":
                copy = Path(folder, extra)
                shutil.copytree(base, copy, symlinks=True)
                passed.append(check(extra, wheel, copy))
                shutil.rmtree(copy)
    return 0 if all(passed) else 1


def build(folder: Path) -> Path:
    """Build the wheel in an environment of its own, as ``python -m build --wheel`` does."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder)]
    subprocess.run([*command, str(ROOT)], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def check(extra: str, wheel: Path, environment: Path) -> bool:
    """Install the wheel with one extra in an environment, and run the example of the extra."""
    start = time.perf_counter()
    python = str(environment / "bin" / "python")
    # Most modules are never imported, so compiling all of them takes longer than the example.
    install = [python, "-m", "pip", "install", "--quiet", "--no-compile"]
    wanted = str(wheel) if extra == "none" else f"unsplit[{extra}] @ {wheel.as_uri()}"
    pins = environment / "constraints.txt"
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    free = NOT_PINNED.get(extra, ())
    pins.write_text("\n".join(line for line in lines if line.split("==")[0] not in free), "utf-8")
    done = run([*install, "-c", str(pins), wanted], environment)
    if done.returncode == 0:
        place = environment / "example"
        place.mkdir()
        done = run([python, "-c", START + EXAMPLES[extra]], place)
        shutil.rmtree(place)
    word = "ok" if done.returncode == 0 else "FAILED"
    print(f"{extra:10} {word:7} {time.perf_counter() - start:6.0f} s", flush=True)
    if done.returncode:
        print(done.stdout[-3000:], flush=True)
    return done.returncode == 0


def run(command: list[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run a command in a folder, and keep what it prints."""
    # Or another unsplit than the installed one might be found.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )


if __name__ == "__main__":
    sys.exit(main())
