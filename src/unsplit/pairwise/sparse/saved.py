"""Saved sparse estimates: what is stored of the pairs and, on demand, the scores beside it."""

import os
from typing import Any

import numpy as np
from scipy import sparse

from unsplit._typing import Matrix
from unsplit.data.array_files import load_arrays
from unsplit.data.content_check import ROUNDING, ContentCheck
from unsplit.pairwise.saved_estimates import LARGEST, check_shared, read_shared, write_arrays
from unsplit.pairwise.sparse.pairs import StoredPairs

FORMAT = "unsplit.SparsePairwiseTVD/1"

OWN = ("cluster_ids", "sizes", "n_heldout", "capped")


def write_sparse(path: str | os.PathLike[str], result: Any, with_scores: bool) -> None:
    """Write a SparsePairwiseTVD and, on demand, its scores."""
    misses = result.misses
    own = {name: getattr(result, name) for name in OWN}
    own |= {
        "misses.indptr": misses.indptr.astype(np.int64),
        "misses.indices": misses.indices.astype(np.int64),
        "misses.data": misses.data,
    }
    write_arrays(path, FORMAT, result, own, result.p_value.values, with_scores)


def read_sparse(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Matrix]:
    """Return the fields of a SparsePairwiseTVD, and the p-values of its stored pairs."""
    meta, arrays = load_arrays(path, FORMAT)
    misses = _check_result(ContentCheck(path, "SparsePairwiseTVD", "make it again"), meta, arrays)
    fields = {name: arrays[name] for name in OWN} | read_shared(path, meta, arrays)
    return fields | {"misses": misses}, arrays["p_value"]


def _check_result(
    check: ContentCheck, meta: dict[str, Any], arrays: dict[str, Any]
) -> sparse.csr_array:
    """Refuse saved content that cannot be an estimate; return the misses."""
    parts = ("misses.indptr", "misses.indices", "misses.data")
    n_heldout = check_shared(check, meta, arrays, {*OWN, *parts}, set())
    k = len(n_heldout)
    capped = check.array(arrays, "capped", np.int64, k)
    check.within("capped", capped, 0, LARGEST)
    check.require((capped <= n_heldout).all(), "capped must not be larger than n_heldout")
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
