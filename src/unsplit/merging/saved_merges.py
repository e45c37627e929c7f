"""Saved trees and merges: written, read back, and refused if they cannot be a tree."""

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from typing import Any

import numpy as np

from unsplit.data.array_files import load_arrays, save_arrays
from unsplit.data.content_check import ROUNDING, ContentCheck
from unsplit.merging.answers import listed_answers
from unsplit.merging.decision import ENDINGS, REASONS, STAGES, Ending
from unsplit.merging.review import Merge
from unsplit.merging.stability import Stability

FORMAT = "unsplit.MergeTree/6"

_ARRAYS = ("cluster_ids", "sizes", "taken")
_MERGES = ("merges", "apart")
_REMERGES = "remerges"
_PLAIN = ("statistic", "strategy", "n_forbidden")

_NAMES = {field.name for field in fields(Merge)}
_COUNTS = {"left": 0, "right": 0, "size_left": 1, "size_right": 1}
_SHARES = ("tvd", "low", "high", "p_adjusted", "stability")
_AT_LEAST_0 = ("edges", "times_chance", "neck", "strength")


def write_tree(path: str | os.PathLike[str], tree: Any) -> None:
    """Write a MergeTree."""
    meta: dict[str, Any] = {name: getattr(tree, name) for name in _PLAIN}
    meta["ending"] = tree.ending._asdict()
    meta |= {name: [dict(vars(merge)) for merge in getattr(tree, name)] for name in _MERGES}
    if tree.answers:
        meta["answers"] = [asdict(answer) for answer in tree.answers]
    arrays = {name: getattr(tree, name) for name in _ARRAYS}
    if tree.stability is not None:
        arrays[_REMERGES] = tree.stability.groups
    save_arrays(path, FORMAT, meta, arrays)


