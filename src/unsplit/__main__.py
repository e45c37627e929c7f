"""``python -m unsplit`` and ``unsplit``: the command line."""

import io
import os
import signal
import sys
from contextlib import suppress


def start() -> None:
    """Load and run the program; Ctrl-C while it loads ends it with one line and exit code 130."""
    _open_streams()
    try:
        os.getcwd()
    except OSError:
        sys.stderr.write("unsplit: the current folder no longer exists; change to another one.\n")
        sys.exit(2)
    # Only where Ctrl-C would raise KeyboardInterrupt: a program in the background ignores it.
    careful = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if careful:
        signal.signal(signal.SIGINT, _leave)
    # Threads that wait for each other by spinning halve the speed of a busy machine.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    # Loading takes seconds on a slow disk, and nobody should look at an empty screen.
    shown = os.isatty(2) and "--json" not in sys.argv and "--no-progress" not in sys.argv
    if shown:
        os.write(2, b"loading ...")
    from unsplit.cli.program import main

    main.load(sys.argv[1:])
    if shown:
        os.write(2, b"\r           \r")
    try:
        if careful:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        main(prog_name="unsplit")
    except KeyboardInterrupt:  # just before or after the program, which catches it itself
        _leave()


def _open_streams() -> None:
    """Let no result be lost because nobody listens: standard error may be closed or full."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # the next file, perhaps a result, would get this number
            os.open(os.devnull, os.O_RDWR)
    encoding = sys.stderr.encoding if sys.stderr else "utf-8"
    raw = open(2, "wb", closefd=False)  # noqa: SIM115
    sys.stderr = _Unheard(raw, encoding, errors="backslashreplace", line_buffering=True)


class _Unheard(io.TextIOWrapper):
    """A stream that takes no notice of text that cannot be written."""

    def write(self, text: str) -> int:
        with suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()


def _leave(*_: object) -> None:
    # At once and without an exception, which a half-imported library could catch.
    os.write(2, b"\nunsplit: interrupted\n" if os.isatty(2) else b"unsplit: interrupted\n")
    os._exit(130)


if __name__ == "__main__":
    start()
