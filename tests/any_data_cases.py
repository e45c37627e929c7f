"""Small data of every kind for several test files."""

import numpy as np
import torch
from torch.utils.data import Dataset

CPU = torch.device("cpu")


class Items(Dataset):
    """A list as a Dataset; a length that is given may be a lie."""

    def __init__(self, items, length=None):
        self.items = items
        self.length = len(items) if length is None else length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.items[index]


def images(n=24, size=6, channels=3, seed=0):
    """Bytes (n, size, size, channels)."""
    rng = np.random.default_rng(seed)
    return rng.integers(256, size=(n, size, size, channels), dtype=np.uint8)


def clouds(n=24, points=12, numbers=3, seed=0):
    return np.random.default_rng(seed).standard_normal((n, points, numbers))


def ragged(n=24, channels=2, seed=0):
    """A list of sequences of 3 to 9 samples."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((length, channels)) for length in rng.integers(3, 10, n)]


def mapped(values, path):
    """The same array, mapped from a file."""
    np.save(path, values)
    return np.load(path, mmap_mode="r")


def everything(rows):
    return rows.take(torch.arange(len(rows)))
