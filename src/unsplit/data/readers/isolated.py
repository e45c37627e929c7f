"""Parse files in processes of their own, so that a file that crashes its parser costs only itself.

Images, meshes, sound and HDF5 files are parsed by libraries that a damaged file can crash,
or make compute or allocate without end.  Each worker here is a new Python process that imports only
the parser, not torch.  It has a limit of memory, and of time for each file.  If it dies, its file
is reported as broken, and another worker continues with the next file.
"""

import contextlib
import ctypes
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from unsplit.data.memory import available_memory, memory_size
from unsplit.data.readers.broken import reason, size_of

SECONDS_PER_FILE = 60.0
SECONDS_TO_START = 300.0
# Only on Linux.  All workers together have at most half of the computer's memory, if that is at
# least the second number for each: libraries reserve more addresses than they use.
BYTES_PER_WORKER, FEWEST_BYTES = 8 * 2**30, 2 * 2**30
# For one large file: longer by this for every byte that it has.
SECONDS_PER_BYTE = 1e-6

# Files that a worker is given at once.
_CHUNK = 16
_PR_SET_PDEATHSIG = 1
_START = (
    "import sys; sys.path[:] = {path!r}; import {module} as m; "
    "m.serve({parent}, {parser!r}, {memory})"
)


@dataclass(frozen=True)
class Broken:
    """A file that could not be parsed, and why.

    Examples
    --------
    >>> Broken("it is empty").why
    'it is empty'
    """

    why: str


