"""Wasserstein distances between all pairs of clusters."""

from unsplit.pairwise.wasserstein.api import PairwiseWasserstein, pairwise_wasserstein

__all__ = ["PairwiseWasserstein", "pairwise_wasserstein"]
