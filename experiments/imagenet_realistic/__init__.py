"""Realistic over-clusterings of photographs."""
