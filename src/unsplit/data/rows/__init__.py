"""Observations of every kind as the rows that networks are fed with."""
