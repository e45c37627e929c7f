"""Saved estimates: the distances in one file and, on demand, the held-out scores in another."""

import os
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from unsplit._typing import Matrix
from unsplit.data.array_files import (
    FINITE,
    LARGEST,
    ROUNDING,
    Array,
    checksum,
    load_checked,
    save_arrays,
    saved_meta,
)
from unsplit.networks.training.progress import History
from unsplit.pairwise.divergences import HeldoutScores, ScoreCounts

FORMAT, SPARSE_FORMAT = "unsplit.PairwiseTVD/5", "unsplit.SparsePairwiseTVD/2"
SCORES_FORMAT = "unsplit.HeldoutScores/2"

_SHARE = Array("f8", ("k", "k"), 0, 1, ROUNDING)
_COUNTS = Array("i8", ("k",), 0, LARGEST)
# What all estimates have.
_COMMON = {
    "cluster_ids": Array("ids", ("k",), 2),
    "sizes": Array("i8", ("k",), 1, LARGEST),
    "n_heldout": _COUNTS,
    "n_noise": Array("i8", (), 0),
    "temperature": Array("f8", (), 0, FINITE),
    "n_folds": Array("i8", (), 1, LARGEST),
    "counts": Array("i8", ("strata", "k"), 0, LARGEST),
    "history.epoch": Array("i8", ("epochs",)),
    **{f"history.{name}": Array("f8", ("epochs",)) for name in ("loss", "accuracy", "seconds")},
    "history.kept_epoch": Array("i8", ("networks",)),
}
# With groups or batches.
_SOMETIMES = {
    "n_groups": _COUNTS,
    "n_effective": Array("f8", ("k", "k"), 0, LARGEST),
    "subclusters": Array("i8", ("batches", "k"), 0, LARGEST),
}
_DENSE = _COMMON | _SOMETIMES | {"hit_rate": _SHARE, "p_value": _SHARE}
_SPARSE = _COMMON | {
    "capped": _COUNTS,
    "p_value": Array("f8", ("pairs",), 0, 1, ROUNDING),
    "misses.indptr": Array("i8", ("starts",), 0),
    "misses.indices": Array("i8", ("misses",), 0),
    "misses.data": Array("f8", ("misses",), 0.5, LARGEST),
}
_FIELDS = ("cluster_ids", "sizes", "n_heldout", "n_noise", "temperature", "hit_rate", "n_groups")
# Scores made of features, weights and biases up to here are finite in single precision.
_SCORE = (-1e15, 1e15)
_OF_ROWS = Array("i8", ("m",), 0, LARGEST)
_SCORES = {
    "features": Array("f4", ("m", "h"), *_SCORE),
    "weights": Array("f4", ("strata", "k", "h"), *_SCORE),
    "bias": Array("f4", ("strata", "k")),
    **dict.fromkeys(("clusters", "folds", "rows", "batches", "groups"), _OF_ROWS),
}


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
    content = _content(result)
    if with_scores:
        parts = {name: getattr(result.scores, name) for name in _SCORES}
        parts = {name: array for name, array in parts.items() if array is not None}
        of = {"distances": checksum({}, content)}
        save_arrays(scores_path(path), SCORES_FORMAT, {}, parts | of)
    save_arrays(path, SPARSE_FORMAT if result.is_sparse else FORMAT, {}, content)


def _content(result: Any) -> dict[str, Any]:
    """Everything in the file of an estimate."""
    scores, table = result.scores, _SPARSE if result.is_sparse else _DENSE
    found = vars(result) | {"p_value": result.p_value, "subclusters": scores.batch_sizes}
    found |= {"n_folds": scores.n_folds, "counts": scores.counts}
    found |= {f"history.{name}": values for name, values in vars(result.history).items()}
    if result.is_sparse:
        parts = ("indptr", "indices", "data")
        found |= {f"misses.{part}": getattr(result.misses, part) for part in parts}
        found["p_value"] = result.p_value.values
    found = {name: found[name] for name in table if found[name] is not None}
    types = {name: None if table[name].dtype == "ids" else table[name].dtype for name in found}
    return {name: np.asarray(value, types[name]) for name, value in found.items()}


def read_estimate(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Matrix]:
    """Return the fields of a PairwiseTVD, and the p-values of its pairs.

    Where the scores were not saved, ``scores`` is what is known of them.
    """
    is_sparse = saved_meta(path).get("format") == SPARSE_FORMAT
    kind, table = (SPARSE_FORMAT, _SPARSE) if is_sparse else (FORMAT, _DENSE)
    content, check = load_checked(path, kind, table, () if is_sparse else _SOMETIMES)
    fields = {name: content.get(name) for name in (*_FIELDS, "n_effective", "capped")}
    history = {name: content[name] for name in table if name.startswith("history.")}
    fields["history"] = History(*history.values())
    fields["scores"] = _read_scores(path, content)
    if is_sparse:
        parts = (content[f"misses.{part}"] for part in ("data", "indices", "indptr"))
        try:
            fields["misses"] = sparse.csr_array(tuple(parts), 2 * (len(content["sizes"]),))
            fields["misses"].check_format()
        except ValueError as error:
            check.require(False, f"misses are no sparse matrix ({error})")
    return fields, content["p_value"]


def _read_scores(path: str | os.PathLike[str], estimate: dict[str, Any]) -> HeldoutScores:
    """Read the scores beside a file with this content; only their numbers if there are none."""
    batch_sizes = estimate.get("subclusters")
    known = ScoreCounts(estimate["counts"], estimate["n_folds"], batch_sizes)
    beside = scores_path(path)
    if not beside.exists():
        return known
    table, advice = {"distances": Array("U"), **_SCORES}, "remove it or make it again"
    parts, _ = load_checked(beside, SCORES_FORMAT, table, ("batches", "groups"), advice)
    # Scores of other distances, saved to the same place earlier, are as good as none.
    same = parts.pop("distances") == checksum({}, estimate)
    return HeldoutScores(**parts, batch_sizes=batch_sizes) if same else known
