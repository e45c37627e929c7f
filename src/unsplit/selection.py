"""Which network tells most pairs of clusters apart?

A(D), the mean held-out accuracy over all pairs of clusters, needs only the labels of the
over-clustering, so it can choose between networks where no ground truth is known.  With batches,
A compares clusters within each batch, so a network gains nothing by recognising the batch.

**Successive halving:** all candidates train briefly, the better half continues, and so on.  The
budget is a number of epochs, the same for all candidates of a round, and not seconds: a large
network is not dropped for being slow.  Training continues from the weights of the last round, so no
epoch is computed twice.

**Slow starters are protected:** the first round has at least 4 epochs and 100 steps, half of the
candidates continue each time, and the last two train until A stops improving.
"""

import itertools
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from tqdm.auto import tqdm

from unsplit.data.labels import Subclusters, encode_labels, refuse_other_order
from unsplit.data.memory import is_out_of_memory, memory_errors
from unsplit.data.rows.base import Rows, canonical_order
from unsplit.data.rows.kinds import observations
from unsplit.data.saving import data_frame
from unsplit.devices import (
    check_seed,
    choose_device,
    generator_of,
    private_randomness,
    undisturbed,
    usual_settings,
)
from unsplit.errors import InputError, check_type, option, shown
from unsplit.networks.registry import (
    Backbone,
    build_network,
    chooses,
    is_fitted_once,
    is_users,
    recipe_for,
    refuse_for_classifiers,
    wanted_kind,
)
from unsplit.networks.training.group import Fold, Group
from unsplit.networks.training.loop import TrainConfig, Training, draws_in_epoch
from unsplit.networks.training.progress import EpochRecord
from unsplit.pairwise.api import (
    LESS_DATA,
    Settings,
    check_progress,
    is_share,
    kind_for,
    subclusters_of,
)
from unsplit.pairwise.folds import holdout_fold
from unsplit.pairwise.heldout_scores import validation_accuracy

log = logging.getLogger("unsplit")

__all__ = ["Candidate", "Selection", "Trial", "select"]

LEAST_EPOCHS = 4
LEAST_STEPS = 100
FINALISTS = 2

AS_USUAL = TrainConfig()

Tell = Callable[[str, EpochRecord], None]


@dataclass(frozen=True)
class Candidate:
    """A network and how to train it, to be compared with others by :func:`unsplit.select`.

    Parameters
    ----------
    backbone
        As for :func:`unsplit.pairwise_tvd`.
    training : TrainConfig
        What is not given is as for all candidates, or as suits the backbone.

    Examples
    --------
    >>> import unsplit
    >>> str(Candidate("mlp", unsplit.TrainConfig(learning_rate=0.01)))
    'mlp, learning_rate 0.01'
    """

    backbone: Backbone = "auto"
    training: TrainConfig = AS_USUAL

    def __post_init__(self) -> None:
        wanted_kind(self.backbone)
        if chooses(self.backbone):
            raise InputError('backbone "best" is itself a choice; name what to choose from.')
        check_type("training", self.training, TrainConfig, "pass unsplit.TrainConfig(...)")
        refuse_for_classifiers(self.backbone, self.training)

    def __str__(self) -> str:
        settings = self.training.given.items()
        return ", ".join([word(self.backbone), *(f"{name} {word(v)}" for name, v in settings)])


Candidates = Mapping[str, Candidate | Backbone] | Sequence[Candidate | Backbone]


def usual_candidates(backbone: str = "auto") -> list[Candidate]:
    """What to try by default: the backbone as it is, slower, faster and without augmentation.

    The paper's simple network is the last one.

    Examples
    --------
    >>> [str(candidate) for candidate in usual_candidates("resnet18")][:2]
    ['resnet18', 'resnet18, learning_rate 0.0003']
    """
    if is_fitted_once(backbone):
        return [Candidate(backbone), Candidate("mlp"), Candidate("single-layer")]
    return [
        Candidate(backbone),
        Candidate(backbone, TrainConfig(learning_rate=3e-4)),
        Candidate(backbone, TrainConfig(learning_rate=3e-3)),
        Candidate(backbone, TrainConfig(augment=False)),
        Candidate("single-layer"),
    ]


def named(candidates: Candidates) -> list[tuple[str, Candidate]]:
    """Names and candidates; in a sequence, candidates are named after their settings.

    Examples
    --------
    >>> [name for name, _ in named(["mlp", Candidate(training=TrainConfig(batch_size=64)), "mlp"])]
    ['mlp', 'auto, batch_size 64', 'mlp (2)']
    """
    if isinstance(candidates, Mapping):
        found = [(str(name), _candidate(entry)) for name, entry in candidates.items()]
    elif isinstance(candidates, Sequence) and not isinstance(candidates, str):
        found = [(str(one), one) for one in map(_candidate, candidates)]
    else:
        raise InputError(
            f"candidates must be a mapping or a list, got {word(candidates)!r}; put a single "
            "candidate into a list."
        )
    if not found:
        raise InputError('candidates is empty; pass at least one, for example ["auto"].')
    seen: Counter[str] = Counter()
    result = []
    for name, candidate in found:
        seen[name] += 1
        result.append((f"{name} ({seen[name]})" if seen[name] > 1 else name, candidate))
    return result


