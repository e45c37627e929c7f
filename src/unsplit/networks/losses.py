"""Losses over the scores of all clusters at once.

Every loss takes scores of shape (..., n, k) and the cluster index of each observation, shape
(..., n).  It returns one value per leading index, so the networks of several folds can share one
call.  With ``sizes`` the result is the balanced loss of exactly these observations.  Without, it
is the mean over observations, which estimates the balanced loss without bias if observations were
drawn evenly from the clusters.
"""

import torch
from torch import Tensor
from torch.nn import functional as F


def margins(scores: Tensor, clusters: Tensor) -> Tensor:
    """Score of the own cluster minus the score of every cluster.

    Half precision is widened first, because the difference of two large bfloat16 numbers keeps
    almost no digits.

    Parameters
    ----------
    scores : Tensor of shape (..., n, k)
    clusters : integer Tensor of shape (..., n)

    Returns
    -------
    Tensor of shape (..., n, k)
        Zero in the column of the own cluster.

    Examples
    --------
    >>> margins(torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([0]))
    tensor([[0., 2., 1.]])
    """
    scores = _at_least_float32(scores)
    return scores.gather(-1, clusters.unsqueeze(-1)) - scores


def pairwise_logistic_loss(scores: Tensor, clusters: Tensor, sizes: Tensor | None = None) -> Tensor:
    r"""The paper's balanced pairwise logistic loss, computed from k scores.

    .. math:: L = \frac{1}{k(k-1)} \sum_i \frac{1}{|S_i|}
              \sum_{x \in S_i} \sum_{j \ne i} \log(1 + e^{z_j(x) - z_i(x)})

    The row term and the column term of the paper's formula are the same number with the same
    weight (docs/method.md), so k scores do the work of k² outputs.

    Parameters
    ----------
    scores : Tensor of shape (..., n, k)
    clusters : integer Tensor of shape (..., n)
    sizes : Tensor of shape (k,), optional
        Number of observations of each cluster.

    Returns
    -------
    Tensor of shape (...)

    Examples
    --------
    >>> scores = torch.tensor([[2.0, 0.0], [0.0, 2.0]])
    >>> pairwise_logistic_loss(scores, torch.tensor([0, 1])).item()  # log(1 + e**-2)
    0.126928...
    """
    k = scores.shape[-1]
    per_pair = -F.logsigmoid(margins(scores, clusters))
    return _balanced(_sum_of_others(per_pair, clusters) / (k - 1), clusters, sizes, k)


def softmax_loss(scores: Tensor, clusters: Tensor, sizes: Tensor | None = None) -> Tensor:
    """Class-balanced softmax cross-entropy, which has the same minimiser as the pairwise loss.

    Parameters
    ----------
    scores, clusters, sizes
        As for :func:`pairwise_logistic_loss`.

    Returns
    -------
    Tensor of shape (...)

    Examples
    --------
    >>> scores = torch.zeros(2, 4)
    >>> softmax_loss(scores, torch.tensor([0, 3])).item()  # log(4)
    1.386294...
    """
    log_softmax = F.log_softmax(_at_least_float32(scores), dim=-1)
    per_observation = -log_softmax.gather(-1, clusters.unsqueeze(-1)).squeeze(-1)
    return _balanced(per_observation, clusters, sizes, scores.shape[-1])


def _at_least_float32(scores: Tensor) -> Tensor:
    return scores.float() if scores.dtype in (torch.bfloat16, torch.float16) else scores


def _sum_of_others(per_pair: Tensor, clusters: Tensor) -> Tensor:
    return per_pair.scatter(-1, clusters.unsqueeze(-1), 0.0).sum(-1)


def _balanced(per_observation: Tensor, clusters: Tensor, sizes: Tensor | None, k: int) -> Tensor:
    if sizes is None:
        return per_observation.mean(-1)
    return (per_observation / sizes.to(per_observation)[clusters]).sum(-1) / k


LOSSES = {"pairwise": pairwise_logistic_loss, "softmax": softmax_loss}
"""Losses for k scores, by name."""
