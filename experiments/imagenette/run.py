"""Ten ImageNet categories, clustered by features as the paper did; then merged, in many ways."""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier

import unsplit
from experiments.core import Result, Setting, Trial, name_of
from experiments.imagenet_realistic.methods import retrained
from experiments.imagenet_realistic.variants import training
from experiments.imagenette.config import FULL, QUICK, Config
from experiments.imagenette.figure import draw
from experiments.imagenette.material import (
    config_of,
    drawn,
    features,
    half_of,
    kept_estimate,
    learned,
    of_side,
    overclustering,
    photographs,
)
from experiments.imagenette.merging import by_features, clustered, merged, trained
from experiments.imagenette.numbers import DEFAULT, LESS
from experiments.imagenette.reading import claims, table
from experiments.images import small_network

__all__ = ["claims", "draw", "minutes", "run", "table", "trials"]

DEEPCLUSTER: Trial = {"representation": "deepcluster", "method": "training"}
HALVES = ("first", "second")


def trials(quick: bool) -> list[Trial]:
    """What needs no network first, then the default, then what was measured with less.

    The default and the paper's method, whose times are compared, come once before the others.
    """
    config = QUICK if quick else FULL
    regime, side, small = config.regime, config.side, config.sides[0]
    default = _grid(config, sizes=regime, sides=(side,))
    paper = _grid(config, sizes=regime, sides=(side,), method="paper", variant=LESS)
    wanted = [
        *_without_network(config),
        *_without_network(config, sizes=regime, which=HALVES),
        *(default[-1], paper[-1], DEEPCLUSTER),
        *(*default, *paper),
        *_grid(config, sizes=regime, sides=(side,), seed=1),
        *_grid(config, sizes=regime, sides=(side,), which=HALVES),
        *_grid(config, sides=(side,)),
        *_grid(config),
        *_without_network(config, sizes=regime, representation="deepcluster"),
        *_grid(config, sizes=regime, sides=(small,), representation="deepcluster"),
        *_grid(config, sides=(side,), variant=LESS),
        *_grid(config, sides=(small,), variant=LESS),
        *_grid(config, sizes=regime, sides=(small,), which=HALVES, variant=LESS),
        *_grid(config, sizes=regime, sides=(small,), representation="deepcluster", variant=LESS),
    ]
    return list({name_of(trial): trial for trial in wanted}.values())


def minutes(trial: Trial) -> float:
    """Of an H200, when seven run at a time; sizes and pixels matter little."""
    if trial == DEEPCLUSTER:
        return 3.0
    if trial["method"] == "features":
        return 0.2
    return 0.2 if (trial["method"], trial["variant"]) == ("cross-fitted", LESS) else 0.3


def run(trial: Trial, setting: Setting) -> Result:
    """Over-cluster one draw and merge it in one way."""
    if trial == DEEPCLUSTER:
        return _about_deepcluster(setting)
    place = trial["representation"], trial["categories"], trial["draw"]
    case = overclustering(*place, trial["s"], setting)
    if trial["method"] == "features":
        return case.described() | by_features(case, _ordered_clusterings(case, place, setting))
    config = config_of(setting)
    choices: dict[str, Any] = {"device": setting.device}
    choices |= training(trial["variant"], config.epochs)
    if setting.quick:
        choices["backbone"] = small_network
    rows, labels = case.with_outside()
    X = of_side(setting, trial["side"])
    if trial["method"] == "paper":
        made = retrained(case, X[case.rows], config.merges, trial["seed"], **choices)
        return case.described() | made
    choices["random_state"] = trial["seed"]
    result, took = kept_estimate(trial, setting, lambda: trained(X[rows], labels, **choices))
    graph = unsplit.neighbour_graph(features(trial["representation"], setting)[rows], labels)
    about = {"epochs run": len(result.history.epoch), "training seconds": round(took, 2)}
    return case.described() | merged(case, result, graph) | about


def _without_network(config: Config, **choices: Any) -> list[Trial]:
    """What does not see the images: no pixels, and nothing to augment."""
    return _grid(config, sides=(0,), method="features", variant=LESS, **choices)


def _grid(
    config: Config,
    sizes: tuple[int, ...] | None = None,
    sides: tuple[int, ...] | None = None,
    which: tuple[str, ...] = ("all",),
    representation: str = "sscd",
    method: str = "cross-fitted",
    variant: str = DEFAULT,
    seed: int = 0,
) -> list[Trial]:
    """All draws of what is named."""
    return [
        {
            "representation": representation,
            "categories": half,
            "draw": draw,
            "s": s,
            "side": side,
            "method": method,
            "variant": variant,
            "seed": seed,
        }
        for draw in range(1, config.draws + 1)
        for half in which
        for side in sides or config.sides
        for s in sizes or config.sizes
    ]


def _ordered_clusterings(
    case: Any, place: tuple[str, str, int], setting: Setting
) -> dict[str, NDArray[np.int64]]:
    """Clusterings of all images of a draw, those in initial clusters first."""
    rows, _ = case.with_outside()
    found = _clusterings(*place, setting)
    where = np.searchsorted(found["rows"], rows)
    return {name: labels[where] for name, labels in found.items() if name != "rows"}


@lru_cache(maxsize=1)
def _clusterings(
    representation: str, which: str, draw: int, setting: Setting
) -> dict[str, NDArray[np.int64]]:
    """They depend on the draw alone, so they are made once for all sizes."""
    categories = photographs(setting)[1]
    rows = drawn(categories, half_of(categories, which), config_of(setting).share, draw)
    return {"rows": rows, **clustered(features(representation, setting)[rows])}


def _about_deepcluster(setting: Setting) -> Result:
    """How training went, and how often five nearest neighbours know the category."""
    categories = photographs(setting)[1]
    voting = KNeighborsClassifier(5)
    course = learned(setting)
    names = ("sscd", "deepcluster")
    right = {
        name: float(cross_val_score(voting, features(name, setting), categories, cv=5).mean())
        for name in names
    }
    return {
        "5 neighbours": right,
        "loss": course.loss,
        "stability": course.stability,
        "training seconds": round(course.seconds, 2),
    }
