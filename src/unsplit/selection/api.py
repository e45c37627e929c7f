"""Which network tells most pairs of clusters apart?

A(D), the mean held-out accuracy over all pairs of clusters, needs only the labels of the
over-clustering, so it can choose between networks where no ground truth is known.  With batches,
A compares clusters within each batch, so a network gains nothing by recognising the batch.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from tqdm.auto import tqdm

from unsplit.data.frames import data_frame
from unsplit.data.labels import Subclusters, encode_labels, refuse_other_order
from unsplit.data.memory import memory_errors
from unsplit.data.rows.base import Rows, canonical_order
from unsplit.data.rows.kinds import observations
from unsplit.devices import check_seed, choose_device, generator_of, undisturbed, usual_settings
from unsplit.errors import InputError
from unsplit.networks.training.group import Fold
from unsplit.networks.training.history import EpochRecord
from unsplit.networks.training.loop import MAX_EPOCHS
from unsplit.pairwise.api import (
    Settings,
    check_progress,
    kind_for,
    subclusters_of,
)
from unsplit.pairwise.heldout_scores import holdout_fold
from unsplit.pairwise.memory import LESS_DATA
from unsplit.selection.candidates import Candidate, Candidates, named, usual_candidates, word
from unsplit.selection.halving import Problem, Run, Tell, Trial, halve


@dataclass(frozen=True, eq=False, repr=False)
class Selection:
    """The candidate with the highest A, and the results of all others.

    Parameters
    ----------
    trials : tuple of Trial
        Best first; candidates that could not be trained come last.

    Examples
    --------
    >>> import unsplit
    >>> X, labels = unsplit.datasets.gaussians([[0, 0], [4, 0]], 30)
    >>> selection = unsplit.select(X, labels, ["mlp", "single-layer"], epochs=2, random_state=0)
    >>> sorted(trial.name for trial in selection.trials)
    ['mlp', 'single-layer']
    >>> sorted(selection.settings)
    ['augment', 'backbone', 'training']
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
        """The best candidate as keyword arguments of :func:`unsplit.pairwise_tvd`.

        :class:`unsplit.ClusterMerger` takes the same arguments.  ``epochs`` is not among them.
        """
        training = self.trials[0].training if self.best.varied else None
        return {"backbone": self.best.backbone, "augment": self.best.augment, "training": training}

    def table(self) -> dict[str, NDArray[Any]]:
        """One row per candidate, best first, as a dictionary of columns.

        Returns
        -------
        dict of str to ndarray
            Ready for a data frame or a file; :meth:`to_frame` makes a pandas DataFrame.

        Examples
        --------
        >>> import unsplit
        >>> X, labels = unsplit.datasets.gaussians([[0, 0], [4, 0]], 30)
        >>> unsplit.select(X, labels, ["mlp"], epochs=2, random_state=0).table()["backbone"]
        array(['mlp'], dtype='<U3')
        """

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

    def to_frame(self) -> Any:
        """:meth:`table` as a pandas DataFrame.

        Returns
        -------
        pandas.DataFrame

        Examples
        --------
        >>> import unsplit
        >>> X, labels = unsplit.datasets.gaussians([[0, 0], [4, 0]], 30)
        >>> frame = unsplit.select(X, labels, ["mlp"], epochs=2, random_state=0).to_frame()
        >>> frame["candidate"].tolist()
        ['mlp']
        """
        return data_frame(self.table(), "Selection.to_frame", "Selection.table")

    def __repr__(self) -> str:
        lines = [f"Selection: {self.name}, the best of {len(self.trials)}"]
        for t in self.trials:
            price = f"{t.epochs} epochs, {t.seconds:.1f} s"
            lines.append(f"  A {t.mean_accuracy:.3f}  {t.name} ({price}): {t.why}")
        return "\n".join(lines)


def _at(trial: Trial, path: Sequence[str]) -> Any:
    """An attribute of an attribute; NaN if there is none."""
    found: Any = trial
    for name in path:
        found = getattr(found, name, np.nan)
    return found


