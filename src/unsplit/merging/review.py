"""Pairs of clusters in the order in which a person should look at them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from unsplit.merging.steps import Merge
from unsplit.merging.verdict import DIFFERENT, PROBABLY_SAME, SAME, TINY, UNCLEAR, doubt

MERGED, APART = "merged", "kept apart"


@dataclass(frozen=True)
class Row:
    """A pair, and the step that merged it; None for a pair kept apart."""

    pair: Merge
    step: int | None

    @property
    def done(self) -> str:
        """What was done with the pair."""
        return APART if self.step is None else MERGED

    @property
    def against_evidence(self) -> bool:
        """Merged though different, or kept apart though the same, as a link or number asked."""
        if self.step is None:
            return self.pair.verdict in (SAME, PROBABLY_SAME)
        return self.pair.verdict == DIFFERENT

    @property
    def urgency(self) -> tuple[int, bool, float, float]:
        """Small for what should be looked at first; within a word, what was nearly otherwise.

        Clusters of a few are always unclear, and come after what a person can decide.
        """
        word, pair = self.pair.verdict, self.pair
        order = (UNCLEAR, "against", PROBABLY_SAME, DIFFERENT, SAME)
        rank = order.index("against" if self.against_evidence else word)
        tiny = min(pair.size_left, pair.size_right) < TINY
        if math.isnan(pair.tvd):
            return rank, False, 0.0, pair.statistic
        return rank, tiny, doubt(pair.evidence), pair.tvd if self.step is None else -pair.tvd


def review_table(
    rows: Sequence[Row], members: Sequence[Sequence[str]], clusters: Sequence[int]
) -> dict[str, list[Any]]:
    """The pairs by column, in their order.

    Parameters
    ----------
    rows : sequence of Row
    members : sequence of sequences of str
        Names of the initial clusters in every node of the tree.
    clusters : sequence of int
        New cluster to which every node belongs.
    """
    pairs = [row.pair for row in rows]
    columns: dict[str, list[Any]] = {
        "verdict": [pair.verdict for pair in pairs],
        "done": [row.done for row in rows],
        "left": [" + ".join(members[pair.left]) for pair in pairs],
        "right": [" + ".join(members[pair.right]) for pair in pairs],
    }
    for name in ("size_left", "size_right", "tvd", "low", "high", "p_adjusted"):
        columns[name] = [getattr(pair, name) for pair in pairs]
    columns["p_valley"] = [pair.p_valley for pair in pairs]
    columns["n_border"] = [pair.n_border for pair in pairs]
    for name in ("edges", "times_chance", "neck", "strength"):
        columns[name] = [getattr(pair, name) for pair in pairs]
    columns["new_left"] = [clusters[pair.left] for pair in pairs]
    columns["new_right"] = [clusters[pair.right] for pair in pairs]
    columns["step"] = [row.step for row in rows]
    columns["why"] = [pair.why for pair in pairs]
    return columns
