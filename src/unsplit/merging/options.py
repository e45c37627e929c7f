"""What the user chose: checked, and turned into a rule."""

import math
import warnings

import numpy as np
from numpy.typing import NDArray

from unsplit.errors import InputError, PartitionWarning
from unsplit.merging.evidence import Mixtures
from unsplit.merging.rules import (
    ALIKE_TVD,
    NEIGHBOURS,
    TESTS,
    VALLEYS,
    Alpha,
    Always,
    Auto,
    MaxTVD,
    Pair,
    Rule,
)
from unsplit.pairwise.result import PairwiseTVD

STRATEGIES = ("linkage", "compose", "retrain", "warm", "spectral")
LINKAGES = ("average", "single", "complete")

# Neighbouring cells of a partition are told apart almost always, parts of one distribution almost
# never, so the middle will do.
PARTITION_TVD = 0.5

# Held-out observations of a cluster that say where it lies.
ENOUGH = 10

# With fewer held out, two clusters could always differ by more than ALIKE_TVD.
FEWEST_TO_BE_ALIKE = 12

# Share of the observations in clusters with a twin that makes the others wholes.
ALMOST_ALL = 0.8

# Where no more than this share of the observations is in a cluster, clusters are cores: what lies
# between two of them was left out, so that a valley there says nothing.
CORES = 0.5


def check_strategy(
    strategy: str, linkage: str, has_scores: bool, n_clusters: int | None, has_estimate: bool
) -> None:
    """Is there such a strategy, and is what it needs there?"""
    if strategy not in STRATEGIES:
        raise InputError(f"strategy must be one of {', '.join(STRATEGIES)}, got {strategy!r}.")
    if linkage not in LINKAGES:
        raise InputError(f"linkage must be one of {', '.join(LINKAGES)}, got {linkage!r}.")
    if not has_scores and strategy not in ("linkage", "spectral"):
        raise InputError(
            f'strategy="{strategy}" needs scores, and a matrix has none; pass a PairwiseTVD or '
            'use strategy="linkage".'
        )
    if strategy in ("retrain", "warm") and not has_estimate:
        raise InputError(
            f'strategy="{strategy}" needs estimate, a function that estimates anew; '
            "ClusterMerger brings one."
        )
    if strategy == "spectral" and n_clusters is None:
        raise InputError('strategy="spectral" needs n_clusters; it cannot find the number itself.')


def check_rules(n_clusters: int | None, max_tvd: float | None, alpha: float | None) -> None:
    """Is there at most one stopping rule, and can it be?"""
    rules = {"n_clusters": n_clusters, "max_tvd": max_tvd, "alpha": alpha}
    chosen = [name for name, value in rules.items() if value is not None]
    if len(chosen) > 1:
        raise InputError(f"{' and '.join(chosen)} are two stopping rules; choose one.")
    for name in ("max_tvd", "alpha"):
        value = rules[name]
        if value is not None and not 0 <= value <= 1:
            raise InputError(f"{name} must lie between 0 and 1, got {value!r}.")


def stopping_rule(
    result: PairwiseTVD | None,
    n_clusters: int | None,
    max_tvd: float | None,
    alpha: float | None,
    by: str,
) -> Rule:
    """The rule the user chose; *auto* if none.

    Parameters
    ----------
    result : PairwiseTVD, optional
        None for a plain matrix.
    n_clusters, max_tvd, alpha : optional
        As for :func:`unsplit.merge`.
    by : str
        What decides about most pairs, as :func:`decided_by` says.
    """
    check_rules(n_clusters, max_tvd, alpha)
    if result is None:
        if n_clusters is not None:
            return Always()
        if max_tvd is None:
            raise InputError(
                "a matrix without scores can be cut by n_clusters or max_tvd only; pass one of "
                "them, or a PairwiseTVD."
            )
        return MaxTVD(max_tvd)
    if n_clusters is not None:
        # What auto would merge goes first, so that the tree is the one of auto.
        plain = by == TESTS or (by == VALLEYS and are_cores(result))
        return Always() if plain else Auto(by)
    if max_tvd is None and alpha is None:
        return Auto(by)
    _warn_of_partition(result)
    return Alpha(alpha) if alpha is not None else MaxTVD(max_tvd or 0.0)


