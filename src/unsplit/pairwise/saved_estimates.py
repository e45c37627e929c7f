"""Saved estimates: the distances in one file and, on demand, the held-out scores in another."""

import os
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from unsplit._typing import Index, Matrix
from unsplit.data.array_files import (
    FINITE,
    LARGEST,
    ROUNDING,
    Array,
    ContentCheck,
    checksum,
    load_checked,
    save_arrays,
    saved_meta,
)
from unsplit.networks.training.progress import History
from unsplit.pairwise.divergences import HeldoutScores, ScoreCounts
from unsplit.pairwise.stored_pairs import StoredPairs

FORMAT, SPARSE_FORMAT = "unsplit.PairwiseTVD/5", "unsplit.SparsePairwiseTVD/2"
SCORES_FORMAT = "unsplit.HeldoutScores/2"

_CSR = ("indptr", "indices", "data")
_HISTORY = ("epoch", "loss", "accuracy", "seconds", "kept_epoch")
_SHARE = Array("f8", ("k", "k"), 0, 1, ROUNDING)
# What all estimates have.
_SHARED = {
    "cluster_ids": Array("ids", ("k",), 2),
    "sizes": Array("i8", ("k",), 1, LARGEST),
    "n_heldout": Array("i8", ("k",), 0, LARGEST),
    "n_noise": Array("i8", (), 0),
    "temperature": Array("f8", (), 0, FINITE),
}
_COMMON = _SHARED | {
    "n_folds": Array("i8", (), 1, LARGEST),
    "counts": Array("i8", ("strata", "k"), 0, LARGEST),
    "history.epoch": Array("i8", ("epochs",)),
    **{f"history.{name}": Array("f8", ("epochs",)) for name in ("loss", "accuracy", "seconds")},
    "history.kept_epoch": Array("i8", ("networks",)),
}
_GROUPS = {
    "n_groups": Array("i8", ("k",), 0, LARGEST),
    "n_effective": Array("f8", ("k", "k"), 0, LARGEST),
}
_DENSE = {"hit_rate": _SHARE, "p_value": _SHARE, **_GROUPS}
_DENSE["subclusters"] = Array("i8", ("batches", "k"), 0, LARGEST)
_SPARSE = {
    "capped": Array("i8", ("k",), 0, LARGEST),
    "p_value": Array("f8", ("pairs",), 0, 1, ROUNDING),
    "misses.indptr": Array("i8", ("starts",), 0),
    "misses.indices": Array("i8", ("misses",), 0),
    "misses.data": Array("f8", ("misses",), 0.5, LARGEST),
}
# Scores made of features, weights and biases up to here are finite in single precision.
_LARGEST_SCORE = 1e15
_SCORE = (-_LARGEST_SCORE, _LARGEST_SCORE)
_SCORES = {
    "features": Array("f4", ("m", "h"), *_SCORE),
    "weights": Array("f4", ("strata", "k", "h"), *_SCORE),
    "bias": Array("f4", ("strata", "k")),
    **{name: Array("i8", ("m",), 0, LARGEST) for name in ("clusters", "folds", "rows")},
}
_OF_SCORES = {name: Array("i8", ("m",), 0, LARGEST) for name in ("batches", "groups")}


def scores_path(path: str | os.PathLike[str]) -> Path:
    """Return where the scores of a file of distances are.

    Examples
    --------
    >>> scores_path("distances.npz").name
    'distances.scores.npz'
    """
    return Path(path).with_suffix(f".scores{Path(path).suffix}")


def write_estimate(path: str | os.PathLike[str], result: Any, with_scores: bool) -> None:
    """Write a PairwiseTVD and, on demand, its scores, which name the distances they belong to."""
    scores, content = result.scores, _content(result)
    if with_scores:
        parts = {name: getattr(scores, name) for name in (*_SCORES, *_OF_SCORES)}
        parts = {name: array for name, array in parts.items() if array is not None}
        of = {"distances": checksum({}, content)}
        save_arrays(scores_path(path), SCORES_FORMAT, {}, parts | of)
    save_arrays(path, SPARSE_FORMAT if result.is_sparse else FORMAT, {}, content)


def _content(result: Any) -> dict[str, Any]:
    """Everything in the file of an estimate."""
    scores, p_value, table = result.scores, result.p_value, _COMMON | _DENSE
    found = {name: getattr(result, name) for name in (*_SHARED, "hit_rate", *_GROUPS)}
    found |= {f"history.{name}": getattr(result.history, name) for name in _HISTORY}
    found |= {"n_folds": scores.n_folds, "counts": scores.counts, "p_value": p_value}
    found["subclusters"] = scores.batch_sizes
    if result.is_sparse:
        table = _COMMON | _SPARSE
        found |= {f"misses.{name}": getattr(result.misses, name) for name in _CSR}
        found |= {"capped": result.capped, "p_value": p_value.values}
    found = {name: value for name, value in found.items() if value is not None}
    types = {name: None if table[name].dtype == "ids" else table[name].dtype for name in found}
    return {name: np.asarray(value, types[name]) for name, value in found.items()}


