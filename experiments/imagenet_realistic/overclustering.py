"""A subset of random categories and its over-clustering by Algorithm 1."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.core import Result
from experiments.imagenet_realistic.config import Config
from unsplit.metrics import category_counts, correct_merges, n_unique_majorities, purity
from unsplit.overclustering import greedy_dense

Index = NDArray[np.int64]


class Overclustering(NamedTuple):
    """The images that are in a cluster.

    ``rows`` are their places among all images, ``labels`` their clusters from 0 to k − 1,
    ``categories`` what they show and ``features`` their rows of the representation; ``outside``
    are the places of the subset's images that are in no cluster.
    """

    rows: Index
    labels: Index
    categories: NDArray[Any]
    features: NDArray[np.float32]
    outside: Index

    def with_outside(self) -> tuple[Index, Index]:
        """Places and labels of all images of the subset, −1 for those in no cluster."""
        nowhere = np.full(len(self.outside), -1)
        return np.append(self.rows, self.outside), np.append(self.labels, nowhere)

    def described(self) -> Result:
        """Purity, categories that are some cluster's majority, and merges that can be right."""
        k = int(self.labels.max()) + 1
        unique = n_unique_majorities(self.labels, self.categories)
        pure = purity(self.labels, self.categories)
        return {"purity": pure, "unique": unique, "possible": k - unique}

    def right(self, merges: Any) -> list[int]:
        """CM(1), CM(2), … of merges (m, 2), numbered as SciPy does."""
        counts = category_counts(self.labels, self.categories)
        return correct_merges(np.asarray(merges)[:, :2], counts).tolist()


def members(categories: NDArray[Any], n: int, subset: int, seed: int) -> Index:
    """Rows of the n categories of a subset.

    Examples
    --------
    >>> members(np.array(["a", "b", "c", "a"]), 3, subset=1, seed=0)
    array([0, 1, 2, 3])
    """
    rng = np.random.default_rng([seed, subset])
    chosen = rng.choice(np.unique(categories), n, replace=False)
    return np.flatnonzero(np.isin(categories, chosen))


def overcluster(
    features: NDArray[np.float32],
    categories: NDArray[Any],
    config: Config,
    subset: int,
    size: int,
    seed: int,
) -> Overclustering:
    """Algorithm 1 on the features of a subset; most of its images are in no cluster."""
    rows = members(categories, config.categories, subset, seed)
    # A few thousand rows: no other device is worth the way there.
    labels = greedy_dense(features[rows], config.k, size)
    inside = labels >= 0
    some = rows[inside]
    return Overclustering(some, labels[inside], categories[some], features[some], rows[~inside])
