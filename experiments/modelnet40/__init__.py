"""Artificial over-clusterings of shapes."""
