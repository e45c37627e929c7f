"""Tables."""

from collections.abc import Sequence

from experiments.core import Claim, Result


def table(results: Sequence[Result]) -> str:
    """None yet."""
    return ""


def claims(results: Sequence[Result]) -> list[Claim]:
    """None yet."""
    return []
