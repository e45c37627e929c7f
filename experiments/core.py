"""What an experiment is, and how it is run: trial by trial, each written as soon as it is there."""

import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from importlib import import_module
from itertools import islice
from multiprocessing import get_context
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch

import unsplit
from benchmarks import results_file
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


def name_of(trial: Trial) -> str:
    """What a trial's numbers are kept under.

    Examples
    --------
    >>> name_of({"head": "k outputs", "k": 100})
    'head=k-outputs,k=100'
    """
    parts = (f"{key}={value}".replace(" ", "-").replace("/", "-") for key, value in trial.items())
    return ",".join(parts)


def results_in(folder: Path) -> list[Result]:
    """All that was measured so far, in the order of the trials' names."""
    return results_file.read(folder / "trials.jsonl.gz")


def still_to_do(experiment: Experiment, folder: Path, quick: bool) -> list[Trial]:
    """The trials that have no numbers yet."""
    done = {result["name"] for result in results_in(folder)}
    return [trial for trial in experiment.trials(quick) if name_of(trial) not in done]


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
    todo = still_to_do(experiment, folder, setting.quick)
    expected = sum(experiment.minutes(trial) for trial in todo)
    tell(f"{len(todo)} trials to do, about {expected:.1f} minutes")
    start = time.monotonic()

    def in_time() -> Iterator[Trial]:
        for trial in todo:
            if (time.monotonic() - start) / 60 + experiment.minutes(trial) > minutes:
                tell(f"left for another time: {name_of(trial)}")
            else:
                yield trial

    about = {"at once": jobs, "made with": made_with(setting.device)}
    for trial, numbers in _one_by_one(experiment, in_time(), setting, jobs):
        result = {"name": name_of(trial), **trial, **numbers, **about}
        results = sorted([*results_in(folder), result], key=itemgetter("name"))
        results_file.write(folder / "trials.jsonl.gz", results)
        tell(f"{result['seconds']:7.1f} s  {result['name']}")
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
