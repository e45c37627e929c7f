"""Data, over-clusterings and settings to try: in full, and quickly."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from experiments.artificial import PAPER
from unsplit.networks.training.loop import MAX_EPOCHS

Case = tuple[str, str]  # data and how they were cut into clusters

ESTIMATORS: dict[str, dict[str, Any]] = {"paper": PAPER, "cross-fitted": {"cv": 5}}

# How clusters are merged; recorded results also have "compose", an option of an earlier version.
MEASURED = ("linkage", "paper")
WAYS = ("linkage", "compose", "paper")


class Size(NamedTuple):
    """So many categories, so many observations of each, in clusters of that size."""

    n_categories: int
    n_each: int
    cluster: int


@dataclass(frozen=True)
class Config:
    """What there is to do.

    ``small`` is for merging, where networks are trained after every merge, ``usual`` for the rest.
    ``stopping`` has cases, an estimator and the numbers of epochs that training by A is compared
    with; ``choosing`` has a setting, its values and the cases, all else being as usual; ``epochs``
    are the most.
    """

    seeds: tuple[int, ...]
    small: Size
    usual: Size
    spectral: tuple[Case, ...]
    merging: tuple[Case, ...]
    stopping: tuple[tuple[Case, str, tuple[int, ...]], ...]
    choosing: Mapping[str, tuple[tuple[Any, ...], tuple[Case, ...]]]
    epochs: int


HALF_DECADES = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0)

LENGTHS = (5, 10, 20, 40, 80, 160)

NOISE, PIECES, DENSE = ("digits", "noise 0.3"), ("digits", "k-means"), ("digits", "greedy")
DRAWINGS = ("digit images", "noise 0.3")
PHOTOS, DENSE_PHOTOS = ("imagenet", "noise 0.1"), ("imagenet", "greedy")

FULL = Config(
    seeds=(0, 1, 2),
    small=Size(10, 40, 20),
    usual=Size(10, 100, 25),
    spectral=(NOISE, PIECES, DENSE, PHOTOS, DENSE_PHOTOS),
    merging=(NOISE, DENSE_PHOTOS),
    stopping=(
        *((case, "paper", LENGTHS) for case in (NOISE, PIECES, DRAWINGS, PHOTOS)),
        (NOISE, "cross-fitted", LENGTHS[:4]),
    ),
    choosing={
        "learning rate": (HALF_DECADES, (NOISE, PIECES, DRAWINGS, PHOTOS)),
        "weight decay": ((0.0, 0.1, 1.0, 4.0, 16.0), (NOISE, DRAWINGS, PHOTOS)),
        "network": (("single-layer", "usual"), (NOISE, PIECES, DRAWINGS, PHOTOS)),
    },
    epochs=MAX_EPOCHS,
)
QUICK = Config(
    seeds=(0,),
    small=Size(3, 20, 10),
    usual=Size(5, 20, 10),
    spectral=(NOISE,),
    merging=(NOISE,),
    stopping=((NOISE, "paper", (1, 4)), (NOISE, "cross-fitted", (1, 4))),
    choosing={
        "learning rate": ((1e-3, 1.0), (NOISE, DRAWINGS)),
        "network": (("single-layer", "usual"), (DRAWINGS,)),
    },
    epochs=3,
)
