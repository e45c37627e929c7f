"""Measurements behind the numbers in the documentation; each module prints a table."""
