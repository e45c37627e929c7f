"""The one training loop.

Networks for all folds advance epoch by epoch together.  After every epoch each is tried on the
observations it does not train on; the mean accuracy over all pairs of clusters, A, says whether
training still helps.  No ground truth exists here.

**Which epoch is kept.**  Never the one that looks best on the observations that are later counted:
a fold's weights are chosen by the mean A of the *other* folds, or by observations set aside for it.
docs/statistics.md has the bias this avoids.

**Small networks are one network.**  Where ``torch.func`` can batch them, the K networks are
stacked and trained as one, so five folds cost far less than five times one.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from unsplit.data.rows.base import Rows
from unsplit.errors import InputError
from unsplit.networks.training.group import Group, Network
from unsplit.networks.training.sampling import Fold, epoch_minibatches
from unsplit.networks.training.single import Single
from unsplit.networks.training.stacked import Stacked, can_be_stacked

# A rise of A smaller than this is not worth another round of patience.
TOLERANCE = 1e-4

# The most passes over the training data; A usually stops training much earlier.
MAX_EPOCHS = 200


@dataclass(frozen=True)
class TrainConfig:
    """How to train.  The defaults suit most data.

    The largest number of epochs is not part of it: pass ``epochs`` to
    :func:`unsplit.pairwise_tvd`, :func:`unsplit.select` or :class:`unsplit.ClusterMerger`.

    Parameters
    ----------
    patience : int
        Epochs without a new best A before training ends.
    learning_rate, weight_decay : float
        Of Adam, with decoupled decay.
    batch_size : int
        Observations per step and fold.
    averaging : float
        Decay of the running mean of the weights; the mean is what is tried and kept.
    least_steps : int
        Train for at least as many steps, whatever A says.
    one_epoch : bool
        Keep the weights of the same epoch in all folds, the one with the best mean A, so that
        scores of all folds have one scale.  Otherwise each fold has its own, chosen by the others.
    batch_folds : bool or None
        Train the folds as one stacked network.  None: where the network allows it and is small.

    Examples
    --------
    >>> import unsplit
    >>> X, labels = unsplit.datasets.gaussians([[0, 0], [4, 0]], 50)
    >>> slower = unsplit.TrainConfig(learning_rate=3e-4)
    >>> result = unsplit.pairwise_tvd(X, labels, training=slower, epochs=5, random_state=0)
    """

    patience: int = 6
    learning_rate: float = 1e-3
    weight_decay: float = 4.0
    batch_size: int = 256
    averaging: float = 0.99
    least_steps: int = 0
    one_epoch: bool = False
    batch_folds: bool | None = None

    def __post_init__(self) -> None:
        for name, least in (("patience", 1), ("batch_size", 1), ("least_steps", 0)):
            value = getattr(self, name)
            if not isinstance(value, (int, np.integer)) or value < least:
                raise InputError(
                    f"{name} must be a whole number of at least {least}, got {value!r}."
                )
        if not 0 < self.learning_rate < np.inf:
            raise InputError(
                f"learning_rate must be above 0, got {self.learning_rate!r}; 0.001 is usual."
            )
        if not 0 <= self.weight_decay < np.inf:
            raise InputError(f"weight_decay must not be below 0, got {self.weight_decay!r}.")


@dataclass(frozen=True)
class EpochRecord:
    """What one epoch brought: mean loss, mean A over the folds, seconds of training so far."""

    epoch: int
    loss: float
    accuracy: float
    seconds: float


@dataclass(frozen=True)
class History:
    """The course of training, one entry per epoch, and the epoch kept for each fold."""

    epoch: NDArray[np.int64]
    loss: NDArray[np.float64]
    accuracy: NDArray[np.float64]
    seconds: NDArray[np.float64]
    kept_epoch: NDArray[np.int64]

    @classmethod
    def of(cls, records: Sequence[EpochRecord], kept: NDArray[np.int64]) -> "History":
        """Collect the records of a run."""
        columns = np.array([[r.epoch, r.loss, r.accuracy, r.seconds] for r in records]).T
        return cls(columns[0].astype(np.int64), columns[1], columns[2], columns[3], kept)


Measure = Callable[[Group], NDArray[np.float64]]
Judge = Callable[[NDArray[np.float64]], NDArray[np.float64]]


class Stopping:
    """Remembers each fold's best A and when it came.

    ``judge`` turns the folds' A into what each fold is judged by.
    """

    def __init__(self, n_folds: int, patience: int, judge: Judge) -> None:
        self.best = np.full(n_folds, -np.inf)
        self.kept_epoch = np.zeros(n_folds, np.int64)
        self.patience = patience
        self.judge = judge
        self.epoch = -1

    def step(self, accuracy: NDArray[np.float64], enough: bool = True) -> NDArray[np.bool_]:
        """Take the folds' A after one more epoch; which folds should keep their weights?

        Until there were ``enough`` steps, all keep the latest.
        """
        self.epoch += 1
        judged = self.judge(accuracy)
        # Where nothing can be watched (NaN) the latest weights are kept.
        better = ~(judged <= self.best + TOLERANCE)
        if enough:
            self.best[better] = judged[better]
        self.kept_epoch[better] = self.epoch
        return better

    @property
    def finished(self) -> bool:
        """Whether no fold has improved for ``patience`` epochs."""
        return bool((self.epoch - self.kept_epoch >= self.patience).all())


def train(
    networks: Sequence[Network],
    rows: Rows,
    clusters: Tensor,
    folds: Sequence[Fold],
    config: TrainConfig,
    rng: np.random.Generator,
    on_epoch: Callable[[EpochRecord], None] | None = None,
    epochs: int = MAX_EPOCHS,
) -> History:
    """Train one network per fold in place, each on its fold's ``train`` rows.

    Parameters are those of :class:`Training`; ``on_epoch`` is told after every epoch.
    """
    training = Training(networks, rows, clusters, folds, config, rng, epochs=epochs)
    while not training.finished:
        record = training.epoch()
        if on_epoch is not None:
            on_epoch(record)
    return training.restore()


class Training:
    """Training that can be taken further epoch by epoch.

    Parameters
    ----------
    networks : sequence of Network
        One per fold, all on the device of ``clusters``; trained in place.
    rows : Rows
    clusters : integer Tensor of shape (n,)
        Cluster of every row, on the training device.
    folds : sequence of Fold
    config : TrainConfig
    rng : numpy.random.Generator
        Draws the batches.
    measure : callable, optional
        A of each network of a group; by default over all pairs of clusters.
    epochs : int
        The most epochs.
    """

    def __init__(
        self,
        networks: Sequence[Network],
        rows: Rows,
        clusters: Tensor,
        folds: Sequence[Fold],
        config: TrainConfig,
        rng: np.random.Generator,
        measure: Measure | None = None,
        epochs: int = MAX_EPOCHS,
    ) -> None:
        self.rows, self.clusters, self.config, self.rng = rows, clusters, config, rng
        self.groups = _groups(networks, folds, rows, config)
        self.stopping = Stopping(len(folds), config.patience, _judge(folds, config))
        self.max_epochs = epochs
        self.records: list[EpochRecord] = []
        self.seconds = 0.0
        self._cluster_of = clusters.cpu().numpy()
        self._measure = measure or (lambda group: group.watched_accuracy(rows, clusters))

    @property
    def finished(self) -> bool:
        """Whether A has stopped improving or there were as many epochs as there may be."""
        return self.stopping.finished or len(self.records) >= self.max_epochs

    @property
    def steps(self) -> int:
        """Steps that each network has taken."""
        return self.groups[0].steps_taken

    def epoch(self) -> EpochRecord:
        """Go once over the training rows, try the networks and keep those that got better."""
        start = time.perf_counter()
        loss = float(np.mean([self._run(group) for group in self.groups]))
        accuracy = np.concatenate([self._measure(group) for group in self.groups])
        better = self.stopping.step(accuracy, self.steps >= self.config.least_steps)
        for group, mask in zip(self.groups, np.split(better, len(self.groups)), strict=True):
            group.keep(mask)
        self.seconds += time.perf_counter() - start
        watched = accuracy[np.isfinite(accuracy)]
        mean = float(watched.mean()) if len(watched) else float("nan")
        self.records.append(EpochRecord(len(self.records), loss, mean, self.seconds))
        return self.records[-1]

    def _run(self, group: Group) -> float:
        train_rows = [fold.train for fold in group.folds]
        batches = epoch_minibatches(train_rows, self._cluster_of, self.config.batch_size, self.rng)
        return group.run(batches, self.rows, self.clusters, self.config.averaging)

    def restore(self) -> History:
        """Give the networks the best weights they had; the course of training."""
        for group in self.groups:
            group.restore()
        return History.of(self.records, self.stopping.kept_epoch)


def _judge(folds: Sequence[Fold], config: TrainConfig) -> Judge:
    """By the mean of all folds, by the others where a fold watches what is counted, by its own."""
    if config.one_epoch:
        return mean_of_all
    others = len(folds) > 1 and all(fold.watches_test for fold in folds)
    return mean_of_others if others else own


def own(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each entry for itself."""
    return values


def mean_of_all(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """For every entry the mean of those that are known; NaN if none is."""
    known = values[np.isfinite(values)]
    return np.full_like(values, known.mean() if len(known) else np.nan)


def mean_of_others(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """For each entry the mean of the others that are known; NaN if none is."""
    known = np.isfinite(values)
    filled = np.where(known, values, 0.0)
    n_others = known.sum() - known
    return np.where(n_others > 0, (filled.sum() - filled) / np.maximum(n_others, 1), np.nan)


def _groups(
    networks: Sequence[Network], folds: Sequence[Fold], rows: Rows, config: TrainConfig
) -> list[Group]:
    """All folds in one stacked group, or each in a group of its own."""
    stack = config.batch_folds
    if stack is None:
        stack = can_be_stacked(networks, rows)
    rates = config.learning_rate, config.weight_decay
    if stack:
        return [Stacked(networks, folds, *rates)]
    return [Single([n], [f], *rates) for n, f in zip(networks, folds, strict=True)]
