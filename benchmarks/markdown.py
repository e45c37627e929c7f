"""Tables as Markdown has them."""

from collections.abc import Iterable, Sequence
from typing import Any


def table(header: Sequence[str], rows: Iterable[Sequence[Any]], number: str = ".4g") -> str:
    """A table; floats are written in this format, those that are not a number left out.

    Examples
    --------
    >>> print(table(("a", "b"), [(1, 0.123456), ("x", float("nan"))]))
    | a | b |
    |---|---|
    | 1 | 0.1235 |
    | x |  |
    """

    def text(entry: Any) -> str:
        if not isinstance(entry, float):
            return str(entry)
        return "" if entry != entry else format(entry, number)

    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(map(text, row)) + " |" for row in rows])
