"""Batches in the background: their order, how far ahead, and what happens when something fails."""

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.any_data_cases import CPU
from unsplit.data.rows import base
from unsplit.data.rows.base import AHEAD, prefetched

SQUARES = torch.arange(20) ** 2


def batches_of(n):
    return [torch.tensor([i]) for i in range(n)]


@pytest.mark.slow
@settings(deadline=None, max_examples=30, derandomize=True)
@given(st.lists(st.lists(st.integers(0, 19), max_size=4), max_size=12))
def test_gives_what_a_loop_gives(batches):
    indices = [torch.tensor(batch, dtype=torch.long) for batch in batches]
    found = [x.tolist() for x in prefetched(SQUARES.__getitem__, indices, CPU)]
    assert found == [[i * i for i in batch] for batch in batches]


def test_fetching_happens_in_one_other_thread():
    threads = set()

    def fetch(index):
        threads.add(threading.get_ident())
        return index

    list(prefetched(fetch, batches_of(10), CPU))
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_reads_ahead_but_not_the_whole_source():
    asked = itertools.count()
    endless = (torch.tensor([i]) for i in asked)
    stream = prefetched(lambda index: index, endless, CPU)
    assert next(stream).item() == 0
    assert next(asked) == AHEAD + 1
    assert next(stream).item() == 1
    stream.close()


def test_an_error_comes_at_its_place():
    def fetch(index):
        if index.item() == 7:
            raise OSError("the disk is gone")
        return index

    seen = []
    with pytest.raises(OSError, match="the disk is gone"):
        seen.extend(x.item() for x in prefetched(fetch, batches_of(20), CPU))
    assert seen == list(range(7))


def test_who_stops_early_does_not_wait_for_the_rest(monkeypatch):
    fetched, second, go = [], threading.Event(), threading.Event()

    def fetch(index):
        fetched.append(index.item())
        if index.item() == 1:
            second.set()
            go.wait(60)
        return index

    class Pool(ThreadPoolExecutor):
        def shutdown(self, wait=True, *, cancel_futures=False):
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            go.set()
            super().shutdown(wait=wait)

    monkeypatch.setattr(base, "ThreadPoolExecutor", Pool)
    stream = prefetched(fetch, batches_of(20), CPU)
    next(stream)
    assert second.wait(60)
    stream.close()
    assert fetched == [0, 1]  # not the three that waited in line


@pytest.mark.parametrize("taken", [0, 1, 20])
def test_no_thread_is_left_behind(taken):
    before = threading.active_count()
    stream = prefetched(lambda index: index, batches_of(20), CPU)
    assert len(list(itertools.islice(stream, taken))) == taken
    stream.close()
    assert threading.active_count() == before
