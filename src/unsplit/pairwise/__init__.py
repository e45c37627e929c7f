"""Distances between all pairs of clusters."""
