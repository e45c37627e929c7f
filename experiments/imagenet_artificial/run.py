"""Annotated photographs cut at random into clusters of size s, a share π of them misplaced."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from experiments import figures
from experiments.artificial import estimator, measured
from experiments.core import Result, Setting, Trial
from experiments.imagenet_artificial.config import FULL, QUICK
from experiments.imagenet_artificial.reading import claims, table
from experiments.images import gratings, images, small_network
from unsplit.networks.augmentation import ImageAugmentation
from unsplit.overclustering import artificial

__all__ = ["claims", "draw", "minutes", "run", "table", "trials"]

SEED = 0


def trials(quick: bool) -> list[Trial]:
    """Every size and noise with both estimators; then the course of training without noise."""
    config = QUICK if quick else FULL
    grid = [
        {"s": s, "noise": noise, "estimator": name, "epochs": config.epochs}
        for s in config.sizes
        for noise in config.noises
        for name in ("paper", "cross-fitted")
    ]
    course = [
        {"s": s, "noise": 0.0, "estimator": "course", "epochs": epochs}
        for s in config.sizes
        for epochs in config.course
    ]
    return grid + course


def minutes(trial: Trial) -> float:
    """On an H200, of 24,000 images of 64 pixels."""
    networks = 1 if trial["estimator"] == "course" else 5
    return 0.1 + 0.008 * networks * float(trial["epochs"])


def run(trial: Trial, setting: Setting) -> Result:
    """Estimate all distances once."""
    X, categories = _data(setting.data, setting.quick)
    labels = artificial(categories, trial["s"], trial["noise"], SEED)
    choices = (
        {"cv": 0.2, "epochs": trial["epochs"]}
        if trial["estimator"] == "course"
        else estimator(trial["estimator"], trial["epochs"])
    )
    # The default when this was measured; deep networks are given more now.
    choices["augment"] = ImageAugmentation.for_images(3)
    if setting.quick:
        choices["backbone"] = small_network
    return measured(X, labels, categories, device=setting.device, random_state=SEED, **choices)


def draw(results: Sequence[Result], folder: Path) -> list[Path]:
    """1 − Q and A by size and noise, and the course of both."""
    grid = [r for r in results if r["estimator"] != "course"]
    course = [r for r in results if r["estimator"] == "course"]
    return [
        figures.quality_by_size(grid, folder / "imagenet_quality.png"),
        figures.course(course, folder / "imagenet_course.png"),
    ]


@lru_cache(maxsize=1)
def _data(data: Path | None, quick: bool) -> tuple[Any, Any]:
    return gratings(3, 20, SEED) if quick and data is None else images(data)