def exactly(n: int, fewest: int | None, most: int | None, k: int) -> tuple[int, int]:
    """Fewest and most clusters when their number is given."""
    if not isinstance(n, (int, np.integer)) or not 1 <= n <= k:
        raise InputError(
            f"n_clusters must be a whole number from 1 to {k}, the number of clusters there are, "
            f"got {n!r}."
        )
    if (fewest is not None and fewest > n) or (most is not None and most < n):
        raise InputError(
            f"n_clusters={n} contradicts min_clusters={fewest} and max_clusters={most}; "
            "pass n_clusters alone."
        )
    return int(n), int(n)


def ranking_statistic(
    statistic: str, strategy: str, result: PairwiseTVD, number_given: bool, by: str
) -> str:
    """What ranks pairs if that is left to us.

    Clusters cut out of the same features are ranked by their neighbours, those split at random by
    the network.  Without neighbours, cores can nearly all be told apart, and what third
    observations say of two of them ranks better.
    """
    if statistic != "auto":
        return statistic
    if by == NEIGHBOURS and strategy == "linkage":
        return "edges"
    return "overlap" if number_given and are_cores(result) else "lecam"


def split_at_random(result: PairwiseTVD, level: float = 0.05) -> NDArray[np.bool_]:
    """Clusters that have a twin, from which they cannot be told: shape (k,).

    Such a cluster is a part of a whole that was split at random, and tests that find no difference
    to the other parts will find one to everything else.  Clusters too small to tell are what most
    others are; and where almost all observations are in clusters with a twin, one without is a
    whole that was not split.
    """
    k = result.n_clusters
    large = result.n_heldout >= FEWEST_TO_BE_ALIKE
    known = result.comparable & large & large[:, None] & ~np.eye(k, dtype=bool)
    distances = np.where(known, result.tvd, np.inf)
    nearest = distances.argmin(axis=1)
    evidence = Mixtures(result, lookup=False)
    found = np.zeros(k, bool)
    for a in np.flatnonzero(distances[np.arange(k), nearest] <= ALIKE_TVD).tolist():
        b = int(nearest[a])
        pair = Pair(a, b, 0.0, math.comb(k, 2), evidence, None)
        found[a] = found[b] = found[a] or found[b] or pair.alike(level)
    if 2 * large.sum() >= k:
        usual = bool(2 * found[large].sum() >= large.sum())
    else:
        usual = not looks_like_partition(result)
    found = np.where(large, found, usual)
    almost_all = result.sizes[found].sum() >= ALMOST_ALL * result.sizes.sum()
    return found | almost_all


def decided_by(result: PairwiseTVD, at_random: NDArray[np.bool_], has_graph: bool) -> str:
    """What decides about most observations' clusters: tests, neighbours or valleys."""
    if 2 * result.sizes[at_random].sum() >= result.sizes.sum():
        return TESTS
    return NEIGHBOURS if has_graph else VALLEYS


def are_cores(result: PairwiseTVD) -> bool:
    """Whether at least half of the observations are in no cluster."""
    n_clustered = int(result.sizes.sum())
    return n_clustered <= CORES * (n_clustered + result.n_noise)


def looks_like_partition(result: PairwiseTVD) -> bool:
    """Whether most clusters can be told even from their nearest neighbour.

    So it is when k-means, Leiden and their like cut up the very features that are now compared:
    every pair is separable by construction, and a two-sample test says so of any two pieces.
    """
    return _median_nearest(result) > PARTITION_TVD


def _median_nearest(result: PairwiseTVD) -> float:
    # A cluster of a few looks near to all: what little was held out can be right by chance alone.
    large = result.n_heldout >= min(ENOUGH, np.sort(result.n_heldout)[-2])
    others = result.comparable & large & large[:, None] & ~np.eye(result.n_clusters, dtype=bool)
    nearest = np.where(others, result.tvd, np.inf).min(axis=1)
    nearest = nearest[np.isfinite(nearest)]
    return float(np.median(nearest)) if len(nearest) else 0.0


def _warn_of_partition(result: PairwiseTVD) -> None:
    if not looks_like_partition(result):
        return
    warnings.warn(
        "the clusters look like a partition of the same features (median TVD to the nearest "
        f"neighbour {_median_nearest(result):.2f}), where every pair is separable by "
        "construction; leave max_tvd and alpha out, and auto looks for what separates them.",
        PartitionWarning,
        stacklevel=4,
    )
