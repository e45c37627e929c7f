"""Leiden as most people run it: the graph of 15 nearest neighbours, at a fixed resolution."""

from collections.abc import Callable

from benchmarks.peers.communities import communities, connected
from benchmarks.peers.task import Outcome, Task


def leiden(resolution: float) -> Callable[[Task], Outcome]:
    """Leiden at this resolution, which decides how many communities there are."""

    def run(task: Task) -> Outcome:
        return Outcome(automatic=communities(connected(task.X), resolution, task.seed))

    return run
