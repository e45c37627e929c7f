"""The confusion loop: a random forest, the most confused pair merged, trained anew."""

import time

from benchmarks.baselines import confusion_merging
from benchmarks.peers.task import Outcome, Task

THRESHOLD = 0.025


def confusion_loop(task: Task) -> Outcome:
    """Stops at its usual threshold, but goes on to the end for the tree.

    The time is that of the loop which stops.
    """
    start = time.process_time()
    stopped: list[tuple[int, float]] = []

    def watch(n_left: int, confusion: float) -> None:
        if confusion < THRESHOLD and not stopped:
            stopped.append((n_left, time.process_time() - start))

    loop = confusion_merging(
        task.X, task.clusters, threshold=0.0, random_state=task.seed, progress=watch
    )
    n, seconds = stopped[0] if stopped else (1, time.process_time() - start)
    return Outcome(automatic=loop.cut(n), at=loop.cut, tree=True, seconds=seconds)
