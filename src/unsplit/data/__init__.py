"""Observations of every kind behind one small interface."""

from unsplit.data.rows.base import Rows
from unsplit.data.rows.kinds import observations

__all__ = ["Rows", "observations"]
