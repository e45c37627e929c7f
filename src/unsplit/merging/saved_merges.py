"""Saved trees and merges: written, read back, and refused if they cannot be a tree."""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from unsplit.data.array_files import (
    LARGEST,
    ROUNDING,
    Array,
    ContentCheck,
    load_arrays,
    save_arrays,
)
from unsplit.merging.answers import listed_answers
from unsplit.merging.decision import ENDINGS, REASONS, STAGES, Ending
from unsplit.merging.review import Merge
from unsplit.merging.stability import Stability

FORMAT = "unsplit.MergeTree/7"

_AT_LEAST_0 = Array("f8", (), 0, or_nan=True)
_SHARE = Array("f8", (), 0, 1, ROUNDING, or_nan=True)
_MERGE = {
    **dict.fromkeys(("left", "right"), Array("i8", (), 0)),
    **dict.fromkeys(("size_left", "size_right"), Array("i8", (), 1)),
    **dict.fromkeys(("tvd", "low", "high", "p_adjusted", "stability"), _SHARE),
    **dict.fromkeys(("edges", "times_chance", "neck", "strength"), _AT_LEAST_0),
    **dict.fromkeys(("statistic", "limit"), Array("f8")),
    "height": Array("f8", (), 0),
    "note": Array("U"),
    "stage": Array("U", among=STAGES),
    "reason": Array("U", among=REASONS),
}
_LISTS = ("merges", "apart")
# What the merges of a tree, or of a part of a run, must be: one array for each of their numbers.
MERGES = {
    f"{of}.{name}": wanted._replace(shape=(of,)) for of in _LISTS for name, wanted in _MERGE.items()
}
ENDING = {
    "ending.kind": Array("U", among=ENDINGS),
    "ending.number": Array("f8"),
    "ending.note": Array("U"),
    **{f"ending.{name}": Array("?") for name in ("nearby", "batches", "links", "too_few")},
    "ending.undone": Array("i8", ("undone",), 0),
}
_OWN = {
    "cluster_ids": Array("ids", ("k",), 1),
    "sizes": Array("i8", ("k",), 1, LARGEST),
    "taken": Array("?", ("merges",)),
    "statistic": Array("U"),
    "strategy": Array("U"),
    "n_forbidden": Array("i8", (), 0),
}
_TREE = {
    **_OWN,
    "remerges": Array("i8", ("repeats", "k"), 0),
    "answers": Array("U"),  # as JSON
    **MERGES,
    **ENDING,
}


def content_of(merged: Any) -> dict[str, Any]:
    """The merges, the pairs kept apart and, if it is known, the ending of a tree or a record."""
    content = {
        f"{of}.{name}": np.array([getattr(pair, name) for pair in getattr(merged, of)], kind.dtype)
        for of in _LISTS
        for name, kind in _MERGE.items()
    }
    if merged.ending is not None:
        for name, kind in ENDING.items():
            value = getattr(merged.ending, name.removeprefix("ending."))
            content[name] = np.array(value, kind.dtype)
    return content


def fields_of(content: Mapping[str, Any]) -> dict[str, Any]:
    """What :func:`content_of` was made from, after the content was compared with a table."""
    fields: dict[str, Any] = {}
    for of in _LISTS:
        columns = [content[f"{of}.{name}"].tolist() for name in _MERGE]
        rows = zip(*columns, strict=True)
        fields[of] = [Merge(**dict(zip(_MERGE, row, strict=True))) for row in rows]
    if ENDING.keys() <= content.keys():
        ending = {name.removeprefix("ending."): content[name] for name in ENDING}
        fields["ending"] = Ending(**ending | {"undone": tuple(ending["undone"].tolist())})
    return fields


def content_of_tree(tree: Any) -> dict[str, Any]:
    """Everything in a MergeTree, as arrays and single values."""
    content = {name: getattr(tree, name) for name in _OWN} | content_of(tree)
    content["answers"] = json.dumps([asdict(answer) for answer in tree.answers])
    if tree.stability is not None:
        content["remerges"] = tree.stability.groups
    return content


def fields_of_tree(found: Mapping[str, Any], check: ContentCheck) -> dict[str, Any]:
    """The fields of a MergeTree from what :func:`content_of_tree` returned, wherever it was."""
    content = check.content(found, _TREE, ("remerges",))
    tree = {name: content[name] for name in _OWN} | fields_of(content)
    try:
        tree["answers"] = listed_answers(str(check.path), json.loads(content["answers"]))
    except ValueError:
        check.require(False, "answers must be a list in JSON")
    _check_tree(check, content, tree)
    if "remerges" in content:
        tree["stability"] = Stability(content["remerges"])
    return tree | {of: tuple(tree[of]) for of in _LISTS}


def write_tree(path: str | os.PathLike[str], tree: Any) -> None:
    """Write a MergeTree."""
    save_arrays(path, FORMAT, {}, content_of_tree(tree))


def read_tree(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the fields of a MergeTree."""
    meta, arrays = load_arrays(path, FORMAT)
    return fields_of_tree(meta | arrays, ContentCheck(path, FORMAT))


def check_merges(
    check: ContentCheck, merged: Mapping[str, Any], k: int, sizes: Iterable[int] = ()
) -> None:
    """Refuse merges that use a cluster twice, or one that does not exist yet.

    Parameters
    ----------
    check : ContentCheck
    merged : mapping
        "merges" in their order, perhaps not all, and the pairs that were kept "apart".
    k : int
        Number of initial clusters.
    sizes : iterable of int
        Number of observations in each initial cluster; empty if unknown.
    """
    merges, apart = merged["merges"], merged["apart"]
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
        check.require(known, f"{pair.left} and {pair.right} in apart are not two clusters")
        _check_sizes(check, pair, size_of)


def _check_tree(check: ContentCheck, content: Mapping[str, Any], tree: Mapping[str, Any]) -> None:
    """Refuse merges that cannot be a tree, and a cut that is none."""
    merges, taken, k = tree["merges"], tree["taken"], len(tree["sizes"])
    check.require(len(merges) == k - 1, f"{k} clusters need {k - 1} merges, got {len(merges)}")
    check.require(tree["n_forbidden"] < k, f"n_forbidden must be less than {k}")
    new = content.get("remerges", np.zeros((1, k)))
    check.require(new.size > 0 and new.max() < k, f"remerges must be less than {k}")
    check_merges(check, tree, k, tree["sizes"].tolist())
    forbidden = taken[k - 1 - tree["n_forbidden"] :]
    check.require(not forbidden.any(), "taken includes merges that cannot_link forbids")
    # Not always the first merges: undo takes single ones back, with all that build on them.
    for step in np.flatnonzero(taken).tolist():
        below = [node - k for node in (merges[step].left, merges[step].right) if node >= k]
        check.require(taken[below].all(), f"taken includes merge {step} but not those below it")
    known = set(tree["cluster_ids"].astype(str).tolist())
    named = {name for one in tree["answers"] for name in (*one.left, *one.right)}
    check.require(named <= known, "answers must be about clusters of the tree")


def _check_sizes(check: ContentCheck, pair: Merge, size_of: dict[int, int]) -> None:
    for node, size in ((pair.left, pair.size_left), (pair.right, pair.size_right)):
        # If the sizes are unknown, the first mention of a cluster counts.
        expected = size_of.setdefault(node, size)
        check.require(
            size == expected, f"cluster {node} has {expected} observations, but {size} in a pair"
        )
