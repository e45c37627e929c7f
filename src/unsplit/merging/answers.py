"""Answers of a person about pairs of clusters, as the page of a result exports them."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unsplit.data.saving import reason_of
from unsplit.errors import InputError, option, shown

FORMAT = "unsplit.constraints/1"
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
    >>> content = {"format": FORMAT, "answers": [{"answer": "same", "left": [1], "right": [2]}]}
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
    if kind != FORMAT:
        raise InputError(
            f"{where} does not hold answers from a review: its format is {shown(kind)} instead of "
            f"{FORMAT!r}; {MAKE_AGAIN}, or use {option('must_link')} and {option('cannot_link')}."
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
