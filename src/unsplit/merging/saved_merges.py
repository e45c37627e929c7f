"""Saved trees, and the answers of a person that the page of a result exports."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from unsplit.data.array_files import LARGEST, ROUNDING, Array, ContentCheck
from unsplit.data.saving import reason_of
from unsplit.errors import InputError, option, shown
from unsplit.merging.decision import ENDINGS, REASONS, STAGES, Ending, Merge, Stability

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
_OWN = {
    "cluster_ids": Array("ids", ("k",), 1),
    "sizes": Array("i8", ("k",), 1, LARGEST),
    "taken": Array("?", ("merges",)),
    "statistic": Array("U"),
    "strategy": Array("U"),
    "n_forbidden": Array("i8", (), 0),
}
_ENDING = {
    "kind": Array("U", among=ENDINGS),
    "number": Array("f8"),
    "note": Array("U"),
    **dict.fromkeys(("nearby", "batches", "links", "too_few"), Array("?")),
    "undone": Array("i8", ("undone",), 0),
}
_TREE = {
    **_OWN,
    "answers": Array("U"),  # as JSON
    "remerges": Array("i8", ("repeats", "k"), 0),
    **{f"ending.{name}": wanted for name, wanted in _ENDING.items()},
    # One array for each of their numbers.
    **{f"{of}.{name}": _MERGE[name]._replace(shape=(of,)) for of in _LISTS for name in _MERGE},
}


def content_of_tree(tree: Any) -> dict[str, Any]:
    """Everything in a MergeTree, as arrays and single values."""
    content = {name: getattr(tree, name) for name in _OWN}
    content["answers"] = json.dumps([asdict(answer) for answer in tree.answers])
    if tree.stability is not None:
        content["remerges"] = tree.stability.groups
    for name, kind in _ENDING.items():
        content[f"ending.{name}"] = np.array(getattr(tree.ending, name), kind.dtype)
    for of in _LISTS:
        for name, kind in _MERGE.items():
            column = [getattr(pair, name) for pair in getattr(tree, of)]
            content[f"{of}.{name}"] = np.array(column, kind.dtype)
    return content


def fields_of_tree(found: Mapping[str, Any], check: ContentCheck) -> dict[str, Any]:
    """The fields of a MergeTree from what :func:`content_of_tree` returned, wherever it was."""
    content = check.content(found, _TREE, ("remerges",))
    tree = {name: content[name] for name in _OWN}
    for of in _LISTS:
        columns = [content[f"{of}.{name}"].tolist() for name in _MERGE]
        rows = zip(*columns, strict=True)
        tree[of] = tuple(Merge(**dict(zip(_MERGE, row, strict=True))) for row in rows)
    ending = {name: content[f"ending.{name}"] for name in _ENDING}
    tree["ending"] = Ending(**ending | {"undone": tuple(ending["undone"].tolist())})
    try:
        tree["answers"] = listed_answers(str(check.path), json.loads(content["answers"]))
    except json.JSONDecodeError:
        check.require(False, "answers must be a list in JSON")
    tree["stability"] = Stability(content["remerges"]) if "remerges" in content else None
    _check(check, tree)
    return tree


def _check(check: ContentCheck, tree: Mapping[str, Any]) -> None:
    """Refuse what cannot be a tree, or could not be used as one."""
    merges, taken, k = tree["merges"], tree["taken"], len(tree["sizes"])
    sides = [{merge.left, merge.right} for merge in merges]
    nodes = [node for pair in sides for node in pair]
    check.require(sorted(nodes) == [*range(2 * k - 2)], "each cluster but the last is merged once")
    for step, pair in enumerate(sides):
        check.require(max(pair) < k + step, f"merge {step} uses a cluster before it exists")
        # Not always the first merges are taken: undo takes single ones back, with all above them.
        below = [node - k for node in pair if node >= k]
        whole = not taken[step] or taken[below].all()
        check.require(whole, f"taken includes merge {step} but not those below it")
    known = all(max(pair.left, pair.right) < 2 * k - 1 for pair in tree["apart"])
    check.require(known, "pairs kept apart must be of clusters of the tree")
    names = {name for one in tree["answers"] for name in (*one.left, *one.right)}
    known = names <= {*tree["cluster_ids"].astype(str).tolist()}
    check.require(known, "answers must be about clusters of the tree")


# --- answers --------------------------------------------------------------------------------------

ANSWERS = "unsplit.constraints/1"
SAME, DIFFERENT = "same", "different"
MAKE_AGAIN = "export it again from the page of the result"
# Characters of a file of answers; a device such as /dev/zero has no end.
MOST_TEXT = 2**26


@dataclass(frozen=True)
class Answer:
    """One pair of groups of clusters, called the same or different."""

    answer: str
    left: tuple[str, ...]
    right: tuple[str, ...]

    def __str__(self) -> str:
        return f"{' + '.join(self.left)} and {' + '.join(self.right)}"


def read_answers(constraints: str | os.PathLike[str] | Mapping[str, Any]) -> tuple[Answer, ...]:
    """Read the answers that a page of a result exported.

    Parameters
    ----------
    constraints : path or mapping
        A JSON file, or its content.

    Examples
    --------
    >>> content = {"format": ANSWERS, "answers": [{"answer": "same", "left": [1], "right": [2]}]}
    >>> read_answers(content)
    (Answer(answer='same', left=('1',), right=('2',)),)
    """
    if isinstance(constraints, Mapping):
        return _answers("constraints", constraints)
    if not isinstance(constraints, str | os.PathLike):
        raise InputError(
            f"constraints must be a file or its content, got {shown(constraints)}; pass the path "
            "of the JSON file that the page exported."
        )
    where = os.fspath(constraints)
    try:
        with open(where, encoding="utf-8") as file:
            text = file.read(MOST_TEXT + 1)
        if len(text) > MOST_TEXT:
            raise InputError(f"{where} is too large for the answers of a review; {MAKE_AGAIN}.")
        content = json.loads(text)
    except InputError:
        raise
    except OSError as error:
        raise InputError(
            f"{where} cannot be opened ({reason_of(error)}); check its name."
        ) from None
    except (ValueError, RecursionError):
        raise InputError(f"{where} is not valid JSON, or it is damaged; {MAKE_AGAIN}.") from None
    return _answers(where, content)


def _answers(where: str, content: Any) -> tuple[Answer, ...]:
    kind = content.get("format") if isinstance(content, Mapping) else None
    if kind != ANSWERS:
        raise InputError(
            f"{where} does not hold answers from a review: its format is {shown(kind)} instead of "
            f"{ANSWERS!r}; {MAKE_AGAIN}, or use {option('must_link')} and {option('cannot_link')}."
        )
    return listed_answers(where, content.get("answers"))


def listed_answers(where: str, listed: Any) -> tuple[Answer, ...]:
    """Turn a list of plain mappings into answers.

    Parameters
    ----------
    where : str
        What messages call the place where the list comes from.
    listed : anything
        Should be a list of mappings with "answer", "left" and "right".

    Examples
    --------
    >>> str(listed_answers("a file", [{"answer": "same", "left": ["a"], "right": ["b"]}])[0])
    'a and b'
    """
    if not isinstance(listed, list):
        raise InputError(f"{where} must hold a list of answers; {MAKE_AGAIN}.")
    return tuple(_answer(where, i, entry) for i, entry in enumerate(listed, 1))


def _answer(where: str, number: int, entry: Any) -> Answer:
    found = dict(entry) if isinstance(entry, Mapping) else {}
    sides = [found.get("left"), found.get("right")]
    good = found.get("answer") in (SAME, DIFFERENT) and all(
        isinstance(side, list) and side and all(isinstance(n, str | int) for n in side)
        for side in sides
    )
    if not good:
        raise InputError(
            f'{where}: answer {number} must have "answer" (same or different) and the names of '
            f'clusters in "left" and "right"; {MAKE_AGAIN}.'
        )
    left, right = (tuple(str(name) for name in side or ()) for side in sides)
    both = [name for name in left if name in right]
    if both:
        raise InputError(
            f"{where}: answer {number} has cluster {both[0]!r} on both sides; {MAKE_AGAIN}."
        )
    return Answer(found["answer"], left, right)
