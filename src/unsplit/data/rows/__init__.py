"""Observations of every kind as rows that are fed to networks."""
