"""Which of very many clusters were split at random, and how far the nearest cluster is."""

import math

import numpy as np
from numpy.typing import NDArray

from unsplit._typing import Index, Matrix
from unsplit.merging.evidence import CONFIDENCE
from unsplit.merging.limits import FEWEST_TO_BE_ALIKE, LARGE_TVD, LEVEL
from unsplit.merging.origin import at_random_like_most, close_pairs, looks_like_partition
from unsplit.pairwise.sparse.result import SparsePairwiseTVD, interval_of_pairs
from unsplit.pairwise.statistics import adjust_for_pairs


def split_at_random(result: SparsePairwiseTVD, level: float = LEVEL) -> NDArray[np.bool_]:
    """:func:`unsplit.merging.origin.split_at_random` for a sparse estimate."""
    large = result.n_heldout >= FEWEST_TO_BE_ALIKE
    nearest, distances = result.nearest(large)
    pairs = close_pairs(nearest, distances)
    found = np.zeros(result.n_clusters, bool)
    found[pairs[_alike(result, pairs[:, 0], pairs[:, 1], level)]] = True
    return at_random_like_most(found, large, result.sizes, lambda: not looks_like_partition(result))


def _alike(result: SparsePairwiseTVD, left: Index, right: Index, level: float) -> NDArray[np.bool_]:
    """Whether no difference is significant and the TVD cannot be large, for each pair."""
    if len(left) == 0:
        return np.zeros(0, bool)
    n_pairs = math.comb(result.n_clusters, 2)
    p: Matrix = adjust_for_pairs(result.p_value_of(left, right), n_pairs)
    high = interval_of_pairs(*result.hits_of(left, right), CONFIDENCE, result.scores.n_folds)[1]
    return (p > level) & (high <= LARGE_TVD)
