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

    Examples
    --------
    >>> EpochRecord(epoch=0, loss=0.7, accuracy=0.6, seconds=1.5).accuracy
    0.6
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

    Examples
    --------
    >>> import unsplit
    >>> X, labels = unsplit.datasets.gaussians([[0, 0], [9, 0]], 50, random_state=0)
    >>> unsplit.pairwise_tvd(X, labels, cv=2, random_state=0).history.epoch[:2]
    array([0, 1])
    """

    epoch: NDArray[np.int64]
    loss: NDArray[np.float64]
    accuracy: NDArray[np.float64]
    seconds: NDArray[np.float64]
    kept_epoch: NDArray[np.int64]


@dataclass(frozen=True)
class StepRecord:
    """One step of training, and how much training there is.

    Parameters
    ----------
    epoch : int
        Number of the epoch, from 0.
    done, total : int
        Steps of this epoch, for all folds: so far, and in all.
    least_epochs, most_epochs : int
        How many epochs there will be at least, and hardly more than; A decides.

    Examples
    --------
    >>> StepRecord(epoch=2, done=3, total=10, least_epochs=9, most_epochs=50).share
    0.3
    """

    epoch: int
    done: int
    total: int
    least_epochs: int
    most_epochs: int

    @property
    def share(self) -> float:
        """How much of the epoch is done, from 0 to 1."""
        return self.done / max(self.total, 1)
