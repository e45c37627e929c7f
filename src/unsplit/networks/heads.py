"""Heads: the last layer of a network, which turns features into scores, a loss and margins.

A *margin* m_j(x) says how much more the head believes x to come from its own cluster than from
cluster j; its sign is the classifier of that pair.  Training and evaluation use only losses and
margins, so the same loop can train any other head that has both (benchmarks/naive_head.py).
"""

from torch import Tensor, nn

from unsplit.networks import losses


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
        Name of the loss in :data:`unsplit.networks.losses.LOSSES`.

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
        self.loss_function = losses.LOSSES[loss]
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)

    def loss(self, scores: Tensor, clusters: Tensor) -> Tensor:
        """Mean loss of observations drawn evenly from the clusters."""
        return self.loss_function(scores, clusters)

    def margins(self, scores: Tensor, clusters: Tensor) -> Tensor:
        """Score for the own cluster minus the score for every cluster, shape (..., n, k)."""
        return losses.margins(scores, clusters)
