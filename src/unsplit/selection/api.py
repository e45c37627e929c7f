"""Which network tells most pairs of clusters apart?

A(D), the mean accuracy over all pairs on observations held out, needs no labels but those of the
over-clustering, so it can choose between networks where no ground truth is known.  With batches,
A compares clusters within each, so that a network gains nothing by recognising the batch.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from tqdm.auto import tqdm

from unsplit.data.labels import encode_labels
from unsplit.data.rows.base import Rows
from unsplit.data.rows.kinds import observations
from unsplit.devices import choose_device
from unsplit.errors import InputError
from unsplit.networks.training.history import EpochRecord
from unsplit.networks.training.loop import TrainConfig
from unsplit.networks.training.sampling import Fold
from unsplit.pairwise.api import Settings, canonical_order, kind_for, subclusters_of
from unsplit.pairwise.batch_effects import Subclusters
from unsplit.pairwise.folds import holdout_fold
from unsplit.randomness import generator_of
from unsplit.selection.candidates import Candidate, Candidates, named, word
from unsplit.selection.halving import Problem, Run, Tell, Trial, halve


@dataclass(frozen=True, eq=False, repr=False)
class Selection:
    """The candidate with the highest A, and what became of the others.

    Parameters
    ----------
    trials : tuple of Trial
        Best first; those that could not be trained last.
    """

    trials: tuple[Trial, ...]

    @property
    def name(self) -> str:
        """Name of the best candidate."""
        return self.trials[0].name

    @property
    def best(self) -> Candidate:
        """The best candidate."""
        return self.trials[0].candidate

    @property
    def settings(self) -> dict[str, Any]:
        """The best candidate in the words of :func:`unsplit.pairwise_tvd`."""
        training = self.trials[0].training if self.best.varied else None
        return {"backbone": self.best.backbone, "augment": self.best.augment, "training": training}

    def table(self) -> dict[str, NDArray[Any]]:
        """One row per candidate by column, best first; ready for a data frame or a file."""

        def column(*path: str) -> NDArray[Any]:
            return np.array([_at(trial, path) for trial in self.trials])

        return {
            "candidate": column("name"),
            "backbone": column("backbone"),
            "augment": np.array([word(trial.candidate.augment) for trial in self.trials]),
            "learning_rate": column("training", "learning_rate"),
            "weight_decay": column("training", "weight_decay"),
            "batch_size": column("training", "batch_size"),
            "epochs": column("epochs"),
            "mean_accuracy": column("mean_accuracy"),
            "round": column("round"),
            "seconds": column("seconds"),
            "why": column("why"),
        }

    def __repr__(self) -> str:
        lines = [f"Selection: {self.name}, the best of {len(self.trials)}"]
        for t in self.trials:
            price = f"{t.epochs} epochs, {t.seconds:.1f} s"
            lines.append(f"  A {t.mean_accuracy:.3f}  {t.name} ({price}): {t.why}")
        return "\n".join(lines)


def _at(trial: Trial, path: Sequence[str]) -> Any:
    """An attribute of an attribute; NaN where there is none."""
    found: Any = trial
    for name in path:
        found = getattr(found, name, np.nan)
    return found


def select(
    candidates: Candidates,
    X: Any,
    labels: ArrayLike,
    *,
    batch: ArrayLike | None = None,
    holdout: float = 0.2,
    loss: str | None = None,
    epochs: int = TrainConfig.epochs,
    device: str | torch.device = "auto",
    random_state: int | np.random.Generator | np.random.RandomState | None = None,
    progress: bool | Tell = False,
) -> Selection:
    """Choose a network, its augmentation and its training by A(D): no ground truth is seen.

    All candidates train for a few epochs, the better half goes on until it has had twice as many,
    and so on; the last two train until A stops improving.

    Parameters
    ----------
    candidates : mapping from names, or sequence
        Of :class:`Candidate`, or of backbones alone: a name, a module, or a function that makes
        one.  Those in a sequence are named by what they are.
    X, labels
        As for :func:`unsplit.pairwise_tvd`.  A candidate that X does not suit is listed with the
        reason, and the others go on.
    batch : array-like of shape (n,), optional
        As for :func:`unsplit.pairwise_tvd`, whose A this is: clusters are compared within each
        batch, and a network gains nothing by recognising the batch.  Give it here if you give it
        there.
    holdout : float
        Share of every cluster, and of each of its batches, that A is measured on, the same
        observations for all candidates.
        The A of the best is a little too good, as it is the best of many; an estimate made
        with :attr:`Selection.settings` holds out anew.
    loss, epochs, device
        As for :func:`unsplit.pairwise_tvd`; ``epochs`` are the most for each candidate.
    random_state : int, Generator, RandomState or None
        The same seed gives the same choice, whatever the order of candidates and rows and the
        names of clusters and batches.
    progress : bool or callable
        Show a bar, or call this with a candidate's name and an :class:`EpochRecord` after every
        epoch.

    Returns
    -------
    Selection

    Examples
    --------
    >>> import unsplit
    >>> X, labels = unsplit.datasets.scaled_gaussians([1.0, 9.0], 50)
    >>> line = torch.nn.Identity()  # leaves scores linear, and no line separates these
    >>> selection = select({"line": line, "mlp": "mlp"}, X, labels, epochs=3, random_state=0)
    >>> selection.name
    'mlp'
    >>> result = unsplit.pairwise_tvd(X, labels, **selection.settings, epochs=3, random_state=0)
    """
    settings = Settings(holdout=holdout, loss=loss, epochs=epochs, device=device)
    runs = [Run(name, candidate) for name, candidate in named(candidates)]
    rows_of = _rows(runs, X, choose_device(device))
    if not rows_of:
        raise _none_left(runs)
    rng = generator_of(random_state)
    # Any of the kinds would do to split, as long as it is the same in any order of candidates.
    any_rows = min(rows_of.values(), key=lambda rows: rows.kind)
    subclusters, fold = _split(any_rows, labels, batch, holdout, rng)
    problem = Problem(subclusters, fold, settings.loss_name, epochs, int(rng.integers(2**62)))
    for run, rows in rows_of.items():
        with run.at_its_own_risk():
            run.prepare(rows, problem)
    with _reporter(progress) as tell:
        halve([run for run in runs if not run.failed], tell)
    runs.sort(key=Run.rank)
    if runs[0].failed:
        raise _none_left(runs)
    runs[0].why = "the highest A"
    return Selection(tuple(run.trial() for run in runs))


def _rows(runs: Sequence[Run], X: Any, device: torch.device) -> dict[Run, Rows]:
    """What each candidate sees of X, made once for each kind of data; some may not suit."""
    made: dict[str | None, Rows] = {}
    found: dict[Run, Rows] = {}
    wanted = {run: kind_for(X, run.candidate.backbone) for run in runs}
    # What X is by itself comes first, as others may well ask for the same.
    for run in sorted(runs, key=lambda run: wanted[run] is not None):
        with run.at_its_own_risk():
            kind = wanted[run]
            if kind not in made:
                made[kind] = observations(X, device, kind)
                made.setdefault(made[kind].kind, made[kind])
            found[run] = made[kind]
    return found


def _split(
    rows: Rows,
    labels: ArrayLike,
    batch: ArrayLike | None,
    holdout: float,
    rng: np.random.Generator,
) -> tuple[Subclusters, Fold]:
    """What to tell apart, numbered by content, and one share of each that is watched."""
    encoded = encode_labels(labels, len(rows))
    subclusters = subclusters_of(encoded, batch, rows, "A leaves them out")
    number = np.empty(len(encoded.cluster_ids), np.int64)
    used = encoded.clusters >= 0
    number[encoded.clusters[used]] = canonical_order(rows.keys, encoded.clusters)[1][used]
    subclusters, _ = subclusters.joined(number)
    order, _ = canonical_order(rows.keys, subclusters.of_rows)
    parts = holdout_fold(subclusters.of_rows[order], holdout, rng)
    if not len(parts.test):
        raise InputError(
            "every cluster has one observation, so none can be held out to compare candidates; "
            "check that labels are clusters and not row ids."
        )
    train, watch = order[np.concatenate([parts.train, parts.watch])], order[parts.test]
    return subclusters, Fold(train, watch, watch)


def _none_left(runs: Sequence[Run]) -> InputError:
    reasons = {run.why: run.name for run in runs}
    if len(reasons) == 1:
        return InputError(runs[0].why)
    listed = " ".join(f"{name}: {why}" for why, name in reasons.items())
    return InputError(f"none of the {len(runs)} candidates can be trained. {listed}")


@contextmanager
def _reporter(progress: bool | Tell) -> Iterator[Tell]:
    with tqdm(desc="selecting", unit=" epochs", disable=progress is not True) as bar:

        def tell(name: str, record: EpochRecord) -> None:
            if callable(progress):
                progress(name, record)
            bar.set_postfix_str(f"{name}: A {record.accuracy:.3f}", refresh=False)
            bar.update()

        yield tell
