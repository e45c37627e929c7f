"""Figures."""

from collections.abc import Sequence
from pathlib import Path

from experiments.core import Result


def draw(results: Sequence[Result], folder: Path) -> list[Path]:
    """None yet."""
    return []
