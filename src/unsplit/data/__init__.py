"""Observations of every kind behind one small interface."""

from unsplit.data.arrays import VectorRows, vector_rows

__all__ = ["VectorRows", "vector_rows"]
