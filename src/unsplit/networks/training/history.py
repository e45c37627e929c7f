"""How training went, epoch by epoch.  NumPy only: a saved result can be read without torch."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class EpochRecord:
    """The result of one epoch of training.

    Parameters
    ----------
    epoch : int
        Number of the epoch, from 0.
    loss : float
        Training loss, averaged over the folds.
    accuracy : float
        Balanced accuracy averaged over all pairs of clusters (A) and over the folds, on
        observations that the networks do not train on; NaN if no observation was set aside.
    seconds : float
        Seconds of training so far.
    """

    epoch: int
    loss: float
    accuracy: float
    seconds: float


@dataclass(frozen=True)
class History:
    """How training went: one entry per epoch, and the epoch that was kept for each fold.

    Parameters
    ----------
    epoch, loss, accuracy, seconds : ndarrays of shape (epochs,)
        The values of each :class:`EpochRecord`.
    kept_epoch : ndarray of shape (folds,)
        The epoch from which each fold's network has its weights.
    """

    epoch: NDArray[np.int64]
    loss: NDArray[np.float64]
    accuracy: NDArray[np.float64]
    seconds: NDArray[np.float64]
    kept_epoch: NDArray[np.int64]