def _candidate(entry: Candidate | Backbone) -> Candidate:
    return entry if isinstance(entry, Candidate) else Candidate(entry)


def word(choice: Any) -> str:
    """A short name for a backbone or the value of a setting.

    Examples
    --------
    >>> from torch import nn
    >>> word("mlp"), word(nn.Identity()), word(False), word(0.001)
    ('mlp', 'Identity', 'none', '0.001')
    """
    if isinstance(choice, bool):
        return "auto" if choice else "none"
    if isinstance(choice, (str, int, float)):
        return choice if isinstance(choice, str) else f"{choice:g}"
    name: str = getattr(choice, "__name__", type(choice).__name__)
    return name


@dataclass(frozen=True)
class Trial:
    """The result of one candidate.

    Parameters
    ----------
    name : str
        The candidate's name.
    candidate : Candidate
        Its network, and all settings that were given for it.
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
    >>> short = unsplit.TrainConfig(epochs=2)
    >>> trial = unsplit.select(X, labels, ["mlp"], training=short, random_state=0).trials[0]
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


class Run:
    """A candidate and the state of its training; attributes are those of :class:`Trial`."""

    def __init__(self, name: str, candidate: Candidate) -> None:
        self.name, self.candidate = name, candidate
        self.backbone, self.why = word(candidate.backbone), ""
        self.training: TrainConfig | None = None
        self.failed = False
        self.round = self.epochs = self.n_parameters = self.seed = 0
        self.seconds, self.mean_accuracy = 0.0, -np.inf
        # None before it starts, and once the candidate has been dropped.
        self.loop: Any = None
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
            lines = str(error).splitlines() or ["it needs more memory than is available"]
            self.failed, self.why, self.loop, self.mean_accuracy = True, lines[0], None, np.nan
            log.info("candidate %s failed: %s", self.name, self.why)

    def prepare(self, rows: Rows, subclusters: Subclusters, fold: Fold, seed: int) -> None:
        """Build the network; all candidates draw the same random numbers."""
        recipe, k = recipe_for(self.candidate.backbone, rows), len(subclusters.cluster)
        self.backbone, self.seed = recipe.name, seed
        usual = recipe.training_for(draws_in_epoch(len(fold.train), k))
        config = self.training = self.candidate.training.over(usual)
        if is_users(self.candidate.backbone, config.augment):
            self.lent_on = rows.device
        with private_randomness(seed, self.lent_on):
            network = build_network(rows, fold, recipe, k, config.loss, config.augment)
        self.n_parameters = sum(p.numel() for p in network.parameters())

        def within_batches(group: Group) -> NDArray[np.float64]:
            return validation_accuracy(group.means, group.folds, rows, subclusters)

        measure = within_batches if subclusters.n_batches > 1 else None
        clusters, rng = torch.from_numpy(subclusters.of_rows), np.random.default_rng(seed)
        self.loop = Training(
            [network], rows, clusters.to(rows.device), [fold], config, rng, measure,
            config.epochs,
        )  # fmt: skip

    def advance(self, epochs: int, tell: Tell) -> None:
        """Train up to this many epochs, or until A stops improving."""
        while self.epochs < epochs and not self.loop.finished:
            # A seed for every epoch: what others do in between changes nothing.
            with private_randomness(self.seed + 1 + self.epochs, self.lent_on):
                record = self.loop.epoch()
            self.epochs, self.seconds = len(self.loop.records), record.seconds
            self.mean_accuracy = self.loop.records[self.loop.stopping.kept_epoch[0]].accuracy
            tell(self.name, record)

    def drop(self, why: str) -> None:
        """Stop training this candidate and free its network."""
        self.why, self.loop = why, None

    def rank(self) -> tuple[Any, ...]:
        """Sort key: best first; of equally good candidates the smaller network first."""
        accuracy = 0.0 if self.failed else self.mean_accuracy
        return self.failed, -self.round, -accuracy, self.n_parameters, self.name

    def trial(self) -> Trial:
        """The result of this candidate."""
        return Trial(**{field.name: getattr(self, field.name) for field in fields(Trial)})


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
    >>> short = unsplit.TrainConfig(epochs=2)
    >>> networks = ["mlp", "single-layer"]
    >>> selection = unsplit.select(X, labels, networks, training=short, random_state=0)
    >>> sorted(trial.name for trial in selection.trials)
    ['mlp', 'single-layer']
    >>> sorted(selection.settings)
    ['backbone', 'training']
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

        :class:`unsplit.ClusterMerger` takes the same arguments.
        """
        return {"backbone": self.best.backbone, "training": self.best.training}

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
        >>> unsplit.select(X, labels, ["mlp"], random_state=0).table()["backbone"]
        array(['mlp'], dtype='<U3')
        """
        trials = self.trials
        found: dict[str, list[Any]] = {
            "candidate": [trial.name for trial in trials],
            "backbone": [trial.backbone for trial in trials],
            "augment": [word(trial.candidate.training.augment) for trial in trials],
        }
        for name in ("learning_rate", "weight_decay", "batch_size"):
            found[name] = [getattr(trial.training, name, np.nan) for trial in trials]
        for name in ("epochs", "mean_accuracy", "round", "seconds", "why"):
            found[name] = [getattr(trial, name) for trial in trials]
        return {name: np.array(values) for name, values in found.items()}

    def to_frame(self) -> Any:
        """:meth:`table` as a pandas DataFrame.

        Returns
        -------
        pandas.DataFrame

        Examples
        --------
        >>> import unsplit
        >>> X, labels = unsplit.datasets.gaussians([[0, 0], [4, 0]], 30)
        >>> frame = unsplit.select(X, labels, ["mlp"], random_state=0).to_frame()
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


