"""Pairs that may not be merged, until one of the two has changed."""

from collections import defaultdict
from heapq import heappop, heappush

Pair = tuple[int, int]
Objection = tuple[float, float, str]
"""How much speaks against merging, the statistic that ranked the pair, and why in words."""


class Refused:
    """Refused pairs and what speaks against them; the weakest objection is found at once."""

    def __init__(self) -> None:
        self.objections: dict[Pair, Objection] = {}
        self.others: defaultdict[int, set[int]] = defaultdict(set)
        # Also holds pairs that were forgotten since: finding them costs more than passing them by.
        self.queue: list[tuple[Objection, Pair]] = []

    def __len__(self) -> int:
        """Number of pairs that wait."""
        return len(self.objections)

    def add(self, pair: Pair, objection: Objection) -> None:
        """Let a pair wait."""
        a, b = pair
        self.objections[pair] = objection
        self.others[a].add(b)
        self.others[b].add(a)
        heappush(self.queue, (objection, pair))

    def forget(self, slot: int) -> None:
        """A cluster has changed: its pairs wait no longer."""
        for other in self.others.pop(slot, ()):
            self.others[other].discard(slot)
            self.objections.pop((min(slot, other), max(slot, other)))

    def weakest(self) -> tuple[Pair, Objection]:
        """The pair with the weakest objection; ties go to the closest, then to the first."""
        while self.objections.get(self.queue[0][1]) != self.queue[0][0]:
            heappop(self.queue)
        objection, pair = self.queue[0]
        return pair, objection
