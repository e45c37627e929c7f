"""What the discussion proposes: other clusterings, cheaper merging, what A(D) can choose."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

import unsplit
from experiments.core import Result, Setting, Trial
from experiments.discussion import figure
from experiments.discussion.claims import claims
from experiments.discussion.config import FULL, MEASURED, QUICK, Config, Size
from experiments.discussion.merging import run_merging, run_spectral
from experiments.discussion.overclusterings import problem
from experiments.discussion.summary import where
from experiments.discussion.tables import table
from experiments.discussion.training import run_choosing, run_stopping
from unsplit import TrainConfig

__all__ = ["claims", "draw", "minutes", "run", "table", "trials"]

# Of processor time; twice as many with convolutions.
MINUTES = {
    "spectral": 0.04, "linkage": 0.07,
    "paper": 0.2, "cross-fitted": 0.29, "learning rate": 0.27, "weight decay": 0.06,
    "network": 0.03,
}  # fmt: skip


def trials(quick: bool) -> list[Trial]:
    """Four parts, each for several over-clusterings; those that need files come last."""
    config = QUICK if quick else FULL
    found = [
        {"part": part, "data": data, "clusters": clusters, "s": _size(config, part).cluster}
        | {**rest, "seed": seed}
        for seed in config.seeds
        for part, (data, clusters), rest in _parts(config)
    ]
    return sorted(found, key=lambda trial: trial["data"] == "imagenet")


def _parts(config: Config) -> list[tuple[str, tuple[str, str], Trial]]:
    return [
        *(("spectral", case, {}) for case in config.spectral),
        *(("merging", case, {"strategy": s}) for case in config.merging for s in MEASURED),
        *(("stopping", case, {"estimator": name}) for case, name, _ in config.stopping),
        *(
            ("choosing", case, {"setting": setting})
            for setting, (_, some) in config.choosing.items()
            for case in some
        ),
    ]


def _size(config: Config, part: str) -> Size:
    return config.small if part == "merging" else config.usual


def minutes(trial: Trial) -> float:
    """On one core."""
    kind = trial.get("strategy") or trial.get("estimator") or trial.get("setting") or trial["part"]
    return MINUTES[kind] * (2 if trial["data"] == "digit images" else 1)


def run(trial: Trial, setting: Setting) -> Result:
    """The numbers of one part for one over-clustering."""
    config = QUICK if setting.quick else FULL
    case, part, seed = (trial["data"], trial["clusters"]), trial["part"], trial["seed"]
    given = problem(case, _size(config, part), seed, setting.data)
    common = seed, setting.device, config.epochs
    _warm_up(setting.device)
    if part == "spectral":
        return run_spectral(given, *common)
    if part == "merging":
        return run_merging(given, trial["strategy"], *common)
    if part == "stopping":
        lengths = {(c, name): epochs for c, name, epochs in config.stopping}
        return run_stopping(given, trial["estimator"], lengths[case, trial["estimator"]], *common)
    return run_choosing(given, trial["setting"], config.choosing[trial["setting"]][0], *common)


def draw(results: Sequence[Result], folder: Path) -> list[Path]:
    """Groups and merges, the course of training, the learning rate: what was measured of them."""
    merged = [*where(results, part="spectral"), *where(results, part="merging")]
    stopped = where(results, part="stopping")
    rates = where(results, part="choosing", setting="learning rate")
    figures = [
        (figure.merging, merged, "merging"),
        (figure.stopping, stopped, "stopping"),
        (figure.rates, rates, "rates"),
    ]
    return [drawn(some, folder / f"discussion_{name}.png") for drawn, some, name in figures if some]


@lru_cache(maxsize=1)
def _warm_up(device: str) -> None:
    """The first training of a process takes a second longer; no trial is to be charged for it."""
    X = np.random.default_rng(0).normal(size=(40, 2))
    unsplit.pairwise_tvd(
        X, np.arange(40) % 2, training=TrainConfig(epochs=1), device=device, random_state=0
    )
