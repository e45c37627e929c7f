"""Sizes, networks and length of training: in full, and quickly."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Config:
    """What there is to do; ``points`` of each cloud are used."""

    sizes: tuple[int, ...]
    backbones: tuple[str, ...]
    epochs: int
    points: int


FULL = Config(
    sizes=(10, 50, 100, 150), backbones=("pointnet++", "single-layer"), epochs=25, points=512
)
QUICK = Config(sizes=(10,), backbones=("pointnet++", "single-layer"), epochs=1, points=64)
