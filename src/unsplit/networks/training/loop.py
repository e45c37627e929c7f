"""The one training loop.

The networks of all folds are trained epoch by epoch together.  After every epoch each network is
tried on observations that it is not trained on; A, the balanced accuracy averaged over all pairs of
clusters, shows whether training still helps.  Training never sees ground truth.

**Which epoch is kept.**  Weights are never chosen by the observations that are tested later: the
epoch of a fold is the one with the best mean A of the *other* folds, or the best A on observations
set aside for this.  docs/statistics.md describes the bias that this avoids.

**Small networks are trained as one.**  If ``torch.func`` can batch them, the K networks are stacked
and trained as one, so that five folds cost far less than five times as much as one.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from unsplit.data.rows.base import Rows
from unsplit.devices import current, one_thread, own_generators, undisturbed
from unsplit.errors import InputError, check_choice, check_flag, check_whole, is_number, shown
from unsplit.networks.backbones.classifiers import ClassifierNetwork, Fitting
from unsplit.networks.network import LOSSES, Network
from unsplit.networks.training.checkpoint import Checkpoint
from unsplit.networks.training.group import (
    Draw,
    Fold,
    Group,
    OnStep,
    balanced_draws,
    can_be_stacked,
    epoch_minibatches,
    one_is_enough,
)
from unsplit.networks.training.progress import EpochRecord, History, Reporter, StepRecord
from unsplit.networks.training.ranks import Sharded

# A smaller rise of A than this does not count as an improvement.
TOLERANCE = 1e-4

# The most passes over the training data; A usually stops training much earlier.
MAX_EPOCHS = 200

Augment = str | bool | nn.Module

# Stands for a number that depends on the network and the data; it is filled in before training.
BY_NETWORK: Any = None


# What numbers may be.
RANGES: dict[str, tuple[Callable[[float], bool], str]] = {
    "learning_rate": (lambda x: 0 < x < np.inf, "a positive number, such as 0.001"),
    "weight_decay": (lambda x: 0 <= x < np.inf, "a number of at least 0"),
    "averaging": (lambda x: 0 <= x < 1, "a number of at least 0 and less than 1, such as 0.99"),
}


@dataclass(frozen=True, repr=False)
class TrainConfig:
    """How to train.  The defaults suit most data.

    Parameters
    ----------
    epochs : int
        The most epochs; training ends earlier when the mean held-out accuracy A stops improving.
    loss : {"softmax", "pairwise"}
        "softmax" is class-balanced cross-entropy, "pairwise" the paper's balanced pairwise
        logistic loss; both have the same minimiser.
    augment : "auto", False or torch.nn.Module
        Random changes to the observations during training.  "auto": small shifts of images, and
        flips and changes of colour for photographs, with zooms for "resnet18"; jitter and dropout
        of points; shifts and noise in sequences; no change to vectors.
    learning_rate, weight_decay : float, optional
        Of the optimizer AdamW.  By default what suits the network.  Weight decay is reduced if
        there are more than four times as many clusters as observations in a batch (docs/scale.md,
        "Very large heads").
    batch_size : int, optional
        Number of observations per step, for each fold.  By default what suits the network and the
        number of observations.
    patience : int, optional
        Training ends after this many epochs without improvement of A.  By default what suits the
        network.
    averaging : float
        Decay of the running mean of the weights.  The averaged weights are tried and kept.
    least_steps : int
        Smallest number of steps, even if A no longer improves.
    batch_folds : bool or None
        Train the folds as one stacked network.  None: where the network allows it and is small.

    Examples
    --------
    >>> import unsplit
    >>> X, labels = unsplit.datasets.gaussians([[0, 0], [4, 0]], 50)
    >>> slower = unsplit.TrainConfig(learning_rate=3e-4, epochs=5)
    >>> result = unsplit.pairwise_tvd(X, labels, training=slower, random_state=0)
    >>> len(result.history.epoch)
    5
    """

    epochs: int = MAX_EPOCHS
    loss: str = "softmax"
    augment: Augment = "auto"
    learning_rate: float = BY_NETWORK
    weight_decay: float = BY_NETWORK
    batch_size: int = BY_NETWORK
    patience: int = BY_NETWORK
    averaging: float = 0.99
    least_steps: int = 0
    batch_folds: bool | None = None

    def __post_init__(self) -> None:
        check_choice("loss", self.loss, tuple(LOSSES))
        augment = self.augment
        automatic = isinstance(augment, str) and augment == "auto"
        if not automatic and not isinstance(augment, (bool, nn.Module)):
            raise InputError(
                f'augment must be "auto", False or a torch.nn.Module, got {shown(augment)}.'
            )
        given = self.given
        for name, least in (("epochs", 1), ("patience", 1), ("batch_size", 1), ("least_steps", 0)):
            if name in given:
                check_whole(name, given[name], least)
        for name, (fits, wanted) in RANGES.items():
            if name in given and not (is_number(given[name]) and fits(given[name])):
                raise InputError(f"{name} must be {wanted}, got {shown(given[name])}.")
        if self.batch_folds is not None:
            check_flag("batch_folds", self.batch_folds, "None")

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.given.items())
        return f"TrainConfig({given})"

    @property
    def given(self) -> dict[str, Any]:
        """The settings that are not at their defaults, by name."""
        values = ((f, getattr(self, f.name)) for f in fields(self))
        # An array or a module is not compared: it is no default.
        return {f.name: v for f, v in values if type(v) is not type(f.default) or v != f.default}

    def over(self, usual: "TrainConfig") -> "TrainConfig":
        """These settings where they were given, and elsewhere the usual ones.

        Parameters
        ----------
        usual : TrainConfig

        Returns
        -------
        TrainConfig

        Examples
        --------
        >>> TrainConfig(batch_size=64).over(TrainConfig(epochs=5)).epochs
        5
        """
        return replace(usual, **self.given)


# What networks are trained with where they say nothing else.
USUAL = TrainConfig(learning_rate=1e-3, weight_decay=4.0, batch_size=256, patience=6)


Judge = Callable[[NDArray[np.float64]], NDArray[np.float64]]


class Stopping:
    """Remembers the best A of each fold and its epoch, and says when to stop.

    ``judge`` turns the A of all folds into the value by which each fold is judged.
    """

    def __init__(self, n_folds: int, patience: int, judge: Judge) -> None:
        self.best = np.full(n_folds, -np.inf)
        self.kept_epoch = np.zeros(n_folds, np.int64)
        self.patience = patience
        self.judge = judge
        self.epoch = -1

    def state(self) -> dict[str, Any]:
        """Return what was found so far, for a checkpoint."""
        return {"best": self.best, "kept_epoch": self.kept_epoch, "epoch": self.epoch}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint."""
        self.best[:], self.kept_epoch[:] = state["best"], state["kept_epoch"]
        self.epoch = state["epoch"]

    def step(self, accuracy: NDArray[np.float64], enough: bool = True) -> NDArray[np.bool_]:
        """Take the A of all folds after one more epoch; True for folds that have improved.

        Their weights should be kept.  Before there were ``enough`` steps, all folds keep their
        latest weights.
        """
        self.epoch += 1
        judged = self.judge(accuracy)
        # If a fold has no validation observations (NaN), its latest weights are kept.
        better = ~(judged <= self.best + TOLERANCE)
        if enough:
            self.best[better] = judged[better]
        self.kept_epoch[better] = self.epoch
        return better

    @property
    def finished(self) -> bool:
        """Whether no fold has improved for ``patience`` epochs."""
        return bool((self.epoch - self.kept_epoch >= self.patience).all())


