"""What it costs that parts of the user draw from generators of the run.

    python -m benchmarks.draws_cost

Trains small networks with dropout for five epochs, with and without :func:`redirected`, in turn,
and prints the seconds of processor time of an epoch, the least of some tries.
"""

import time
from collections.abc import Callable
from contextlib import nullcontext
from unittest import mock

import numpy as np
from torch import nn

import unsplit
from unsplit.randomness import redirected

EPOCHS, TRIES = 5, 4


def perceptron() -> nn.Module:
    """A network like our own for vectors, with dropout."""
    first = nn.Linear(30, 256), nn.LayerNorm(256), nn.ReLU()
    return nn.Sequential(*first, nn.Linear(256, 256), nn.ReLU(), nn.Dropout(0.1))


def convolutions() -> nn.Module:
    """A small network for images, with batch normalisation and dropout."""
    first = nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()
    return nn.Sequential(*first, nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Flatten(), nn.Dropout(0.1))


def seconds(
    X: np.ndarray, labels: np.ndarray, backbone: Callable[[], nn.Module], draws: object
) -> float:
    """Processor time of an epoch."""
    with mock.patch("unsplit.networks.registry.redirected", draws):
        begun = time.process_time()
        unsplit.pairwise_tvd(
            X, labels, backbone=backbone, epochs=EPOCHS, cv=2, device="cpu", random_state=0
        )
    return (time.process_time() - begun) / EPOCHS


def main() -> None:
    """Measure both networks and print."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(20), 200)
    vectors = rng.standard_normal((4000, 30)).astype(np.float32)
    images = rng.standard_normal((1000, 12, 12, 1)).astype(np.float32)
    for name, X, y, backbone in (
        ("vectors, two layers of 256", vectors, labels, perceptron),
        ("images of 12 × 12, two convolutions", images, labels[::4], convolutions),
    ):
        ways = (nullcontext, redirected)
        found = [[seconds(X, y, backbone, way) for way in ways] for _ in range(TRIES)]
        without, with_it = np.min(found, axis=0)
        print(f"{name}: {without:.3f} s an epoch, redirected {with_it:.3f} s", flush=True)


if __name__ == "__main__":
    main()
