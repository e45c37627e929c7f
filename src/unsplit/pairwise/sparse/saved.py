"""Saved sparse estimates: what is stored of the pairs and, on demand, the scores beside it."""

import math
import os
import sys
from typing import Any

import numpy as np
from scipy import sparse

from unsplit._typing import Matrix
from unsplit.data.array_files import load_arrays, save_arrays
from unsplit.data.content_check import ROUNDING, ContentCheck
from unsplit.networks.training.history import History
from unsplit.pairwise.saved_estimates import (
    HISTORY,
    LARGEST,
    PLAIN,
    check_counts,
    check_history,
    read_scores,
    write_scores,
)
from unsplit.pairwise.sparse.pairs import StoredPairs

FORMAT = "unsplit.SparsePairwiseTVD/1"

OWN = ("cluster_ids", "sizes", "n_heldout", "capped")


def write_sparse(path: str | os.PathLike[str], result: Any, with_scores: bool) -> None:
    """Write a SparsePairwiseTVD and, on demand, its scores."""
    misses = result.misses
    arrays = {name: getattr(result, name) for name in OWN}
    arrays |= {
        "misses.indptr": misses.indptr.astype(np.int64),
        "misses.indices": misses.indices.astype(np.int64),
        "misses.data": misses.data,
    }
    arrays |= {f"history.{name}": getattr(result.history, name) for name in HISTORY}
    arrays |= {"p_value": result.p_value.values, "counts": result.scores.counts}
    meta = {name: getattr(result, name) for name in PLAIN} | {"n_folds": result.scores.n_folds}
    if with_scores:
        write_scores(path, result.scores, meta, arrays)
    save_arrays(path, FORMAT, meta, arrays)


def read_sparse(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Matrix]:
    """Return the fields of a SparsePairwiseTVD, and the p-values of its stored pairs."""
    meta, arrays = load_arrays(path, FORMAT)
    check = ContentCheck(path, "SparsePairwiseTVD", "make it again")
    misses = _check_result(check, meta, arrays)
    scores = read_scores(path, meta, arrays)
    history = History(**{name: arrays[f"history.{name}"] for name in HISTORY})
    fields = {name: arrays[name] for name in OWN} | {name: meta[name] for name in PLAIN}
    return fields | {"misses": misses, "scores": scores, "history": history}, arrays["p_value"]


def _check_result(
    check: ContentCheck, meta: dict[str, Any], arrays: dict[str, Any]
) -> sparse.csr_array:
    """Refuse saved content that cannot be an estimate; return the misses."""
    parts = ("misses.indptr", "misses.indices", "misses.data", "p_value", "counts")
    check.names(arrays, {*OWN, *parts, *(f"history.{name}" for name in HISTORY)}, set())
    check.names(meta, {*PLAIN, "n_folds"}, set())
    check.integer(meta, "n_noise", 0, math.inf)
    temperature = check.number(meta, "temperature", 0, sys.float_info.max)
    check.require(temperature > 0, "temperature must be positive")
    k = len(check.cluster_ids(arrays, at_least=2))
    sizes = check.array(arrays, "sizes", np.int64, k)
    check.within("sizes", sizes, 1, LARGEST)
    n_heldout = check.array(arrays, "n_heldout", np.int64, k)
    check.require((n_heldout <= sizes).all(), "n_heldout must not be larger than sizes")
    capped = check.array(arrays, "capped", np.int64, k)
    check.within("capped", capped, 0, LARGEST)
    check.require((capped <= n_heldout).all(), "capped must not be larger than n_heldout")
    check_counts(check, arrays, check.integer(meta, "n_folds", 1, LARGEST), n_heldout)
    check_history(check, arrays)
    misses = _misses(check, arrays, k)
    most = np.repeat(n_heldout, np.diff(misses.indptr))
    check.require((misses.data <= most).all(), "misses must not be more than is held out")
    n_pairs = len(StoredPairs.of(misses))
    check.within("p_value", check.array(arrays, "p_value", np.float64, n_pairs), 0, 1, ROUNDING)
    return misses


def _misses(check: ContentCheck, arrays: dict[str, Any], k: int) -> sparse.csr_array:
    """The sparse matrix of misses, if its parts make one."""
    starts = check.array(arrays, "misses.indptr", np.int64, k + 1)
    others = check.array(arrays, "misses.indices", np.int64, None)
    data = check.array(arrays, "misses.data", np.float64, len(others))
    ordered = starts[0] == 0 and starts[-1] == len(others) and bool((np.diff(starts) >= 0).all())
    check.require(ordered, "misses.indptr must divide misses.indices into rows")
    check.within("misses.indices", others, 0, k - 1)
    check.within("misses.data", data, 0.5, LARGEST)
    row = np.repeat(np.arange(k), np.diff(starts))
    check.require((others != row).all(), "misses must be between different clusters")
    place = row * k + others
    check.require((np.diff(place) > 0).all(), "misses.indices must increase within each row")
    return sparse.csr_array((data, others, starts), (k, k))
