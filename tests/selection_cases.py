"""Data and networks of the tests of selection."""

import numpy as np
import pytest
from torch import nn

from benchmarks.common import as_options
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


def two_donors(size=200, rare=40, gap=1.2, seed=0):
    """Two clusters, each mostly of another donor: one column tells clusters, one tells donors."""
    labels = np.repeat([0, 1], size)
    donor = np.where(np.arange(2 * size) % size < rare, 1 - labels, labels)
    x = np.random.default_rng(seed).standard_normal(2 * size) + gap * labels
    return np.column_stack([x, donor]), labels, donor


def ragged_donors(seed=1):
    """Five clusters and three donors: some do not meet, one meets with one observation."""
    sizes = np.array([[20, 12, 9, 15, 0], [8, 25, 0, 0, 11], [14, 1, 18, 0, 10]])
    rng = np.random.default_rng(seed)
    donor, labels = divmod(rng.permutation(np.repeat(np.arange(15), sizes.ravel())), 5)
    X = rng.standard_normal((len(labels), 2)) + np.column_stack([labels, 2 * donor])
    return X, labels, donor


class Column(nn.Module):
    """Sees one column of a table and nothing else."""

    def __init__(self, index):
        super().__init__()
        self.index = index

    def forward(self, x):
        return x[:, [self.index]]


def layer(width, *more):
    """A function that makes a network, so that its weights depend on the seed."""
    return lambda: nn.Sequential(nn.Linear(2, width), *more, nn.Tanh())


def quick(candidates, X, labels, **settings):
    return select(
        X, labels, candidates, **{"random_state": 0, "device": "cpu"} | as_options(**settings)
    )


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
        if self.training:
            raise self.error
        return self.layer(x)
