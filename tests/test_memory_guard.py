"""The guard expects about as much memory as is taken, and says what would fit."""

import re

import numpy as np
import pytest

import unsplit
from benchmarks.memory_guard import CASES, GRAPHS, run
from unsplit.data import memory
from unsplit.data.memory import available_memory, most_that_fits, require_memory
from unsplit.data.rows.base import is_mapped
from unsplit.errors import InputError
from unsplit.merging.api import MATRICES, check_memory
from unsplit.merging.neighbours import graph
from unsplit.pairwise.api import memory_of_fit


@pytest.mark.slow
@pytest.mark.parametrize("case", [*CASES, *GRAPHS])
def test_what_is_expected_is_about_what_is_taken(case):
    expected, taken = run(case)
    assert taken / 1.5 < expected < 1.5 * taken


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
    call = lambda: unsplit.pairwise_tvd(X, labels, epochs=1, cv=2)  # noqa: E731
    assert refused(call, r"X of shape \(180, 100\).* at most (\d+) of its features would fit") == 30
    np.save(tmp_path / "x.npy", X)
    # As the sentence says, it works from disk.
    on_disk = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert is_mapped(on_disk)
    assert unsplit.pairwise_tvd(on_disk, labels, epochs=1, cv=2).n_clusters == 3


def test_features_that_do_not_fit_are_refused_with_a_number_that_does(monkeypatch):
    X, labels = data()
    call = lambda d: unsplit.pairwise_tvd(X[:, np.arange(d) % 2], labels, epochs=1, cv=2)  # noqa: E731
    monkeypatch.setattr("unsplit.networks.registry.available_memory", lambda: 2**20)
    number = refused(lambda: call(99), r"for 99 features .* at most (\d+) features would fit")
    assert 2 <= number < 99
    assert call(number).n_clusters == 3
    refused(lambda: call(number + 1), r"at most (\d+) features would fit")


def test_clusters_that_do_not_fit_are_refused_with_a_number_that_does(monkeypatch):
    X, _ = data()
    free = memory_of_fit(40, 40, 2, 180, 180)
    monkeypatch.setattr("unsplit.pairwise.api.available_memory", lambda: free)
    call = lambda k: unsplit.pairwise_tvd(X, np.arange(180) % k, epochs=1, cv=2)  # noqa: E731
    number = refused(lambda: call(80), r"80 clusters of 180 .* at most (\d+) clusters would fit")
    assert number == 40
    assert call(number).n_clusters == 40


def test_observations_that_do_not_fit_are_refused_with_a_number(monkeypatch):
    X, labels = data()
    monkeypatch.setattr("unsplit.pairwise.api.available_memory", lambda: 1000)
    call = lambda: unsplit.pairwise_tvd(X, labels, epochs=1, cv=2)  # noqa: E731
    assert refused(call, r"at most (\d+) observations would fit") < 180


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


@pytest.mark.parametrize("free", [0, 7, 8, 800, 10**6])
def test_the_most_that_fits(free):
    found = most_that_fits(lambda n: 8 * n * n, free, 100)
    assert found == 0 or 8 * found**2 <= free
    assert found == 100 or 8 * (found + 1) ** 2 > free


def test_limits_of_the_process_and_of_its_group_count(monkeypatch, tmp_path):
    free = available_memory()
    monkeypatch.setattr(memory, "_left_of_limits", lambda: [free // 2, -5])
    assert available_memory() == 0
    monkeypatch.setattr(memory, "_left_of_limits", list)
    for name, value in (("max", "1000"), ("current", "900"), ("stat", "anon 1\ninactive_file 50")):
        (tmp_path / f"memory.{name}").write_text(value)
    monkeypatch.setattr(memory, "GROUPS", [(tmp_path, *memory.GROUPS[0][1:])])
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
