"""Draws, sizes and ways to train: in full, and quickly."""

from dataclasses import dataclass

from experiments.imagenet_realistic.config import Plan


@dataclass(frozen=True)
class Config:
    """What there is to do.

    Parameters
    ----------
    draws : int
        Draws of ``share`` of all images.
    share : float
        Share of the images of each category in a draw.
    clusters_each : int
        Initial clusters for each category, on average.
    sizes : tuple of int
        Images of a cluster.
    regime : tuple of int
        Sizes that are nearest to the paper's, for what is not tried at all sizes.
    sides : tuple of int
        Pixels a side; the first for DeepCluster.
    side : int
        Pixels a side for halves of the categories and the paper's method.
    merges : int
        So many merges are made by training anew.
    epochs : int
        The most; usually A ends training long before.
    plan : Plan
        How DeepCluster is trained.
    """

    draws: int
    share: float
    clusters_each: int
    sizes: tuple[int, ...]
    regime: tuple[int, ...]
    sides: tuple[int, ...]
    side: int
    merges: int
    epochs: int
    plan: Plan


FULL = Config(
    draws=6,
    share=0.7,
    clusters_each=2,
    sizes=(50, 75, 100, 130),
    regime=(75, 100),
    sides=(64, 96, 112),
    side=96,
    merges=12,
    epochs=200,
    plan=Plan(clusters=280, rounds=40, epochs=3, components=64),
)
QUICK = Config(
    draws=2,
    share=0.9,
    clusters_each=2,
    sizes=(8,),
    regime=(8,),
    sides=(8,),
    side=8,
    merges=3,
    epochs=3,
    plan=Plan(clusters=8, rounds=1, epochs=1, components=8),
)
