"""Observations of every kind behind one small interface."""

from unsplit.data.base import Rows
from unsplit.data.kinds import observations

__all__ = ["Rows", "observations"]
