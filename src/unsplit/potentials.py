"""1-Lipschitz functions for all pairs of clusters, trained together.

:mod:`unsplit.wasserstein` says why it is done like this.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from torch import Tensor
from tqdm.auto import tqdm

from unsplit.lipschitz import FoldingMaps
from unsplit.sampling import Fold, Index, epoch_batches
from unsplit.training import mean_of_others, own

Array = NDArray[np.float64]

BATCH_SIZE = 512
ROWS_AT_ONCE = 4096
ELEMENTS_AT_ONCE = 2**22

# Maps whose distances differ by this much, with E|x|² = 1, share a pair in the beginning.
TEMPERATURE = 0.02

# A difference shorter than this has no direction.
NO_LENGTH = 1e-6


@dataclass(frozen=True, eq=False)
class ClassMeans:
    """Means of clusters under M models of B maps and, as the first map, the identity.

    Parameters
    ----------
    raw : ndarray of shape (M, k, d)
        Means of the observations themselves.
    folded : ndarray of shape (M, 1 + B, k, h)
        Means of what :class:`FoldingMaps` gives; zeros for the identity.
    counts : ndarray of shape (M, k)
        Observations they are means of; where there are none, the means are zero.
    signs : ndarray of shape (h,)
    """

    raw: Array
    folded: Array
    counts: Index
    signs: Array

    @classmethod
    @torch.no_grad()
    def of(
        cls, maps: FoldingMaps, x: Tensor, clusters: Tensor, used: Tensor, k: int
    ) -> "ClassMeans":
        """Means over the rows of x (n, d) that each model uses; ``used`` has shape (M, n)."""
        (n_models, n), h = used.shape, len(maps.signs)
        n_maps, d = maps.biases[0].shape[1], x.shape[1]
        raw = torch.zeros(n_models, k, d, dtype=torch.double)
        folded = torch.zeros(n_models, n_maps, k, h, dtype=torch.double)
        for at in torch.arange(n, device=x.device).split(ROWS_AT_ONCE):
            part = x[at].expand(n_models, -1, -1), maps(x[at][None])
            weight = used[:, at].to(x.dtype)
            for total, values in zip((raw, folded), part, strict=True):
                weighted = values * weight.reshape(n_models, *[1] * (values.ndim - 3), -1, 1)
                sums = torch.zeros(total.shape, device=x.device)
                total += sums.index_add_(-2, clusters[at], weighted).cpu()
        counts = torch.stack([clusters[u].bincount(minlength=k) for u in used]).cpu()
        size = counts.clamp_min(1)[..., None]
        identity = torch.zeros(n_models, 1, k, h, dtype=torch.double)
        folded = torch.cat([identity, folded / size[:, None]], dim=1)
        arrays = (t.numpy() for t in (raw / size, folded, counts, maps.signs.double().cpu()))
        return cls(*arrays)

    @property
    def n_clusters(self) -> int:
        """Number of clusters, k."""
        return self.raw.shape[1]

    def products(self, other: "ClassMeans", rows: slice) -> Array:
        """(m_i − m_j)·(m'_i − m'_j) under every map, shape (M, 1 + B, rows, k).

        Differences are of these means and of those of ``other``.
        """
        signed = self.signs * self.folded
        return _products(self.raw, other.raw, rows)[:, None] + _products(signed, other.folded, rows)

    def lengths(self, rows: slice) -> Array:
        """|m_i − m_j| under every map, shape (M, 1 + B, rows, k)."""
        return np.sqrt(np.maximum(self.products(self, rows), 0.0))

    def parts(self) -> Iterator[slice]:
        """Slices of the clusters that are small enough to look at all their pairs."""
        n_models, n_maps, k, _ = self.folded.shape
        step = max(1, ELEMENTS_AT_ONCE // (n_models * n_maps * k))
        return (slice(start, min(start + step, k)) for start in range(0, k, step))


def _products(a: Array, b: Array, rows: slice) -> Array:
    """(a_i − a_j)·(b_i − b_j) for i in ``rows`` and all j, shape (..., rows, k)."""
    same = np.einsum("...ih,...ih->...i", a, b)
    crossed = a[..., rows, :] @ b.swapaxes(-1, -2) + b[..., rows, :] @ a.swapaxes(-1, -2)
    return same[..., rows, None] + same[..., None, :] - crossed


def train(
    maps: FoldingMaps,
    x: Tensor,
    clusters: Index,
    folds: Sequence[Fold],
    epochs: int,
    rng: np.random.Generator,
    progress: bool = False,
) -> tuple[ClassMeans, Array]:
    """Train one model per fold in place to drive class means apart.

    Parameters
    ----------
    maps : FoldingMaps
    x : Tensor of shape (n, d)
        With mean zero and E|x|² = 1.
    clusters : ndarray of shape (n,)
    folds : sequence of Fold
    epochs : int
    rng : numpy.random.Generator
        Draws the batches.
    progress : bool

    Returns
    -------
    ClassMeans
        Of the training rows at the end.
    ndarray of shape (epochs + 1,)
        Mean over folds and pairs of the bound on training rows, before each epoch and at the end.
    """
    k, y = int(clusters.max()) + 1, torch.from_numpy(clusters).to(x.device)
    used = row_masks([fold.train for fold in folds], x)
    optimizer, history = maps.optimizer(), []
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for epoch in tqdm(range(epochs), desc="training", unit=" epochs", disable=not progress):
        means = ClassMeans.of(maps, x, y, used, k)
        directions, bound = pushes(means, TEMPERATURE * (1 - epoch / epochs))
        history.append(bound)
        push = torch.from_numpy(directions).to(x)
        for rows in epoch_batches([f.train for f in folds], clusters, BATCH_SIZE, rng):
            _step(maps, optimizer, x[rows.to(x.device)], _of_rows(push, y[rows.to(x.device)]))
        schedule.step()
    maps.straighten()  # to the last digit
    means = ClassMeans.of(maps, x, y, used, k)
    return means, np.array([*history, pushes(means, TEMPERATURE)[1]])


def _step(maps: FoldingMaps, optimizer: torch.optim.Adam, x: Tensor, push: Tensor) -> None:
    optimizer.zero_grad()
    (-(maps(x) * push).sum() / x.shape[1]).backward()
    optimizer.step()
    maps.straighten()


def _of_rows(push: Tensor, clusters: Tensor) -> Tensor:
    """Each row's push (M, B, b, h) from those of clusters (M, B, k, h)."""
    models = torch.arange(len(push), device=push.device)[:, None]
    return push.transpose(1, 2)[models, clusters].transpose(1, 2)


