"""Pairs that may not be merged, until one of the two has changed."""

from collections import defaultdict
from heapq import heappop, heappush

Pair = tuple[int, int]
Case = tuple[float, float, str]
"""How strong the case against merging is, the statistic that ranked the pair, and why in words."""


class Refused:
    """Refused pairs and the cases against them; the weakest case is found without a search."""

    def __init__(self) -> None:
        self.cases: dict[Pair, Case] = {}
        self.others: defaultdict[int, set[int]] = defaultdict(set)
        # Also holds pairs that were forgotten since: finding them costs more than passing them by.
        self.queue: list[tuple[Case, Pair]] = []

    def __len__(self) -> int:
        """Number of pairs that wait."""
        return len(self.cases)

    def add(self, pair: Pair, case: Case) -> None:
        """Let a pair wait."""
        a, b = pair
        self.cases[pair] = case
        self.others[a].add(b)
        self.others[b].add(a)
        heappush(self.queue, (case, pair))

    def forget(self, slot: int) -> None:
        """A cluster has changed: its pairs wait no longer."""
        for other in self.others.pop(slot, ()):
            self.others[other].discard(slot)
            self.cases.pop((min(slot, other), max(slot, other)))

    def weakest(self) -> tuple[Pair, Case]:
        """The pair with the weakest case; ties go to the closest, then to the first."""
        while self.cases.get(self.queue[0][1]) != self.queue[0][0]:
            heappop(self.queue)
        case, pair = self.queue[0]
        return pair, case
