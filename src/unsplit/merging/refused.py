"""Pairs that were refused and wait until one of their clusters changes."""

from collections import defaultdict
from heapq import heappop, heappush

Pair = tuple[int, int]
Objection = tuple[float, float, str]
"""Strength of the objection, the statistic that ranked the pair, and the reason in words."""


class Refused:
    """Refused pairs with their objections, and a queue that has the weakest objection first."""

    def __init__(self) -> None:
        self.objections: dict[Pair, Objection] = {}
        self.others: defaultdict[int, set[int]] = defaultdict(set)
        # Also holds forgotten pairs, which are skipped later; removing them would cost more.
        self.queue: list[tuple[Objection, Pair]] = []

    def __len__(self) -> int:
        """Number of waiting pairs."""
        return len(self.objections)

    def add(self, pair: Pair, objection: Objection) -> None:
        """Add a refused pair."""
        a, b = pair
        self.objections[pair] = objection
        self.others[a].add(b)
        self.others[b].add(a)
        heappush(self.queue, (objection, pair))

    def forget(self, slot: int) -> None:
        """Drop the pairs of a cluster that has changed."""
        for other in self.others.pop(slot, ()):
            self.others[other].discard(slot)
            self.objections.pop((min(slot, other), max(slot, other)))

    def weakest(self) -> tuple[Pair, Objection]:
        """The pair with the weakest objection; among equals the closest, then the first."""
        while self.objections.get(self.queue[0][1]) != self.queue[0][0]:
            heappop(self.queue)
        objection, pair = self.queue[0]
        return pair, objection
