"""The closest pair among some pairs of clusters, by a heap."""

import math
from heapq import heapify, heappop, heappush

# So many of the nearest clusters of one are looked at for one that was not refused.
NEAREST = 10


class ClosestStoredPairs:
    """Distances of some pairs of clusters, of which some may not be merged.

    It finds the same pair as :class:`unsplit.merging.closest_pairs.ClosestPairs` would if all other
    pairs were farther away.  A merge costs time in proportion to the stored pairs of the two.

    Parameters
    ----------
    rows : list of dict
        By slot, the distances to others with which it may be merged; they are changed.
    reach : int, optional
        Only pairs are considered in which one is among the ``reach`` nearest clusters of the other,
        including those that were refused.  None for all stored pairs.
    limit : float
        Pairs at this distance or beyond are not considered.
    """

    def __init__(
        self, rows: list[dict[int, float]], reach: int | None = None, limit: float = math.inf
    ) -> None:
        self.near, self.reach, self.limit = rows, reach, limit
        # Also holds pairs that have changed, which are skipped later.
        self.heap: list[tuple[float, int, int]] = []
        for a, row in enumerate(rows):
            for b, distance in row.items():
                if a < b:
                    rows[b][a] = distance  # to the bit, whichever way it was rounded
                    if distance < limit:
                        self.heap.append((distance, a, b))
        heapify(self.heap)
        self.n_pushed = 0
        self.refused: set[tuple[int, int]] = set()
        # Pairs out of reach, by slot: they are looked at again when the slot has changed.
        self.waiting: dict[int, set[int]] = {}
        # By slot, the distance of the last cluster in reach, until a distance up to it changes.
        self.horizon: dict[int, float] = {}
        # Slots whose nearest pair may be another one than when it was last asked for.
        self.changed = {slot for slot, row in enumerate(rows) if row}

    def closest(self) -> tuple[int, int] | None:
        """The closest pair (a, b) with a < b, the first if several are; None if there is none."""
        while self.heap:
            distance, a, b = self.heap[0]
            if self.near[a].get(b) == distance and (a, b) not in self.refused:
                if self._in_reach(distance, a, b):
                    return a, b
                self.waiting.setdefault(a, set()).add(b)
                self.waiting.setdefault(b, set()).add(a)
            heappop(self.heap)
        return None

    def distance(self, a: int, b: int) -> float:
        """The distance of a stored pair; infinite if it may not be merged."""
        return self.near[a].get(b, math.inf)

    def forbid(self, a: int, b: int) -> None:
        """Exclude the pair until one of the two gets new distances."""
        self.refused.add((a, b))
        self.changed |= {a, b}

    def remove(self, a: int) -> None:
        """Remove cluster a."""
        self.set_row(a, {})
        self.changed.discard(a)

    def set_row(self, a: int, row: dict[int, float]) -> None:
        """Set the distances from a to other clusters; pairs not in the row may not be merged."""
        for other in self.near[a].keys() - row.keys():
            self._put(other, a, None)
            self.refused.discard((a, other) if a < other else (other, a))
            self._look_again(other)
        for other, distance in row.items():
            pair = (a, other) if a < other else (other, a)
            self._put(other, a, distance)
            self.refused.discard(pair)
            if distance < self.limit:
                heappush(self.heap, (distance, *pair))
            self._look_again(other)
        self.near[a] = row
        self.horizon.pop(a, None)
        self.waiting.pop(a, None)
        self.changed.add(a)
        self.n_pushed += len(row)
        if self.n_pushed > len(self.heap):
            self._tidy_up()

    def soon(self) -> list[tuple[float, int, int]]:
        """The nearest pair of each slot that has changed, closest first: they come soon."""
        found = {self._nearest(slot) for slot in self.changed}
        self.changed = set()
        return sorted(entry for entry in found if entry is not None)

    def _nearest(self, a: int) -> tuple[float, int, int] | None:
        """The distance and slots of the closest pair of a slot that was not refused."""
        row = self.near[a]
        for other in sorted(row, key=row.__getitem__)[:NEAREST]:
            pair = (a, other) if a < other else (other, a)
            if pair not in self.refused:
                return row[other], *pair
        return None

    def _tidy_up(self) -> None:
        """Drop pairs that have changed, because popping each would cost more."""
        near, refused = self.near, self.refused
        current = (entry for entry in self.heap if near[entry[1]].get(entry[2]) == entry[0])
        self.heap = [entry for entry in current if entry[1:] not in refused]
        heapify(self.heap)
        self.n_pushed = 0

    def _in_reach(self, distance: float, a: int, b: int) -> bool:
        return self.reach is None or any(self._is_near(distance, slot) for slot in (a, b))

    def _is_near(self, distance: float, slot: int) -> bool:
        row, reach = self.near[slot], self.reach
        assert reach is not None
        if len(row) <= reach:
            return True
        if slot not in self.horizon:
            self.horizon[slot] = sorted(row.values())[reach - 1]
        return distance <= self.horizon[slot]

    def _put(self, slot: int, other: int, distance: float | None) -> None:
        """Set one distance in the row of a slot, or remove it."""
        row, horizon = self.near[slot], self.horizon.get(slot)
        nearest = row.pop(other, math.inf) if distance is None else row.get(other, math.inf)
        if distance is not None:
            row[other] = distance
            nearest = min(nearest, distance)
        if horizon is not None and nearest <= horizon:
            del self.horizon[slot]

    def _look_again(self, slot: int) -> None:
        """Pairs of a slot that were out of reach may be in reach now."""
        for other in self.waiting.pop(slot, ()):
            distance = self.near[slot].get(other)
            if distance is not None and distance < self.limit:
                pair = (slot, other) if slot < other else (other, slot)
                heappush(self.heap, (distance, *pair))
