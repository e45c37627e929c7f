"""Artificial over-clusterings of photographs."""