def parse_all(
    parser: str,
    requests: Sequence[Any],
    workers: int = 1,
    seconds: float | None = None,
    memory: int | None = None,
) -> Iterator[tuple[int, Any]]:
    """Call a function for every request in worker processes; yield results as they come.

    Parameters
    ----------
    parser : str
        A function of one argument, as "module:name".  Its module should import quickly.
    requests : sequence
        One argument for each call; they are pickled, as are the results.
    workers : int
        Number of processes; 0 parses in this process, without any limit.
    seconds : float, optional
        Longest time for one call; None is ``SECONDS_PER_FILE``.
    memory : int, optional
        Most bytes for one worker; None is ``BYTES_PER_WORKER``, or less for many workers.

    Yields
    ------
    index : int
        Position of the request.
    result : object
        What the function returned, or :class:`Broken` if it raised an error, crashed or took too
        long.

    Examples
    --------
    >>> dict(parse_all("math:sqrt", [9, -1], workers=0))
    {0: 3.0, 1: Broken(why='math domain error')}
    """
    if not workers or not sys.executable:
        call = _function(parser)
        yield from ((i, _outcome(call, request)) for i, request in enumerate(requests))
        return
    limit = SECONDS_PER_FILE if seconds is None else seconds
    workers = min(workers, -(-len(requests) // _CHUNK))
    if memory is None:
        share = memory_size() / 2 / max(1, workers)
        memory = int(max(FEWEST_BYTES, min(BYTES_PER_WORKER, share)))
    pool = _Pool(parser, requests, limit, memory)
    try:
        pool.start(workers)
        for _ in requests:
            yield pool.next()
    finally:
        pool.close()


def store_parsed(
    results: Iterable[tuple[int, Any]],
    array: Any,
    progress: Callable[[int, int], None] | None = None,
    every: int = 1,
) -> dict[int, str]:
    """Write what :func:`parse_all` yields into an array; return why files are broken.

    Parameters
    ----------
    results : iterable of position and result
    array : ndarray
        Row i receives result i; the rows of broken files stay as they are.
    progress : callable, optional
        Called with the number of files parsed so far and the number of all.
    every : int
        After how many files it is called; always after the last.

    Returns
    -------
    dict of int to str
        By position, what is wrong with each broken file.

    Examples
    --------
    >>> rows = [0.0, 0.0]
    >>> store_parsed(parse_all("math:sqrt", [9, -1], workers=0), rows), rows
    ({1: 'math domain error'}, [3.0, 0.0])
    """
    why: dict[int, str] = {}
    for done, (index, found) in enumerate(results, start=1):
        if isinstance(found, Broken):
            why[index] = found.why
        else:
            array[index] = found
        if progress is not None and (done % every == 0 or done == len(array)):
            progress(done, len(array))
    return why


def parse_alone(parser: str, path: str, *more: Any) -> Any:
    """Parse one file, which may be large, in a process of its own.

    Its time grows with the size of the file, and its memory is half of what is free, because the
    result comes to this process as well.

    Parameters
    ----------
    parser : str
        As for :func:`parse_all`.
    path : str
        The only argument of the function.
    *more : object
        If given, the only argument is a tuple of the path and this.

    Returns
    -------
    object
        What the function returned, or :class:`Broken`.

    Examples
    --------
    >>> parse_alone("os.path:basename", "data/cells.parquet")
    'cells.parquet'
    """
    seconds = SECONDS_PER_FILE + SECONDS_PER_BYTE * size_of(path)
    memory = max(FEWEST_BYTES, available_memory() // 2)
    request = (path, *more) if more else path
    return dict(parse_all(parser, [request], 1, seconds, memory))[0]


class _Pool:
    """Threads that each have one worker and give it one chunk of requests after another."""

    def __init__(self, parser: str, requests: Sequence[Any], seconds: float, memory: int) -> None:
        self.parser = parser
        self.memory = memory
        self.requests = requests
        self.seconds = seconds
        self.results: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.chunks: queue.SimpleQueue[range] = queue.SimpleQueue()
        for start in range(0, len(requests), _CHUNK):
            self.chunks.put(range(start, min(start + _CHUNK, len(requests))))
        self.closed = threading.Event()
        self.workers: set[_Worker] = set()
        self.threads: list[threading.Thread] = []

    def start(self, n: int) -> None:
        for work in [self._watch, *[self._work] * n]:
            thread = threading.Thread(target=work, daemon=True)
            self.threads.append(thread)
            thread.start()

    def next(self) -> tuple[int, Any]:
        result = self.results.get()
        if isinstance(result, BaseException):
            raise result
        return result

    def close(self) -> None:
        self.closed.set()
        for worker in list(self.workers):
            worker.kill()
        for thread in self.threads:
            thread.join()

    def _watch(self) -> None:
        """End workers that take too long."""
        while not self.closed.wait(min(0.2, self.seconds)):
            for worker in list(self.workers):
                if time.monotonic() > worker.deadline:
                    worker.late = True
                    worker.kill()

    def _work(self) -> None:
        worker: _Worker | None = None
        try:
            while not self.closed.is_set():
                waiting = list(self.chunks.get_nowait())
                while waiting and not self.closed.is_set():
                    worker = worker or self._new_worker()
                    waiting, alive = self._parse(worker, waiting)
                    if not alive:
                        self._end(worker)
                        worker = None
        except queue.Empty:
            pass
        except BaseException as error:  # raised in the thread that asked for the results
            self.results.put(error)
        finally:
            if worker is not None:
                self._end(worker)

    def _parse(self, worker: "_Worker", waiting: list[int]) -> tuple[list[int], bool]:
        """Return the requests that are left, and whether the worker is still alive."""
        with contextlib.suppress(OSError):
            worker.send([self.requests[index] for index in waiting])
        for done, index in enumerate(waiting):
            worker.deadline = time.monotonic() + self.seconds
            result = worker.receive()
            worker.deadline = float("inf")
            if isinstance(result, _Dead):
                late = f"its decoder did not finish within {self.seconds:.0f} seconds"
                self.results.put((index, Broken(late if worker.late else "its decoder crashed")))
                return waiting[done + 1 :], False
            self.results.put((index, result))
        return [], True

    def _new_worker(self) -> "_Worker":
        worker = _Worker(self.parser, self.memory)
        self.workers.add(worker)
        if self.closed.is_set():
            worker.kill()
        worker.deadline = time.monotonic() + SECONDS_TO_START
        if isinstance(worker.receive(), _Dead):
            self._end(worker)
            raise RuntimeError(f"a process that reads files could not start ({self.parser})")
        worker.deadline = float("inf")
        return worker

    def _end(self, worker: "_Worker") -> None:
        self.workers.discard(worker)
        worker.end()


class _Dead:
    """Stands for the answer of a worker that has ended."""


class _Worker:
    """A process that answers requests through its standard input and output."""

    def __init__(self, parser: str, memory: int) -> None:
        path = [os.path.abspath(place) for place in sys.path]
        program = _START.format(
            path=path, module=__name__, parent=os.getpid(), parser=parser, memory=memory
        )
        one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        self.process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | one_thread,
        )
        self.deadline = float("inf")
        self.late = False

    def send(self, requests: list[Any]) -> None:
        assert self.process.stdin is not None
        pickle.dump(requests, self.process.stdin)
        self.process.stdin.flush()

    def receive(self) -> Any:
        assert self.process.stdout is not None
        try:
            return pickle.load(self.process.stdout)
        except Exception:  # half an answer can raise anything
            return _Dead()

    def kill(self) -> None:
        with contextlib.suppress(OSError):
            self.process.kill()

    def end(self) -> None:
        self.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()


def serve(parent: int, parser: str, memory: int = BYTES_PER_WORKER) -> None:
    """Answer the requests of the process that started this one, until it has no more.

    Parameters
    ----------
    parent : int
        Id of that process.
    parser : str
        As for :func:`parse_all`.
    memory : int
        Most bytes that this process may use.
    """
    # Ctrl-C reaches all processes of a terminal; the parent decides when this one ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _end_with_parent(parent)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a parser prints is no answer
    call = _function(parser)
    _limit_memory(memory)
    _answer(answers, "ready")
    while True:
        try:
            requests = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        for request in requests:
            _answer(answers, _outcome(call, request))


def _end_with_parent(parent: int) -> None:
    """Let this process end as soon as its parent has ended, however that happened."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if hasattr(os, "getppid") and os.getppid() != parent:
        os._exit(1)  # it ended before this line


def _limit_memory(limit: int) -> None:
    if sys.platform != "linux":
        return
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_AS)
    if most != resource.RLIM_INFINITY:
        limit = min(limit, most)
    resource.setrlimit(resource.RLIMIT_AS, (limit, most))


def _answer(answers: Any, result: Any) -> None:
    pickle.dump(result, answers)
    answers.flush()


def _function(parser: str) -> Callable[[Any], Any]:
    module, name = parser.split(":")
    return getattr(import_module(module), name)


def _outcome(call: Callable[[Any], Any], request: Any) -> Any:
    try:
        return call(request)
    except Exception as error:  # parsers raise many types of error on damaged files
        return Broken(reason(error))