@usual_settings()
def select(
    X: Any,
    labels: ArrayLike,
    candidates: Candidates | None = None,
    *,
    batch: ArrayLike | None = None,
    holdout: float = 0.2,
    loss: str | None = None,
    epochs: int = MAX_EPOCHS,
    device: str | torch.device = "auto",
    random_state: int | np.random.Generator | np.random.RandomState | None = None,
    progress: bool | Tell = False,
) -> Selection:
    """Choose the network, its augmentation and its training settings without ground truth.

    Candidates are compared by A(D), the mean held-out accuracy over all pairs of clusters.  All of
    them train for a few epochs.  The better half continues for twice as many epochs, and so on.
    The last two train until A stops improving.

    Parameters
    ----------
    X, labels
        Observations and their over-clustering, as for :func:`unsplit.pairwise_tvd`.
    candidates : mapping from names, or sequence, optional
        Each is a :class:`Candidate` or a backbone: a name, a module, or a function that makes one.
        In a sequence, candidates are named after their settings.  By default, the network that
        suits X is tried with three learning rates and without augmentation, and compared with the
        paper's "single-layer".  A candidate that does not suit X is listed with the reason, and
        the others continue.
    batch : array-like of shape (n,), optional
        As for :func:`unsplit.pairwise_tvd`: clusters are compared within each batch, so a network
        gains nothing by recognising the batch.  Pass it here if you pass it there.
    holdout : float
        Share of every cluster (and of each of its batches) on which A is measured.  All candidates
        are measured on the same observations.  The A of the best candidate is slightly too high,
        because it is the best of several; an estimate made with :attr:`Selection.settings` holds
        out new observations.
    loss : {"pairwise", "softmax"}, optional
        As for :func:`unsplit.pairwise_tvd`.
    epochs : int
        The most epochs for each candidate.
    device : str or torch.device
        As for :func:`unsplit.pairwise_tvd`.
    random_state : int, Generator, RandomState or None
        The same seed gives the same choice, whatever the order of the candidates and the rows, and
        whatever the names of the clusters and batches.
    progress : bool or callable
        True shows a progress bar.  A callable receives the candidate's name and an
        :class:`EpochRecord` after every epoch.

    Returns
    -------
    Selection

    Examples
    --------
    >>> import unsplit
    >>> X, labels = unsplit.datasets.scaled_gaussians([1.0, 9.0], 50)
    >>> linear = torch.nn.Identity()  # only linear boundaries, which do not separate these clusters
    >>> candidates = {"linear": linear, "mlp": "mlp"}
    >>> selection = unsplit.select(X, labels, candidates, epochs=3, random_state=0)
    >>> selection.name
    'mlp'
    >>> result = unsplit.pairwise_tvd(X, labels, **selection.settings, epochs=3, random_state=0)
    """
    if holdout is None:
        raise InputError(
            "holdout must be a share between 0 and 1, got None; 0.2 is usual, because candidates "
            "are compared on observations that are held out once."
        )
    refuse_other_order(X, labels=labels, batch=batch)
    check_progress(progress)
    check_seed(random_state)
    settings = Settings(holdout=holdout, loss=loss, epochs=epochs, device=device)
    tried = usual_candidates() if candidates is None else candidates
    runs = [Run(name, candidate) for name, candidate in named(tried)]
    rows_of = _rows(runs, X, choose_device(device))
    if not rows_of:
        raise _none_left(runs)
    rng = generator_of(random_state)
    # Any kind of data can be split, but the choice must not depend on the order of candidates.
    any_rows = min(rows_of.values(), key=lambda rows: rows.kind)
    with memory_errors("comparing the candidates", LESS_DATA):
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
    """X as each candidate needs it, read once for each kind of data; unsuited candidates fail."""
    made: dict[str | None, Rows] = {}
    found: dict[Run, Rows] = {}
    wanted = {run: kind_for(X, run.candidate.backbone) for run in runs}
    # The kind that X has by itself comes first, because other candidates often need the same.
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
    """The clusters numbered by content, and the share of each that is held out."""
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
            "labels puts every observation into a cluster of its own, so nothing can be held out "
            "to compare candidates; check that labels are clusters and not row ids."
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
                with undisturbed():
                    progress(name, record)
            bar.set_postfix_str(f"{name}: A {record.accuracy:.3f}", refresh=False)
            bar.update()

        yield tell
