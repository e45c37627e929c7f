"""Split units of simulated recordings: Unsplit beside the presets of SpikeInterface.

OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 python -m benchmarks.spikes [--seeds 10] [--write]

Each line of benchmarks/results/spikes.jsonl.gz is one recording, split in one way; lines that
are there are not computed again, and those that are computed again are the same but for the
seconds.  --write puts the tables into docs/spikes.md.  What was chosen (components, spikes of a
unit, the weakest unit, the test for coincidences) was chosen on seeds from 100 on.
"""

import argparse
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import spikeinterface as si

from benchmarks import markdown, results_file

sys.path.append(str(Path(__file__).parents[1] / "examples"))  # examples are not a package
from spikes import (
    PRESETS,
    SECONDS,
    SPLITS,
    dense_analyzer,
    judged,
    motion_corrected,
    preset_merges,
    simulated,
    split_case,
    timed,
    units_to_merge,
)

RESULTS = Path(__file__).parent / "results" / "spikes.jsonl.gz"
PAGE = Path(__file__).parents[1] / "docs" / "spikes.md"
BEGIN, END = "<!-- table of spikes -->\n", "<!-- end of table -->"

# A probe that stands still, one that moves by 40 µm, and the latter with its motion corrected.
MOTIONS = {"still": 0, "drift": 40, "corrected": 40}
UNITS = 16
METHODS = ("Unsplit", *PRESETS)
NAMES = {"times": "in time", "amplitudes": "by amplitude", "random": "at random"}

Record = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--write", action="store_true", help="put the tables into the page")
    args = parser.parse_args()
    si.set_global_job_kwargs(n_jobs=1, progress_bar=False)
    warnings.filterwarnings("ignore", module="spikeinterface")
    run(range(args.first, args.first + args.seeds), args.results)
    text = tables(results_file.read(args.results))
    print(text)
    if args.write:
        page = PAGE.read_text("utf-8")
        before, after = page.split(BEGIN)[0], page.split(END)[1]
        PAGE.write_text(f"{before}{BEGIN}{text}\n{END}{after}", "utf-8")


def run(seeds: Iterable[int], path: Path) -> None:
    """Compute what is missing in the file, and add it line by line."""
    done = {(line["seed"], line["motion"], line["split"]) for line in results_file.read(path)}
    for seed in seeds:
        for motion in MOTIONS:
            splits = [split for split in SPLITS if (seed, motion, split) not in done]
            for record in compared(seed, motion, splits) if splits else ():
                results_file.add(path, record)
                print(record, flush=True)


def compared(seed: int, motion: str, splits: Sequence[str]) -> Iterator[Record]:
    """All methods on one recording, split in several ways."""
    recording, sorting = simulated(seed, MOTIONS[motion], SECONDS, UNITS)
    cases = [split_case(recording, sorting, split, seed) for split in splits]
    if motion == "corrected":
        recording = motion_corrected(cases[0]).recording
        cases = [replace(case, recording=recording) for case in cases]
    preset_merges(cases[0])  # numba compiles at the first call, which is not to be timed
    for split, case in zip(splits, cases, strict=True):
        found = {"Unsplit": timed(units_to_merge, dense_analyzer(case))}
        found |= preset_merges(case)
        record: Record = {"seed": seed, "motion": motion, "split": split, "possible": case.n_split}
        yield record | {name: judged(case, *answer) for name, answer in found.items()}


def tables(records: list[Record]) -> str:
    """Right and wrong merges of all seeds, and the mean seconds of a recording."""
    ways = [(motion, split) for motion in MOTIONS for split in SPLITS]
    ways = [way for way in ways if chosen(records, *way)]
    header = ["", *(f"{motion}, {NAMES[split]}" for motion, split in ways)]
    possible = [sum(r["possible"] for r in chosen(records, *way)) for way in ways]
    numbers = [len(chosen(records, *way)) for way in ways]
    rows: list[list[Any]] = [["recordings", *numbers, ""], ["possible", *possible, ""]]
    for name in METHODS:
        cells = [merges(chosen(records, *way), name) for way in ways]
        seconds = sum(record[name]["seconds"] for record in records) / max(1, len(records))
        rows.append([name if name == "Unsplit" else f"`{name}`", *cells, f"{seconds:.1f}"])
    return markdown.table([*header, "seconds"], rows)


def chosen(records: Iterable[Record], motion: str, split: str) -> list[Record]:
    return [r for r in records if (r["motion"], r["split"]) == (motion, split)]


def merges(records: Iterable[Record], name: str) -> str:
    """Right and wrong merges, such as "57 / 1"."""
    answers = [record[name] for record in records]
    return f"{sum(a['right'] for a in answers)} / {sum(a['wrong'] for a in answers)}"


if __name__ == "__main__":
    main()
