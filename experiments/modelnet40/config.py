"""Sizes, networks and length of training: in full, and quickly."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Config:
    """What there is to do; ``points`` of each cloud are used."""

    sizes: tuple[int, ...]
    backbones: tuple[str, ...]
    epochs: int
    points: int


BETTER, SIMPLE = "pointnet++", "single-layer"

# The same layer, given points by their first coordinate instead of in the file's random order.
SORTED = "sorted single-layer"

BACKBONES = (BETTER, SIMPLE, SORTED)

FULL = Config(sizes=(10, 50, 100, 150), backbones=BACKBONES, epochs=16, points=512)
QUICK = Config(sizes=(10,), backbones=BACKBONES, epochs=1, points=64)
