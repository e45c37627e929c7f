"""Faults: hostile files, killed runs, odd inputs."""

import os


def many(cases):
    """So many random cases with UNSPLIT_FUZZ=1, a tenth of them otherwise."""
    return cases if os.environ.get("UNSPLIT_FUZZ") else cases // 10
