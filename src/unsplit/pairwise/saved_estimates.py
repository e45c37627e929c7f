"""Saved estimates: the distances in one file and, on demand, the held-out scores in another."""

import math
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsplit._typing import Index, Matrix
from unsplit.data.array_files import checksum, load_arrays, save_arrays
from unsplit.data.content_check import ROUNDING, ContentCheck
from unsplit.networks.training.history import History
from unsplit.pairwise.scores import HeldoutScores, ScoreCounts

FORMAT = "unsplit.PairwiseTVD/4"
SCORES_FORMAT = "unsplit.HeldoutScores/1"

OWN = ("cluster_ids", "sizes", "n_heldout", "hit_rate")
PLAIN = ("n_noise", "temperature")
OF_GROUPS = ("n_groups", "n_effective")
HISTORY = ("epoch", "loss", "accuracy", "seconds", "kept_epoch")
SCORES = ("features", "weights", "bias", "clusters", "folds", "rows")

# No count is larger, and sums of counts stay within 64 bits.
LARGEST = 2**40
# Scores made of features, weights and biases up to here are finite in single precision.
_LARGEST_SCORE = 1e15


def scores_path(path: str | os.PathLike[str]) -> Path:
    """Return where the scores of a file of distances are.

    Examples
    --------
    >>> scores_path("distances.npz").name
    'distances.scores.npz'
    """
    return Path(path).with_suffix(f".scores{Path(path).suffix}")


def write_estimate(path: str | os.PathLike[str], result: Any, with_scores: bool) -> None:
    """Write a PairwiseTVD and, on demand, its scores."""
    own = {name: getattr(result, name) for name in OWN}
    if result.n_groups is not None:
        own |= {name: getattr(result, name) for name in OF_GROUPS}
    write_arrays(path, FORMAT, result, own, result.p_value, with_scores)


def write_arrays(
    path: str | os.PathLike[str],
    format: str,
    result: Any,
    own: dict[str, NDArray[Any]],
    p_value: Matrix,
    with_scores: bool,
) -> None:
    """Write an estimate and, on demand, its scores, which name the distances they belong to.

    Parameters
    ----------
    path : str or path-like
    format : str
        What the file holds and in which version.
    result : PairwiseEstimate
    own : dict of str to ndarray
        What this kind of estimate has for clusters and pairs.
    p_value : ndarray
        Saved because it cannot be computed without the scores.
    with_scores : bool
    """
    scores: HeldoutScores = result.scores
    arrays = own | {f"history.{name}": getattr(result.history, name) for name in HISTORY}
    arrays |= {"p_value": p_value, "counts": scores.counts}
    if scores.subclusters is not None:
        arrays["subclusters"] = scores.subclusters
    meta = {name: getattr(result, name) for name in PLAIN} | {"n_folds": scores.n_folds}
    if with_scores:
        _write_scores(path, scores, meta, arrays)
    save_arrays(path, format, meta, arrays)


def _write_scores(
    path: str | os.PathLike[str],
    scores: HeldoutScores,
    meta: dict[str, Any],
    arrays: dict[str, Any],
) -> None:
    """Write the scores that belong to a file with this content."""
    parts = {name: getattr(scores, name) for name in (*SCORES, "batches", "groups")}
    parts = {name: array for name, array in parts.items() if array is not None}
    about = {"distances": _fingerprint(meta, arrays)}
    save_arrays(scores_path(path), SCORES_FORMAT, about, parts)


def read_estimate(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Matrix]:
    """Return the fields of a PairwiseTVD, and its p-values.

    Where the scores were not saved, ``scores`` is what is known of them.
    """
    meta, arrays = load_arrays(path, FORMAT)
    _check_result(ContentCheck(path, "PairwiseTVD", "make it again"), meta, arrays)
    own = {name: arrays[name] for name in (*OWN, *OF_GROUPS) if name in arrays}
    fields = own | read_shared(path, meta, arrays)
    return fields, arrays["p_value"]


def read_shared(
    path: str | os.PathLike[str], meta: dict[str, Any], arrays: dict[str, Any]
) -> dict[str, Any]:
    """The fields that all estimates have beside those for clusters and pairs."""
    history = History(**{name: arrays[f"history.{name}"] for name in HISTORY})
    plain = {name: meta[name] for name in PLAIN}
    return plain | {"scores": _read_scores(path, meta, arrays), "history": history}


def _read_scores(
    path: str | os.PathLike[str], meta: dict[str, Any], arrays: dict[str, Any]
) -> HeldoutScores:
    """Read the scores beside a file with this content; only their numbers if there are none."""
    scores: HeldoutScores = ScoreCounts(
        arrays["counts"], meta["n_folds"], arrays.get("subclusters")
    )
    beside = scores_path(path)
    if beside.exists():
        about, parts = load_arrays(beside, SCORES_FORMAT)
        check = ContentCheck(beside, "HeldoutScores", "make it again or remove it")
        check.names(about, {"distances"}, set())
        # Scores of other distances, saved to the same place earlier, are as good as none.
        if about["distances"] == _fingerprint(meta, arrays):
            _check_scores(check, parts, meta["n_folds"], arrays)
            scores = HeldoutScores(**parts, subclusters=arrays.get("subclusters"))
    return scores


def _fingerprint(meta: dict[str, Any], arrays: dict[str, Any]) -> str:
    return checksum(meta, {name: np.asarray(array, order="C") for name, array in arrays.items()})


