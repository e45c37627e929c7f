"""``python -m unsplit`` and ``unsplit``: the command line."""

import os
import signal
import sys


def start() -> None:
    """Load and run the program; Ctrl-C while it loads ends it with one line and exit code 130."""
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
    if careful:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    main(prog_name="unsplit")


def _leave(*_: object) -> None:
    # At once and without an exception, which a half-imported library could catch.
    os.write(2, b"\nunsplit: interrupted\n" if os.isatty(2) else b"unsplit: interrupted\n")
    os._exit(130)


if __name__ == "__main__":
    start()
