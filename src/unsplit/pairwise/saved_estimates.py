"""What is in the file of a saved estimate, and whether it can be true."""

import math
import sys
from typing import Any

import numpy as np

from unsplit.data.content_check import ROUNDING, ContentCheck

OWN = ("cluster_ids", "sizes", "n_heldout", "hit_rate")
SCORES = ("features", "weights", "bias", "clusters", "folds", "rows")
BATCHES = ("batches", "subclusters")
HISTORY = ("epoch", "loss", "accuracy", "seconds", "kept_epoch")
# No count is larger, and sums of counts stay within 64 bits.
_LARGEST = 2**40
# Scores made of features, weights and biases up to here are finite in single precision.
_LARGEST_SCORE = 1e15


def check_content(check: ContentCheck, meta: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Refuse saved content that cannot be an estimate."""
    needed = {*OWN, *(f"scores.{name}" for name in SCORES)}
    needed |= {f"history.{name}" for name in HISTORY}
    batched = {f"scores.{name}" for name in BATCHES}
    if batched & arrays.keys():
        needed |= batched
    check.names(arrays, needed, {"p_value"})
    check.names(meta, {"n_noise", "temperature"}, set())
    check.integer(meta, "n_noise", 0, math.inf)
    temperature = check.number(meta, "temperature", 0, sys.float_info.max)
    check.require(temperature > 0, "temperature must be positive")
    k = len(check.cluster_ids(arrays, at_least=2))
    sizes = check.array(arrays, "sizes", np.int64, k)
    check.within("sizes", sizes, 1, _LARGEST)
    n_heldout = check.array(arrays, "n_heldout", np.int64, k)
    check.require((n_heldout <= sizes).all(), "n_heldout must not be larger than sizes")
    hit_rate = check.array(arrays, "hit_rate", np.float64, k, k)
    check.within("hit_rate", hit_rate, 0, 1, ROUNDING)
    if "p_value" in arrays:
        check.within("p_value", check.array(arrays, "p_value", np.float64, k, k), 0, 1, ROUNDING)
    _check_scores(check, arrays, k)
    counts = np.bincount(arrays["scores.clusters"], minlength=k)
    check.require((n_heldout == counts).all(), "n_heldout must be the counts of scores.clusters")
    epochs = len(check.array(arrays, "history.epoch", np.int64, None))
    for name in ("loss", "accuracy", "seconds"):
        check.array(arrays, f"history.{name}", np.float64, epochs)
    check.array(arrays, "history.kept_epoch", np.int64, None)


def _check_scores(check: ContentCheck, arrays: dict[str, Any], k: int) -> None:
    """Refuse scores that do not fit together or are not finite."""
    features = check.array(arrays, "scores.features", np.float32, None, None)
    m, h = features.shape
    bias = check.array(arrays, "scores.bias", np.float32, None, k)
    weights = check.array(arrays, "scores.weights", np.float32, len(bias), k, h)
    for name, array in (("scores.features", features), ("scores.weights", weights)):
        check.within(name, array, -_LARGEST_SCORE, _LARGEST_SCORE)
    subclusters, n_batches = arrays.get("scores.subclusters"), 1
    if subclusters is not None:
        subclusters = check.array(arrays, "scores.subclusters", np.int64, None, k)
        check.within("scores.subclusters", subclusters, 0, _LARGEST)
        n_batches = len(subclusters)
    check.require(
        n_batches > 0 and len(bias) > 0 and len(bias) % n_batches == 0,
        "scores.bias must have one row for each batch of each fold",
    )
    n_folds = len(bias) // n_batches
    # A cluster that does not occur in a batch has the bias −∞ there.
    absent = np.zeros(bias.shape, bool)
    if subclusters is not None:
        absent = np.tile(subclusters == 0, (n_folds, 1)) & (bias == -np.inf)
    check.within("scores.bias", bias[~absent], -_LARGEST_SCORE, _LARGEST_SCORE)
    highest = {"clusters": k - 1, "folds": n_folds - 1, "rows": _LARGEST, "batches": n_batches - 1}
    for name, high in highest.items():
        if name != "batches" or subclusters is not None:
            index = check.array(arrays, f"scores.{name}", np.int64, m)
            check.within(f"scores.{name}", index, 0, high)
    if subclusters is not None:
        both = arrays["scores.batches"] * k + arrays["scores.clusters"]
        counts = np.bincount(both, minlength=n_batches * k).reshape(n_batches, k)
        check.require(
            (counts <= subclusters).all(), "scores.subclusters must not be less than is held out"
        )
    strata = arrays["scores.folds"] * n_batches + arrays.get("scores.batches", 0)
    ordered = (np.diff(strata * k + arrays["scores.clusters"]) >= 0).all()
    check.require(ordered, "scores must be ordered by fold, batch and cluster")