@usual_settings()
def select(
    X: Any,
    labels: ArrayLike,
    candidates: Candidates | None = None,
    *,
    batch: ArrayLike | None = None,
    cv: float = 0.2,
    training: TrainConfig | None = None,
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
    cv : float
        Share of every cluster (and of each of its batches) on which A is measured.  All candidates
        are measured on the same observations.  The A of the best candidate is slightly too high,
        because it is the best of several; an estimate made with :attr:`Selection.settings` holds
        out new observations.
    training : TrainConfig, optional
        How to train all candidates, such as the most epochs for each; what a candidate says itself
        comes first.
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
    >>> short = unsplit.TrainConfig(epochs=3)
    >>> selection = unsplit.select(X, labels, candidates, training=short, random_state=0)
    >>> selection.name
    'mlp'
    >>> result = unsplit.pairwise_tvd(X, labels, **selection.settings, random_state=0)
    """
    if not is_share(cv):
        raise InputError(
            f"{option('cv')} must be a share to hold out between 0 and 1, got {shown(cv)}; 0.2 is "
            "usual, because candidates are compared on observations that are held out once."
        )
    refuse_other_order(X, labels=labels, batch=batch)
    check_progress(progress)
    check_seed(random_state)
    for_all = Settings(training=training).training or AS_USUAL
    tried = usual_candidates() if candidates is None else candidates
    runs = [Run(name, _trained_as(candidate, for_all)) for name, candidate in named(tried)]
    rows_of = _rows(runs, X, choose_device(device))
    if not rows_of:
        raise _none_left(runs)
    rng = generator_of(random_state)
    # Any kind of data can be split, but the choice must not depend on the order of candidates.
    any_rows = min(rows_of.values(), key=lambda rows: rows.kind)
    with memory_errors("comparing the candidates", LESS_DATA):
        subclusters, fold = _split(any_rows, labels, batch, cv, rng)
    seed = int(rng.integers(2**62))
    for run, rows in rows_of.items():
        with run.at_its_own_risk():
            run.prepare(rows, subclusters, fold, seed)
    with _reporter(progress) as tell:
        halve([run for run in runs if not run.failed], tell)
    runs.sort(key=Run.rank)
    if runs[0].failed:
        raise _none_left(runs)
    runs[0].why = "the highest A"
    return Selection(tuple(run.trial() for run in runs))


def _trained_as(candidate: Candidate, training: TrainConfig) -> Candidate:
    """A candidate with the settings for all; those of networks suit no classifier."""
    if is_fitted_once(candidate.backbone):
        return candidate
    return replace(candidate, training=candidate.training.over(training))


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
    share: float,
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
    parts = holdout_fold(subclusters.of_rows[order], share, rng)
    if not len(parts.test):
        raise InputError(
            "labels puts every observation into a cluster of its own, so nothing can be held out "
            "to compare candidates; check that labels are clusters and not row ids."
        )
    train, test = order[np.concatenate([parts.train, parts.watch])], order[parts.test]
    return subclusters, Fold(train, test, test)


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


def halve(runs: Sequence[Run], tell: Tell) -> None:
    """Train prepared candidates in rounds until the training of the last ones has ended."""
    alive = _advanced(runs, 1, 1, tell)
    fewest = min((run.loop.steps for run in alive), default=LEAST_STEPS)
    budget = max(LEAST_EPOCHS, -(-LEAST_STEPS // fewest))
    for turn in itertools.count(1):
        alive = _advanced(alive, turn, budget, tell)
        log.info("round %d, %d epochs: %s", turn, budget, ", ".join(run.name for run in alive))
        if all(run.loop.finished for run in alive):
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
