"""Lower bounds on the 1-Wasserstein distance of all pairs: how tight, and what sharing costs."""

from collections.abc import Sequence
from pathlib import Path

from experiments.core import Result, Setting, Trial
from experiments.wasserstein.config import FULL, QUICK
from experiments.wasserstein.figure import draw_bounds, draw_sharing
from experiments.wasserstein.parts import digits, known, sharing
from experiments.wasserstein.reading import claims, table

__all__ = ["claims", "draw", "minutes", "run", "table", "trials"]


def trials(quick: bool) -> list[Trial]:
    """Known distances, digits, and what it costs to share a network."""
    config = QUICK if quick else FULL
    return [
        {"part": part, **({"family": family} if family else {}), "k": k, "seed": seed}
        for part, families, ks in (
            ("known", config.families, config.known),
            ("digits", ("",), config.pieces),
            ("sharing", config.crowded, config.clusters),
        )
        for family in families
        for k in ks
        for seed in config.seeds
    ]


def minutes(trial: Trial) -> float:
    """On one core."""
    return {"known": 0.1, "digits": 0.5, "sharing": 0.2}[trial["part"]] + 0.005 * float(trial["k"])


def run(trial: Trial, setting: Setting) -> Result:
    """Measure one part."""
    rest = trial["k"], trial["seed"], QUICK if setting.quick else FULL, setting.device
    if trial["part"] == "digits":
        return digits(*rest)
    return {"known": known, "sharing": sharing}[trial["part"]](trial["family"], *rest)


def draw(results: Sequence[Result], folder: Path) -> list[Path]:
    """Bounds against true distances, and how tight they are as more clusters share a network."""
    drawn = []
    if any(r["part"] in ("known", "digits") for r in results):
        drawn.append(draw_bounds(results, folder / "wasserstein_bounds.png"))
    if any(r["part"] == "sharing" for r in results):
        drawn.append(draw_sharing(results, folder / "wasserstein_sharing.png"))
    return drawn
