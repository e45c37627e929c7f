"""Several processes that train together, as torchrun starts them.

Each has a number, its rank.  Rank 0 alone prints, writes and merges; the others train with it and
wait for what it asks next.  If one of them ends, all end, and one of them says so.
"""

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from unsplit.devices import ALONE, Ranks, choose_device, computing_with
from unsplit.errors import InputError

# How long a process waits for another that is alive but does nothing.
PATIENCE = timedelta(minutes=30)
LOST = 1  # the exit code after another process has ended


def started_together() -> bool:
    """Return whether torchrun has started this process and others with it."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ


@contextlib.contextmanager
def together(device: str | torch.device, kept: Callable[[], str]) -> Iterator[Ranks]:
    """Join the processes that torchrun started; without it, be alone.

    Parameters
    ----------
    device : str or torch.device
        Where they will compute; on CUDA each has a GPU of its own.
    kept : callable
        Says what an interrupted run leaves behind.
    """
    if not started_together():
        yield ALONE
        return
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    ranks = Ranks(rank, size, _join(device, rank, size))

    def lost() -> str:
        return (
            f"one of the {size} processes of this run has ended, and the others cannot go on "
            f"without it; {kept()}"
        )

    def stopped() -> str:
        return (
            f"this run of {size} processes was stopped, because one of them has ended or it was "
            f"interrupted; {kept()}"
        )

    with _quiet(rank) as screen, _told_of_the_end(screen, stopped):
        try:
            with computing_with(ranks):
                yield ranks
        except BaseException as error:
            with contextlib.suppress(RuntimeError):  # the messages may be gone too
                ranks.end()
            _leave(error, rank, screen, lost)
    dist.destroy_process_group()


def _join(device: str | torch.device, rank: int, size: int) -> Any:
    where = choose_device(device)
    if where.type not in ("cpu", "cuda"):
        raise InputError(
            f"several processes compute on a CPU or on CUDA, got {where.type}; use --device cpu."
        )
    # For tensors of the CPU there is always gloo, beside what the GPUs use.
    backend = "cpu:gloo,cuda:nccl" if where.type == "cuda" else "gloo"
    if where.type == "cuda":
        n_gpus, place = torch.cuda.device_count(), int(os.environ.get("LOCAL_RANK", "0"))
        torch.cuda.set_device(place % n_gpus)
        if int(os.environ.get("LOCAL_WORLD_SIZE", "1")) > n_gpus:
            backend = "cpu:gloo,cuda:gloo"  # NCCL has no two processes on one GPU
    dist.init_process_group(backend, rank=rank, world_size=size, timeout=PATIENCE)
    return dist.distributed_c10d._get_default_store()


@contextlib.contextmanager
def _quiet(rank: int) -> Iterator[Any]:
    """Let only rank 0 print; yield where any may say that the run is over."""
    screen = sys.stderr
    if rank == 0:
        yield screen
        return
    # Rank 0 says that it was interrupted, and when it ends so do the others.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.ExitStack() as stack:
        nowhere = stack.enter_context(open(os.devnull, "w"))
        stack.enter_context(contextlib.redirect_stdout(nowhere))
        stack.enter_context(contextlib.redirect_stderr(nowhere))
        yield screen
    signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _told_of_the_end(screen: Any, sentence: Callable[[], str]) -> Iterator[None]:
    """End this process, with a sentence, when torchrun asks for it because another has ended.

    A thread waits for the signal: the program itself may be waiting for the other process.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    here, there = socket.socketpair()
    there.setblocking(False)
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    wakeup = signal.set_wakeup_fd(there.fileno(), warn_on_full_buffer=False)

    def wait() -> None:
        for received in iter(lambda: here.recv(1), b""):
            if received[0] == signal.SIGTERM:
                if _is_first():
                    _say(screen, sentence())
                os._exit(LOST)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGTERM, before)
        there.close()
        thread.join()
        here.close()


def _leave(error: BaseException, rank: int, screen: Any, sentence: Callable[[], str]) -> NoReturn:
    """End after an error: the first process that has one says what it was."""
    lost = is_lost(error)
    expected = isinstance(error, (ValueError, OSError)) or hasattr(error, "exit_code")
    if not lost and not expected:
        raise error
    first = _is_first()
    if first and rank == 0 and not lost:
        raise error  # it is said as in a run of one process
    if first:
        _say(screen, sentence() if lost else str(getattr(error, "message", error)))
    screen.flush()
    # Without waiting for the others, who will not come.
    os._exit(LOST if lost else getattr(error, "exit_code", 2))


def is_lost(error: BaseException) -> bool:
    """Return whether an error says that another process has ended or no longer answers.

    Examples
    --------
    >>> is_lost(RuntimeError("[/pytorch/third_party/gloo/pair.cc:1] Connection closed by peer"))
    True
    >>> is_lost(ValueError("x"))
    False
    """
    if isinstance(error, (dist.DistError, ConnectionResetError)):
        return True
    signs = ("gloo", "NCCL", "Connection closed by peer", "Connection reset by peer")
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs)


def _is_first() -> bool:
    """Return whether this process is the first to say why the run is over."""
    try:
        place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        # A connection of its own: the other may be busy waiting.
        store = dist.TCPStore(  # type: ignore[attr-defined]
            *place, is_master=False, timeout=timedelta(seconds=5)
        )
        turn = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        return bool(store.add(f"unsplit/told/{turn}", 1) == 1)
    except Exception:  # whoever held the messages has ended too
        return True


def _say(screen: Any, sentence: str) -> None:
    with contextlib.suppress(OSError):
        screen.write(f"unsplit: {' '.join(sentence.split())}\n")
        screen.flush()
