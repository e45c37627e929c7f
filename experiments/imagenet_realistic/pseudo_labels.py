"""What DeepCluster does between features and labels: whitening, k-means, equal shares."""

import torch
from torch import Tensor

ITERATIONS = 20

# Points compared with all centres at once.
CHUNK = 2**14

# How far a cluster's two halves are pushed apart, as a share of its centre.
PUSH = 1 / 1024


def whitened(features: Tensor, components: int) -> Tensor:
    """The first principal components, each of variance 1; then every row of length 1.

    Parameters
    ----------
    features : Tensor of shape (n, d)
    components : int
        At most d are there.

    Returns
    -------
    Tensor of shape (n, min(components, d))

    Examples
    --------
    >>> x = torch.tensor([[0.0, 0.0], [4.0, 0.0], [0.0, 2.0], [4.0, 2.0]])
    >>> whitened(x, 2).abs()
    tensor([[0.7071, 0.7071],
            [0.7071, 0.7071],
            [0.7071, 0.7071],
            [0.7071, 0.7071]])
    """
    centred = features.double() - features.double().mean(dim=0)
    values, vectors = torch.linalg.eigh(centred.T @ centred / len(centred))
    # Largest first; what does not vary stays at zero instead of blowing up.
    values, vectors = values.flip(0)[:components], vectors.flip(1)[:, :components]
    scale = values.clamp(min=1e-10 * float(values[0]) + 1e-300).rsqrt()
    points = (centred @ vectors * scale).float()
    return points / points.norm(dim=1, keepdim=True).clamp(min=1e-12)


def k_means(points: Tensor, k: int, iterations: int = ITERATIONS) -> Tensor:
    """Cluster of every point, from 0.  A cluster that loses all its points splits another.

    Parameters
    ----------
    points : Tensor of shape (n, d)
    k : int
        At most n.

    Returns
    -------
    integer Tensor of shape (n,)

    Examples
    --------
    >>> labels = k_means(torch.tensor([[0.0], [0.1], [5.0]]), 2)
    >>> bool(labels[0] == labels[1] != labels[2])
    True
    """
    centres = points[torch.randperm(len(points), device=points.device)[:k]]
    for _ in range(iterations):
        centres = moved(points, nearest(points, centres), centres)
    return nearest(points, centres)


def nearest(points: Tensor, centres: Tensor) -> Tensor:
    """Index of the nearest centre of every point, shape (n,)."""
    half = centres.square().sum(dim=1) / 2
    return torch.cat([(some @ centres.T - half).argmax(dim=1) for some in points.split(CHUNK)])


def moved(points: Tensor, labels: Tensor, centres: Tensor) -> Tensor:
    """Every centre at the mean of its points; one without any beside that of a large cluster."""
    k = len(centres)
    sums = torch.zeros_like(centres).index_add_(0, labels, points)
    counts = labels.bincount(minlength=k)
    means = sums / counts.clamp(min=1)[:, None]
    empty = (counts == 0).nonzero().squeeze(1)
    if len(empty):
        donors = counts.float().multinomial(len(empty), replacement=True)
        means[empty] = means[donors] * (1 + PUSH)
        means[donors] *= 1 - PUSH
    return means


def balanced(labels: Tensor, n_draws: int) -> Tensor:
    """Indices of points, drawn so that every cluster comes up equally often.

    Examples
    --------
    >>> labels = torch.tensor([0] * 98 + [1, 1])
    >>> share = (balanced(labels, 10_000) >= 98).float().mean()
    >>> bool(0.45 < share < 0.55)
    True
    """
    return (1 / labels.bincount()[labels].float()).multinomial(n_draws, replacement=True)
