"""How long to train, and how: what A(D) says, and what Q(D) would have said."""

from dataclasses import replace
from typing import Any

import unsplit
from benchmarks.common import as_options
from experiments.artificial import PAPER, measured
from experiments.core import Result
from experiments.discussion.config import ESTIMATORS
from experiments.discussion.merging import timed
from experiments.discussion.overclusterings import Problem
from unsplit import InputError, TrainConfig
from unsplit.networks.training.loop import USUAL
from unsplit.selection import Candidate

# Below so many steps A ends nothing, and the last weights are kept, not the best.
NEVER = 10**9

# Names of settings as the library has them.
KEYWORDS = {"learning rate": "learning_rate", "weight decay": "weight_decay"}


def run_stopping(
    given: Problem, estimator: str, lengths: tuple[int, ...], seed: int, device: str, epochs: int
) -> Result:
    """Training that A ends against training for so many epochs; all begin alike."""
    common = given.network | ESTIMATORS[estimator] | {"device": device, "random_state": seed}
    to_the_end = replace(given.training, least_steps=NEVER)
    stopped = _tried(given, common | {"training": given.training, "epochs": epochs})
    fixed = [_tried(given, common | {"training": to_the_end, "epochs": n}) for n in lengths]
    return stopped | {"fixed": fixed}


def run_choosing(
    given: Problem, setting: str, values: tuple[Any, ...], seed: int, device: str, epochs: int
) -> Result:
    """Every value with all else as usual; the one with the highest A, and the library's search.

    Where training breaks off because the loss is no number, there is no A and no Q.
    """
    common = given.network | PAPER | {"device": device, "random_state": seed, "epochs": epochs}
    tried = []
    for value in values:
        outcome: Result = {"value": value}
        try:
            outcome |= _tried(given, common | _choice(given.training, setting, value))
        except InputError as error:
            outcome["failed"] = str(error)
        tried.append(outcome)
    chosen = max((t for t in tried if "A" in t), key=lambda t: t["A"])
    found = {key: chosen[key] for key in ("k", "A", "1-Q")}
    return (
        found
        | {"chosen": chosen["value"], "tried": tried}
        | (_searched(given, values, seed, device, epochs) if setting == "learning rate" else {})
    )


def _choice(usual: TrainConfig, setting: str, value: Any) -> dict[str, Any]:
    if setting != "network":
        return {"training": replace(usual, **{KEYWORDS[setting]: value})}
    other = {} if value == "usual" else {"backbone": value, "training": USUAL}
    return {"training": usual, **other}


def _searched(
    given: Problem, rates: tuple[float, ...], seed: int, device: str, epochs: int
) -> Result:
    """The rate that :func:`unsplit.select` takes: by A too, of one estimate each."""
    candidates = {
        f"{rate:g}": Candidate(**as_options(learning_rate=rate, **given.network)) for rate in rates
    }
    selection, price = timed(
        lambda: unsplit.select(
            given.X, given.labels, candidates, device=device, random_state=seed,
            training=TrainConfig(loss=PAPER["loss"], epochs=epochs),
        )
    )  # fmt: skip
    return {"searched": selection.best.training.learning_rate, "search CPU seconds": price}


def _tried(given: Problem, choices: dict[str, Any]) -> Result:
    found, price = timed(lambda: measured(given.X, given.labels, given.categories, **choices))
    return {**found, "CPU seconds": price}
