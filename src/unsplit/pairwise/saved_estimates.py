"""Saved estimates: the distances in one file and, on demand, the held-out scores in another."""

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsplit._typing import Matrix
from unsplit.data.array_files import checksum, load_arrays, save_arrays
from unsplit.data.content_check import FINITE, LARGEST, ROUNDING, Array, ContentCheck
from unsplit.networks.training.history import History
from unsplit.pairwise.scores import HeldoutScores, ScoreCounts

FORMAT = "unsplit.PairwiseTVD/4"
SCORES_FORMAT = "unsplit.HeldoutScores/1"

OWN = ("cluster_ids", "sizes", "n_heldout", "hit_rate")
PLAIN = ("n_noise", "temperature")
_META = {
    "n_noise": Array("i8", (1,), 0),
    "temperature": Array("f8", (1,), 0, FINITE),
    "n_folds": Array("i8", (1,), 1, LARGEST),
}
OF_GROUPS = ("n_groups", "n_effective")
HISTORY = ("epoch", "loss", "accuracy", "seconds", "kept_epoch")
SCORES = ("features", "weights", "bias", "clusters", "folds", "rows")

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
        parts = {name: getattr(scores, name) for name in (*SCORES, "batches", "groups")}
        parts = {name: array for name, array in parts.items() if array is not None}
        about = {"distances": checksum(meta, arrays)}
        save_arrays(scores_path(path), SCORES_FORMAT, about, parts)
    save_arrays(path, format, meta, arrays)


def read_estimate(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Matrix]:
    """Return the fields of a PairwiseTVD, and its p-values.

    Where the scores were not saved, ``scores`` is what is known of them.
    """
    share = Array("f8", ("k", "k"), 0, 1, ROUNDING)
    own = {"cluster_ids": Array(""), "hit_rate": share, "p_value": share}
    own |= {"n_groups": Array("i8", ("k",), 0, LARGEST)}
    own |= {"n_effective": Array("f8", ("k", "k"), 0, LARGEST)}
    fields, arrays, check = read_arrays(path, FORMAT, own, ("subclusters", *OF_GROUPS))
    found = [name for name in OF_GROUPS if name in arrays]
    check.require(len(found) != 1, f"{' and '.join(OF_GROUPS)} belong together")
    if found:
        fits = arrays["n_groups"] <= arrays["n_heldout"]
        check.require(fits.all(), "n_groups must not be larger than n_heldout")
    return fields | {name: arrays[name] for name in (*OWN, *found)}, arrays["p_value"]


def read_arrays(
    path: str | os.PathLike[str],
    format: str,
    own: dict[str, Array],
    optional: tuple[str, ...] = (),
) -> tuple[dict[str, Any], dict[str, Any], ContentCheck]:
    """Read what :func:`write_arrays` wrote, and refuse what cannot be an estimate.

    Parameters
    ----------
    path : str or path-like
    format : str
        What the file must hold and in which version.
    own : dict of str to Array
        What this kind of estimate has for clusters and pairs.
    optional : tuple of str
        Which arrays may be missing; others than "subclusters" never are.

    Returns
    -------
    fields : dict
        The fields that all kinds of estimates have, beside sizes.
    arrays : dict of str to ndarray
    check : ContentCheck
        With which the arrays were checked.
    """
    meta, arrays = load_arrays(path, format)
    check = ContentCheck(path, format.split(".")[1].split("/")[0])
    check.rows([meta], _META, "plain values")
    check.require(meta["temperature"] > 0, "temperature must be positive")
    needed = own | {
        "sizes": Array("i8", ("k",), 1, LARGEST),
        "n_heldout": Array("i8", ("k",), 0, LARGEST),
        "counts": Array("i8", ("strata", "k"), 0, LARGEST),
        "history.epoch": Array("i8", ("epochs",)),
        **{f"history.{name}": Array("f8", ("epochs",)) for name in ("loss", "accuracy", "seconds")},
        "history.kept_epoch": Array("i8", ("networks",)),
    }
    if optional:
        needed["subclusters"] = Array("i8", ("batches", "k"), 0, LARGEST)
    check.arrays(arrays, needed, optional, k=check.cluster_ids(arrays, at_least=2))
    _check_counts(check, arrays, meta["n_folds"])
    history = History(**{name: arrays[f"history.{name}"] for name in HISTORY})
    fields = {name: meta[name] for name in PLAIN} | {"history": history}
    return fields | {"scores": _read_scores(path, meta, arrays)}, arrays, check


