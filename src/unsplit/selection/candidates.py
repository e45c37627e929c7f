"""The candidates of :func:`unsplit.select`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from unsplit.errors import InputError
from unsplit.networks.registry import (
    Augment,
    Backbone,
    check_augment,
    chooses,
    is_fitted_once,
    refuse_for_classifiers,
    wanted_kind,
)
from unsplit.networks.training.loop import TrainConfig


@dataclass(frozen=True)
class Candidate:
    """A network and how to train it, to be compared with others by :func:`unsplit.select`.

    Parameters
    ----------
    backbone, augment
        As for :func:`unsplit.pairwise_tvd`.
    learning_rate, weight_decay : float, optional
        None uses what suits the backbone.
    batch_size : int, optional
        None uses what suits the backbone.

    Examples
    --------
    >>> str(Candidate("mlp", learning_rate=0.01))
    'mlp, learning_rate 0.01'
    """

    backbone: Backbone = "auto"
    augment: Augment = "auto"
    learning_rate: float | None = None
    weight_decay: float | None = None
    batch_size: int | None = None

    def __post_init__(self) -> None:
        wanted_kind(self.backbone)
        if chooses(self.backbone):
            raise InputError('backbone "best" is itself a choice; name what to choose from.')
        check_augment(self.augment)
        refuse_for_classifiers(self.backbone, **self.varied)
        self.training(TrainConfig())

    @property
    def varied(self) -> dict[str, Any]:
        """The training settings that were given, by name."""
        names = ("learning_rate", "weight_decay", "batch_size")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def training(self, usual: TrainConfig) -> TrainConfig:
        """The training settings: those given, and the usual ones of the backbone.

        Parameters
        ----------
        usual : TrainConfig
            The usual settings.

        Returns
        -------
        TrainConfig

        Examples
        --------
        >>> Candidate(batch_size=64).training(TrainConfig()).batch_size
        64
        """
        return replace(usual, **self.varied)

    def __str__(self) -> str:
        parts = [word(self.backbone)]
        if self.augment != "auto":
            parts.append(f"augment {word(self.augment)}")
        return ", ".join(parts + [f"{name} {value:g}" for name, value in self.varied.items()])


Candidates = Mapping[str, Candidate | Backbone] | Sequence[Candidate | Backbone]


def usual_candidates(backbone: str = "auto") -> list[Candidate]:
    """What to try when nobody says: the backbone as it is, slower, faster and without augmentation.

    The paper's simple network is the last one.

    Parameters
    ----------
    backbone : str
        As for :func:`unsplit.pairwise_tvd`.

    Returns
    -------
    list of Candidate

    Examples
    --------
    >>> [str(candidate) for candidate in usual_candidates("resnet18")][:2]
    ['resnet18', 'resnet18, learning_rate 0.0003']
    """
    if is_fitted_once(backbone):
        return [Candidate(backbone), Candidate("mlp"), Candidate("single-layer")]
    return [
        Candidate(backbone),
        Candidate(backbone, learning_rate=3e-4),
        Candidate(backbone, learning_rate=3e-3),
        Candidate(backbone, augment=False),
        Candidate("single-layer"),
    ]


def named(candidates: Candidates) -> list[tuple[str, Candidate]]:
    """Names and candidates; in a sequence, candidates are named after their settings.

    Examples
    --------
    >>> [name for name, _ in named(["mlp", Candidate(batch_size=64), "mlp"])]
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
    """A short name for a backbone or an augmentation.

    Examples
    --------
    >>> from torch import nn
    >>> word("mlp"), word(nn.Identity()), word(False)
    ('mlp', 'Identity', 'none')
    """
    if isinstance(choice, bool):
        return "auto" if choice else "none"
    if isinstance(choice, str):
        return choice
    name: str = getattr(choice, "__name__", type(choice).__name__)
    return name