def read_tree(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the fields of a MergeTree."""
    meta, arrays = load_arrays(path, FORMAT)
    check = ContentCheck(path, "MergeTree", "make it again")
    check.names(meta, {*_PLAIN, *_MERGES, "ending"}, {"answers"})
    check.names(arrays, set(_ARRAYS), {_REMERGES})
    merges, apart = (tuple(read_merges(check, meta[name], name)) for name in _MERGES)
    plain = {name: meta[name] for name in _PLAIN}
    _check_content(check, plain, arrays, merges, apart)
    answers = listed_answers(str(path), meta.get("answers", []))
    known = {str(name) for name in arrays["cluster_ids"].tolist()}
    strangers = {name for one in answers for name in (*one.left, *one.right)} - known
    check.require(not strangers, "answers must be about clusters of the tree")
    ending = read_ending(check, meta["ending"])
    found: dict[str, Any] = {"merges": merges, "apart": apart, "answers": answers, "ending": ending}
    if _REMERGES in arrays:
        groups = check.array(arrays, _REMERGES, np.int64, None, len(known))
        check.within(_REMERGES, groups, 0, len(known) - 1)
        found["stability"] = Stability(arrays.pop(_REMERGES))
    return found | arrays | plain


def read_ending(check: ContentCheck, content: Any) -> Ending:
    """Turn a plain mapping into an ending with possible values.

    Parameters
    ----------
    check : ContentCheck
    content : anything
        What the file holds; should be a mapping with the fields of
        :class:`unsplit.merging.decision.Ending`.

    Examples
    --------
    >>> check = ContentCheck("tree.npz", "MergeTree", "make it again")
    >>> read_ending(check, Ending("requested", 3)._asdict()).number
    3
    """
    check.require(isinstance(content, dict), "ending must be a mapping")
    check.names(content, set(Ending._fields), set())
    _one_of(check, content, "kind", ENDINGS)
    check.number(content, "number", -math.inf, math.inf, unknown=True)
    check.text(content, "note")
    for name in ("nearby", "batches", "links", "too_few"):
        check.require(isinstance(content[name], bool), f"{name} must be true or false")
    undone = content["undone"]
    whole = isinstance(undone, (list, tuple)) and all(type(step) is int for step in undone)
    check.require(whole, "undone must be a list of whole numbers")
    return Ending(**{**content, "undone": tuple(undone)})


def _one_of(check: ContentCheck, values: dict[str, Any], name: str, known: Sequence[str]) -> None:
    check.require(values[name] in known, f"{name} must be one of {', '.join(known)}")


def read_merges(check: ContentCheck, content: Any, name: str) -> list[Merge]:
    """Turn a list of plain mappings into merges, each with possible values.

    Parameters
    ----------
    check : ContentCheck
    content : anything
        What the file holds; should be a list of mappings with the fields of :class:`Merge`.
    name : str
        What the list is called.

    Examples
    --------
    >>> read_merges(ContentCheck("tree.npz", "MergeTree", "make it again"), [], "merges")
    []
    >>> read_merges(ContentCheck("tree.npz", "MergeTree", "make it again"), [3], "merges")
    Traceback (most recent call last):
    unsplit.errors.InputError: tree.npz is not a valid MergeTree: merges must be a list of mappings; make it again.
    """  # noqa: E501
    mappings = isinstance(content, list) and all(isinstance(entry, dict) for entry in content)
    check.require(mappings, f"{name} must be a list of mappings")
    return [_read_merge(check, entry) for entry in content]


def _read_merge(check: ContentCheck, values: dict[str, Any]) -> Merge:
    check.names(values, _NAMES, set())
    for name, low in _COUNTS.items():
        check.integer(values, name, low, math.inf)
    for name in _SHARES:
        check.number(values, name, 0, 1, unknown=True, rounding=ROUNDING)
    for name in _AT_LEAST_0:
        check.number(values, name, 0, math.inf, unknown=True)
    check.number(values, "statistic", -math.inf, math.inf, unknown=True)
    check.number(values, "height", 0, math.inf)
    check.number(values, "limit", -math.inf, math.inf, unknown=True)
    _one_of(check, values, "stage", STAGES)
    _one_of(check, values, "reason", REASONS)
    check.text(values, "note")
    return Merge(**values)


def check_tree(
    check: ContentCheck,
    merges: Sequence[Merge],
    apart: Sequence[Merge],
    k: int,
    sizes: Iterable[int] = (),
) -> None:
    """Refuse merges of clusters that do not exist yet or were merged before, and wrong sizes.

    Parameters
    ----------
    check : ContentCheck
    merges : sequence of Merge
        In order, and not more than k − 1.
    apart : sequence of Merge
        Pairs that were kept apart.
    k : int
        Number of initial clusters.
    sizes : iterable of int
        Number of observations in each initial cluster; empty if unknown.

    Examples
    --------
    >>> check_tree(ContentCheck("tree.npz", "MergeTree", "make it again"), [], [], 2)
    """
    check.require(len(merges) < k, f"{k} clusters have at most {k - 1} merges, got {len(merges)}")
    gone: set[int] = set()
    size_of = dict(enumerate(sizes))
    height = 0.0
    for step, merge in enumerate(merges):
        for node in (merge.left, merge.right):
            check.require(node < k + step, f"merge {step} uses cluster {node} before it exists")
            check.require(node not in gone, f"merge {step} uses cluster {node} a second time")
            gone.add(node)
        check.require(merge.height >= height, f"the height of merge {step} must not decrease")
        height = merge.height
        _check_sizes(check, merge, size_of)
        size_of[k + step] = merge.size_left + merge.size_right
    for pair in apart:
        known = max(pair.left, pair.right) < k + len(merges) and pair.left != pair.right
        check.require(
            known, f"clusters {pair.left} and {pair.right} in apart are not two of the tree"
        )
        _check_sizes(check, pair, size_of)


def _check_content(
    check: ContentCheck,
    plain: dict[str, Any],
    arrays: dict[str, Any],
    merges: tuple[Merge, ...],
    apart: tuple[Merge, ...],
) -> None:
    """Refuse saved content that cannot be a tree."""
    k = len(check.cluster_ids(arrays, at_least=1))
    check.within("sizes", check.array(arrays, "sizes", np.int64, k), 1, 2**40)
    taken = check.array(arrays, "taken", np.bool_, k - 1)
    for name in ("statistic", "strategy"):
        check.text(plain, name)
    n_forbidden = check.integer(plain, "n_forbidden", 0, k - 1)
    check.require(len(merges) == k - 1, f"{k} clusters need {k - 1} merges, got {len(merges)}")
    check_tree(check, merges, apart, k, arrays["sizes"].tolist())
    check.require(
        not taken[k - 1 - n_forbidden :].any(), "taken includes merges that cannot_link forbids"
    )
    # Not always the first merges: undo takes single ones back, with all that build on them.
    for step in np.flatnonzero(taken).tolist():
        below = [node - k for node in (merges[step].left, merges[step].right) if node >= k]
        check.require(taken[below].all(), f"taken includes merge {step} but not those below it")


def _check_sizes(check: ContentCheck, pair: Merge, size_of: dict[int, int]) -> None:
    for node, size in ((pair.left, pair.size_left), (pair.right, pair.size_right)):
        # If the sizes are unknown, the first mention of a cluster counts.
        expected = size_of.setdefault(node, size)
        check.require(
            size == expected, f"cluster {node} has {expected} observations, but {size} in a pair"
        )
