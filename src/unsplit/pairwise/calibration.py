"""How sure scores should be: one factor for all of them, by what was held out.

Networks order observations well and are wrong about how sure they are, because they are trained to
a limit and averaged.  Score differences are read as logarithms of density ratios, so their scale
counts.  The factor is the one under which what was held out is most likely (Guo et al. 2017,
"On calibration of modern neural networks").
"""

from dataclasses import replace

import numpy as np
import torch
from scipy.optimize import minimize_scalar

from unsplit.devices import device_for_sums
from unsplit.pairwise.scores import HeldoutScores

# So many observations say it well enough.
MOST_OBSERVATIONS = 10_000
# Beyond these the scores say nothing, or never err.
LEAST, MOST = np.log(1 / 20), np.log(20)
PRECISION = 0.001


def best_factor(scores: HeldoutScores) -> float:
    """By what to multiply scores; clusters weigh the same, whatever their size.

    1 if nothing was held out.
    """
    step = -(-len(scores.rows) // MOST_OBSERVATIONS)
    if step == 0:
        return 1.0
    part = _every(scores, step)
    weights = 1 / np.maximum(part.counts.sum(axis=0), 1)

    def surprise(logarithm: float) -> float:
        return _surprise(part, float(np.exp(logarithm)), weights)

    found = minimize_scalar(surprise, bounds=(LEAST, MOST), options={"xatol": PRECISION})
    # Rounded, so that the order of sums, which names decide, changes nothing.
    return float(np.exp(round(float(found.x), 2)))


def scaled(scores: HeldoutScores, factor: float) -> HeldoutScores:
    """The scores times a factor."""
    kind = np.float32
    return replace(
        scores,
        weights=(scores.weights * factor).astype(kind),
        bias=(scores.bias * factor).astype(kind),
    )


def _every(scores: HeldoutScores, step: int) -> HeldoutScores:
    """Every so-many-th of the observations, whatever their order and names."""
    by_content = np.argsort(scores.features[:, 0], kind="stable")
    kept = np.sort(by_content[::step])
    parts = {
        name: getattr(scores, name)[kept] for name in ("features", "clusters", "folds", "rows")
    }
    batches = None if scores.batches is None else scores.batches[kept]
    return replace(scores, **parts, batches=batches)


def _surprise(
    scores: HeldoutScores, factor: float, weights: np.typing.NDArray[np.float64]
) -> float:
    """Mean surprise to see observations where they are."""
    device = device_for_sums()
    weight = torch.from_numpy(weights).to(device)
    total = 0.0
    for block, clusters in scores.blocks(device):
        block = block.double() * factor
        own = block.gather(1, clusters[:, None])[:, 0]
        total += float((weight[clusters] * (block.logsumexp(dim=1) - own)).sum())
    return total
