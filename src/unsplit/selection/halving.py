"""Successive halving: train all candidates briefly, continue with the better half, and repeat.

**The budget** is a number of epochs, the same for all candidates of a round, and not seconds: a
large network is not dropped for being slow.  The table lists the seconds for those who care.
Training continues from the weights of the last round, so no epoch is computed twice.

**Slow starters are protected:** the first round has at least 4 epochs and 100 steps, half of the
candidates continue each time, and the last two train until A stops improving.
"""

import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from unsplit.data.labels import Subclusters
from unsplit.data.memory import is_out_of_memory
from unsplit.data.rows.base import Rows
from unsplit.devices import private_randomness
from unsplit.errors import InputError
from unsplit.networks.registry import build_network, is_users, recipe_for
from unsplit.networks.training.group import Fold
from unsplit.networks.training.history import EpochRecord
from unsplit.networks.training.loop import Measure, TrainConfig, Training, draws_in_epoch
from unsplit.pairwise.heldout_scores import accuracy_within_batches
from unsplit.selection.candidates import Candidate, word

log = logging.getLogger("unsplit")

LEAST_EPOCHS = 4
LEAST_STEPS = 100
FINALISTS = 2

Tell = Callable[[str, EpochRecord], None]


@dataclass(frozen=True)
class Trial:
    """The result of one candidate.

    Parameters
    ----------
    name : str
        The candidate's name.
    candidate : Candidate
        Its settings.
    backbone : str
        The network's name, also if "auto" chose it.
    training : TrainConfig or None
        How it was trained; None if training never started.
    epochs, seconds : int and float
        How long it was trained.
    mean_accuracy : float
        Its best A on the held-out observations, within batches if there are any; NaN if it could
        not be trained.
    round : int
        The last round it took part in, from 1; 0 if none.
    why : str
        Why it is the best, was dropped, or could not be trained.

    Examples
    --------
    >>> import unsplit
    >>> X, labels = unsplit.datasets.gaussians([[0, 0], [4, 0]], 30)
    >>> trial = unsplit.select(X, labels, ["mlp"], epochs=2, random_state=0).trials[0]
    >>> trial.name, trial.epochs
    ('mlp', 2)
    """

    name: str
    candidate: Candidate
    backbone: str
    training: TrainConfig | None
    epochs: int
    seconds: float
    mean_accuracy: float
    round: int
    why: str


@dataclass(frozen=True, eq=False)
class Problem:
    """What all candidates share: clusters, held-out observations, loss, epochs and seed."""

    subclusters: Subclusters
    fold: Fold
    loss: str
    epochs: int
    seed: int

    def measure(self, rows: Rows) -> Measure | None:
        """How A is measured: with batches, over pairs of clusters within batches."""
        if self.subclusters.n_batches == 1:
            return None
        return partial(accuracy_within_batches, rows=rows, subclusters=self.subclusters)


class Run:
    """A candidate and the state of its training."""

    def __init__(self, name: str, candidate: Candidate) -> None:
        self.name, self.candidate = name, candidate
        self.backbone, self.why = word(candidate.backbone), ""
        self.config: TrainConfig | None = None
        self.failed = False
        self.round = self.epochs = self.n_parameters = self.seed = 0
        self.seconds, self.accuracy = 0.0, -np.inf
        self._training: Training | None = None
        # Where torch's global generators are needed.
        self.lent_on: torch.device | None = None

    @contextmanager
    def at_its_own_risk(self) -> Iterator[None]:
        """If this candidate cannot be trained it is marked as failed, and the others continue."""
        try:
            yield
        except (InputError, MemoryError, RuntimeError) as error:
            if not isinstance(error, InputError) and not is_out_of_memory(error):
                raise
            self.failed, self.why, self._training = True, _first_line(error), None
            log.info("candidate %s failed: %s", self.name, self.why)

    def prepare(self, rows: Rows, problem: Problem) -> None:
        """Build the network; all candidates draw the same random numbers."""
        recipe = recipe_for(self.candidate.backbone, rows)
        clusters, fold, self.seed = problem.subclusters.of_rows, problem.fold, problem.seed
        k, augment = len(problem.subclusters.cluster), self.candidate.augment
        self.backbone = recipe.name
        n_draws = draws_in_epoch(len(fold.train), k)
        self.config = self.candidate.training(recipe.training_for(n_draws))
        if is_users(self.candidate.backbone, augment):
            self.lent_on = rows.device
        with private_randomness(self.seed, self.lent_on):
            network = build_network(rows, fold, recipe, k, problem.loss, augment=augment)
        self.n_parameters = sum(p.numel() for p in network.parameters())
        on_device, rng = (
            torch.from_numpy(clusters).to(rows.device),
            np.random.default_rng(self.seed),
        )
        measure = problem.measure(rows)
        self._training = Training(
            [network], rows, on_device, [fold], self.config, rng, measure, problem.epochs
        )

    @property
    def training(self) -> Training:
        """The training of a candidate that has not been dropped."""
        assert self._training is not None
        return self._training

    def advance(self, epochs: int, tell: Tell) -> None:
        """Train up to this many epochs, or until A stops improving."""
        training = self.training
        while self.epochs < epochs and not training.finished:
            # A seed for every epoch: what others do in between changes nothing.
            seed = self.seed + 1 + self.epochs
            with private_randomness(seed, self.lent_on):
                record = training.epoch()
            self.epochs, self.seconds = len(training.records), record.seconds
            self.accuracy = training.records[training.stopping.kept_epoch[0]].accuracy
            tell(self.name, record)

    def drop(self, why: str) -> None:
        """Stop training this candidate and free its network."""
        self.why, self._training = why, None

    def rank(self) -> tuple[Any, ...]:
        """Sort key: best first; of equally good candidates the smaller network first."""
        return self.failed, -self.round, -self.accuracy, self.n_parameters, self.name

    def trial(self) -> Trial:
        """The result of this candidate."""
        return Trial(
            name=self.name,
            candidate=self.candidate,
            backbone=self.backbone,
            training=self.config,
            epochs=self.epochs,
            seconds=self.seconds,
            mean_accuracy=float("nan") if self.failed else self.accuracy,
            round=self.round,
            why=self.why,
        )


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or ["it needs more memory than is available"])[0]


def halve(runs: Sequence[Run], tell: Tell) -> None:
    """Train prepared candidates in rounds until the training of the last ones has ended."""
    alive = _advanced(runs, 1, 1, tell)
    fewest = min((run.training.steps for run in alive), default=LEAST_STEPS)
    budget = max(LEAST_EPOCHS, -(-LEAST_STEPS // fewest))
    for turn in itertools.count(1):
        alive = _advanced(alive, turn, budget, tell)
        log.info("round %d, %d epochs: %s", turn, budget, ", ".join(run.name for run in alive))
        if all(run.training.finished for run in alive):
            break
        n_kept = max(FINALISTS, -(-len(alive) // 2))
        for run in alive[n_kept:]:
            run.drop(f"not among the best {n_kept} after {run.epochs} epochs")
        alive, budget = alive[:n_kept], 2 * budget
    for run in alive:
        run.drop("no higher A at the end of training")


def _advanced(runs: Sequence[Run], turn: int, epochs: int, tell: Tell) -> list[Run]:
    """Train all candidates up to this many epochs; those that did not fail, best first."""
    for run in runs:
        run.round = turn
        with run.at_its_own_risk():
            run.advance(epochs, tell)
    return sorted((run for run in runs if not run.failed), key=Run.rank)
