"""Networks that turn observations into features, one file for each kind of data."""

from unsplit.backbones.vectors import MLP, Blur, Standardize

__all__ = ["MLP", "Blur", "Standardize"]
