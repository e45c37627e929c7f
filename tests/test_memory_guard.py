"""The guard expects about as much memory as is taken, and says what would fit."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional as F

import unsplit
from benchmarks.memory_guard import cases_on, run
from unsplit.data import memory, observations
from unsplit.data.memory import (
    available_memory,
    is_out_of_memory,
    require_memory,
)
from unsplit.data.rows.base import is_mapped
from unsplit.devices import private_randomness
from unsplit.errors import InputError
from unsplit.merging.api import MATRICES, check_memory
from unsplit.merging.neighbours import graph
from unsplit.networks.registry import RECIPES, build_network
from unsplit.networks.training.group import Fold
from unsplit.pairwise.memory import EstimateSize, bytes_of_one, with_networks

CPU = torch.device("cpu")


@pytest.mark.slow
@pytest.mark.parametrize("case", cases_on("cpu"))
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
    call = lambda: unsplit.pairwise_tvd(X, labels, epochs=1, cv=2)  # noqa: E731
    assert refused(call, r"X of shape \(180, 100\).* at most (\d+) of its features would fit") == 30
    np.save(tmp_path / "x.npy", X)
    # As the sentence says, it works from disk.
    on_disk = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert is_mapped(on_disk)
    assert unsplit.pairwise_tvd(on_disk, labels, epochs=1, cv=2).n_clusters == 3


def free_for(monkeypatch, free):
    monkeypatch.setattr("unsplit.pairwise.memory.free_memory", lambda device: free)


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
    size = EstimateSize(4, 4, 2, 180, 180, backbone=4 * 256 * 99)
    assert size.training > size.counting
    free_for(monkeypatch, size.training - 1)
    call = lambda **more: unsplit.pairwise_tvd(X, labels, epochs=1, **more)  # noqa: E731
    said = refusal(lambda: call(cv=2))
    assert said.startswith("training 2 networks for 4 clusters of 180 observations of 99 numbers")
    assert "; pass holdout=0.2, which trains 1 network instead of 2, or use fewer features" in said
    free_for(monkeypatch, size.training)
    with pytest.raises(InterruptedError):
        call(cv=2)
    free_for(monkeypatch, 1000)
    assert "holdout" not in refusal(lambda: call(cv=2))


def test_pairs_that_do_not_fit_are_refused(monkeypatch):
    X, _ = data()
    labels = np.arange(180) % 45
    # Here the pairs are what is too much, so the sparse form helps.
    monkeypatch.setattr("unsplit.pairwise.memory.MATRICES", 10**4)
    dense = EstimateSize(45, 45, 5, 180, 180, backbone=4 * 256 * 2)
    sparse = replace(dense, is_sparse=True)
    free_for(monkeypatch, max(sparse.counting, dense.training) + 1)
    call = lambda **more: unsplit.pairwise_tvd(X, labels, epochs=1, cv=5, **more)  # noqa: E731
    said = refusal(lambda: call(form="dense"))
    assert said.startswith("comparing 45 clusters of 180 observations would need")
    assert '; pass form="sparse", which keeps only pairs that are ever confused, or merge' in said
    assert call(form="sparse").n_clusters == 45
    free_for(monkeypatch, dense.counting // 2)
    said = refusal(lambda: call(batch=np.arange(180) // 90))
    assert "; merge the smallest first, or check that labels are clusters and not row ids." in said


def pictures(n=40, side=24):
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (n, side, side, 3), np.uint8), np.arange(n) % 4


def test_batches_that_do_not_fit_are_refused(monkeypatch):
    X, labels = pictures()
    call = lambda **more: unsplit.pairwise_tvd(  # noqa: E731
        X, labels, backbone="convnet", epochs=1, cv=2, device="cpu", augment=False, **more
    )
    sizes = []

    def noted(size, *others):
        sizes.append(with_networks(size, *others))
        return sizes[-1]

    monkeypatch.setattr("unsplit.pairwise.api.with_networks", noted)
    monkeypatch.setattr("unsplit.pairwise.api.heldout_scores", _reached)
    with pytest.raises(InterruptedError):
        call()
    (size,) = sizes
    assert size.batch > 20 * 24 * 24 * 3 * 4
    free_for(monkeypatch, size.training - 1)
    said = refusal(call)
    assert said.startswith("training 2 networks for 4 clusters of 40 observations of 1,728 numbers")
    assert "a smaller batch_size" in said
    with pytest.raises(InterruptedError):
        call(training=unsplit.TrainConfig(batch_size=10))


def _reached(*_, **__):
    raise InterruptedError


def test_the_largest_observation_counts():
    rng = np.random.default_rng(0)
    few = observations([rng.standard_normal(n) for n in (200, 210)], CPU)
    long = observations([rng.standard_normal(n) for n in (200, 2000)], CPU)
    layer = nn.Conv1d(2, 8, 3)
    assert bytes_of_one(layer, long)[0] > 8 * bytes_of_one(layer, few)[0]


class Noisy(nn.Module):
    """Counts its calls, draws numbers and has batch normalisation."""

    def __init__(self):
        super().__init__()
        self.norm, self.layer, self.calls = nn.BatchNorm1d(2), nn.Linear(2, 50), 0

    def forward(self, x):
        self.calls += 1
        return torch.sigmoid(self.layer(F.dropout(self.norm(x))))


def test_trying_a_network_changes_nothing():
    rows = observations(np.random.default_rng(0).standard_normal((9, 2)), CPU)
    network, before = Noisy(), torch.get_rng_state()
    weights = {name: value.clone() for name, value in network.state_dict().items()}
    with private_randomness(5, CPU):
        expected = torch.rand(1)
    with private_randomness(5, CPU):
        kept, largest = bytes_of_one(network, rows, CPU)
        assert torch.equal(torch.rand(1), expected)
    assert torch.equal(torch.get_rng_state(), before)
    assert network.calls == 0
    assert all(torch.equal(value, weights[name]) for name, value in network.state_dict().items())
    assert all(param.grad is None for param in network.parameters())
    # The input, what dropout leaves, its mask, and the features, for each observation.
    assert 4 * (2 + 2 + 50) <= kept <= 4 * (3 * 2 + 50) + 20
    assert largest == 4 * (2 + 50)


def test_what_a_network_keeps_of_a_batch_is_expected():
    rows = observations(pictures()[0], CPU)
    fold = Fold(*[np.arange(40)] * 3)
    with private_randomness(0):
        network = build_network(rows, fold, RECIPES["convnet"], 4, "softmax", augment=False)
        found, _ = bytes_of_one(network.backbone, rows)
    kept = {}

    def note(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with saved_tensors_hooks(note, lambda tensor: tensor):
        features = network.backbone(rows.take(torch.arange(40)))
    parameters = sum(value.nbytes for value in network.backbone.parameters())
    saved = sum(kept.values()) - parameters
    assert features.requires_grad
    assert 40 * found == pytest.approx(saved, rel=0.05)


class OnlyPairs(nn.Linear):
    """Takes an even number of observations in training."""

    def forward(self, x):
        if self.training and len(x) % 2:
            raise ValueError("an even number, please")
        return super().forward(x)


def test_a_network_that_does_not_take_a_few_rows_is_trained_all_the_same():
    X, labels = data()
    found = unsplit.pairwise_tvd(X, labels, epochs=1, cv=2, device="cpu", backbone=OnlyPairs(2, 4))
    assert found.n_clusters == 3


def test_errors_of_memory_are_told_from_others():
    for text in (
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED",
        "DefaultCPUAllocator: not enough memory",
    ):
        assert is_out_of_memory(RuntimeError(text))
    assert not is_out_of_memory(RuntimeError("CUBLAS_STATUS_EXECUTION_FAILED"))
    assert not is_out_of_memory(ValueError("out of memory"))


def test_nothing_is_tried_for_vectors(monkeypatch):
    monkeypatch.setattr("unsplit.pairwise.memory.bytes_of_one", _reached)
    X, labels = data()
    assert unsplit.pairwise_tvd(X, labels, epochs=1, cv=2, device="cpu").n_clusters == 3
    called = []
    monkeypatch.setattr(
        "unsplit.pairwise.memory.bytes_of_one", lambda *_: called.append(1) or (8, 8)
    )
    unsplit.pairwise_tvd(X, labels, epochs=1, cv=2, device="cpu", backbone=Noisy())
    assert called


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
