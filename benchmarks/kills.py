"""Kill whole runs at random moments and look at what is left.

Each run merges a folder of small images into a folder that already has a result.  It is killed by
SIGKILL after a random part of the time that such a run takes.  Then the old or the new result must
be there, complete and unchanged; nothing that the run started may go on; and the next run that ends
must leave no hidden file behind.  One run in five starts a new interpreter; the others are forked
from a process that has imported all they need, so that their moments fall into the run itself.

    python -m benchmarks.kills --kills 100

Kills can be done in pieces, with another ``--seed`` each.

With ``--checkpoints`` the runs merge vectors, write a checkpoint every fifth of a second and are
typed again after every kill, until one ends: its labels, merges, tree and distances must be those
of a run that was never killed, to the bit.

    python -m benchmarks.kills --checkpoints --kills 20
"""

import argparse
import importlib
import itertools
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
from unsplit.data.saving import verify_folder
from unsplit.errors import InputError
from unsplit.networks.training import checkpoint
from unsplit.pairwise.result import PairwiseTVD

# A new interpreter for every run that is a multiple of this.
FRESH = 5
# A whole run, which removes what killed ones left, after so many kills.
WHOLE = 10
SECONDS_TO_END = 20.0
# What a run loads only when it needs it.
LOADED_LATE = ("unsplit.cli.merge", "PIL.Image", "torch._dynamo", "unsplit.report.api")
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
    files = ["--report", "--picture", str(data.with_suffix(".npy")), "--also", "scores"]
    return ["merge", str(data), "--out", str(out), "--seed", str(seed), *how, *files]


def start(data: Path, out: Path, seed: int, fresh: bool) -> int:
    """Start a run and return the id of its process."""
    if fresh:
        line = [sys.executable, "-m", "unsplit", *arguments(data, out, seed)]
        quiet = subprocess.DEVNULL
        return subprocess.Popen(line, stdout=quiet, stderr=quiet).pid
    return forked(arguments(data, out, seed))


def forked(typed: list[str]) -> int:
    """Run a command in a copy of this process, and return its id."""
    child = os.fork()
    if child == 0:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nowhere, number)
        code = 1
        try:
            command(typed, prog_name="unsplit")
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
    try:
        found = seed_of(out)
    except InputError:
        return "cut off, as verify says"
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


def kill_and_verify(place: Path, n_kills: int, rng: np.random.Generator) -> Counter[str]:
    """Kill runs into a folder with a result, and check what is left after each."""
    counts: Counter[str] = Counter()
    data, out = place / "photos", place / "results" / "out"
    make_images(data)
    out.parent.mkdir()
    usual = {fresh: whole_run(data, out, 0, fresh) for fresh in (False, True)}
    print("seconds of a run, forked and in a new interpreter:", *usual.values(), flush=True)
    number = 0
    while sum(counts[name] for name in KILLED) < n_kills:
        number += 1
        fresh, old = number % FRESH == 0, seed_of(out)
        wait = float(rng.uniform(0, 1.05 * usual[fresh]))
        counts[kill(data, out, number, fresh, wait, old)] += 1
        counts["runs with leftovers"] += bool(hidden(out.parent, out))
        if number % WHOLE == 0:
            usual[False] = check_whole_run(data, out, 10_000 + number)
            print(dict(counts), flush=True)
    check_whole_run(data, out, 0)
    return counts


# Seconds between two checkpoints, and files that must be the same after kills.
BETWEEN = 0.2
SAME = ("labels.csv", "merges.csv", "review.csv", "linkage.npy", "tree.npz")


def vectors(folder: Path) -> list[str]:
    """Write 15 Gaussians, each cut in two, and return a command that merges them."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    groups, noise = np.repeat(np.arange(15), 100), rng.standard_normal((1500, 10))
    X = 3 * rng.standard_normal((15, 10))[groups] + noise
    np.savez(folder / "x.npz", X=X, c=2 * groups + (noise[:, 0] > 0))
    where = ["merge", str(folder / "x.npz"), "--labels", "c", "--seed", "1", "--device", "cpu"]
    return [*where, "--epochs", "12", "--out"]


def same_result(one: Path, other: Path) -> bool:
    """Return whether two results are the same to the bit, except for the time they took."""
    found = [PairwiseTVD.load(folder / "distances.npz") for folder in (one, other)]
    arrays = [(tvd.tvd, tvd.hit_rate, tvd.p_value) for tvd in found]
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in SAME) and all(
        np.array_equal(a, b, equal_nan=True) for a, b in zip(*arrays, strict=True)
    )


def kill_and_repeat(place: Path, n_kills: int, rng: np.random.Generator) -> Counter[str]:
    """Kill runs with checkpoints, type them again until they end, and compare the results."""
    checkpoint.EVERY, checkpoint.AT_MOST_ONE_IN = BETWEEN, 0
    typed, counts = vectors(place / "data"), Counter[str]()
    whole = place / "whole"
    begun = time.monotonic()
    _, status = os.waitpid(forked([*typed, str(whole)]), 0)
    assert status == 0, "a run that was not killed failed"
    usual = time.monotonic() - begun
    print("seconds of a run:", usual, flush=True)
    for number in itertools.count():
        if counts["kills"] >= n_kills:
            break
        out, status = place / f"out{number}", 1
        while status:
            # A killed run has gone some way, so that the next is killed later.
            limit = rng.uniform(0, usual) if counts["kills"] < n_kills else np.inf
            status = ended_within(forked([*typed, str(out)]), limit)
            counts["kills"] += status != 0
            kept = (place / f"out{number}.checkpoint").is_dir()
            counts["kills with a checkpoint"] += kept and status != 0
        assert same_result(out, whole), f"run {number} has another result"
        left = hidden(place, out)
        assert not left and not kept, f"something was left: {left}"  # noqa: PT018
        counts["runs with the same result"] += 1
        print(dict(counts), flush=True)
    return counts


def ended_within(process: int, seconds: float) -> int:
    """Wait for a process, kill it after so many seconds, and return its status."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            assert status == 0, "a run that was not killed failed"
            return 0
        time.sleep(0.01)
    os.kill(process, signal.SIGKILL)
    return os.waitpid(process, 0)[1]


def main() -> None:
    """Kill runs and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--checkpoints", action="store_true", help="continue runs after kills")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    for module in LOADED_LATE:
        importlib.import_module(module)
    with tempfile.TemporaryDirectory() as name:
        kinds = kill_and_repeat if options.checkpoints else kill_and_verify
        counts = kinds(Path(name), options.kills, rng)
    print(dict(counts))
    if options.json is not None:
        options.json.write_text(json.dumps(counts))


if __name__ == "__main__":
    main()
