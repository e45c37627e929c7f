"""Tests compute with one thread, and networks begin with the same weights whatever ran before.

Their tensors are small, and on a busy machine threads that wait for each other cost far more than
they save.
"""

import os
import signal

import pytest
import torch

# Some virtual machines name AMX among the instructions of their processor and then refuse it, and
# tests of bfloat16 would end with an illegal instruction.  torch asks for this when it first needs
# to know, and so does every process that a test starts.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

torch.manual_seed(0)

# A shell that starts the tests in the background makes them ignore Ctrl-C, and so would every
# process that they start; some tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Return to one thread: scanpy's tests of genes start as many as there are cores.

    Training then took up to twenty times as long in all tests that followed.
    """
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def same_weights() -> None:
    """Seed what torch draws weights from."""
    torch.manual_seed(0)
