"""What an experiment is, and how it is run: trial by trial, each written as soon as it is there."""

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
    "imagenette",
    "modelnet40",
    "scaling",
    "discussion",
    "wasserstein",
)

Trial = dict[str, Any]
Result = dict[str, Any]


class Setting(NamedTuple):
    """What a trial is given besides itself.

    ``data`` is where the data are, if any were named, ``device`` where to compute.
    """

    data: Path | None
    device: str
    quick: bool


class Claim(NamedTuple):
    """A statement of the paper, what we measured, and "reproduced", "not reproduced" or "changed".

    Where results are missing the verdict is "not measured"; where there are only others than the
    statement is about, "not measured at the paper's conditions".
    """

    paper: str
    ours: str
    verdict: str


class Experiment(Protocol):
    """A module ``experiments.NAME.run``."""

    __name__: str

    def trials(self, quick: bool) -> list[Trial]:
        """What there is to do; each trial has a text or number under every key."""

    def minutes(self, trial: Trial) -> float:
        """How long a trial takes on the hardware that its README names."""

    def run(self, trial: Trial, setting: Setting) -> Result:
        """The numbers of a trial, as JSON has them."""

    def draw(self, results: Sequence[Result], folder: Path) -> list[Path]:
        """Write the figures; each result is a trial with its numbers."""

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


def file_of(trial: Trial) -> str:
    """Name of the file that a trial's numbers go to.

    Examples
    --------
    >>> file_of({"head": "k outputs", "k": 100})
    'head=k-outputs,k=100.json'
    """
    parts = (f"{key}={value}".replace(" ", "-").replace("/", "-") for key, value in trial.items())
    return ",".join(parts) + ".json"


def results_in(folder: Path) -> list[Result]:
    """All that was measured so far, in the order of the files' names."""
    return [json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json"))]


def still_to_do(experiment: Experiment, folder: Path, quick: bool) -> list[Trial]:
    """The trials that have no file yet."""
    return [trial for trial in experiment.trials(quick) if not (folder / file_of(trial)).exists()]


def work_off(
    experiment: Experiment,
    folder: Path,
    setting: Setting,
    minutes: float,
    tell: Callable[[str], None],
    jobs: int = 1,
) -> Iterator[Result]:
    """Run what is still to be done; none is begun that would end after so many minutes.

    With several ``jobs``, so many trials are under way at a time, each in a process of its own.
    """
    folder.mkdir(parents=True, exist_ok=True)
    todo = still_to_do(experiment, folder, setting.quick)
    expected = sum(experiment.minutes(trial) for trial in todo)
    tell(f"{len(todo)} trials to do, about {expected:.1f} minutes")
    start = time.monotonic()

    def in_time() -> Iterator[Trial]:
        for trial in todo:
            if (time.monotonic() - start) / 60 + experiment.minutes(trial) > minutes:
                tell(f"left for another time: {file_of(trial)}")
            else:
                yield trial

    about = {"at once": jobs, "made with": made_with(setting.device)}
    for trial, numbers in _one_by_one(experiment, in_time(), setting, jobs):
        result = {**trial, **numbers, **about}
        _write(folder / file_of(trial), result)
        tell(f"{result['seconds']:7.1f} s  {file_of(trial)}")
        yield result


def _one_by_one(
    experiment: Experiment, trials: Iterator[Trial], setting: Setting, jobs: int
) -> Iterator[tuple[Trial, Result]]:
    """Trials with their numbers, each as soon as it is done."""
    if jobs == 1:
        yield from ((trial, _timed(experiment, trial, setting)) for trial in trials)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        running: dict[Future[Result], Trial] = {}
        while True:
            for trial in islice(trials, jobs - len(running)):
                running[pool.submit(_elsewhere, experiment.__name__, trial, setting)] = trial
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), future.result()


def _timed(experiment: Experiment, trial: Trial, setting: Setting) -> Result:
    start = time.monotonic()
    numbers = experiment.run(trial, setting)
    return {**numbers, "seconds": round(time.monotonic() - start, 3)}


def _elsewhere(module: str, trial: Trial, setting: Setting) -> Result:
    """In another process, which has to find the experiment first."""
    return _timed(import_module(module), trial, setting)


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
