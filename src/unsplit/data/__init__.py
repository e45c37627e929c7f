"""Observations of every kind behind one small interface."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unsplit.data.rows.base import Rows
    from unsplit.data.rows.kinds import observations

__all__ = ["Rows", "observations"]


def __getattr__(name: str) -> Any:
    """Import the two names when they are first used: labels and saved files need no torch."""
    if name == "Rows":
        from unsplit.data.rows.base import Rows

        return Rows
    if name == "observations":
        from unsplit.data.rows.kinds import observations

        return observations
    raise AttributeError(f"module 'unsplit.data' has no attribute {name!r}")
