"""Merging very many clusters: only pairs that are confused or have edges are looked at."""