def pushes(means: ClassMeans, temperature: float) -> tuple[Array, float]:
    """Σ_j u_ij for every cluster, each pair counting for its longest map, and their mean length.

    The shape is (M, B, k, h): the identity is not trained.  "Longest" is soft: maps that come
    within ``temperature`` of it have a share of the pair, or those that started badly would never
    get any.

    Examples
    --------
    >>> raw = np.zeros((1, 2, 1))
    >>> folded = np.array([[np.zeros((2, 2)), [[3.0, 1.0], [0.0, 1.0]]]])
    >>> means = ClassMeans(raw, folded, np.ones((1, 2), np.int64), np.array([1.0, -1.0]))
    >>> pushes(means, 0.1)
    (array([[[[ 1., -0.],
             [-1., -0.]]]]), 3.0)
    """
    folded = means.folded[:, 1:]
    k, found, total = folded.shape[2], np.empty_like(folded), 0.0
    for rows in means.parts():
        length = means.lengths(rows)[:, 1:]
        share = softmax(length / temperature, axis=1) / np.maximum(length, NO_LENGTH)
        i = np.arange(k)[rows]
        share[:, :, i - rows.start, i] = 0.0
        found[:, :, rows] = folded[:, :, rows] * share.sum(-1, keepdims=True) - share @ folded
        total += length.max(axis=1).sum()
    return means.signs * found, float(total / (len(folded) * k * (k - 1)))


def choose_maps(
    maps: FoldingMaps, x: Tensor, clusters: Index, folds: Sequence[Fold], means: ClassMeans
) -> Index:
    """Which map to use for each pair in each fold, shape (K, k, k); 0 is the identity.

    The longest on training rows is taken, after the mean excess of trained maps is taken off.
    """
    k, y = means.n_clusters, torch.from_numpy(clusters).to(x.device)
    watched = ClassMeans.of(maps, x, y, row_masks([f.watch for f in folds], x), k)
    seen = watched.counts > 0
    best, gain = np.empty((len(folds), k, k), np.int64), np.empty((len(folds), k, k))
    excess = np.zeros(len(folds))
    for rows in means.parts():
        length = means.lengths(rows)
        held = means.products(watched, rows) / np.maximum(length, NO_LENGTH)
        chosen = 1 + length[:, 1:].argmax(axis=1, keepdims=True)
        trained, tried = (
            np.take_along_axis(part, chosen, 1)[:, 0] - part[:, 0] for part in (length, held)
        )
        excess += ((trained - tried) * (seen[:, rows, None] & seen[:, None])).sum(axis=(1, 2))
        best[:, rows], gain[:, rows] = chosen[:, 0], trained
    n_seen = seen.sum(axis=1)
    # No pair, no excess: NaN, and the identity is taken.
    excess /= np.where(n_seen > 1, n_seen * (n_seen - 1), np.nan)
    judge = mean_of_others if all(fold.watches_test for fold in folds) else own
    chosen = np.triu(np.where(gain > judge(excess)[:, None, None], best, 0), 1)
    return chosen + chosen.swapaxes(1, 2)  # ties must not be broken differently for [j, i]


def row_masks(rows: Sequence[Index], x: Tensor) -> Tensor:
    """For each of M sets of row indices which rows of x are in it, shape (M, n)."""
    masks = torch.zeros(len(rows), len(x), dtype=torch.bool)
    for mask, index in zip(masks, rows, strict=True):
        mask[torch.from_numpy(index)] = True
    return masks.to(x.device)
