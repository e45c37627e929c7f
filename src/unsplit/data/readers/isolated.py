"""Parse files in processes of their own, so that a file that crashes its parser costs only itself.

Images, meshes and sound are parsed by libraries that a damaged file can crash,
or make compute or allocate without end.  Each worker here is a new Python process that imports only
the parser, not torch.  It has a limit of memory, and of time for each file.  If it dies, its file
is reported as broken, and another worker continues with the next file.
"""

import os
import pickle
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from unsplit.data.readers.broken import reason

SECONDS_PER_FILE = 60.0
# Only on Linux.  Libraries reserve more addresses than they use.
BYTES_PER_WORKER = 4 * 2**30
# Requests that wait for each worker; all of them must fit into the buffer of a pipe.
AHEAD = 8

_START = "import sys; sys.path[:] = {path!r}; import {module} as m; m.serve({parser!r}, {seconds})"


@dataclass(frozen=True)
class Broken:
    """A file that could not be parsed, and why."""

    why: str


def parse_all(parser: str, requests: Sequence[Any], workers: int = 1) -> Iterator[tuple[int, Any]]:
    """Call a function for every request in worker processes; yield results in their order.

    Parameters
    ----------
    parser : str
        A function of one argument, as "module:name".  Its module should import quickly.
    requests : sequence
        One argument for each call; they are pickled, as are the results.
    workers : int
        Number of processes.

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
    pool: list[_Worker] = []
    try:
        pool += [_Worker(parser) for _ in range(min(workers, len(requests)))]
        first = AHEAD * len(pool)
        for i, request in enumerate(requests):
            if i >= first:
                yield i - first, pool[i % len(pool)].answer()
            pool[i % len(pool)].ask(request)
        for i in range(max(0, len(requests) - first), len(requests)):
            yield i, pool[i % len(pool)].answer()
    finally:
        for worker in pool:
            worker.end()


class _Worker:
    """A process that answers one request after another, and is replaced if it dies.

    It reads requests from its standard input and writes answers to its standard output.
    """

    def __init__(self, parser: str) -> None:
        path = [os.path.abspath(place) for place in sys.path]
        self.program = _START.format(
            path=path, module=__name__, parser=parser, seconds=SECONDS_PER_FILE
        )
        self.waiting: deque[Any] = deque()
        self._start()

    def _start(self) -> None:
        self.is_ready = False
        self.process: Any = subprocess.Popen(
            [sys.executable, "-c", self.program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
        )
        for request in self.waiting:
            self._send(request)

    def _send(self, request: Any) -> None:
        with suppress(OSError):  # it has died, which its answer will show
            pickle.dump(request, self.process.stdin)
            self.process.stdin.flush()

    def ask(self, request: Any) -> None:
        """Add a request to those that wait for an answer."""
        self.waiting.append(request)
        self._send(request)

    def answer(self) -> Any:
        """What the parser returns for the first request that waits, or why it did not."""
        if not self.is_ready:
            pickle.load(self.process.stdout)  # an error if it cannot start
            self.is_ready = True
        self.waiting.popleft()
        try:
            return pickle.load(self.process.stdout)
        except Exception:  # half an answer can raise anything
            ended_with = self.end()
            self._start()
            if ended_with == -getattr(signal, "SIGALRM", sys.maxsize):
                return Broken(f"its decoder did not finish within {SECONDS_PER_FILE:.0f} seconds")
            return Broken("its decoder crashed")

    def end(self) -> int:
        """End the process and free what it holds; what it ended with."""
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(OSError):
                pipe.close()
        self.process.kill()
        return int(self.process.wait())


def serve(parser: str, seconds: float) -> None:
    """Answer the requests of the process that started this one, until it has no more.

    The system ends this process if one call takes longer than ``seconds`` (not on Windows), and
    refuses it much memory (on Linux).
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
        limit = BYTES_PER_WORKER if most == resource.RLIM_INFINITY else min(BYTES_PER_WORKER, most)
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
