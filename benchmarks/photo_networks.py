"""Which small network compares photographs best on a CPU: A and processor seconds of variants.

python -m benchmarks.photo_networks --data ../shared/data [--each 40] [--epochs 12] [--only NAME]

Twelve Tiny-ImageNet categories from the half for choosing, 40 photographs each; two folds.  A is
the mean held-out accuracy over all pairs and needs no categories; here clusters are categories.
"""

import argparse
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import unsplit
from benchmarks import photos
from benchmarks.common import as_options, print_table
from unsplit.networks.augmentation import ImageAugmentation
from unsplit.networks.backbones import ResNet18, Shrink
from unsplit.networks.registry import DEEP, ON_CPU

CATEGORIES = 12


@dataclass(frozen=True)
class Variant:
    """A network of 3×3 convolutions with pooling between them, and how it is trained."""

    widths: tuple[int, ...] = (32, 64, 128)
    side: int = 32
    stride: int = 2
    maximum: bool = True
    zoom: float = 0.0
    learning_rate: float = ON_CPU.learning_rate
    batch_size: int = ON_CPU.batch_size

    def build(self) -> nn.Module:
        """An untrained network."""
        layers: list[nn.Module] = []
        before = 3
        for i, width in enumerate(self.widths):
            layers += [nn.MaxPool2d(2)] if i else []
            step = 1 if i else self.stride
            layers += [nn.Conv2d(before, width, 3, step, 1, bias=False), nn.BatchNorm2d(width)]
            layers.append(nn.ReLU(inplace=True))
            before = width
        return nn.Sequential(*layers, Pooled(self.maximum))

    @property
    def settings(self) -> dict[str, Any]:
        """Arguments of ``pairwise_tvd``."""
        training = replace(ON_CPU, learning_rate=self.learning_rate, batch_size=self.batch_size)
        return {
            "backbone": self.build,
            "augment": ImageAugmentation(flip=True, colour=0.1, zoom=self.zoom),
            "training": training,
        }


class Pooled(nn.Module):
    """The mean over the image, and the maximum if wanted."""

    def __init__(self, maximum: bool) -> None:
        super().__init__()
        self.maximum = maximum

    def forward(self, x: Tensor) -> Tensor:
        """Features (b, C) or (b, 2C) of maps (b, C, H, W)."""
        mean = x.mean(dim=(2, 3))
        return torch.cat([mean, x.amax(dim=(2, 3))], dim=1) if self.maximum else mean


VARIANTS = {
    "chosen: 32, 64, 128 channels, 32 px": Variant(),
    "64, 128, 256 channels": Variant((64, 128, 256)),
    "a fourth convolution": Variant((32, 64, 128, 256), stride=1),
    "48 px": Variant(side=48),
    "mean only": Variant(maximum=False),
    "learning rate 0.001": Variant(learning_rate=1e-3),
    "batches of 32": Variant(batch_size=32),
    "zoom by up to 0.3": Variant(zoom=0.3),
}


def sample(folder: Path, each: int) -> tuple[Tensor, NDArray[np.int64]]:
    """Photographs (n, 3, 64, 64) and their categories, of the half for choosing."""
    names, category = photos.archive(folder, photos.FILES["tiny"])
    drawn = np.random.default_rng(5).choice(30, CATEGORIES, replace=False)
    index = np.concatenate([np.flatnonzero(category == c)[:each] for c in drawn])
    path = folder / f"{photos.FILES['tiny']}.zip"
    images = photos.decoded(path, [names[i] for i in index])
    return torch.from_numpy(images).movedim(-1, 1), category[index]


def measure(images: Tensor, categories: NDArray[Any], side: int, **settings: Any) -> list[Any]:
    """A after half and after all of the epochs, and processor seconds of an epoch."""
    X = Shrink(side)(images).byte().movedim(1, -1).numpy()
    curve: list[float] = []
    start = time.process_time()
    unsplit.pairwise_tvd(
        X,
        categories,
        **as_options(**settings),
        cv=2,
        device="cpu",
        random_state=0,
        progress=lambda record: curve.append(record.accuracy),
    )
    seconds = (time.process_time() - start) / len(curve)
    return [f"{curve[len(curve) // 2 - 1]:.3f}", f"{curve[-1]:.3f}", f"{seconds:.2f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--each", type=int, default=40, help="photographs of a category")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--only", nargs="+", choices=[*VARIANTS, "resnet18"], default=[*VARIANTS])
    arguments = parser.parse_args()
    images, categories = sample(arguments.data, arguments.each)
    table = []
    for name in arguments.only:
        if name == "resnet18":
            side, settings = 64, {"backbone": lambda: ResNet18(3, 64), "training": DEEP}
        else:
            side, settings = VARIANTS[name].side, VARIANTS[name].settings
        table.append(
            [name, *measure(images, categories, side, **settings, epochs=arguments.epochs)]
        )
        print(*table[-1], flush=True)
    title = f"{CATEGORIES} categories of {arguments.each} photographs, {arguments.epochs} epochs"
    head = ("network", "A, half way", "A, at the end", "processor seconds an epoch")
    print_table(title, head, table)


if __name__ == "__main__":
    main()
