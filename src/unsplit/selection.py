"""Which network tells most pairs of clusters apart?

A(D), the mean held-out accuracy over all pairs of clusters, needs only the labels of the
over-clustering, so it can choose between networks where no ground truth is known.  Each candidate
makes an estimate of its own, with the same share of every cluster held out.  With batches or
groups, A compares clusters within batches or across groups, so a network gains nothing by
recognising the batch or the group.
"""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from tqdm.auto import tqdm

from unsplit.data.labels import encode_labels, refuse_other_order
from unsplit.data.saving import data_frame
from unsplit.devices import check_seed, generator_of
from unsplit.errors import (
    BatchWarning,
    DependenceWarning,
    InputError,
    SmallClusterWarning,
    check_type,
    option,
    refuses_old_options,
    shown,
)
from unsplit.networks.registry import BEST, Backbone, recipe_of, refuse_for_classifiers
from unsplit.networks.training.loop import TrainConfig
from unsplit.networks.training.progress import EpochRecord
from unsplit.pairwise.api import Settings, check_progress, fit, is_share
from unsplit.pairwise.divergences import nothing_held_out
from unsplit.pairwise.heldout_scores import Fitted

__all__ = ["Candidate", "Selection", "Trial", "select"]

AS_USUAL = TrainConfig()
ABOUT_DATA = (BatchWarning, DependenceWarning, SmallClusterWarning)

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
        if recipe_of(self.backbone).name == BEST:
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
    if recipe_of(backbone).fitted_once:
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
    if not isinstance(candidates, (Mapping, list, tuple)) or not candidates:
        raise InputError(
            'candidates must be a list or a mapping of at least one, for example ["auto"], got '
            f"{shown(candidates)}."
        )
    if isinstance(candidates, Mapping):
        return [(str(name), _candidate(entry)) for name, entry in candidates.items()]
    found: list[tuple[str, Candidate]] = []
    for candidate in map(_candidate, candidates):
        same = [str(other) for _, other in found].count(str(candidate))
        found.append((f"{candidate} ({same + 1})" if same else str(candidate), candidate))
    return found


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
    return getattr(choice, "__name__", type(choice).__name__)


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
    n_parameters : int
        Number of its weights; of equally good networks the smaller one is the best.
    mean_accuracy : float
        Its A on the held-out observations; NaN if it could not be trained.
    why : str
        Why it is the best or not, or could not be trained.

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
    epochs: int = 0
    seconds: float = 0.0
    n_parameters: int = 0
    mean_accuracy: float = np.nan
    why: str = ""


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
        for name in ("epochs", "mean_accuracy", "seconds", "why"):
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
        return data_frame(self.table())

    def __repr__(self) -> str:
        lines = [f"Selection: {self.name}, the best of {len(self.trials)}"]
        for t in self.trials:
            price = f"{t.epochs} epochs, {t.seconds:.1f} s"
            lines.append(f"  A {t.mean_accuracy:.3f}  {t.name} ({price}): {t.why}")
        return "\n".join(lines)


@refuses_old_options
def select(
    X: Any,
    labels: ArrayLike,
    candidates: Candidates | None = None,
    *,
    batch: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    cv: float = 0.2,
    training: TrainConfig | None = None,
    device: str | torch.device = "auto",
    random_state: int | np.random.Generator | np.random.RandomState | None = None,
    progress: bool | Tell = False,
) -> Selection:
    """Choose the network, its augmentation and its training settings without ground truth.

    Candidates are compared by A(D), the mean held-out accuracy over all pairs of clusters.  Each
    is trained until the accuracy on validation observations stops improving.

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
    batch, groups : array-likes of shape (n,), optional
        As for :func:`unsplit.pairwise_tvd`: a network gains nothing by recognising the batch or the
        group.  Pass them here if you pass them there.
    cv : float
        Share of every cluster (and of each of its batches) on which A is measured.  All candidates
        for the same kind of data are measured on the same observations.  The A of the best
        candidate is slightly too high, because it is the best of several; an estimate made with
        :attr:`Selection.settings` holds out new observations.
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
    refuse_other_order(X, labels=labels, batch=batch, groups=groups)
    check_progress(progress)
    check_seed(random_state)
    for_all = Settings(training=training).training or AS_USUAL
    tried = usual_candidates() if candidates is None else candidates
    encoded = encode_labels(labels)
    if np.bincount(encoded.clusters[encoded.clusters >= 0]).max() < 2:
        raise nothing_held_out()
    seed = int(generator_of(random_state).integers(2**62))
    trials: list[Trial] = []
    with tqdm(desc="selecting", unit=" epochs", disable=progress is not True) as bar:
        for name, given in named(tried):
            candidate = given
            # The settings of networks suit no classifier.
            if not recipe_of(given.backbone).fitted_once:
                candidate = replace(given, training=given.training.over(for_all))

            def on_epoch(record: EpochRecord, name: str = name) -> None:
                if callable(progress):
                    progress(name, record)
                bar.set_postfix_str(f"{name}: A {record.accuracy:.3f}", refresh=False)
                bar.update()

            settings = Settings(candidate.backbone, cv, device, candidate.training)
            estimate = partial(fit, X, encoded, settings, seed, on_epoch, batch, groups=groups)
            with without_repeated_warnings(any(trial.epochs for trial in trials)):
                trials.append(_tried(name, candidate, estimate))
    trials.sort(key=_rank)
    best, *others = trials
    if best.why:
        raise InputError(" ".join(dict.fromkeys(trial.why for trial in trials)))
    lower = [f"A is {best.mean_accuracy - trial.mean_accuracy:.3f} lower" for trial in others]
    explained = [replace(t, why=t.why or why) for t, why in zip(others, lower, strict=True)]
    return Selection((replace(best, why="the highest A"), *explained))


@contextmanager
def without_repeated_warnings(repeated: bool) -> Iterator[None]:
    """Leave out warnings about data and labels that the first estimate has given."""
    with warnings.catch_warnings():
        for category in ABOUT_DATA if repeated else ():
            warnings.simplefilter("ignore", category)
        yield


def _tried(name: str, candidate: Candidate, estimate: Callable[[], Fitted]) -> Trial:
    """Estimate with one candidate; if it cannot be trained, the trial says why."""
    start = time.perf_counter()
    try:
        fitted = estimate()
    except InputError as error:
        return Trial(name, candidate, word(candidate.backbone), None, why=str(error))
    trained = fitted.trained
    return Trial(
        name,
        candidate,
        backbone=trained.name,
        training=trained.config,
        epochs=len(fitted.result.history.epoch),
        seconds=time.perf_counter() - start,
        n_parameters=sum(p.numel() for p in trained.networks[0].parameters()),
        mean_accuracy=fitted.result.mean_accuracy,
    )


def _rank(trial: Trial) -> tuple[Any, ...]:
    """Sort key: best first, what could not be trained last."""
    accuracy = round(float(np.nan_to_num(trial.mean_accuracy)), 9)
    return bool(trial.why), -accuracy, trial.n_parameters, trial.name
