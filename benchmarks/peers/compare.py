"""Methods beside ours, always on the same trials."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.peers.methods import FROM_SCRATCH
from benchmarks.peers.read import Score

OURS = "unsplit"
# What ours is called with something changed.
CHANGED = f"{OURS}, "
# The same merges; then single observations move to the cluster of their neighbours.
REFINED = f"{CHANGED}refined"
# A best peer ran on at least this share of our trials.
ENOUGH = 0.5


class Best(NamedTuple):
    """The best peer, and ours on the same trials."""

    name: str
    ari: float
    ours: float


def mean(values: Iterable[float]) -> float:
    """NaN if there are none."""
    found = list(values)
    return float(np.mean(found)) if found else float("nan")


def mean_of(scores: Sequence[Score], method: str, mode: str) -> float:
    """Mean ARI of one method in one mode."""
    return mean(s.ari for s in scores if (s.method, s.mode) == (method, mode))


def with_ours(scores: Sequence[Score], mode: str) -> dict[str, list[tuple[Score, Score]]]:
    """Of every method its scores in this mode, each with ours on the same trial."""
    ours = {s.place: s for s in scores if (s.method, s.mode) == (OURS, mode)}
    pairs: dict[str, list[tuple[Score, Score]]] = defaultdict(list)
    for score in scores:
        if score.mode == mode and score.place in ours:
            pairs[score.method].append((score, ours[score.place]))
    return pairs


def difference(pairs: Sequence[tuple[Score, Score]]) -> float:
    """How much better than ours, on average."""
    return mean(score.ari - ours.ari for score, ours in pairs)


def above_bound(scores: Sequence[Score]) -> tuple[int, int]:
    """How many best cuts have a higher index than the bound of their trial, and of how many."""
    bounds = {s.place: s.ari for s in scores if s.mode == "bound"}
    cuts = [
        s.ari > bounds[s.place]
        for s in scores
        if s.mode == "best cut" and s.place in bounds and s.method not in FROM_SCRATCH
    ]
    return sum(cuts), len(cuts)


def best_peer(scores: Sequence[Score], mode: str) -> Best | None:
    """The peer that does best beside ours, of those that ran on enough of our trials."""
    pairs = with_ours(scores, mode)
    peers = {
        name: found
        for name, found in pairs.items()
        if not name.startswith(OURS) and len(found) >= ENOUGH * len(pairs[OURS])
    }
    if not peers:
        return None
    name = max(peers, key=lambda peer: difference(peers[peer]))
    return Best(name, mean(s.ari for s, _ in peers[name]), mean(o.ari for _, o in peers[name]))


class Behind(NamedTuple):
    """A data set on which a peer is ahead of ours: by how much, and how many clusters ours has."""

    problem: str
    by: float
    number: float


def sets_behind(scores: Sequence[Score], peer: str, least: float = 0.01) -> list[Behind]:
    """Data sets on which a peer that stops by itself is ahead of ours, refined; worst first.

    ``number`` is the geometric mean of clusters found, divided by the true number.
    """
    found = [behind for behind in differences(scores, peer) if behind.by > least]
    return sorted(found, key=lambda behind: -behind.by)


def differences(scores: Sequence[Score], peer: str) -> list[Behind]:
    """For every data set, how far a peer that stops by itself is ahead of ours, refined."""
    found = []
    for problem in sorted({s.problem for s in scores}):
        here = [s for s in scores if s.problem == problem and s.mode == "automatic"]
        ahead = mean_of(here, peer, "automatic") - mean_of(here, REFINED, "automatic")
        ratios = [s.number / s.true for s in here if s.method == OURS]
        found.append(Behind(problem, ahead, float(np.exp(np.mean(np.log(ratios))))))
    return found
