"""Subsets, sizes and training: in full, and quickly."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """How DeepCluster is trained.

    Parameters
    ----------
    clusters : int
        Pseudo-labels; Caron et al. (2018) have one for every 128 images, here for every 48.
    rounds : int
        How often the images are clustered anew.
    epochs : int
        Passes over the images in each round.  ImageNet is fifty times larger, and one pass over
        few images would hardly train the new classifier.
    components : int
        Of the whitened features that are clustered, and that come out in the end.
    side : int
        Pixels a side of the images.
    network : str
        "resnet18", or "convnet", which a CPU can train.
    """

    clusters: int
    rounds: int
    epochs: int
    components: int
    side: int = 64
    network: str = "resnet18"


@dataclass(frozen=True)
class Config:
    """What there is to do.

    Parameters
    ----------
    subsets, categories : int
        So many subsets of so many random categories.
    k : int
        Initial clusters.
    sizes : tuple of int
        Images of each.
    retrained : tuple of int
        Those of the sizes for which networks are also trained anew after every merge, as in the
        paper; the last makes the purest clusters.
    merges : int
        So many merges are made in this way.
    epochs : int
        The most; usually A ends training long before.
    variants : tuple of str
        Other ways to train, on the first ``ablated`` subsets.
    """

    subsets: int
    categories: int
    k: int
    sizes: tuple[int, ...]
    retrained: tuple[int, ...]
    merges: int
    epochs: int
    variants: tuple[str, ...]
    ablated: int
    plan: Plan
    small: Plan
    """The same by a small network, for a computer without a GPU."""


FULL = Config(
    subsets=10,
    categories=10,
    k=20,
    sizes=(40, 20, 100),
    retrained=(40, 20),
    merges=12,
    epochs=200,
    variants=(
        "10 epochs",
        "20 epochs",
        "40 epochs",
        "no augmentation",
        "more augmentation",
        "32 pixels",
        "finer maps",
    ),
    ablated=5,
    plan=Plan(clusters=500, rounds=40, epochs=3, components=64),
    small=Plan(clusters=500, rounds=20, epochs=3, components=64, side=32, network="convnet"),
)
QUICK = Config(
    subsets=2,
    categories=3,
    k=6,
    sizes=(8,),
    retrained=(8,),
    merges=3,
    epochs=3,
    variants=("no augmentation", "more augmentation"),
    ablated=1,
    plan=Plan(clusters=8, rounds=1, epochs=1, components=8),
    small=Plan(clusters=8, rounds=1, epochs=1, components=8, side=8, network="convnet"),
)
