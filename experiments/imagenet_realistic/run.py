"""Photographs clustered by features learned without labels; then merged, in several ways."""

from typing import Any

from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier

from experiments.core import Result, Setting, Trial, name_of
from experiments.imagenet_realistic.config import FULL, QUICK, Config
from experiments.imagenet_realistic.figure import draw
from experiments.imagenet_realistic.material import (
    SEED,
    features,
    learned,
    photographs,
    pictures,
    published,
)
from experiments.imagenet_realistic.methods import by_features, retrained, trained_once
from experiments.imagenet_realistic.methods import published as merged_as_published
from experiments.imagenet_realistic.overclustering import members, overcluster
from experiments.imagenet_realistic.reading import claims, table
from experiments.imagenet_realistic.variants import AUGMENTED, USUAL, training, wanted_side
from experiments.images import small_network

__all__ = ["claims", "draw", "minutes", "run", "table", "trials"]

DEEPCLUSTER: Trial = {"representation": "deepcluster", "method": "training"}
# Learned and merged by a small network, on a computer without a GPU.
SMALL = "deepcluster-small"


def trials(quick: bool) -> list[Trial]:
    """First what times are compared of, which should run alone; then what others wait for.

    Another way to train comes before all, and bears what the first use of a GPU costs.
    """
    config = QUICK if quick else FULL
    most, *purer = config.retrained
    others = [s for s in config.sizes if s not in config.retrained]
    ablations = [
        _trial("sscd", subset, most, "cross-fitted", variant)
        for variant in config.variants
        for subset in range(1, config.ablated + 1)
    ]
    best = [c for s in config.retrained for c in _subsets("sscd", s, "cross-fitted", config)]
    grid = [c for s in (*purer, most) for c in _all_methods("sscd", s, config)]
    alone = [c for c in grid if (c["s"], c["subset"]) == (most, 1)]
    learned_here = [
        *(c for s in config.sizes for c in _subsets("deepcluster", s, "euclidean", config)),
        *(c for s in config.retrained for c in _subsets("deepcluster", s, "cross-fitted", config)),
    ]
    largest = [
        *(c for s in others for c in _subsets("sscd", s, "euclidean", config)),
        *(c for s in others for c in _subsets("sscd", s, "cross-fitted", config)),
    ]
    on_cpu = [c for m in ("euclidean", "published") for c in _subsets(SMALL, most, m, config)]
    wanted = [
        *(ablations[0], *alone, DEEPCLUSTER),
        *({**c, "variant": AUGMENTED} for c in best),
        *(*grid, *learned_here, *ablations, *largest, *on_cpu),
    ]
    return list({name_of(trial): trial for trial in wanted}.values())


def minutes(trial: Trial) -> float:
    """On an H200 with nothing else to do, of 24,000 images of 64 pixels."""
    if trial == DEEPCLUSTER:
        return 2.5
    if trial["representation"] == SMALL:  # on one core of a CPU
        return 0.1 if trial["method"] == "euclidean" else 2.0
    usual = {"euclidean": 0.01, "cross-fitted": 0.25, "paper": 0.6}[trial["method"]]
    longer = {"40 epochs": 1.6, AUGMENTED: 1.5, "32 pixels": 1.3, "finer maps": 2.0}
    return usual * longer.get(trial["variant"], 1.0)


def run(trial: Trial, setting: Setting) -> Result:
    """Over-cluster one subset and merge it in one way."""
    config = QUICK if setting.quick else FULL
    X, categories = photographs(setting)
    R = features(trial["representation"], setting)
    if trial == DEEPCLUSTER:
        return _about_deepcluster(R, categories, config, setting)
    case = overcluster(R, categories, config, trial["subset"], trial["s"], SEED)
    if trial["method"] == "euclidean":
        return case.described() | by_features(case)
    side = wanted_side(trial["variant"])
    choices: dict[str, Any] = {"device": setting.device}
    choices |= training(trial["variant"], config.epochs)
    if trial["representation"] == SMALL:
        choices["backbone"] = "convnet"
    if setting.quick:
        choices["backbone"] = small_network
    if trial["method"] == "paper":
        some = pictures(X, case.rows, side)
        found = retrained(case, some, config.merges, SEED, **choices)
    elif trial["method"] == "published":
        some = pictures(X, case.rows, side)
        found = merged_as_published(case, some, config.merges, SEED, **choices)
    else:
        rows, _ = case.with_outside()
        choices["random_state"] = SEED
        found = trained_once(case, pictures(X, rows, side), R[rows], **choices)
    return case.described() | found


def _all_methods(representation: str, s: int, config: Config) -> list[Trial]:
    methods = ("euclidean", "cross-fitted", "paper")
    return [trial for m in methods for trial in _subsets(representation, s, m, config)]


def _subsets(representation: str, s: int, method: str, config: Config) -> list[Trial]:
    return [_trial(representation, n, s, method) for n in range(1, config.subsets + 1)]


def _trial(representation: str, subset: int, s: int, method: str, variant: str = USUAL) -> Trial:
    return {
        "representation": representation,
        "subset": subset,
        "s": s,
        "method": method,
        "variant": variant,
    }


def _about_deepcluster(R: Any, categories: Any, config: Config, setting: Setting) -> Result:
    """How training went, and how often five nearest neighbours know the category."""
    right = []
    for subset in range(1, config.subsets + 1):
        rows = members(categories, config.categories, subset, SEED)
        voting = KNeighborsClassifier(5)
        right.append(float(cross_val_score(voting, R[rows], categories[rows], cv=5).mean()))
    if published(setting) is not None:
        return {"5 neighbours": right}
    course = learned(setting)
    return {
        "5 neighbours": right,
        "loss": course.loss,
        "stability": course.stability,
        "training seconds": round(course.seconds, 2),
    }
