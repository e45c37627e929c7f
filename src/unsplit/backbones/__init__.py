"""Networks that turn observations into features, one file for each kind of data."""

from unsplit.backbones.vectors import MLP, Standardize

__all__ = ["MLP", "Standardize"]
