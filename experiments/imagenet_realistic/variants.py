"""Other ways to train the network that tells clusters apart."""

from dataclasses import replace
from typing import Any

from torch import nn

from unsplit import TrainConfig
from unsplit.networks.augmentation import ImageAugmentation
from unsplit.networks.backbones import ResNet18

# Mildly augmented, which was the default when most was measured; A says when to stop.
USUAL = "usual"

# What A prefers to it, and the default since: images zoomed into and tinted more.
AUGMENTED = "more augmentation"

# How it trains a ResNet-18; an epoch of few images has ten steps.
RESNET = TrainConfig(learning_rate=1e-3, weight_decay=0.1, batch_size=256)
STEPS = 10


def training(variant: str, epochs: int) -> dict[str, Any]:
    """What :func:`unsplit.pairwise_tvd` is asked for; ``epochs`` are the most.

    Examples
    --------
    >>> training("no augmentation", 200)
    {'epochs': 200, 'augment': False}
    >>> training("20 epochs", 200)["epochs"]
    20
    """
    mild = ImageAugmentation.for_images(3)
    if variant.endswith(" epochs"):
        exactly = int(variant.removesuffix(" epochs"))
        # The last weights are kept, whatever A says.
        config = replace(RESNET, least_steps=STEPS * exactly + 1)
        return {"epochs": exactly, "training": config, "augment": mild}
    different: dict[str, dict[str, Any]] = {
        USUAL: {},
        "no augmentation": {"augment": False},
        AUGMENTED: {"augment": ImageAugmentation.for_images(3, more=True)},
        "32 pixels": {},
        "finer maps": {"backbone": finer},
    }
    return {"epochs": epochs, "augment": mild, **different[variant]}


def wanted_side(variant: str) -> int | None:
    """Pixels a side; None for as many as there are.

    Examples
    --------
    >>> wanted_side("32 pixels"), wanted_side("usual")
    (32, None)
    """
    return int(variant.removesuffix(" pixels")) if variant.endswith(" pixels") else None


def finer() -> nn.Module:
    """A ResNet-18 whose maps have twice the resolution of what 64 pixels usually get."""
    return ResNet18(3, image_size=48)
