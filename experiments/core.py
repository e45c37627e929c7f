"""What an experiment is, and how it is run: cell by cell, each written as soon as it is there."""

import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from importlib import import_module
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch

import unsplit
from unsplit import InputError

HERE = Path(__file__).parent

# As one types them; the folders have underscores.
NAMES = (
    "imagenet-artificial",
    "imagenet-realistic",
    "modelnet40",
    "scaling",
    "discussion",
    "wasserstein",
)

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

    __name__: str

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
        raise InputError(f"there is no experiment {name!r}; choose one of {', '.join(NAMES)}.")
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
    jobs: int = 1,
) -> Iterator[Result]:
    """Run what is still to be done; none is begun that would end after so many minutes.

    With several ``jobs``, so many cells are under way at a time, each in a process of its own.
    """
    folder.mkdir(parents=True, exist_ok=True)
    todo = still_to_do(experiment, folder, setting.quick)
    expected = sum(experiment.minutes(cell) for cell in todo)
    tell(f"{len(todo)} cells to do, about {expected:.1f} minutes")
    start = time.monotonic()

    def in_time() -> Iterator[Cell]:
        for cell in todo:
            if (time.monotonic() - start) / 60 + experiment.minutes(cell) > minutes:
                tell(f"left for another time: {file_of(cell)}")
            else:
                yield cell

    about = {"at once": jobs, "made with": made_with(setting.device)}
    for cell, numbers in _one_by_one(experiment, in_time(), setting, jobs):
        result = {**cell, **numbers, **about}
        _write(folder / file_of(cell), result)
        tell(f"{result['seconds']:7.1f} s  {file_of(cell)}")
        yield result


def _one_by_one(
    experiment: Experiment, cells: Iterator[Cell], setting: Setting, jobs: int
) -> Iterator[tuple[Cell, Result]]:
    """Cells with their numbers, each as soon as it is done."""
    if jobs == 1:
        yield from ((cell, _timed(experiment, cell, setting)) for cell in cells)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        running: dict[Future[Result], Cell] = {}
        while True:
            for cell in islice(cells, jobs - len(running)):
                running[pool.submit(_elsewhere, experiment.__name__, cell, setting)] = cell
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), future.result()


def _timed(experiment: Experiment, cell: Cell, setting: Setting) -> Result:
    start = time.monotonic()
    numbers = experiment.run(cell, setting)
    return {**numbers, "seconds": round(time.monotonic() - start, 3)}


def _elsewhere(module: str, cell: Cell, setting: Setting) -> Result:
    """In another process, which has to find the experiment first."""
    return _timed(import_module(module), cell, setting)


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
