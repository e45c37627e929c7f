"""Simulated groups: overlapping, curved, of unequal size and density; and one group only."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.datasets import make_moons

from benchmarks.peers.task import Problem

Sample = tuple[NDArray[np.float64], NDArray[np.int64]]
Draw = Callable[[np.random.Generator], Sample]


def as_problem(name: str, draw: Draw) -> Callable[[Path, int], Problem]:
    """The draw as a problem; it needs no files."""

    def load(_: Path, seed: int) -> Problem:
        X, y = draw(np.random.default_rng([*name.encode(), seed]))
        return Problem(name, X, y)

    return load


def gaussians(
    centres: NDArray[np.float64], sizes: ArrayLike, sds: ArrayLike, rng: np.random.Generator
) -> Sample:
    """A round Gaussian of its own size and standard deviation about each of the centres."""
    y = np.repeat(np.arange(len(centres)), np.asarray(sizes, np.int64))
    spread = np.broadcast_to(np.asarray(sds, float), len(centres))
    return centres[y] + spread[y, None] * rng.standard_normal((len(y), centres.shape[1])), y


def apart(sds: ArrayLike, d: int, gap: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Centres at least ``gap`` times the summed standard deviations from one another.

    Each is drawn from a cube, which grows until there is room.
    """
    centres, width = np.empty((0, d)), 1.0
    spread = np.asarray(sds, float)
    while len(centres) < len(spread):
        new = rng.uniform(-width, width, d)
        needed = gap * (spread[: len(centres)] + spread[len(centres)])
        if (np.linalg.norm(centres - new, axis=1) >= needed).all():
            centres = np.vstack([centres, new])
        width *= 1.02
    return centres


def separated_gaussians(rng: np.random.Generator) -> Sample:
    """Ten in 10-d, as :func:`sklearn.datasets.make_blobs` places them."""
    return gaussians(rng.uniform(-5, 5, (10, 10)), 200, 1, rng)


def overlapping_gaussians(rng: np.random.Generator) -> Sample:
    """Ten in 10-d, so close that the best rule of all is right for about nine in ten."""
    return gaussians(1.05 * rng.standard_normal((10, 10)), 200, 1, rng)


def moons(rng: np.random.Generator) -> Sample:
    X, y = make_moons(1000, noise=0.06, random_state=int(rng.integers(2**31)))
    return X, y


def rings(rng: np.random.Generator) -> Sample:
    """Three about one centre, evenly dense along their lengths."""
    y = np.repeat(np.arange(3), (250, 500, 750))
    angle = rng.uniform(0, 2 * np.pi, len(y))
    radius = 1.0 + y + 0.1 * rng.standard_normal(len(y))
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]), y


def unequal_sizes(rng: np.random.Generator) -> Sample:
    """Five in 10-d, of 50 to 800."""
    return gaussians(apart(np.ones(5), 10, 2.5, rng), (50, 100, 200, 400, 800), 1, rng)


def unequal_densities(rng: np.random.Generator) -> Sample:
    """Five in 2-d, equally many, the widest eight times as wide as the tightest."""
    sds = np.geomspace(4.0, 0.5, 5)
    return gaussians(apart(sds, 2, 2.5, rng), 300, sds, rng)


def one_gaussian(d: int) -> Draw:
    return lambda rng: (rng.standard_normal((2000, d)), np.zeros(2000, np.int64))


def uniform(d: int) -> Draw:
    """Noise in a cube: no valley anywhere, so one group."""
    return lambda rng: (rng.uniform(size=(2000, d)), np.zeros(2000, np.int64))


GROUPED: dict[str, Draw] = {
    "separated gaussians": separated_gaussians,
    "overlapping gaussians": overlapping_gaussians,
    "moons": moons,
    "rings": rings,
    "unequal sizes": unequal_sizes,
    "unequal densities": unequal_densities,
}
ONE_GROUP: dict[str, Draw] = {
    "one gaussian, 2-d": one_gaussian(2),
    "one gaussian, 10-d": one_gaussian(10),
    "one gaussian, 50-d": one_gaussian(50),
    "uniform, 2-d": uniform(2),
    "uniform, 10-d": uniform(10),
    "uniform, 50-d": uniform(50),
}
DRAWS = GROUPED | ONE_GROUP
