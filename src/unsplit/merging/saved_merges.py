"""Saved trees and merges: written, read back, and refused if they cannot be a tree."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from unsplit.data.array_files import load_arrays, save_arrays
from unsplit.data.content_check import LARGEST, ROUNDING, Array, ContentCheck
from unsplit.merging.answers import listed_answers
from unsplit.merging.decision import ENDINGS, REASONS, STAGES, Ending
from unsplit.merging.review import Merge
from unsplit.merging.stability import Stability

FORMAT = "unsplit.MergeTree/6"

_ARRAYS = ("cluster_ids", "sizes", "taken")
_MERGES = ("merges", "apart")
_REMERGES = "remerges"
_PLAIN = ("statistic", "strategy", "n_forbidden")

_ANY, _TEXT, _TRUTH = Array("f8", ("n",)), Array("U", ("n",)), Array("?", ("n",))
_AT_LEAST_0 = Array("f8", ("n",), 0, or_nan=True)
_SHARE = Array("f8", ("n",), 0, 1, ROUNDING, or_nan=True)
_MERGE = {
    **dict.fromkeys(("left", "right"), Array("i8", ("n",), 0)),
    **dict.fromkeys(("size_left", "size_right"), Array("i8", ("n",), 1)),
    **dict.fromkeys(("tvd", "low", "high", "p_adjusted", "stability"), _SHARE),
    **dict.fromkeys(("edges", "times_chance", "neck", "strength"), _AT_LEAST_0),
    "statistic": _ANY,
    "limit": _ANY,
    "height": _ANY._replace(low=0),
    "note": _TEXT,
    "stage": _TEXT._replace(among=STAGES),
    "reason": _TEXT._replace(among=REASONS),
}
_ENDING = {
    "kind": _TEXT._replace(among=ENDINGS),
    "number": _ANY,
    "note": _TEXT,
    **dict.fromkeys(("nearby", "batches", "links", "too_few"), _TRUTH),
}


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
    check = ContentCheck(path, "MergeTree")
    k = check.cluster_ids(arrays, at_least=1)
    needed = {
        "cluster_ids": Array(""),
        "sizes": Array("i8", ("k",), 1, LARGEST),
        "taken": Array("?", (k - 1,)),
        _REMERGES: Array("i8", ("repeats", "k"), 0, k - 1),
    }
    check.arrays(arrays, needed, (_REMERGES,), k=k)
    answers = listed_answers(str(path), meta.pop("answers", []))
    known = {str(name) for name in arrays["cluster_ids"].tolist()}
    strangers = {name for one in answers for name in (*one.left, *one.right)} - known
    check.require(not strangers, "answers must be about clusters of the tree")
    check.names(meta, dict.fromkeys((*_PLAIN, *_MERGES, "ending")))
    plain = {"statistic": _TEXT, "strategy": _TEXT, "n_forbidden": Array("i8", ("n",), 0, k - 1)}
    check.rows([{name: meta[name] for name in plain}], plain, "plain values")
    tree = meta | arrays | {"answers": answers, "ending": read_ending(check, meta["ending"])}
    tree |= {name: tuple(read_merges(check, meta[name], name)) for name in _MERGES}
    _check_content(check, tree)
    if _REMERGES in tree:
        tree["stability"] = Stability(tree.pop(_REMERGES))
    return tree


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
    >>> content = Ending("requested", 3)._asdict()
    >>> read_ending(ContentCheck("tree.npz", "MergeTree"), content).number
    3
    """
    check.require(isinstance(content, dict) and "undone" in content, "ending must be a mapping")
    undone = content["undone"]
    whole = isinstance(undone, (list, tuple)) and all(type(step) is int for step in undone)
    check.require(whole, "undone must be a list of whole numbers")
    rest = {name: value for name, value in content.items() if name != "undone"}
    check.rows([rest], _ENDING, "ending")
    return Ending(**rest, undone=tuple(undone))


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
    >>> read_merges(ContentCheck("tree.npz", "MergeTree"), [], "merges")
    []
    >>> read_merges(ContentCheck("tree.npz", "MergeTree"), [3], "merges")
    Traceback (most recent call last):
    unsplit.errors.InputError: tree.npz is not a valid MergeTree: merges must be a list of mappings; make it again.
    """  # noqa: E501
    check.rows(content, _MERGE, name)
    return [Merge(**entry) for entry in content]


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
    >>> check_tree(ContentCheck("tree.npz", "MergeTree"), [], [], 2)
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


def _check_content(check: ContentCheck, tree: dict[str, Any]) -> None:
    """Refuse merges that cannot be a tree, and a cut that is none."""
    merges, taken, k = tree["merges"], tree["taken"], len(tree["sizes"])
    check.require(len(merges) == k - 1, f"{k} clusters need {k - 1} merges, got {len(merges)}")
    check_tree(check, merges, tree["apart"], k, tree["sizes"].tolist())
    forbidden = taken[k - 1 - tree["n_forbidden"] :]
    check.require(not forbidden.any(), "taken includes merges that cannot_link forbids")
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
