"""Successive halving: train all briefly, go on with the better half, and again.

**What the budget is.**  Epochs, the same for all in a round, not seconds: a large network is not
dropped for being slow, and who minds finds the seconds in the table.  Training goes on from where
it was, so nothing is paid twice.

**What protects slow starters.**  The first round has at least 4 epochs and 100 steps, half go on
each time, and the last two train until A stops improving.
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

from unsplit.data.rows.base import Rows
from unsplit.errors import InputError
from unsplit.networks.build import build_network
from unsplit.networks.registry import recipe_for
from unsplit.networks.training.loop import EpochRecord, Measure, TrainConfig, Training
from unsplit.networks.training.sampling import Fold
from unsplit.pairwise.batch_effects import Subclusters
from unsplit.pairwise.heldout_scores import accuracy_within_batches
from unsplit.randomness import private_randomness
from unsplit.selection.candidates import Candidate, word

log = logging.getLogger("unsplit")

LEAST_EPOCHS = 4
LEAST_STEPS = 100
FINALISTS = 2

Tell = Callable[[str, EpochRecord], None]


@dataclass(frozen=True)
class Trial:
    """What became of a candidate.

    Parameters
    ----------
    name : str
    candidate : Candidate
    backbone : str
        The network's name, also where "auto" chose it.
    training : TrainConfig or None
        How it was trained; None if it did not come to that.
    epochs, seconds : int and float
        How long.
    mean_accuracy : float
        Its best A on the observations held out, within batches if there are any; NaN if it could
        not be trained.
    round : int
        The last round it was in, from 1; 0 if none.
    why : str
        Why it is the best, was dropped, or could not be trained.
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
    """What all candidates are given: what to tell apart, who is held out, loss and seed."""

    subclusters: Subclusters
    fold: Fold
    loss: str
    epochs: int
    seed: int

    def measure(self, rows: Rows) -> Measure | None:
        """What A is: with batches, as in an estimate, the accuracy over pairs within batches."""
        if self.subclusters.n_batches == 1:
            return None
        return partial(accuracy_within_batches, rows=rows, subclusters=self.subclusters)


class Run:
    """A candidate on its way through the rounds."""

    def __init__(self, name: str, candidate: Candidate) -> None:
        self.name, self.candidate = name, candidate
        self.backbone, self.why = word(candidate.backbone), ""
        self.config: TrainConfig | None = None
        self.failed = False
        self.round = self.epochs = self.n_parameters = self.seed = 0
        self.seconds, self.accuracy = 0.0, -np.inf
        self._training: Training | None = None

    @contextmanager
    def at_its_own_risk(self) -> Iterator[None]:
        """Where it does not fit, this candidate fails and the others go on."""
        try:
            yield
        except (InputError, torch.cuda.OutOfMemoryError) as error:
            self.failed, self.why, self._training = True, str(error).splitlines()[0], None
            log.info("candidate %s failed: %s", self.name, self.why)

    def prepare(self, rows: Rows, problem: Problem) -> None:
        """Build the network; all candidates draw the same random numbers."""
        recipe = recipe_for(self.candidate.backbone, rows)
        self.backbone, self.config = recipe.name, self.candidate.training(recipe.training)
        clusters, fold, self.seed = problem.subclusters.of_rows, problem.fold, problem.seed
        k, augment = len(problem.subclusters.cluster), self.candidate.augment
        with private_randomness(self.seed, rows.device):
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
        """The training of a candidate that is still in it."""
        assert self._training is not None
        return self._training

    def advance(self, epochs: int, tell: Tell) -> None:
        """Train until there were this many epochs, or training ends by itself."""
        training = self.training
        while self.epochs < epochs and not training.finished:
            # A seed for every epoch: what others do in between changes nothing.
            with private_randomness(self.seed + 1 + self.epochs, training.rows.device):
                record = training.epoch()
            self.epochs, self.seconds = len(training.records), record.seconds
            self.accuracy = training.records[training.stopping.kept_epoch[0]].accuracy
            tell(self.name, record)

    def drop(self, why: str) -> None:
        """Let go of the network."""
        self.why, self._training = why, None

    def rank(self) -> tuple[Any, ...]:
        """Best first; of equals the smaller network."""
        return self.failed, -self.round, -self.accuracy, self.n_parameters, self.name

    def trial(self) -> Trial:
        """What became of it."""
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


def halve(runs: Sequence[Run], tell: Tell) -> None:
    """Train prepared candidates in rounds until the last have ended by themselves."""
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
    """Those that have come through, best first."""
    for run in runs:
        run.round = turn
        with run.at_its_own_risk():
            run.advance(epochs, tell)
    return sorted((run for run in runs if not run.failed), key=Run.rank)
