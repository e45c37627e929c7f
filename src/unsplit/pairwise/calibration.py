"""Calibrate the scores: one factor for all of them, chosen on the held-out observations.

Networks rank observations well, but their scores are too confident or not confident enough,
because training stops early and weights are averaged.  Score differences are used as log density
ratios, so their scale matters.  The factor is the one with the largest likelihood of the held-out
labels (temperature scaling: Guo et al. 2017, "On calibration of modern neural networks").
"""

from dataclasses import replace

import numpy as np
import torch
from scipy.optimize import minimize_scalar

from unsplit.devices import device_for_sums
from unsplit.pairwise.scores import HeldoutScores

# This many observations are enough to find the factor.
MOST_OBSERVATIONS = 10_000
# Bounds of the logarithm of the factor: beyond them, scores say nothing or are never wrong.
LEAST, MOST = np.log(1 / 20), np.log(20)
PRECISION = 0.001


def best_factor(scores: HeldoutScores) -> float:
    """Find the factor that calibrates the scores; 1 if nothing was held out.

    Every cluster has the same weight, whatever its size.
    """
    step = -(-len(scores.rows) // MOST_OBSERVATIONS)
    if step == 0:
        return 1.0
    part = _every(scores, step)
    weights = 1 / np.maximum(part.counts.sum(axis=0), 1)

    def cross_entropy(logarithm: float) -> float:
        return _cross_entropy(part, float(np.exp(logarithm)), weights)

    found = minimize_scalar(cross_entropy, bounds=(LEAST, MOST), options={"xatol": PRECISION})
    # Rounded, so that the order of summation, which depends on cluster names, has no effect.
    return float(np.exp(round(float(found.x), 2)))


def scaled(scores: HeldoutScores, factor: float) -> HeldoutScores:
    """Multiply all scores by a factor."""
    kind = np.float32
    return replace(
        scores,
        weights=(scores.weights * factor).astype(kind),
        bias=(scores.bias * factor).astype(kind),
    )


def _every(scores: HeldoutScores, step: int) -> HeldoutScores:
    """Keep one of every ``step`` observations, the same ones whatever their order and names."""
    by_content = np.argsort(scores.features[:, 0], kind="stable")
    kept = np.sort(by_content[::step])
    parts = {
        name: getattr(scores, name)[kept] for name in ("features", "clusters", "folds", "rows")
    }
    batches = None if scores.batches is None else scores.batches[kept]
    return replace(scores, **parts, batches=batches)


def _cross_entropy(
    scores: HeldoutScores, factor: float, weights: np.typing.NDArray[np.float64]
) -> float:
    """Cross-entropy of the held-out labels, with scores multiplied by the factor."""
    device = device_for_sums()
    weight = torch.from_numpy(weights).to(device)
    total = 0.0
    for block, clusters in scores.blocks(device):
        block = block.double() * factor
        own = block.gather(1, clusters[:, None])[:, 0]
        total += float((weight[clusters] * (block.logsumexp(dim=1) - own)).sum())
    return total
