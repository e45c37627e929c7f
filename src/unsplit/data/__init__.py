"""Observations of every kind behind one small interface."""
