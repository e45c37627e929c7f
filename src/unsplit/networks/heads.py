"""Heads and losses: from features to the scores of all clusters, and what training minimises."""

import torch
from torch import Tensor, nn
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


class ScoreHead(nn.Linear):
    """Computes k scores from h features: k·h parameters for all k(k−1)/2 pairs.

    Starts at zero, so an untrained network calls every pair a tie.

    Parameters
    ----------
    in_features : int
        Number of features, h.
    n_clusters : int
        Number of clusters, k.
    loss : {"pairwise", "softmax"}
        Name of the loss in :data:`unsplit.networks.LOSSES`.

    Examples
    --------
    >>> import torch
    >>> ScoreHead(8, 3)(torch.ones(5, 8)).shape
    torch.Size([5, 3])
    """

    def __init__(self, in_features: int, n_clusters: int, loss: str = "pairwise") -> None:
        super().__init__(in_features, n_clusters)
        self.n_clusters = n_clusters
        self.loss_name = loss
        self.loss_function = LOSSES[loss]
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)

    def loss(self, scores: Tensor, clusters: Tensor) -> Tensor:
        """Mean loss of observations drawn evenly from the clusters."""
        return self.loss_function(scores, clusters)

    def margins(self, scores: Tensor, clusters: Tensor) -> Tensor:
        """Score for the own cluster minus the score for every cluster, shape (..., n, k)."""
        return margins(scores, clusters)
