"""Data and networks of the tests of selection."""

import numpy as np
import pytest
from torch import nn

from unsplit import InputError, pairwise_tvd
from unsplit.datasets import gaussians
from unsplit.selection import select


def xor(size=60, seed=0):
    """Two clusters of two blobs each, on opposite corners: no line separates them."""
    X, blob = gaussians([[0, 0], [4, 4], [0, 4], [4, 0]], size, random_state=seed)
    return X, blob // 2


def rings(n_rings=4, size=60, seed=0):
    """Clusters around each other."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(n_rings), size)
    angle = rng.uniform(0, 2 * np.pi, len(labels))
    radius = 1 + labels + 0.3 * rng.standard_normal(len(labels))
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1), labels


def layer(width, *more):
    """A function that makes a network, so that its weights depend on the seed."""
    return lambda: nn.Sequential(nn.Linear(2, width), *more, nn.Tanh())


def quick(candidates, X, labels, **settings):
    return select(candidates, X, labels, **{"random_state": 0, "device": "cpu"} | settings)


def refused(backbone):
    """The sentence with which an estimate refuses a backbone for the data of these tests."""
    with pytest.raises(InputError) as refusal:
        pairwise_tvd(*xor(20), backbone=backbone, device="cpu")
    return str(refusal.value)


class Explodes(nn.Module):
    """Fits until it is trained."""

    def __init__(self, error):
        super().__init__()
        self.layer, self.error = nn.Linear(2, 2), error

    def forward(self, x):
        if self.training and len(x) > 2:
            raise self.error
        return self.layer(x)
