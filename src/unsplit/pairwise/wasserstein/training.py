"""Train many maps at once to move the means of all pairs of clusters apart."""

from collections.abc import Sequence

import numpy as np
import torch
from scipy.special import softmax
from torch import Tensor
from tqdm.auto import tqdm

from unsplit._typing import Index
from unsplit.networks.training.group import Fold
from unsplit.networks.training.loop import epoch_minibatches
from unsplit.pairwise.wasserstein.cluster_means import NO_LENGTH, Array, ClusterMeans, row_masks
from unsplit.pairwise.wasserstein.maps import LipschitzMaps

BATCH_SIZE = 128

# At the start of training, maps whose distances differ by this much (E|x|² = 1) share a pair.
TEMPERATURE = 0.02


def train(
    maps: LipschitzMaps,
    x: Tensor,
    clusters: Index,
    folds: Sequence[Fold],
    epochs: int,
    rng: np.random.Generator,
    progress: bool = False,
) -> tuple[ClusterMeans, Array]:
    """Train one model per fold in place to move the means of clusters apart.

    Parameters
    ----------
    maps : LipschitzMaps
    x : Tensor of shape (n, d)
        With mean zero and E|x|² = 1.
    clusters : ndarray of shape (n,)
    folds : sequence of Fold
    epochs : int
    rng : numpy.random.Generator
        Draws the batches.
    progress : bool
        Show a progress bar.

    Returns
    -------
    ClusterMeans
        Of the training rows at the end.
    ndarray of shape (epochs + 1,)
        Mean over folds and pairs of the bound that the trained maps give on training rows, before
        each epoch and at the end.
    """
    k, y = int(clusters.max()) + 1, torch.from_numpy(clusters).to(x.device)
    used = row_masks([fold.train for fold in folds], x)
    optimizer, history = maps.optimizer(), []
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for epoch in tqdm(range(epochs), desc="training", unit=" epochs", disable=not progress):
        means = ClusterMeans.of(maps, x, y, used, k)
        directions, attained = push_directions(means, TEMPERATURE * (1 - epoch / epochs))
        history.append(attained)
        pushes = maps.split(torch.from_numpy(directions).float().to(x.device))
        batches = epoch_minibatches([f.train for f in folds], clusters, BATCH_SIZE, rng)
        for rows in batches.to(x.device):
            _step(maps, optimizer, x[rows], [_of_rows(push, y[rows]) for push in pushes])
        schedule.step()
    maps.make_orthonormal()  # to the last digit
    means = ClusterMeans.of(maps, x, y, used, k)
    return means, np.array([*history, push_directions(means, TEMPERATURE)[1]])


def push_directions(means: ClusterMeans, temperature: float) -> tuple[Array, float]:
    """Σ_j u_ij for every cluster i, and the mean bound over all pairs.

    u_ij is the unit vector from the mean of j to that of i under the map that moves them furthest
    apart, so each pair trains one map of every kind; kinds are trained independently.  The choice
    is soft: maps that come within ``temperature`` of the best get a share of the pair, because
    otherwise maps that started badly would never be trained.

    The directions have shape (M, B, k, h); the identity is not trained.

    Examples
    --------
    >>> raw, mapped = np.zeros((1, 2, 1)), np.zeros((1, 2, 2, 2))
    >>> mapped[0, 1] = [[3, 1], [0, 1]]
    >>> signs, keeps = np.array([[0.0, 0.0], [1.0, -1.0]]), np.ones(2)
    >>> counts, kind = np.ones((1, 2), int), np.array([0, 1])
    >>> push_directions(ClusterMeans(raw, mapped, counts, signs, keeps, kind), 0.1)
    (array([[[[ 1., -0.],
             [-1., -0.]]]]), 3.0)
    """
    k, found, total = means.n_clusters, np.empty_like(means.mapped), 0.0
    for rows in means.parts():
        length = means.lengths(rows)
        total += length[:, 1:].max(axis=1).sum()
        for kind in means.kinds():
            share = softmax(length[:, kind] / temperature, axis=1)
            share /= np.maximum(length[:, kind], NO_LENGTH)
            mapped = means.mapped[:, kind]
            kept = mapped[:, :, rows] * share.sum(-1, keepdims=True)
            found[:, kind, rows] = kept - share @ mapped
    push = means.signs[1:, None] * found[:, 1:]
    return push, float(total / (len(push) * k * (k - 1)))


def _step(
    maps: LipschitzMaps, optimizer: torch.optim.Adam, x: Tensor, pushes: Sequence[Tensor]
) -> None:
    """Move the outputs of the maps for x along the pushes, one tensor for each kind of map."""
    optimizer.zero_grad()
    pushed = [(g * p).sum() for g, p in zip(maps.by_kind(x), pushes, strict=True)]
    (-torch.stack(pushed).sum() / x.shape[1]).backward()
    optimizer.step()
    maps.make_orthonormal()


def _of_rows(push: Tensor, clusters: Tensor) -> Tensor:
    """The push of each row (M, B, b, h), from the pushes of the clusters (M, B, k, h)."""
    models = torch.arange(len(push), device=push.device)[:, None]
    return push.transpose(1, 2)[models, clusters].transpose(1, 2)