def _check_counts(check: ContentCheck, arrays: dict[str, Any], n_folds: int) -> None:
    """Refuse numbers of held-out observations that do not fit together."""
    counts, n_heldout, sizes = arrays["counts"], arrays["n_heldout"], arrays["sizes"]
    subclusters = arrays.get("subclusters", sizes[None])
    check.require((n_heldout <= sizes).all(), "n_heldout must not be larger than sizes")
    check.require(
        len(subclusters) > 0 and len(counts) == n_folds * len(subclusters),
        "counts must have one row for each batch of each fold",
    )
    check.require((counts.sum(axis=0) == n_heldout).all(), "n_heldout must be the sum of counts")
    in_batches = counts.reshape(n_folds, *subclusters.shape).sum(axis=0)
    check.require(
        (in_batches <= subclusters).all(), "subclusters must not be less than is held out"
    )


def _read_scores(
    path: str | os.PathLike[str], meta: dict[str, Any], arrays: dict[str, Any]
) -> HeldoutScores:
    """Read the scores beside a file with this content; only their numbers if there are none."""
    counts, n_folds, subclusters = arrays["counts"], meta["n_folds"], arrays.get("subclusters")
    beside = scores_path(path)
    if not beside.exists():
        return ScoreCounts(counts, n_folds, subclusters)
    about, parts = load_arrays(beside, SCORES_FORMAT)
    check = ContentCheck(beside, "HeldoutScores", "make it again or remove it")
    check.names(about, {"distances": str})
    # Scores of other distances, saved to the same place earlier, are as good as none.
    if about["distances"] != checksum(meta, arrays):
        return ScoreCounts(counts, n_folds, subclusters)
    _check_scores(check, parts, n_folds, counts, subclusters, "n_groups" in arrays)
    return HeldoutScores(**parts, subclusters=subclusters)


def _check_scores(
    check: ContentCheck,
    arrays: dict[str, Any],
    n_folds: int,
    counts: NDArray[np.int64],
    subclusters: NDArray[np.int64] | None,
    of_groups: bool,
) -> None:
    """Refuse scores that do not fit together, are not finite or are not those of the counts."""
    n_strata, k = counts.shape
    n_batches = n_strata // n_folds
    scores = (-_LARGEST_SCORE, _LARGEST_SCORE)
    needed = {
        "features": Array("f4", ("m", "h"), *scores),
        "weights": Array("f4", (n_strata, k, "h"), *scores),
        "bias": Array("f4", (n_strata, k)),
        "clusters": Array("i8", ("m",), 0, k - 1),
        "folds": Array("i8", ("m",), 0, n_folds - 1),
        "rows": Array("i8", ("m",), 0, LARGEST),
    }
    if subclusters is not None:
        needed["batches"] = Array("i8", ("m",), 0, n_batches - 1)
    if of_groups:
        needed["groups"] = Array("i8", ("m",), 0, LARGEST)
    check.arrays(arrays, needed)
    # A cluster that does not occur in a batch has the bias −∞ there.
    absent = False if subclusters is None else np.tile(subclusters == 0, (n_folds, 1))
    fits = (np.abs(arrays["bias"]) <= _LARGEST_SCORE) | (absent & (arrays["bias"] == -np.inf))
    check.require(fits.all(), f"bias must be from {scores[0]:g} to {scores[1]:g} everywhere")
    places = (arrays["folds"] * n_batches + arrays.get("batches", 0)) * k + arrays["clusters"]
    check.require((np.diff(places) >= 0).all(), "rows must be ordered by fold, batch and cluster")
    found = np.bincount(places, minlength=counts.size).reshape(counts.shape)
    check.require((found == counts).all(), "its observations must be those of the distances")
