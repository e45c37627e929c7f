"""The guard expects about as much memory as is taken, and says what would fit."""

import re

import numpy as np
import pytest

import unsplit
from benchmarks.memory_guard import CASES, GRAPHS, run
from unsplit import devices
from unsplit.data.rows.base import is_mapped
from unsplit.devices import (
    available_memory,
    is_out_of_memory,
    require_memory,
)
from unsplit.errors import InputError
from unsplit.merging.api import MATRICES, check_memory
from unsplit.merging.neighbours import graph


@pytest.mark.slow
@pytest.mark.parametrize("case", [*CASES, *GRAPHS])
def test_what_is_expected_is_about_what_is_taken(case):
    expected, taken = run(case)
    # What an allocator takes differs by a fifth from run to run.
    assert taken / 1.8 < expected < 1.8 * taken


def data(n=60):
    return unsplit.datasets.gaussians([[0, 0], [3, 0], [9, 0]], n, random_state=0)


def refused(call, pattern):
    """The number in a refusal of one sentence."""
    with pytest.raises(InputError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(".")
    found = re.search(pattern, message)
    assert found, message
    return int(found[1].replace(",", ""))


def test_data_that_do_not_fit_are_refused_with_the_number_of_features(monkeypatch, tmp_path):
    X, labels = data()
    X = np.hstack([X] * 50).astype(np.float32)
    monkeypatch.setattr("unsplit.data.rows.kinds.available_memory", lambda: 4 * 180 * 30)
    call = lambda: unsplit.pairwise_tvd(X, labels, training=unsplit.TrainConfig(epochs=1), cv=2)  # noqa: E731
    assert refused(call, r"X of shape \(180, 100\).* at most (\d+) of its features would fit") == 30
    np.save(tmp_path / "x.npy", X)
    # As the sentence says, it works from disk.
    on_disk = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert is_mapped(on_disk)
    assert (
        unsplit.pairwise_tvd(
            on_disk, labels, training=unsplit.TrainConfig(epochs=1), cv=2
        ).n_clusters
        == 3
    )


def free_for(monkeypatch, free):
    monkeypatch.setattr("unsplit.pairwise.api.free_memory", lambda device: free)


def refusal(call):
    with pytest.raises(InputError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(".")
    return message


def test_networks_that_do_not_fit_are_refused_before_they_are_made(monkeypatch):
    X, labels = data()[0][:, np.arange(99) % 2], np.arange(180) % 4
    monkeypatch.setattr("unsplit.pairwise.api.build_network", _reached)
    call = lambda: unsplit.pairwise_tvd(X, labels, training=unsplit.TrainConfig(epochs=1), cv=2)  # noqa: E731
    weights = 4 * 256 * (99 + 4)
    free_for(monkeypatch, 2 * 7 * weights - 1)
    said = refusal(call)
    assert said.startswith("training 2 networks for 4 clusters of 180 observations of 99 numbers")
    assert "use fewer features" in said
    free_for(monkeypatch, 4 * 7 * weights)
    with pytest.raises(InterruptedError):
        call()


def test_pairs_that_do_not_fit_are_refused(monkeypatch):
    X, _ = data()
    labels = np.arange(180) % 45
    monkeypatch.setattr("unsplit.pairwise.api.MATRICES", 10**4)
    monkeypatch.setattr("unsplit.pairwise.api.available_memory", lambda: 8 * 10**4 * 45**2)
    call = lambda **more: unsplit.pairwise_tvd(X, labels, cv=5, **more)  # noqa: E731
    said = refusal(lambda: call(form="dense"))
    assert said.startswith("comparing 45 clusters of 180 observations would need")
    assert "; merge the smallest first, check that labels are clusters and not row ids, or" in said
    assert call(form="sparse").n_clusters == 45


def _reached(*_, **__):
    raise InterruptedError


def test_errors_of_memory_are_told_from_others():
    for text in (
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED",
        "DefaultCPUAllocator: not enough memory",
    ):
        assert is_out_of_memory(RuntimeError(text))
    assert not is_out_of_memory(RuntimeError("CUBLAS_STATUS_EXECUTION_FAILED"))
    assert not is_out_of_memory(ValueError("out of memory"))


def test_neighbours_that_do_not_fit_are_refused_with_a_number_that_does(monkeypatch):
    X, labels = data()
    call = lambda d, n=180: unsplit.neighbour_graph(X[:n, np.arange(d) % 2], labels[:n])  # noqa: E731
    monkeypatch.setattr(graph, "available_memory", lambda: 180 * (5_000 + 48 * 10))
    assert refused(lambda: call(99), r"with 99 features .* at most (\d+) features") == 10
    assert call(10).n_clusters == 3
    monkeypatch.setattr(graph, "available_memory", lambda: 150 * (5_000 + 48 * 2))
    assert refused(lambda: call(2), r"at most (\d+) observations would fit") == 150
    assert call(2, n=150).n_clusters == 3


def test_merging_that_does_not_fit_is_refused_with_a_number_that_does(monkeypatch):
    monkeypatch.setattr("unsplit.merging.api.available_memory", lambda: 10**6)
    number = refused(lambda: check_memory(1000, MATRICES), r"at most (\d+) would fit")
    check_memory(number, MATRICES)
    refused(lambda: check_memory(number + 1, MATRICES), r"at most (\d+) would fit")


def test_limits_of_the_process_and_of_its_group_count(monkeypatch, tmp_path):
    free = available_memory()
    monkeypatch.setattr(devices, "_left_of_limit", lambda: [free // 2, -5])
    assert available_memory() == 0
    monkeypatch.setattr(devices, "_left_of_limit", list)
    for name, value in (("max", "1000"), ("current", "900"), ("stat", "anon 1\ninactive_file 50")):
        (tmp_path / f"memory.{name}").write_text(value)
    monkeypatch.setattr(devices, "GROUPS", tmp_path)
    assert available_memory() == 150
    (tmp_path / "memory.max").write_text("max\n")
    assert available_memory() > 150


def test_available_memory_is_a_whole_number_of_bytes():
    assert isinstance(available_memory(), int)
    # Less would not have got as far as this test; more than a pebibyte is a unit mistaken.
    assert 2**20 < available_memory() < 2**50


def test_memory_is_refused_only_beyond_what_there_is():
    require_memory(100, 100, "this", "that")
    with pytest.raises(InputError, match="this would need"):
        require_memory(101, 100, "this", "that")


def test_memory_error_says_what_is_needed_what_is_there_and_what_to_do():
    message = "5 clusters would need about 2,500.0 GiB .* 1.5 GiB are available; use fewer"
    with pytest.raises(InputError, match=message):
        require_memory(2500 * 2**30, 3 * 2**29, "5 clusters", "use fewer")
