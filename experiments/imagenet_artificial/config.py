"""Sizes, noise and length of training: in full, and quickly."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Config:
    """What there is to do.

    ``epochs`` are those of each of five cross-fitted networks; the paper's one network gets five
    times as many.  ``course`` are the epochs after which the course of training is looked at.
    """

    sizes: tuple[int, ...]
    noises: tuple[float, ...]
    epochs: int
    course: tuple[int, ...]


FULL = Config(sizes=(50, 125, 200), noises=(0.0, 0.1, 0.3), epochs=10, course=(1, 2, 4, 8, 16))
QUICK = Config(sizes=(10,), noises=(0.3,), epochs=1, course=(1, 2))
