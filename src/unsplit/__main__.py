"""``python -m unsplit`` and ``unsplit``: the command line."""

import os
import signal
from typing import Any


def start() -> None:
    """Load and run the program; Ctrl-C while it loads ends it with one line and exit code 130."""
    # Only where Ctrl-C would raise KeyboardInterrupt: a program in the background ignores it.
    careful = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if careful:
        signal.signal(signal.SIGINT, _leave)
    from unsplit.cli import main

    if careful:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    main(prog_name="unsplit")


def _leave(*_: Any) -> None:
    # At once and without an exception, which a half-imported library could catch.
    os.write(2, b"\nunsplit: interrupted\n" if os.isatty(2) else b"unsplit: interrupted\n")
    os._exit(130)


if __name__ == "__main__":
    start()
