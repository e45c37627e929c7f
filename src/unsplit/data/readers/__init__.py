"""Observations and labels from files and folders."""
