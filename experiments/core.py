"""What an experiment is, and how it is run: cell by cell, each written as soon as it is there."""

import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from importlib import import_module
from operator import getitem
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch

import unsplit
from unsplit import InputError

HERE = Path(__file__).parent

# As one types them; the folders have underscores.
NAMES = ("imagenet-artificial", "modelnet40", "scaling")

Cell = dict[str, Any]
Result = dict[str, Any]


class Setting(NamedTuple):
    """What a cell is given besides itself.

    ``data`` is where the data are, if any were named, ``device`` where to compute.
    """

    data: Path | None
    device: str
    quick: bool


class Claim(NamedTuple):
    """A statement of the paper, what we measured, and "reproduced", "not reproduced" or "changed".

    Where results are missing the verdict is "not measured".
    """

    paper: str
    ours: str
    verdict: str


class Experiment(Protocol):
    """A module ``experiments.NAME.run``."""

    def cells(self, quick: bool) -> list[Cell]:
        """What there is to do; each cell has a text or number under every key."""

    def minutes(self, cell: Cell) -> float:
        """How long a cell takes on the hardware that its README names."""

    def run(self, cell: Cell, setting: Setting) -> Result:
        """The numbers of a cell, as JSON has them."""

    def draw(self, results: Sequence[Result], folder: Path) -> list[Path]:
        """Write the figures; each result is a cell with its numbers."""

    def table(self, results: Sequence[Result]) -> str:
        """The numbers worth reading, in Markdown."""

    def claims(self, results: Sequence[Result]) -> list[Claim]:
        """What the paper says, and what was found."""


def load(name: str) -> Experiment:
    """The experiment of this name.

    Examples
    --------
    >>> load("modelnet40").__name__
    'experiments.modelnet40.run'
    """
    if name not in NAMES:
        raise InputError(f"there is no experiment {name!r}; there are {', '.join(NAMES)}.")
    return import_module(f"experiments.{folder_of(name).name}.run")


def folder_of(name: str) -> Path:
    """Where an experiment lives."""
    return HERE / name.replace("-", "_")


def file_of(cell: Cell) -> str:
    """Name of the file that a cell's numbers go to.

    Examples
    --------
    >>> file_of({"head": "k outputs", "k": 100})
    'head=k-outputs,k=100.json'
    """
    parts = (f"{key}={value}".replace(" ", "-").replace("/", "-") for key, value in cell.items())
    return ",".join(parts) + ".json"


def results_in(folder: Path) -> list[Result]:
    """All that was measured so far, in the order of the files' names."""
    return [json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json"))]


def still_to_do(experiment: Experiment, folder: Path, quick: bool) -> list[Cell]:
    """The cells that have no file yet."""
    return [cell for cell in experiment.cells(quick) if not (folder / file_of(cell)).exists()]


def work_off(
    experiment: Experiment,
    folder: Path,
    setting: Setting,
    minutes: float,
    tell: Callable[[str], None],
) -> Iterator[Result]:
    """Run what is still to be done; none is begun that would end after so many minutes."""
    folder.mkdir(parents=True, exist_ok=True)
    todo = still_to_do(experiment, folder, setting.quick)
    expected = sum(experiment.minutes(cell) for cell in todo)
    tell(f"{len(todo)} cells to do, about {expected:.1f} minutes")
    start = time.monotonic()
    for cell in todo:
        if (time.monotonic() - start) / 60 + experiment.minutes(cell) > minutes:
            tell(f"left for another time: {file_of(cell)}")
            continue
        begin = time.monotonic()
        numbers = experiment.run(cell, setting)
        seconds = round(time.monotonic() - begin, 2)
        result = {**cell, **numbers, "seconds": seconds, "made with": made_with(setting.device)}
        _write(folder / file_of(cell), result)
        tell(f"{seconds:7.1f} s  {file_of(cell)}")
        yield result


def surprises(name: str, results: Sequence[Result]) -> list[str]:
    """Sentences on numbers that are not what the experiment's ``expected.json`` says."""
    path = folder_of(name) / "expected.json"
    return unexpected(results, json.loads(path.read_text("utf-8"))) if path.exists() else []


def unexpected(results: Sequence[Result], expected: Sequence[dict[str, Any]]) -> list[str]:
    """Sentences on numbers that are not what they should be.

    Each expectation has a ``cell``, the keys that lead to a ``number`` of its result, its ``value``
    and a ``tolerance``.  Cells that were not run say nothing.

    Examples
    --------
    >>> expected = [{"cell": {"s": 50}, "number": ["1-Q", "tv"], "value": 0.01, "tolerance": 0.005}]
    >>> unexpected([{"s": 50, "1-Q": {"tv": 0.02}}], expected)
    ['s=50: 1-Q, tv is 0.02, expected 0.01 ± 0.005']
    >>> unexpected([{"s": 50, "1-Q": {"tv": 0.012}}, {"s": 99}], expected)
    []
    """
    sentences = []
    for one in expected:
        for result in results:
            if not one["cell"].items() <= result.items():
                continue
            number = reduce(getitem, one["number"], result)
            if abs(number - one["value"]) > one["tolerance"]:
                name = file_of(one["cell"]).removesuffix(".json")
                sentences.append(
                    f"{name}: {', '.join(one['number'])} is {number:.4g}, "
                    f"expected {one['value']:.4g} ± {one['tolerance']:.2g}"
                )
    return sentences


def made_with(device: str) -> str:
    """Hardware and versions, in words."""
    on_gpu = device.startswith("cuda")
    where = torch.cuda.get_device_name() if on_gpu else f"{os.cpu_count()} cores"
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    return f"{where}, {versions}, unsplit {unsplit.__version__}"


def _write(path: Path, result: Result) -> None:
    """At once or not at all."""
    unfinished = path.with_suffix(".part")
    unfinished.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", "utf-8")
    unfinished.replace(path)
