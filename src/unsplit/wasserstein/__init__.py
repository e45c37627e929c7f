"""Wasserstein distances between all pairs of clusters."""

from unsplit.wasserstein.front import PairwiseWasserstein, pairwise_wasserstein

__all__ = ["PairwiseWasserstein", "pairwise_wasserstein"]
