"""Saved sparse estimates: what is stored of the pairs and, on demand, the scores beside it."""

import os
from typing import Any

import numpy as np
from scipy import sparse

from unsplit._typing import Matrix
from unsplit.data.content_check import LARGEST, ROUNDING, Array, ContentCheck
from unsplit.pairwise.saved_estimates import read_arrays, write_arrays
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
    own = {
        "cluster_ids": Array(""),
        "capped": Array("i8", ("k",), 0, LARGEST),
        "misses.indptr": Array("i8", ("k + 1",)),
        "misses.indices": Array("i8", ("misses",), 0),
        "misses.data": Array("f8", ("misses",), 0.5, LARGEST),
        "p_value": Array("f8", ("pairs",), 0, 1, ROUNDING),
    }
    fields, arrays, check = read_arrays(path, FORMAT, own)
    n_heldout = arrays["n_heldout"]
    check.require((arrays["capped"] <= n_heldout).all(), "capped must not be larger than n_heldout")
    misses = _misses(check, arrays, len(n_heldout))
    most = np.repeat(n_heldout, np.diff(misses.indptr))
    check.require((misses.data <= most).all(), "misses must not be more than is held out")
    pairs = len(StoredPairs.of(misses))
    check.require(len(arrays["p_value"]) == pairs, f"p_value must have {pairs} entries")
    return fields | {name: arrays[name] for name in OWN} | {"misses": misses}, arrays["p_value"]


def _misses(check: ContentCheck, arrays: dict[str, Any], k: int) -> sparse.csr_array:
    """The sparse matrix of misses, if its parts make one."""
    starts, others, data = (arrays[f"misses.{part}"] for part in ("indptr", "indices", "data"))
    ordered = len(starts) == k + 1 and starts[0] == 0 and starts[-1] == len(others)
    ordered = ordered and bool((np.diff(starts) >= 0).all())
    check.require(ordered, "misses.indptr must divide misses.indices into rows")
    row = np.repeat(np.arange(k), np.diff(starts))
    fits = (others < k) & (others != row)
    check.require(fits.all(), "misses must be between different clusters")
    check.require((np.diff(row * k + others) > 0).all(), "misses.indices must increase in a row")
    return sparse.csr_array((data, others, starts), (k, k))
