"""Parse files in processes of their own, so that a file that crashes its parser costs only itself.

Images, meshes and sound are parsed by libraries that a damaged file can crash,
or make compute or allocate without end.  Each worker here is a new Python process that imports only
the parser, not torch.  It has a limit of memory, and of time for each file.  If it dies, its file
is reported as broken, and another worker continues with the next file.
"""

import os
import pickle
import queue
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from unsplit.data.memory import memory_size
from unsplit.data.readers.broken import reason

SECONDS_PER_FILE = 60.0
# Only on Linux.  All workers together have at most half of the computer's memory, if that is at
# least the second number for each: libraries reserve more addresses than they use.
BYTES_PER_WORKER, FEWEST_BYTES = 8 * 2**30, 2 * 2**30

# Requests that wait in the memory of this process.
AT_ONCE = 10_000

_START = (
    "import sys; sys.path[:] = {path!r}; import {module} as m; "
    "m.serve({parser!r}, {seconds}, {memory})"
)


@dataclass(frozen=True)
class Broken:
    """A file that could not be parsed, and why."""

    why: str


def parse_all(
    parser: str, requests: Sequence[Any], workers: int = 1, seconds: float | None = None
) -> Iterator[tuple[int, Any]]:
    """Call a function for every request in worker processes; yield results in their order.

    Parameters
    ----------
    parser : str
        A function of one argument, as "module:name".  Its module should import quickly.
    requests : sequence
        One argument for each call; they are pickled, as are the results.
    workers : int
        Number of processes.
    seconds : float, optional
        Longest time for one call; None is ``SECONDS_PER_FILE``.

    Yields
    ------
    index : int
        Position of the request.
    result : object
        What the function returned, or :class:`Broken` if it raised an error, crashed or took too
        long.

    Examples
    --------
    >>> dict(parse_all("math:sqrt", [9, -1]))
    {0: 3.0, 1: Broken(why='math domain error')}
    """
    workers = max(1, min(workers, len(requests)))
    memory = int(max(FEWEST_BYTES, min(BYTES_PER_WORKER, memory_size() / 2 / workers)))
    seconds = SECONDS_PER_FILE if seconds is None else seconds
    pool = [_Worker(parser, seconds, memory) for _ in range(workers)]
    free: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
    for worker in pool:
        free.put(worker)

    def answered(request: Any) -> Any:
        worker = free.get()
        try:
            return worker.answer(request)
        finally:
            free.put(worker)

    threads = ThreadPoolExecutor(workers)
    try:
        for start in range(0, len(requests), AT_ONCE):
            part = requests[start : start + AT_ONCE]
            yield from enumerate(threads.map(answered, part), start)
    finally:
        for worker in pool:
            worker.kill()
        threads.shutdown(cancel_futures=True)
        for worker in pool:
            worker.end()


class _Worker:
    """A process that answers one request after another, and is replaced if it dies.

    It reads requests from its standard input and writes answers to its standard output.
    """

    def __init__(self, parser: str, seconds: float, memory: int) -> None:
        path = [os.path.abspath(place) for place in sys.path]
        self.program = _START.format(
            path=path, module=__name__, parser=parser, seconds=seconds, memory=memory
        )
        self.seconds = seconds
        self.process: Any = None
        self.killed = False

    def answer(self, request: Any) -> Any:
        """What the parser returns, or why it did not."""
        if self.process is None:
            self._start()
        try:
            pickle.dump(request, self.process.stdin)
            self.process.stdin.flush()
            return pickle.load(self.process.stdout)
        except Exception:  # half an answer can raise anything
            if self.end() == -getattr(signal, "SIGALRM", sys.maxsize):
                return Broken(f"its decoder did not finish within {self.seconds:.0f} seconds")
            return Broken("its decoder crashed")

    def _start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", self.program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
        )
        if self.killed:
            self.process.kill()
        pickle.load(self.process.stdout)  # that it is ready; an error if it cannot start

    def kill(self) -> None:
        """End the process, also while another thread waits for its answer."""
        self.killed = True
        if (process := self.process) is not None:
            process.kill()

    def end(self) -> int:
        """End the process and free what it holds; what it ended with."""
        process, self.process = self.process, None
        if process is None:
            return 0
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):
                pipe.close()
        process.kill()
        return process.wait()


def serve(parser: str, seconds: float, memory: int) -> None:
    """Answer the requests of the process that started this one, until it has no more.

    The system ends this process if one call takes longer than ``seconds`` (not on Windows), and
    refuses it more than ``memory`` bytes (on Linux).
    """
    # Ctrl-C reaches all processes of a terminal; the parent decides when this one ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a parser prints is no answer
    module, name = parser.split(":")
    call = getattr(import_module(module), name)
    if sys.platform == "linux":
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_AS)
        limit = memory if most == resource.RLIM_INFINITY else min(memory, most)
        resource.setrlimit(resource.RLIMIT_AS, (limit, most))
    answer: Any = "ready"
    while True:
        pickle.dump(answer, answers)
        answers.flush()
        try:
            request = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        _alarm(seconds)
        try:
            answer = call(request)
        except Exception as error:  # parsers raise many types of error on damaged files
            answer = Broken(reason(error))
        _alarm(0)


def _alarm(seconds: float) -> None:
    """Let the system end this process after some time, even in the middle of a library."""
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_REAL, seconds)
