"""Score new observations with trained networks."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from unsplit._typing import Index
from unsplit.data.rows.base import Rows
from unsplit.devices import Generators, usual_settings
from unsplit.networks.network import Network


@dataclass(frozen=True, eq=False)
class Scorer:
    """Networks that score new observations of the same kind as those in ``like``.

    Output c of a network belongs to cluster ``clusters[c]`` and stands for a share of it, whose
    logarithm is ``log_shares[c]``.  Scores are divided by the ``temperature`` to calibrate them,
    as the held-out scores were.
    """

    networks: list[Network]
    clusters: Index
    log_shares: NDArray[np.float64]
    like: Rows
    temperature: float = 1.0

    @usual_settings()
    @torch.no_grad()
    def log_posterior(self, X: ArrayLike) -> NDArray[np.float64]:
        """Log posterior of each cluster, averaged over the networks, shape (n, k).

        All clusters have the same prior.  With batches, the density of a cluster is the mixture of
        its densities in the batches, weighted by size.  Columns are in the order of
        ``PairwiseTVD.cluster_ids``.
        """
        new = self.like.another(X)
        index = np.arange(len(new))
        total = np.zeros((len(new), int(self.clusters.max()) + 1))
        for network in self.networks:
            features = np.empty((len(new), network.head.in_features), np.float32)
            # A user's network may draw, which here too must not touch torch's own generator.
            with Generators(0).lent(new.device):
                network.features_of(new, index, features)
            scores = network.head(torch.from_numpy(features).to(new.device)).double()
            scores = scores / self.temperature
            total += self._of_clusters(scores).cpu().numpy()
        return total / len(self.networks)

    def _of_clusters(self, scores: Tensor) -> Tensor:
        """Turn scores of the outputs into log posteriors (n, k) of the clusters."""
        k = int(self.clusters.max()) + 1
        clusters = torch.from_numpy(self.clusters).to(scores.device)
        if len(clusters) == k:
            return torch.log_softmax(scores, dim=1)[:, clusters.argsort()]
        scores = scores + torch.from_numpy(self.log_shares).to(scores.device)
        joint = torch.stack([scores[:, clusters == c].logsumexp(dim=1) for c in range(k)], dim=1)
        return torch.log_softmax(joint, dim=1)
