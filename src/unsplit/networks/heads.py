"""Heads: the last layer of a network, which turns features into scores, a loss and margins.

The *margin* m_j(x) is the score of x for its own cluster minus its score for cluster j; its sign is
the decision of the classifier of that pair.  Training and evaluation only use losses and margins,
so the same loop works for both heads.
"""

from torch import Tensor, nn

from unsplit.networks import losses


class ScoreHead(nn.Linear):
    """Computes k scores from h features: k·h parameters for all k(k−1)/2 pairs.

    Weights start at zero, so all pairs are ties in an untrained network.
    """

    def __init__(self, in_features: int, n_clusters: int, loss: str = "pairwise") -> None:
        super().__init__(in_features, n_clusters)
        self.n_clusters = n_clusters
        self.loss_name = loss
        self.loss_function = losses.LOSSES[loss]
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)

    def loss(self, scores: Tensor, clusters: Tensor) -> Tensor:
        """Mean loss of observations that were drawn equally often from all clusters."""
        return self.loss_function(scores, clusters)

    def margins(self, scores: Tensor, clusters: Tensor) -> Tensor:
        """Score for the own cluster minus the score for every cluster, shape (..., n, k)."""
        return losses.margins(scores, clusters)


class PairMatrixHead(nn.Linear):
    """The naive head with one logit per ordered pair: k²·h parameters.

    A reference for comparing :class:`ScoreHead` with at small k, not for other uses.
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
        """Mean loss of observations that were drawn equally often from all clusters."""
        return losses.pair_matrix_loss(logits, clusters)

    def margins(self, logits: Tensor, clusters: Tensor) -> Tensor:
        """Mean margin of the two outputs of each pair, shape (..., n, k)."""
        row, column = losses.own_row_and_column(logits, clusters)
        return (column - row) / 2
