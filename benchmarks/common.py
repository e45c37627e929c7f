"""What the benchmarks share: low-level runs, digits split into small clusters, a table."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from benchmarks import markdown
from unsplit.data.labels import Parts
from unsplit.data.rows.base import Rows
from unsplit.data.rows.kinds import observations
from unsplit.devices import private_randomness
from unsplit.networks.network import Network
from unsplit.networks.registry import RECIPES, build_network
from unsplit.networks.training.group import Fold
from unsplit.networks.training.loop import MAX_EPOCHS, TrainConfig, Training
from unsplit.networks.training.progress import History
from unsplit.overclustering import artificial
from unsplit.pairwise.divergences import HeldoutScores
from unsplit.pairwise.heldout_scores import heldout_scores

CPU = torch.device("cpu")


def as_options(**settings: Any) -> dict[str, Any]:
    """Settings as :func:`unsplit.pairwise_tvd` takes them: those of training in a TrainConfig.

    Examples
    --------
    >>> as_options(cv=2, epochs=3)["training"].epochs
    3
    """
    names = {field.name for field in fields(TrainConfig)}
    of_training = {name: settings.pop(name) for name in settings.keys() & names}
    if of_training:
        training = settings.get("training") or TrainConfig()
        settings["training"] = replace(training, **of_training)
    return settings


@dataclass(frozen=True)
class Run:
    """A low-level estimate, with its networks."""

    rows: Rows
    networks: list[Network]
    scores: HeldoutScores
    history: History


def run(
    X: NDArray[Any],
    clusters: NDArray[np.int64],
    folds: Sequence[Fold],
    seed: int,
    config: TrainConfig | None = None,
    device: torch.device = CPU,
    epochs: int = MAX_EPOCHS,
) -> Run:
    """Train on given folds: what `pairwise_tvd` does after choosing them."""
    rows = observations(X, device)
    with private_randomness(seed):
        k = int(clusters.max()) + 1
        networks = [build_network(rows, fold, RECIPES["mlp"], k, "softmax") for fold in folds]
        how = replace(config or TrainConfig(), epochs=epochs), np.random.default_rng(seed)
        training = Training(networks, rows, torch.from_numpy(clusters).to(device), folds, *how)
        scores, history = heldout_scores(training, Parts.cut(clusters))
    return Run(rows, networks, scores, history)


def split_digits(
    size: int, noise: float, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """scikit-learn's digits in random clusters of ``size`` within each digit, as in the paper.

    Returns the observations that got a cluster, their clusters and their digits.
    """
    X, digit = load_digits(return_X_y=True)
    clusters = artificial(digit, size, noise, seed)
    used = clusters >= 0
    return X[used], clusters[used], digit[used]


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A Markdown table, ready for the docs."""
    print(f"\n**{title}**\n")
    print(markdown.table(header, rows))
