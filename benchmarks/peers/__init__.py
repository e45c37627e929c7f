"""Merging over-clusterings: every method people use today on the same data."""
