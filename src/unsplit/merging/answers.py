"""Answers of a person about pairs of clusters, as links for a merge."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unsplit.data.saving import reason_of
from unsplit.errors import InputError, option, shown

FORMAT = "unsplit.constraints/1"
SAME, DIFFERENT = "same", "different"
MAKE_AGAIN = "export it again from the page of the result"
# More names than this would hide what to do about them.
MOST_NAMES = 8


@dataclass(frozen=True)
class Answer:
    """One pair of groups of clusters, called the same or different."""

    answer: str
    left: tuple[str, ...]
    right: tuple[str, ...]

    def __str__(self) -> str:
        return f"{' + '.join(self.left)} and {' + '.join(self.right)}"


@dataclass(frozen=True)
class Answers:
    """The answers of one file, or of one mapping, and how messages call it."""

    where: str
    answers: tuple[Answer, ...]

    def links(self, cluster_ids: Sequence[Any]) -> tuple[list[list[str]], list[list[str]]]:
        """Turn the answers into ``must_link`` and ``cannot_link``.

        "Same" joins all clusters of both groups; "different" keeps every cluster of one group
        apart from every cluster of the other.

        Parameters
        ----------
        cluster_ids : sequence of k names
            The clusters to be merged.  Names that are not among them are an error, and so are
            answers that contradict each other.
        """
        known = {str(name) for name in cluster_ids}
        named = [name for a in self.answers for name in (*a.left, *a.right)]
        missing = list(dict.fromkeys(name for name in named if name not in known))
        if missing:
            shown = ", ".join(map(repr, missing[:MOST_NAMES]))
            more = f" and {len(missing) - MOST_NAMES} more" if len(missing) > MOST_NAMES else ""
            raise InputError(
                f"{self.where} names clusters that these data do not have: {shown}{more}; use the "
                "data and labels that the page was made from."
            )
        self._check_agreement()
        same = [[*a.left, *a.right] for a in self.answers if a.answer == SAME]
        different = [
            [one, other]
            for a in self.answers
            if a.answer == DIFFERENT
            for one in a.left
            for other in a.right
        ]
        return same, different

    def _check_agreement(self) -> None:
        """Refuse a "different" whose two sides other answers make the same."""
        for number, answer in enumerate(self.answers, 1):
            if answer.answer != DIFFERENT:
                continue
            chain = self._chain(set(answer.left), set(answer.right))
            if chain is not None:
                same = " and ".join(f"answer {i + 1} ({self.answers[i]})" for i in chain)
                raise InputError(
                    f"{self.where} contradicts itself: answer {number} calls {answer} different, "
                    f"but {same} make{'s' if len(chain) == 1 else ''} them the same; change one of "
                    "these answers."
                )

    def _chain(self, start: set[str], goal: set[str]) -> list[int] | None:
        """The fewest "same" answers that lead from one set of clusters to another."""
        chains: list[tuple[set[str], list[int]]] = [(start, [])]
        used: set[int] = set()
        for reached, chain in chains:
            if reached & goal:
                return chain
            for index, answer in enumerate(self.answers):
                members = {*answer.left, *answer.right}
                if answer.answer == SAME and index not in used and members & reached:
                    used.add(index)
                    chains.append((members, [*chain, index]))
        return None


def read_answers(constraints: str | os.PathLike[str] | Mapping[str, Any] | Answers) -> Answers:
    """Read the answers that a page of a result exported.

    Parameters
    ----------
    constraints : path, mapping or Answers
        A JSON file, its content, or answers that were read before.

    Examples
    --------
    >>> content = {"format": FORMAT, "answers": [{"answer": "same", "left": [1], "right": [2]}]}
    >>> read_answers(content).links([1, 2, 3])
    ([['1', '2']], [])
    """
    if isinstance(constraints, Answers):
        return constraints
    if isinstance(constraints, Mapping):
        return _answers("constraints", constraints)
    if not isinstance(constraints, str | os.PathLike):
        raise InputError(
            f"constraints must be a file or its content, got {shown(constraints)}; pass the path "
            "of the JSON file that the page exported."
        )
    where = os.fspath(constraints)
    try:
        content = json.loads(Path(where).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            f"{where} cannot be opened ({reason_of(error)}); check its name."
        ) from None
    except (ValueError, RecursionError):
        raise InputError(f"{where} is not valid JSON, or it is damaged; {MAKE_AGAIN}.") from None
    return _answers(where, content)


def _answers(where: str, content: Any) -> Answers:
    kind = content.get("format") if isinstance(content, Mapping) else None
    if not isinstance(kind, str) or not kind.startswith("unsplit.constraints/"):
        raise InputError(
            f'{where} does not hold answers from a review, which have "format": "{FORMAT}" and a '
            f'list of "answers"; {MAKE_AGAIN}, or use {option("must_link")} and '
            f"{option('cannot_link')}."
        )
    if kind != FORMAT:
        raise InputError(
            f"{where} has format {kind!r}, this version reads {FORMAT!r}; {MAKE_AGAIN}."
        )
    return Answers(where, listed_answers(where, content.get("answers")))


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
