"""A 64-bit hash of every row, which depends only on its content."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

CHUNK_BYTES = 2**26


def keys_of_bytes(values: NDArray[Any]) -> NDArray[np.uint64]:
    """Hash the bytes of each entry along the first axis.

    Parameters
    ----------
    values : ndarray of shape (n, …)

    Examples
    --------
    >>> a, b, c = keys_of_bytes(np.array([[1, 2], [1, 2], [2, 1]], np.uint8))
    >>> bool(a == b), bool(a == c)
    (True, False)
    """
    n, size = len(values), int(np.prod(values.shape[1:])) * values.dtype.itemsize
    multipliers = odd_numbers(-(-size // 8))
    step = max(1, CHUNK_BYTES // max(size, 1))
    parts = [np.zeros(0, np.uint64)]
    for start in range(0, n, step):
        chunk = np.ascontiguousarray(values[start : start + step])
        padded = np.zeros((len(chunk), 8 * len(multipliers)), np.uint8)
        padded[:, :size] = chunk.view(np.uint8).reshape(len(chunk), size)
        parts.append((scrambled(padded.view(np.uint64)) * multipliers).sum(1, dtype=np.uint64))
    return np.concatenate(parts)


def odd_numbers(n: int) -> NDArray[np.uint64]:
    """Return n odd numbers, the same at every call.

    Examples
    --------
    >>> (odd_numbers(3) % 2).tolist()
    [1, 1, 1]
    """
    drawn = np.random.default_rng(0).integers(2**63, size=n, dtype=np.uint64)
    return drawn * np.uint64(2) + np.uint64(1)


def scrambled(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix bits so that small whole numbers differ in all 64 of them; 0 stays 0.

    Examples
    --------
    >>> scrambled(np.array([0, 1], np.uint64)).tolist()
    [0, 6238072747940578789]
    """
    # The last steps of splitmix64.
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
