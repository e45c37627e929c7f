"""Annotated shapes cut at random into clusters of size s: PointNet++ against one hidden layer."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from experiments import figures
from experiments.artificial import measured
from experiments.core import Result, Setting, Trial
from experiments.modelnet40.config import BETTER, FULL, QUICK, SORTED
from experiments.modelnet40.reading import claims, table
from unsplit import InputError
from unsplit.networks.training.loop import USUAL
from unsplit.overclustering import artificial

__all__ = ["claims", "draw", "minutes", "run", "table", "trials"]

SEED = 0
FILE = "modelnet40.train.npz"
FOLDS = 3


def trials(quick: bool) -> list[Trial]:
    """Every size with both networks."""
    config = QUICK if quick else FULL
    return [
        {"s": s, "backbone": backbone, "epochs": config.epochs, "points": config.points}
        for s in config.sizes
        for backbone in config.backbones
    ]


def minutes(trial: Trial) -> float:
    """On an H200, of 9,843 shapes."""
    per_epoch = 0.1 if trial["backbone"] == BETTER else 0.005
    return 0.1 + per_epoch * float(trial["epochs"]) * trial["points"] / 512


def run(trial: Trial, setting: Setting) -> Result:
    """Estimate all distances once."""
    X, categories = _data(setting.data, setting.quick, trial["points"])
    labels = artificial(categories, trial["s"], 0.0, SEED)
    choices = {"backbone": trial["backbone"], "cv": FOLDS, "epochs": trial["epochs"]}
    if trial["backbone"] != BETTER:
        X = _in_order(X) if trial["backbone"] == SORTED else X
        X, choices["backbone"] = X.reshape(len(X), -1), "single-layer"
    if setting.quick:
        choices["training"] = replace(USUAL, batch_size=16)
    return measured(X, labels, categories, device=setting.device, random_state=SEED, **choices)


def draw(results: Sequence[Result], folder: Path) -> list[Path]:
    """1 − Q and A by size, one line for each network."""
    return [figures.networks_by_size(results, folder / "modelnet40.png")]


def _in_order(clouds: Any) -> Any:
    """Points of each cloud by their first coordinate."""
    order = np.argsort(clouds[..., 0], axis=1, kind="stable")
    return np.take_along_axis(clouds, order[..., None], axis=1)


@lru_cache(maxsize=1)
def _data(data: Path | None, quick: bool, points: int) -> tuple[Any, Any]:
    if quick and data is None:
        return _ellipsoids(points)
    if data is None or not (data / FILE).is_file():
        raise InputError(
            f"this experiment needs {FILE}; name the folder that holds it with --data."
        )
    with np.load(data / FILE) as file:
        clouds, label = file["points"][:, :points].astype(np.float32), file["label"]
    return clouds, label


def _ellipsoids(points: int) -> tuple[Any, Any]:
    """Three kinds of shapes that take no file."""
    rng = np.random.default_rng(SEED)
    y = np.repeat(np.arange(3), 20)
    axes = np.array([[1, 1, 1], [1, 1, 0.2], [1, 0.2, 0.2]])[y]
    directions = rng.standard_normal((len(y), points, 3))
    directions /= np.linalg.norm(directions, axis=2, keepdims=True)
    return (directions * axes[:, None]).astype(np.float32), y
