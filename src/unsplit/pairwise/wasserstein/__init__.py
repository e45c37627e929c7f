"""Wasserstein distances between all pairs of clusters."""
