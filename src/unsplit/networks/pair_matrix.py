"""The naive head with one output per ordered pair of clusters, and its loss.

:class:`unsplit.networks.network.ScoreHead` gets the same loss from k outputs.  This head has k²
outputs, and is there to be compared with it at small k.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from unsplit.networks.network import ScoreHead


class PairMatrixHead(ScoreHead):
    """One logit per ordered pair of clusters: k²·h parameters.

    Parameters
    ----------
    in_features, n_clusters : int
        As for :class:`unsplit.networks.network.ScoreHead`.

    Examples
    --------
    >>> PairMatrixHead(8, 3)(torch.ones(5, 8)).shape
    torch.Size([5, 3, 3])
    """

    def __init__(self, in_features: int, n_clusters: int) -> None:
        super().__init__(in_features, n_clusters * n_clusters)
        self.n_clusters = n_clusters
        self.loss_function = pair_matrix_loss

    def forward(self, features: Tensor) -> Tensor:
        """Logits of shape (..., n, k, k)."""
        return super().forward(features).unflatten(-1, (self.n_clusters, self.n_clusters))

    def margins(self, logits: Tensor, clusters: Tensor) -> Tensor:
        """Mean of the two outputs of each pair, shape (..., n, k)."""
        row, column = own_row_and_column(logits, clusters)
        return (column - row) / 2


def pair_matrix_loss(logits: Tensor, clusters: Tensor, sizes: Tensor | None = None) -> Tensor:
    """The paper's total loss for one output per ordered pair.

    An observation of cluster i counts with label 0 in row i and with label 1 in column i; all
    other outputs are masked.

    Parameters
    ----------
    logits : Tensor of shape (..., n, k, k)
    clusters : integer Tensor of shape (..., n)
    sizes : Tensor of shape (k,), optional
        Number of observations of each cluster, if all clusters are to have the same weight.

    Returns
    -------
    Tensor of shape (...)

    Examples
    --------
    >>> pair_matrix_loss(torch.zeros(2, 3, 3), torch.tensor([0, 2])).item()  # log(2)
    0.693147...
    """
    k = logits.shape[-1]
    row, column = own_row_and_column(logits, clusters)
    per_pair = -(F.logsigmoid(-row) + F.logsigmoid(column)) / 2
    others = per_pair.scatter(-1, clusters.unsqueeze(-1), 0.0).sum(-1) / (k - 1)
    if sizes is None:
        return others.mean(-1)
    return (others / sizes.to(others)[clusters]).sum(-1) / k


def own_row_and_column(logits: Tensor, clusters: Tensor) -> tuple[Tensor, Tensor]:
    """Row i and column i of each observation's (k, k) outputs, where i is its own cluster.

    Examples
    --------
    >>> own_row_and_column(torch.arange(4.0).reshape(1, 2, 2), torch.tensor([0]))
    (tensor([[0., 1.]]), tensor([[0., 2.]]))
    """
    if logits.dtype in (torch.bfloat16, torch.float16):
        logits = logits.float()
    own = clusters[..., None, None]
    row = logits.take_along_dim(own, dim=-2).squeeze(-2)
    column = logits.take_along_dim(own, dim=-1).squeeze(-1)
    return row, column