def read_estimate(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Matrix]:
    """Return the fields of a PairwiseTVD, and the p-values of its pairs.

    Where the scores were not saved, ``scores`` is what is known of them.
    """
    if saved_meta(path).get("format") == SPARSE_FORMAT:
        content, check = load_checked(path, SPARSE_FORMAT, _COMMON | _SPARSE)
    else:
        optional = ("subclusters", *_GROUPS)
        content, check = load_checked(path, FORMAT, _COMMON | _DENSE, optional)
    _check_counts(check, content)
    found = [name for name in _GROUPS if name in content]
    check.require(len(found) != 1, f"{' and '.join(_GROUPS)} belong together")
    for name in {"n_groups", "capped"} & content.keys():
        fits = content[name] <= content["n_heldout"]
        check.require(fits.all(), f"{name} must not be larger than n_heldout")
    own = {name: content.get(name) for name in (*_SHARED, "hit_rate", *_GROUPS, "capped")}
    own["history"] = History(**{name: content[f"history.{name}"] for name in _HISTORY})
    own["scores"] = _read_scores(path, content)
    if "capped" in content:
        own["misses"] = _misses(check, content)
    return own, content["p_value"]


def _check_counts(check: ContentCheck, content: dict[str, Any]) -> None:
    """Refuse numbers of observations that do not fit together."""
    check.require(content["temperature"] > 0, "temperature must be positive")
    counts, sizes, n_folds = content["counts"], content["sizes"], content["n_folds"]
    subclusters = content.get("subclusters", sizes[None])
    check.require((content["n_heldout"] <= sizes).all(), "n_heldout must not be larger than sizes")
    check.require(
        len(subclusters) > 0 and len(counts) == n_folds * len(subclusters),
        "counts must have one row for each batch of each fold",
    )
    same = counts.sum(axis=0) == content["n_heldout"]
    check.require(same.all(), "n_heldout must be the sum of counts")
    fits = counts.reshape(n_folds, *subclusters.shape).sum(axis=0) <= subclusters
    check.require(fits.all(), "subclusters must not be less than is held out")


def _read_scores(path: str | os.PathLike[str], estimate: dict[str, Any]) -> HeldoutScores:
    """Read the scores beside a file with this content; only their numbers if there are none."""
    known = estimate["counts"], estimate["n_folds"], estimate.get("subclusters")
    beside = scores_path(path)
    if not beside.exists():
        return ScoreCounts(*known)
    table = {"distances": Array("U"), **_SCORES, **_OF_SCORES}
    advice = "remove it or make it again"
    parts, check = load_checked(beside, SCORES_FORMAT, table, _OF_SCORES, advice)
    # Scores of other distances, saved to the same place earlier, are as good as none.
    if parts.pop("distances") != checksum({}, estimate):
        return ScoreCounts(*known)
    needed = {"batches": "subclusters", "groups": "n_groups"}
    fits = all((name in parts) == (other in estimate) for name, other in needed.items())
    check.require(fits, "batches and groups must be those of the distances")
    _check_scores(check, parts, *known)
    return HeldoutScores(**parts, batch_sizes=known[2])


def _check_scores(
    check: ContentCheck,
    scores: dict[str, Any],
    counts: Index,
    n_folds: int,
    subclusters: Index | None,
) -> None:
    """Refuse scores that do not fit together or are not those of the counts."""
    n_strata, k = counts.shape
    bias, n_batches = scores["bias"], n_strata // n_folds
    check.require(bias.shape == counts.shape, f"bias must have shape {counts.shape}")
    # A cluster that does not occur in a batch has the bias −∞ there.
    absent = False if subclusters is None else np.tile(subclusters == 0, (n_folds, 1))
    fits = (np.abs(bias) <= _LARGEST_SCORE) | (absent & (bias == -np.inf))
    check.require(fits.all(), f"bias must be from {_SCORE[0]:g} to {_SCORE[1]:g} everywhere")
    parts = (scores["folds"], scores.get("batches", 0 * scores["folds"]), scores["clusters"])
    limits = (n_folds, n_batches, k)
    inside = all((part < limit).all() for part, limit in zip(parts, limits, strict=True))
    check.require(inside, "folds, batches and clusters must be those of the distances")
    places = np.ravel_multi_index(parts, limits)
    check.require((np.diff(places) >= 0).all(), "rows must be ordered by fold, batch and cluster")
    found = np.bincount(places, minlength=counts.size).reshape(counts.shape)
    check.require((found == counts).all(), "its observations must be those of the distances")


def _misses(check: ContentCheck, content: dict[str, Any]) -> sparse.csr_array:
    """The sparse matrix of misses, if its parts make one that fits the rest."""
    starts, others, data = (content[f"misses.{part}"] for part in _CSR)
    n_heldout = content["n_heldout"]
    k = len(n_heldout)
    ordered = len(starts) == k + 1 and starts[0] == 0 and starts[-1] == len(others)
    ordered = ordered and bool((np.diff(starts) >= 0).all())
    check.require(ordered, "misses.indptr must divide misses.indices into rows")
    row = np.repeat(np.arange(k), np.diff(starts))
    fits = (others < k) & (others != row)
    check.require(fits.all(), "misses must be between different clusters")
    check.require((np.diff(row * k + others) > 0).all(), "misses.indices must increase in a row")
    check.require((data <= n_heldout[row]).all(), "misses must not be more than is held out")
    misses = sparse.csr_array((data, others, starts), (k, k))
    pairs = len(StoredPairs(misses, None, None))
    check.require(len(content["p_value"]) == pairs, f"p_value must have {pairs} entries")
    return misses
