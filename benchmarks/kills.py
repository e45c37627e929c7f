"""Kill whole runs at random moments and look at what is left.

Each run merges a folder of small images into a folder that already has a result.  It is killed by
SIGKILL after a random part of the time that such a run takes.  Then the old or the new result must
be there, complete and unchanged; nothing that the run started may go on; and the next run that ends
must leave no hidden file behind.  One run in five starts a new interpreter; the others are forked
from a process that has imported all they need, so that their moments fall into the run itself.

    python -m benchmarks.kills --kills 100

Kills can be done in pieces, with another ``--seed`` each.
"""

import argparse
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

from unsplit.cli import main as command
from unsplit.data.result_folder import verify_folder

# A new interpreter for every run that is a multiple of this.
FRESH = 5
# A whole run, which removes what killed ones left, after so many kills.
WHOLE = 10
SECONDS_TO_END = 20.0
# What a run loads only when it needs it.
LOADED_LATE = ("unsplit.cli.merge", "PIL.Image", "torch._dynamo", "unsplit.report.page")
KILLED = ("old result", "new result")


def make_images(folder: Path, per_cluster: int = 25, side: int = 12) -> None:
    """Write four clusters of small images, two of which look like the other two, and a picture."""
    from PIL import Image

    rng = np.random.default_rng(0)
    for cluster in range(4):
        place = folder / f"c{cluster}"
        place.mkdir(parents=True)
        for number in range(per_cluster):
            pixels = rng.integers(0, 128, (side, side, 3)) + 100 * (cluster % 2)
            Image.fromarray(pixels.astype(np.uint8)).save(place / f"{number}.png")
    np.save(folder.with_suffix(".npy"), rng.random((4 * per_cluster, 2)))


def arguments(data: Path, out: Path, seed: int) -> list[str]:
    """Return a command that takes a few seconds and writes all files that images can have."""
    how = ["--epochs", "3", "--cv", "2", "--device", "cpu", "--backbone", "single-layer"]
    # UMAP, which would draw the picture of the page, takes longer than all the rest.
    files = ["--report", "--picture", str(data.with_suffix(".npy")), "--keep-scores"]
    return ["merge", str(data), "--out", str(out), "--seed", str(seed), *how, *files]


def start(data: Path, out: Path, seed: int, fresh: bool) -> int:
    """Start a run and return the id of its process."""
    if fresh:
        line = [sys.executable, "-m", "unsplit", *arguments(data, out, seed)]
        quiet = subprocess.DEVNULL
        return subprocess.Popen(line, stdout=quiet, stderr=quiet).pid
    child = os.fork()
    if child == 0:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nowhere, number)
        code = 1
        try:
            command(arguments(data, out, seed), prog_name="unsplit")
            code = 0
        finally:
            os._exit(code)
    return child


def below(parent: int) -> set[int]:
    """Return the ids of all processes below one, from /proc."""
    parents = {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit():
                state = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(state[1])
        except OSError:
            continue  # it has just ended
    found: set[int] = set()
    new = {parent}
    while new:
        new = {child for child, above in parents.items() if above in new} - found
        found |= new
    return found


def is_running(process: int) -> bool:
    """Return whether a process exists and has not ended."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return state[0] != "Z"


def seed_of(out: Path) -> int:
    """Return the seed of a result, after checking that it is complete and unchanged."""
    verify_folder(out)
    found: int = json.loads((out / "result.json").read_text())["seed"]
    return found


def hidden(place: Path, out: Path) -> list[str]:
    """Return what killed runs have left beside and in a result."""
    return [path.name for path in (*place.iterdir(), *out.iterdir()) if path.name.startswith(".")]


def whole_run(data: Path, out: Path, seed: int, fresh: bool) -> float:
    """Return how long a run takes that is not killed."""
    begun = time.monotonic()
    _, status = os.waitpid(start(data, out, seed, fresh), 0)
    assert status == 0, "a run that was not killed failed"
    assert seed_of(out) == seed
    return time.monotonic() - begun


def kill(data: Path, out: Path, seed: int, fresh: bool, wait: float, old: int) -> str:
    """Kill a run after a while, and return which result is there."""
    process = start(data, out, seed, fresh)
    time.sleep(wait)
    family = below(process)
    os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    limit = time.monotonic() + SECONDS_TO_END
    while any(map(is_running, family)) and time.monotonic() < limit:
        time.sleep(0.05)
    alive = [one for one in family if is_running(one)]
    assert not alive, f"{len(alive)} processes go on after run {seed} was killed"
    found = seed_of(out)
    assert found in (old, seed), f"run {seed} left the result of run {found}"
    if os.WIFEXITED(status):
        return "ended before the kill"
    return "new result" if found == seed else "old result"


def check_whole_run(data: Path, out: Path, seed: int) -> float:
    """Return how long a whole run takes, after checking that it has left nothing behind."""
    seconds = whole_run(data, out, seed, fresh=False)
    left = hidden(out.parent, out)
    assert not left, f"left after the next run: {left}"
    return seconds


def main() -> None:
    """Kill runs and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    for module in LOADED_LATE:
        importlib.import_module(module)
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        data, out = place / "photos", place / "results" / "out"
        make_images(data)
        out.parent.mkdir()
        usual = {fresh: whole_run(data, out, 0, fresh) for fresh in (False, True)}
        print("seconds of a run, forked and in a new interpreter:", *usual.values(), flush=True)
        number = 0
        while sum(counts[name] for name in KILLED) < options.kills:
            number += 1
            fresh, old = number % FRESH == 0, seed_of(out)
            wait = float(rng.uniform(0, 1.05 * usual[fresh]))
            counts[kill(data, out, number, fresh, wait, old)] += 1
            counts["runs with leftovers"] += bool(hidden(out.parent, out))
            if number % WHOLE == 0:
                usual[False] = check_whole_run(data, out, 10_000 + number)
                print(dict(counts), flush=True)
        check_whole_run(data, out, 0)
    print(dict(counts))
    if options.json is not None:
        options.json.write_text(json.dumps(counts))


if __name__ == "__main__":
    main()
