"""How many clusters, how fast and in how much memory: k outputs against k², then all at once."""

from collections.abc import Sequence
from pathlib import Path

import torch

from experiments.core import Result, Setting, Trial
from experiments.scaling.config import FULL, QUICK
from experiments.scaling.figure import draw_growth, draw_parts
from experiments.scaling.heads import growth, reach
from experiments.scaling.reading import claims, table
from experiments.scaling.whole import SEED, feeding, whole
from unsplit.devices import private_randomness

__all__ = ["claims", "draw", "minutes", "run", "table", "trials"]

MINUTES = {"heads": 0.2, "reach": 0.1, "feeding": 0.2, "whole": 2.0}


def trials(quick: bool) -> list[Trial]:
    """Both heads alone, both under ResNet-18, how images come, and the whole run."""
    config = QUICK if quick else FULL
    outputs = ("k", "k2")
    return [
        *({"part": "heads", "outputs": o} for o in outputs),
        *(
            {"part": "reach", "outputs": o, "precision": p}
            for o in outputs
            for p in ("float32", "bfloat16")
        ),
        *({"part": "feeding", "source": s} for s in ("made on the device", "worker processes")),
        {"part": "whole", "k": config.clusters, "loss": "pairwise", "epochs": config.epochs},
    ]


def minutes(trial: Trial) -> float:
    """On an H200."""
    return MINUTES[trial["part"]]


def run(trial: Trial, setting: Setting) -> Result:
    """Measure one part."""
    config = QUICK if setting.quick else FULL
    device = torch.device(setting.device)
    if trial["part"] == "whole":
        return whole(trial["loss"], config, device, setting.quick)
    if trial["part"] == "feeding":
        return feeding(trial["source"], config, device)
    with private_randomness(SEED):
        if trial["part"] == "heads":
            return growth(trial["outputs"], config, device)
        return reach(trial["outputs"], trial["precision"], config, device)


def draw(results: Sequence[Result], folder: Path) -> list[Path]:
    """Memory and time of a step by k, and the time of each part of the whole run."""
    drawn = []
    if any(r["part"] == "heads" for r in results):
        drawn.append(draw_growth(results, folder / "scaling_heads.png"))
    if any(r["part"] == "whole" for r in results):
        drawn.append(draw_parts(results, folder / "scaling_whole.png"))
    return drawn
