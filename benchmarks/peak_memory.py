"""The most memory that this process has, looked at many times a second."""

import threading
from typing import Self

EVERY = 0.02


class PeakMemory:
    """Highest memory while a block runs; on Linux only.

    ``anonymous`` is what the process allocated, without pages of mapped files, which the system
    drops when it needs room; ``resident`` is with them.
    """

    def __init__(self) -> None:
        self.anonymous = self.resident = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._done.wait(EVERY):
            self._look()

    def _look(self) -> None:
        found = {}
        with open("/proc/self/status") as lines:
            for line in lines:
                if line.startswith(("RssAnon:", "VmRSS:")):
                    name, value, _ = line.split()
                    found[name] = int(value) * 1024
        self.anonymous = max(self.anonymous, found["RssAnon:"])
        self.resident = max(self.resident, found["VmRSS:"])