def _check_result(check: ContentCheck, meta: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Refuse saved content that cannot be an estimate."""
    n_heldout = check_shared(check, meta, arrays, {*OWN}, {"subclusters", *OF_GROUPS})
    k = len(n_heldout)
    if any(name in arrays for name in OF_GROUPS):
        check.names({n: a for n, a in arrays.items() if n in OF_GROUPS}, {*OF_GROUPS}, set())
        n_groups = check.array(arrays, "n_groups", np.int64, k)
        check.within("n_groups", n_groups, 0, LARGEST)
        check.require((n_groups <= n_heldout).all(), "n_groups must not be larger than n_heldout")
        check.within(
            "n_effective", check.array(arrays, "n_effective", np.float64, k, k), 0, LARGEST
        )
    hit_rate = check.array(arrays, "hit_rate", np.float64, k, k)
    check.within("hit_rate", hit_rate, 0, 1, ROUNDING)
    check.within("p_value", check.array(arrays, "p_value", np.float64, k, k), 0, 1, ROUNDING)


def check_shared(
    check: ContentCheck,
    meta: dict[str, Any],
    arrays: dict[str, Any],
    own: set[str],
    optional: set[str],
) -> Index:
    """Refuse saved content that cannot be an estimate, whatever else it has for pairs.

    Parameters
    ----------
    check : ContentCheck
    meta, arrays : dict
        What the file holds.
    own, optional : set of str
        Arrays that this kind of estimate must have, and those that it may have.

    Returns
    -------
    ndarray of shape (k,)
        How many observations of each cluster were held out.
    """
    needed = {*own, *(f"history.{name}" for name in HISTORY), "p_value", "counts"}
    check.names(arrays, needed, optional)
    check.names(meta, {*PLAIN, "n_folds"}, set())
    check.integer(meta, "n_noise", 0, math.inf)
    temperature = check.number(meta, "temperature", 0, sys.float_info.max)
    check.require(temperature > 0, "temperature must be positive")
    k = len(check.cluster_ids(arrays, at_least=2))
    sizes = check.array(arrays, "sizes", np.int64, k)
    check.within("sizes", sizes, 1, LARGEST)
    n_heldout: Index = check.array(arrays, "n_heldout", np.int64, k)
    check.require((n_heldout <= sizes).all(), "n_heldout must not be larger than sizes")
    _check_counts(check, arrays, check.integer(meta, "n_folds", 1, LARGEST), n_heldout)
    _check_history(check, arrays)
    return n_heldout


def _check_history(check: ContentCheck, arrays: dict[str, Any]) -> None:
    """Refuse a history whose parts do not fit together."""
    epochs = len(check.array(arrays, "history.epoch", np.int64, None))
    for name in ("loss", "accuracy", "seconds"):
        check.array(arrays, f"history.{name}", np.float64, epochs)
    check.array(arrays, "history.kept_epoch", np.int64, None)


def _check_counts(
    check: ContentCheck, arrays: dict[str, Any], n_folds: int, n_heldout: Index
) -> None:
    """Refuse numbers of held-out observations that do not fit together."""
    k, n_batches = len(n_heldout), 1
    if "subclusters" in arrays:
        subclusters = check.array(arrays, "subclusters", np.int64, None, k)
        check.within("subclusters", subclusters, 0, LARGEST)
        n_batches = len(subclusters)
    counts = check.array(arrays, "counts", np.int64, None, k)
    check.within("counts", counts, 0, LARGEST)
    check.require(
        n_batches > 0 and len(counts) == n_folds * n_batches,
        "counts must have one row for each batch of each fold",
    )
    check.require((counts.sum(axis=0) == n_heldout).all(), "n_heldout must be the sum of counts")
    if "subclusters" in arrays:
        in_batches = counts.reshape(n_folds, n_batches, k).sum(axis=0)
        check.require(
            (in_batches <= subclusters).all(), "subclusters must not be less than is held out"
        )


def _check_scores(
    check: ContentCheck, arrays: dict[str, Any], n_folds: int, expected: dict[str, Any]
) -> None:
    """Refuse scores that do not fit together, are not finite or are not those of the counts."""
    counts, subclusters = expected["counts"], expected.get("subclusters")
    n_strata, k = counts.shape
    n_batches = n_strata // n_folds
    also = {"batches": subclusters is not None, "groups": "n_groups" in expected}
    check.names(arrays, {*SCORES, *(name for name, there in also.items() if there)}, set())
    features = check.array(arrays, "features", np.float32, None, None)
    m, h = features.shape
    bias = check.array(arrays, "bias", np.float32, n_strata, k)
    weights = check.array(arrays, "weights", np.float32, n_strata, k, h)
    for name, array in (("features", features), ("weights", weights)):
        check.within(name, array, -_LARGEST_SCORE, _LARGEST_SCORE)
    # A cluster that does not occur in a batch has the bias −∞ there.
    absent = np.zeros(bias.shape, bool)
    if subclusters is not None:
        absent = np.tile(subclusters == 0, (n_folds, 1)) & (bias == -np.inf)
    check.within("bias", bias[~absent], -_LARGEST_SCORE, _LARGEST_SCORE)
    highest = {"clusters": k - 1, "folds": n_folds - 1, "rows": LARGEST}
    highest |= {"batches": n_batches - 1, "groups": LARGEST}
    for name, high in highest.items():
        if name in arrays:
            check.within(name, check.array(arrays, name, np.int64, m), 0, high)
    places = (arrays["folds"] * n_batches + arrays.get("batches", 0)) * k + arrays["clusters"]
    check.require((np.diff(places) >= 0).all(), "rows must be ordered by fold, batch and cluster")
    found = np.bincount(places, minlength=counts.size).reshape(counts.shape)
    check.require((found == counts).all(), "its observations must be those of the distances")
