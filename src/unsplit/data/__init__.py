"""Observations of every kind behind one small interface, and files: read, written, replaced."""
