"""What there is without maps of many kinds: one network with k outputs, and means."""

from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Array = NDArray[np.float64]
Index = NDArray[np.int64]

FOLDS = 5
WIDTH = 32
LAYERS = 3
PER_CLUSTER = 16
LEARNING_RATE = 0.03


class KOutputs(nn.Module):
    """One network for each fold: orthonormal layers, GroupSort between them, and k outputs.

    The features φ(x) are 1-Lipschitz, and so is (w_i − w_j)·φ / |w_i − w_j| for any two outputs.
    """

    def __init__(self, n_features: int, k: int) -> None:
        super().__init__()
        sizes = [n_features] + [WIDTH] * LAYERS
        self.weights = nn.ParameterList([torch.randn(FOLDS, a, b) for a, b in pairwise(sizes)])
        self.biases = nn.ParameterList([0.02 * torch.randn(FOLDS, 1, WIDTH) for _ in range(LAYERS)])
        self.outputs = nn.Parameter(torch.randn(FOLDS, k, WIDTH) / WIDTH**0.5)

    def forward(self, x: Tensor) -> Tensor:
        """Scores (folds, b, k) of x (folds, b, d)."""
        for weight, bias in zip(self.weights, self.biases, strict=True):
            pairs = (x @ _orthonormal(weight) + bias).unflatten(-1, (-1, 2))
            x = torch.cat([pairs.amax(dim=-1), pairs.amin(dim=-1)], dim=-1)
        return x @ self.outputs.mT

    def bounds(self, x: Tensor, members: Tensor) -> Tensor:
        """E_i f_ij − E_j f_ij for all pairs (folds, k, k); members (folds, k, b) have weights."""
        scores = members @ self(x)
        own = torch.diagonal(scores, dim1=1, dim2=2)
        gained = own[:, :, None] + own[:, None] - scores - scores.mT
        # Not by products, which lose digits between close points.
        exactly = "donot_use_mm_for_euclid_dist"
        apart = torch.cdist(self.outputs, self.outputs, compute_mode=exactly)
        return gained / (apart + torch.eye(len(apart[0])))


def _orthonormal(weight: Tensor) -> Tensor:
    if weight.shape[-2] >= weight.shape[-1]:
        return torch.linalg.qr(weight).Q
    return torch.linalg.qr(weight.mT).Q.mT


def one_network(X: Array, clusters: Index, steps: int, seed: int) -> Array:
    """Held-out bounds (k, k) by one network with k outputs, for clusters of one size.

    The size must be a multiple of the number of folds.
    """
    k, rng = int(clusters.max()) + 1, np.random.default_rng(seed)
    fold = _folds(clusters, rng)
    unit = np.sqrt(np.square(X - X.mean(axis=0)).sum(axis=1).mean())
    x = torch.from_numpy(((X - X.mean(axis=0)) / unit).astype(np.float32))
    train, test = (
        torch.from_numpy(np.array([[_rows(clusters, c, mask) for c in range(k)] for mask in masks]))
        for masks in ([fold != f for f in range(FOLDS)], [fold == f for f in range(FOLDS)])
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = KOutputs(X.shape[1], k)
    optimizer = torch.optim.Adam(network.parameters(), LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        drawn = rng.integers(train.shape[2], size=(FOLDS, k, PER_CLUSTER))
        rows = torch.take_along_dim(train, torch.from_numpy(drawn), dim=2)
        optimizer.zero_grad()
        (-network.bounds(x[rows.flatten(1)], _members(k, PER_CLUSTER)).mean()).backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        found = network.bounds(x[test.flatten(1)], _members(k, test.shape[2])).mean(dim=0)
    return np.maximum(unit * found.numpy().astype(float), 0.0)


def means_alone(X: Array, clusters: Index, seed: int) -> Array:
    """Held-out bounds (k, k) by the direction between the means."""
    k, fold = int(clusters.max()) + 1, _folds(clusters, np.random.default_rng(seed))
    found = np.zeros((k, k))
    for f in range(FOLDS):
        train, test = (
            np.array([X[_rows(clusters, c, mask)].mean(axis=0) for c in range(k)])
            for mask in (fold != f, fold == f)
        )
        toward, moved = train[:, None] - train, test[:, None] - test
        length = np.linalg.norm(toward, axis=2) + np.eye(k)
        found += (toward * moved).sum(axis=2) / length / FOLDS
    return np.maximum(found, 0.0)


def _folds(clusters: Index, rng: np.random.Generator) -> Index:
    """Number of each row's fold; the members of a cluster are dealt to them in turn."""
    order = np.lexsort((rng.random(len(clusters)), clusters))
    sizes = np.bincount(clusters)
    fold = np.empty(len(clusters), np.int64)
    fold[order] = (np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)) % FOLDS
    return fold


def _rows(clusters: Index, cluster: int, mask: NDArray[np.bool_]) -> Index:
    return np.flatnonzero((clusters == cluster) & mask)


def _members(k: int, n: int) -> Tensor:
    """Weights (k, k · n) that take the mean over each cluster's n rows."""
    return torch.eye(k).repeat_interleave(n, dim=1) / n