class Training:
    """Training that can be continued epoch by epoch.

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
    reporter : Reporter, optional
        Hears of steps and epochs.
    checkpoint : Checkpoint, optional
        Keeps the state from time to time; if it has one, training continues from there.
    draw : callable, optional
        Draws the rows of an epoch; by default :func:`balanced_draws`.
    """

    def __init__(
        self,
        networks: Sequence[Network],
        rows: Rows,
        clusters: Tensor,
        folds: Sequence[Fold],
        config: TrainConfig,
        rng: np.random.Generator,
        reporter: Reporter | None = None,
        checkpoint: Checkpoint | None = None,
        draw: Draw = balanced_draws,
    ) -> None:
        config = config.over(USUAL)
        if isinstance(networks[0], ClassifierNetwork):
            # Fitted once, and not by weights that a checkpoint could keep.
            config, checkpoint = replace(config, epochs=1), None
        self.reporter, self.checkpoint, self.draw = reporter or Reporter(), checkpoint, draw
        self.networks, self.rows, self.clusters, self.folds = networks, rows, clusters, folds
        self.config, self.rng = config, rng
        state = None if checkpoint is None else checkpoint.load()
        stack = config.batch_folds
        if checkpoint is not None and state is not None:
            with checkpoint.refusing():  # networks that were trained one by one go on so
                stack = len(state["groups"]) < len(networks)
        self.groups = self._grouped(stack)
        self.stopping = Stopping(len(folds), config.patience, judge_of(folds))
        self.records: list[EpochRecord] = []
        self.seconds = 0.0
        self._cluster_of = clusters.cpu().numpy()
        self.resumed = state is not None
        if checkpoint is not None and state is not None:
            with checkpoint.refusing():
                self.load(state)

    def _grouped(self, stack: bool | None) -> list[Group]:
        """Put all folds into one stacked group, or each into its own group."""
        networks, folds, config = self.networks, self.folds, self.config
        classifiers = [network for network in networks if isinstance(network, ClassifierNetwork)]
        if classifiers:
            return [Fitting([c], [fold]) for c, fold in zip(classifiers, folds, strict=True)]
        n_clusters = networks[0].head.n_clusters
        decay = used_decay(config.weight_decay, n_clusters, config.batch_size)
        rates = config.learning_rate, decay, config.averaging
        one_by_one = [([n], [f]) for n, f in zip(networks, folds, strict=True)]
        if current().size > 1:
            return [Sharded(*one, current(), *rates) for one in one_by_one]
        if can_be_stacked(networks, self.rows) if stack is None else stack:
            return [Group(networks, folds, *rates)]
        return [Group(*one, *rates) for one in one_by_one]

    @property
    def finished(self) -> bool:
        """Whether A has stopped improving or there were as many epochs as there may be."""
        return self.stopping.finished or len(self.records) >= self.config.epochs

    def run(self) -> History:
        """Train to the end, and give the networks the weights that were kept; how it went."""
        if self.resumed:
            self.reporter.on_resume(len(self.records))
        with one_thread(one_is_enough(self.groups[0].networks, self.rows)):
            self._train()
        for group in self.groups:
            group.restore()
        return history_of(self.records, self.stopping.kept_epoch)

    def _train(self) -> None:
        while not self.finished:
            record = self.epoch()
            with undisturbed():
                self.reporter.on_epoch(record)
            if self.checkpoint is not None and self.checkpoint.due(self.finished):
                self.checkpoint.save(self.state())

    def epoch(self) -> EpochRecord:
        """Train for one epoch, try the networks, and keep the weights of those that improved."""
        began = time.perf_counter()
        losses = [self._run(place, group) for place, group in enumerate(self.groups)]
        given = self.rows, self.clusters
        accuracy = np.concatenate([group.validation_accuracy(*given) for group in self.groups])
        enough = self.groups[0].steps_taken >= self.config.least_steps
        better = self.stopping.step(accuracy, enough)
        for group, mask in zip(self.groups, np.split(better, len(self.groups)), strict=True):
            group.keep(mask)
        self.seconds += time.perf_counter() - began
        known = accuracy[np.isfinite(accuracy)]
        mean = float(known.mean()) if len(known) else float("nan")
        record = EpochRecord(len(self.records), float(np.mean(losses)), mean, self.seconds)
        self.records.append(record)
        return record

    def _run(self, place: int, group: Group) -> float:
        train_rows = [fold.train for fold in group.folds]
        drawn = self._cluster_of, self.config.batch_size, self.rng, self.draw
        batches = epoch_minibatches(train_rows, *drawn)
        on_step = self._on_step(place, len(batches))
        return group.run(batches, self.rows, self.clusters, on_step)

    def _on_step(self, place: int, n_steps: int) -> OnStep | None:
        """Return what a group calls after each of its steps in this epoch."""
        reporter, epoch = self.reporter, len(self.records)
        if type(reporter).on_step is Reporter.on_step:
            return None
        total, least = n_steps * len(self.groups), self._least_epochs(n_steps)

        def on_step(done: int) -> None:
            with undisturbed():
                reporter.on_step(StepRecord(epoch, place * n_steps + done, total, least))

        return on_step

    def _least_epochs(self, n_steps: int) -> int:
        """How many epochs there will be at least."""
        enough = -(-self.config.least_steps // n_steps)
        best = max(int(self.stopping.kept_epoch.max()), enough - 1, 0)
        return min(best + self.config.patience + 1, self.config.epochs)

    def state(self) -> dict[str, Any]:
        """Return all that training depends on after an epoch."""
        return {
            "groups": [group.state() for group in self.groups],
            "stopping": self.stopping.state(),
            "records": [list(vars(record).values()) for record in self.records],
            "rng": self.rng.bit_generator.state,
            "generators": own_generators().states(),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from a state, as if nothing had happened since."""
        for group, values in zip(self.groups, state["groups"], strict=True):
            group.load(values)
        self.stopping.load(state["stopping"])
        self.records = [EpochRecord(*values) for values in state["records"]]
        self.seconds = self.records[-1].seconds
        self.rng.bit_generator.state = state["rng"]
        own_generators().continue_from(state["generators"])


def history_of(records: Sequence[EpochRecord], kept: NDArray[np.int64]) -> History:
    """Collect the records of all epochs.

    Parameters
    ----------
    records : sequence of EpochRecord
    kept : ndarray of shape (folds,)
        The epoch kept for each fold.

    Examples
    --------
    >>> records = [EpochRecord(0, 0.7, 0.6, 1.0), EpochRecord(1, 0.5, 0.8, 2.0)]
    >>> history_of(records, np.array([1])).accuracy
    array([0.6, 0.8])
    """
    columns = np.array([[r.epoch, r.loss, r.accuracy, r.seconds] for r in records]).T
    return History(columns[0].astype(np.int64), columns[1], columns[2], columns[3], kept)


def judge_of(folds: Sequence[Fold]) -> Judge:
    """Choose how folds are judged: by their own A, or by others if they validate on test rows."""
    others = len(folds) > 1 and all(fold.validates_on_test for fold in folds)
    return mean_of_others if others else np.asarray


def mean_of_others(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Replace every entry by the mean of the other known entries; NaN if none is known."""
    known = np.isfinite(values)
    filled = np.where(known, values, 0.0)
    n_others = known.sum() - known
    return np.where(n_others > 0, (filled.sum() - filled) / np.maximum(n_others, 1), np.nan)


# Weight decay where there are as many clusters as observations in a batch, at most, and the least
# that it is reduced to.
MOST_DECAY, LEAST_DECAY = 32.0, 0.1


def used_decay(weight_decay: float, n_clusters: int, batch_size: int) -> float:
    """Weight decay for training; less than given if a cluster comes once in many batches.

    Batches then say little about each cluster, and decay, which comes in every step, would win:
    with 2,000 clusters and batches of 256, A was 0.81 with a decay of 4 and 0.90 with 1.4
    (docs/scale.md).

    Parameters
    ----------
    weight_decay : float
    n_clusters, batch_size : int

    Examples
    --------
    >>> used_decay(4.0, 1024, 256), used_decay(4.0, 4096, 256), used_decay(4.0, 10**6, 4096)
    (4.0, 0.5, 0.1)
    """
    most = MOST_DECAY * (batch_size / n_clusters) ** 1.5
    return min(weight_decay, max(most, LEAST_DECAY))
