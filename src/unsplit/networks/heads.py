"""Heads: features to cluster scores, and from scores to a loss and to margins.

A *margin* m_j(x) says how much more the head believes x to come from its own cluster than from
cluster j; its sign is the classifier of that pair.  Training and evaluation speak only of losses
and margins, so one loop serves both heads.
"""

from torch import Tensor, nn

from unsplit.networks import losses


class ScoreHead(nn.Linear):
    """k scores from h features: k·h parameters for all k(k−1)/2 pairs.

    Starts at zero, so an untrained network calls every pair a tie.
    """

    def __init__(self, in_features: int, n_clusters: int, loss: str = "pairwise") -> None:
        super().__init__(in_features, n_clusters)
        self.n_clusters = n_clusters
        self.loss_name = loss
        self.loss_function = losses.LOSSES[loss]
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)

    def loss(self, scores: Tensor, clusters: Tensor) -> Tensor:
        """Mean loss of evenly drawn observations."""
        return self.loss_function(scores, clusters)

    def margins(self, scores: Tensor, clusters: Tensor) -> Tensor:
        """Own score minus every score, shape (..., n, k)."""
        return losses.margins(scores, clusters)


class PairMatrixHead(nn.Linear):
    """The naive head: one logit per ordered pair, k²·h parameters.

    The reference that :class:`ScoreHead` is compared with at small k; not for use.
    """

    def __init__(self, in_features: int, n_clusters: int) -> None:
        super().__init__(in_features, n_clusters * n_clusters)
        self.n_clusters = n_clusters
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, features: Tensor) -> Tensor:
        """Logits of shape (..., n, k, k)."""
        return super().forward(features).unflatten(-1, (self.n_clusters, self.n_clusters))

    def loss(self, logits: Tensor, clusters: Tensor) -> Tensor:
        """Mean loss of evenly drawn observations."""
        return losses.pair_matrix_loss(logits, clusters)

    def margins(self, logits: Tensor, clusters: Tensor) -> Tensor:
        """Mean of what the pair's two outputs say, shape (..., n, k)."""
        row, column = losses.own_row_and_column(logits, clusters)
        return (column - row) / 2
