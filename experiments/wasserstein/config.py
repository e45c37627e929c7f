"""Families of distributions, numbers of clusters and observations: in full, and quickly."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Config:
    """What there is to do.

    ``families`` are looked at with ``known`` numbers of clusters of ``size`` observations each;
    the ``crowded`` ones also for what it costs to share a network among more and more
    ``clusters``.  Digits are cut into ``pieces`` by k-means.
    """

    seeds: tuple[int, ...]
    families: tuple[str, ...]
    known: tuple[int, ...]
    size: int
    crowded: tuple[str, ...]
    clusters: tuple[int, ...]
    pieces: tuple[int, ...]
    epochs: int
    plain_steps: int


FULL = Config(
    seeds=(0, 1),
    families=(
        "shifted Gaussians", "shifted cubes", "scaled Gaussians", "shells",
        "stretched Gaussians", "mixtures", "mixtures in noise",
    ),
    known=(2, 8, 30),
    size=200,
    crowded=("mixtures", "mixtures in noise", "stretched Gaussians"),
    clusters=(2, 4, 8, 16, 32),
    pieces=(20, 40),
    epochs=10,
    plain_steps=800,
)  # fmt: skip
QUICK = Config(
    seeds=(0,),
    families=("scaled Gaussians", "shells"),
    known=(2, 4),
    size=60,
    crowded=("mixtures",),
    clusters=(2, 4),
    pieces=(6,),
    epochs=3,
    plain_steps=40,
)
