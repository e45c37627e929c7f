"""Over-clusterings made from annotations: how good are the distances?  Two experiments ask that."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import unsplit
from benchmarks.common import as_options
from unsplit.metrics import majority_categories, quality

DIVERGENCES = ("tv", "lecam", "js", "hellinger", "overlap", "auc")

# One split and hard accuracy.
PAPER: dict[str, Any] = {"cv": 0.2, "loss": "pairwise"}


def estimator(name: str, epochs: int) -> dict[str, Any]:
    """What :func:`unsplit.pairwise_tvd` is asked for; as many steps for the one as for the other.

    Examples
    --------
    >>> estimator("paper", 10)
    {'cv': 0.2, 'loss': 'pairwise', 'epochs': 50}
    >>> estimator("cross-fitted", 10)
    {'cv': 5, 'epochs': 10}
    """
    if name == "paper":
        return PAPER | {"epochs": 5 * epochs}
    return {"cv": 5, "epochs": epochs}


def measured(
    X: Any, labels: NDArray[Any], categories: NDArray[Any], **choices: Any
) -> dict[str, Any]:
    """1 − Q for every divergence, and A."""
    result = unsplit.pairwise_tvd(X, labels, **as_options(**choices))
    majority = majority_categories(labels, categories)
    return {
        "k": result.n_clusters,
        "1-Q": {name: 1 - quality(result.divergence(name), majority) for name in DIVERGENCES},
        "A": float(result.mean_accuracy),
        "epochs run": len(result.history.epoch),
    }


def some_of_each(
    categories: NDArray[Any], n_categories: int, n_each: int, random_state: int
) -> NDArray[np.int64]:
    """Rows of some categories, of each at most so many."""
    rng = np.random.default_rng(random_state)
    chosen = rng.choice(np.unique(categories), n_categories, replace=False)
    rows = [rng.permutation(np.flatnonzero(categories == c))[:n_each] for c in chosen]
    return np.sort(np.concatenate(rows))
