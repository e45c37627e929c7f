"""Training with very many clusters: blocks of scores, fewer moments, and what happens when memory
runs out."""

import numpy as np
import pytest
import torch
from torch import nn

from tests import triton_twin
from tests.test_training import networks_for, small_problem
from unsplit import TrainConfig
from unsplit.data.rows.kinds import observations
from unsplit.datasets import gaussians
from unsplit.errors import OutOfMemoryWarning
from unsplit.networks import network as network_module
from unsplit.networks.network import Network, ScoreHead
from unsplit.networks.training import group as group_module
from unsplit.networks.training.group import (
    Group,
    LargeHeadAdamW,
    epoch_minibatches,
    validation_part,
)
from unsplit.networks.training.loop import Training, used_decay
from unsplit.pairwise.heldout_scores import holdout_fold

CPU = torch.device("cpu")


def trained(epochs=3):
    rows, y, folds = small_problem(n_folds=2)
    networks = networks_for(rows, folds)
    config = TrainConfig(batch_folds=False, epochs=epochs)
    rng = np.random.default_rng(0)
    history = Training(networks, rows, torch.from_numpy(y), folds, config, rng).run()
    return networks, history


def test_training_over_blocks_gives_the_same_networks(monkeypatch):
    plain, usual = trained()
    called = []
    loss = group_module.chunked_loss
    monkeypatch.setattr(
        group_module, "chunked_loss", lambda *a, **k: called.append(1) or loss(*a, **k)
    )
    trained(epochs=1)
    assert not called  # few scores are held at once, as ever
    monkeypatch.setattr(group_module, "BLOCK_ELEMENTS", 100)
    monkeypatch.setattr(group_module, "MANY_CLUSTERS", 3)
    in_blocks, history = trained()
    assert called
    np.testing.assert_allclose(history.loss, usual.loss, rtol=1e-4)
    np.testing.assert_allclose(history.accuracy, usual.accuracy, atol=1e-3)
    for one, other in zip(plain, in_blocks, strict=True):
        torch.testing.assert_close(one.head.weight, other.head.weight, rtol=0.01, atol=1e-3)


@pytest.mark.parametrize("seed", [0, 1])
def test_accuracy_over_blocks_is_that_of_all_scores(monkeypatch, seed):
    rows, y, folds = small_problem(n_folds=2, seed=seed)
    config, clusters = TrainConfig(batch_folds=False), torch.from_numpy(y)
    rng = np.random.default_rng(seed)
    training = Training(networks_for(rows, folds), rows, clusters, folds, config, rng)
    training.epoch()
    expected = [group.validation_accuracy(rows, clusters) for group in training.groups]
    monkeypatch.setattr(group_module, "MANY_CLUSTERS", 3)
    found = [group.validation_accuracy(rows, clusters) for group in training.groups]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_of_very_many_scores_an_even_part_is_validated(monkeypatch):
    clusters = torch.tensor([2, 0, 1, 2, 0, 1, 2, 0, 1])
    validation = np.arange(9)
    assert validation_part(validation, clusters, 3) is validation
    monkeypatch.setattr(group_module, "MOST_VALIDATION_SCORES", 9)
    assert clusters[validation_part(validation, clusters, 3)].tolist() == [0, 1, 2]
    assert validation_part(np.arange(0), clusters, 3).tolist() == []


def test_a_large_head_is_not_drawn_and_starts_at_zero(monkeypatch):
    monkeypatch.setattr(network_module, "LARGE_HEAD", 10)
    before = torch.get_rng_state()
    head = ScoreHead(4, 3)
    assert torch.equal(before, torch.get_rng_state())
    assert (head.weight == 0).all()
    assert (head.bias == 0).all()


# The optimizer


def moved(gradients, weight, rate=0.01, decay=0.5, betas=(0.9, 0.999), eps=1e-8):
    """The update of the docstring, written as loops over steps, in float64."""
    first, second = np.zeros_like(weight), np.zeros(len(weight))
    for t, g in enumerate(gradients, 1):
        first = betas[0] * first + (1 - betas[0]) * g
        second = betas[1] * second + (1 - betas[1]) * (g**2).mean(1)
        scale = np.sqrt(second / (1 - betas[1] ** t)) + eps
        weight = weight * (1 - rate * decay) - rate * first / (1 - betas[0] ** t) / scale[:, None]
    return weight


@pytest.mark.parametrize("at_once", [6, 2**24])
def test_large_matrices_move_by_the_mean_square_of_their_rows(monkeypatch, at_once):
    monkeypatch.setattr("unsplit.networks.training.group.MOVED_AT_ONCE", at_once)
    rng = np.random.default_rng(0)
    start = rng.standard_normal((5, 3))
    gradients = [rng.standard_normal((5, 3)) * np.arange(1, 6)[:, None] for _ in range(20)]
    weight = nn.Parameter(torch.tensor(start))
    bias, usual = (nn.Parameter(torch.ones(4)) for _ in range(2))
    optimizer = LargeHeadAdamW([weight, bias], weight, 0.01, 0.5)
    other = torch.optim.AdamW([usual], lr=0.01, weight_decay=0.5)
    for g in gradients:
        weight.grad, bias.grad, usual.grad = torch.tensor(g), bias.detach() ** 2, usual.data**2
        optimizer.step()
        other.step()
        assert weight.grad is not None
    # The first moment is stored with eight bits.
    np.testing.assert_allclose(weight.detach().numpy(), moved(gradients, start), atol=3e-3)
    torch.testing.assert_close(bias, usual)  # everything else as by AdamW
    state = optimizer.state[weight]
    assert state["exp_avg"].dtype == torch.bfloat16
    assert state["row_avg_sq"].shape == (5, 1)


def test_the_kernel_moves_weights_as_plain_torch_does(monkeypatch):
    module = triton_twin.kernel_module(monkeypatch)
    monkeypatch.setattr("unsplit.networks.training.group.move_rows", module.move_rows)
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(7, 5, generator=generator)
    weights = [nn.Parameter(start.clone()) for _ in range(2)]
    optimizers = [LargeHeadAdamW([w], w, 0.01, 0.5) for w in weights]
    optimizers[1].kernel = True
    for _ in range(5):
        slope = torch.randn(7, 5, generator=generator) * torch.arange(7)[:, None]
        for weight, optimizer in zip(weights, optimizers, strict=True):
            weight.grad = slope.clone()
            optimizer.step()
    assert not torch.equal(weights[0], start)
    torch.testing.assert_close(weights[0], weights[1], rtol=1e-4, atol=1e-5)


def test_a_matrix_without_gradient_stays():
    weight = nn.Parameter(torch.ones(2, 2))
    optimizer = LargeHeadAdamW([weight], weight, 0.1, 0.5)
    optimizer.step()
    assert (weight == 1).all()


def test_large_heads_are_trained_with_fewer_moments(monkeypatch):
    monkeypatch.setattr(group_module, "LARGE_HEAD", 10)
    networks, history = trained(epochs=8)
    assert history.accuracy.max() > 0.9
    folds = small_problem(n_folds=2)[2]
    group = Group(networks[:1], folds[:1], 1e-3, 0.0)
    assert isinstance(group.optimizer, LargeHeadAdamW)


# Memory runs out


class Short(nn.Module):
    """A backbone for which more than ``most`` observations are too many."""

    def __init__(self, most, error):
        super().__init__()
        self.layer, self.most, self.error = nn.Linear(2, 8), most, error
        self.out_features = 8

    def forward(self, x):
        if self.training and x.shape[-2] > self.most:
            raise self.error
        return self.layer(x).relu()


def group_of(most, error, n=1):
    rows, y, folds = small_problem(n_folds=2)
    torch.manual_seed(0)
    networks = [Network(Short(most, error), ScoreHead(8, 4)) for _ in range(n)]
    batches = epoch_minibatches([fold.train for fold in folds[:n]], y, 30, np.random.default_rng(0))
    group = Group(networks, folds[:n], 1e-3, 0.0)
    return group, batches, rows, torch.from_numpy(y)


ERRORS = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    RuntimeError(
        "[enforce fail at alloc_cpu.cpp:121] . DefaultCPUAllocator: can't allocate memory"
    ),
    MemoryError(),
]


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("most", [29, 8])
def test_when_memory_runs_out_the_batch_is_computed_in_parts(error, most):
    group, *rest = group_of(1000, error)
    expected = group.run(*rest)
    short, *rest = group_of(most, error)
    with pytest.warns(OutOfMemoryWarning, match="batches of 30 observations are now computed in"):
        loss = short.run(*rest)
    assert short.parts == (2 if most == 29 else 4)
    assert short.steps_taken == group.steps_taken
    assert loss == pytest.approx(expected, rel=1e-5)
    for one, other in zip(
        group.present[0].parameters(), short.present[0].parameters(), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


def test_stacked_networks_are_computed_in_parts_too():
    group, *rest = group_of(1000, MemoryError(), 2)
    expected = group.run(*rest)
    short, *rest = group_of(20, MemoryError(), 2)
    with pytest.warns(OutOfMemoryWarning, match="ran out in training, so batches"):
        assert short.run(*rest) == pytest.approx(expected, rel=1e-5)


def test_memory_that_not_even_a_few_observations_fit_into_is_an_error():
    group, *rest = group_of(1, MemoryError())
    with pytest.warns(OutOfMemoryWarning), pytest.raises(MemoryError):
        group.run(*rest)
    assert group.steps_taken == 0


def test_other_errors_are_not_taken_for_lack_of_memory():
    group, *rest = group_of(1, RuntimeError("shapes differ"))
    with pytest.raises(RuntimeError, match="shapes differ"):
        group.run(*rest)
    assert group.parts == 1


# Weight decay if a cluster comes once in many batches


def test_decay_is_reduced_only_where_it_would_win():
    assert used_decay(4.0, 1024, 256) == 4.0
    assert used_decay(0.1, 10**6, 256) == 0.1
    assert used_decay(0.0, 10**6, 256) == 0.0
    assert 1 < used_decay(4.0, 2000, 256) < 2
    assert used_decay(4.0, 10**6, 4096) == 0.1


def test_training_with_many_more_clusters_than_a_batch_uses_less_decay():
    rows, y, folds = small_problem(n_folds=2)
    config = TrainConfig(batch_size=1, weight_decay=5.0)
    clusters, rng = torch.from_numpy(y), np.random.default_rng(0)
    training = Training(networks_for(rows, folds), rows, clusters, folds, config, rng)
    assert training.groups[0].optimizer.weight_decay == pytest.approx(4.0)


# The first steps


@pytest.mark.parametrize("n", [1, 2])
def test_with_many_clusters_features_change_after_every_cluster_has_come_twice(n):
    rows, y, folds = small_problem(n_folds=2)
    group = Group(networks_for(rows, folds, k=40)[:n], folds[:n], 1e-3, 0.0)
    assert group.steps_of_head(10) == 0
    assert group.steps_of_head(9) == 9
    before = [p.detach().clone() for p in group.body()]
    batches = epoch_minibatches([f.train for f in folds[:n]], y, 9, np.random.default_rng(0))
    group.run(batches[:9], rows, torch.from_numpy(y))
    torch.testing.assert_close(before, [p.detach() for p in group.body()], rtol=0, atol=0)
    heads = group.optimizer.params[-2:]
    assert all((p != 0).any() for p in heads)
    group.run(batches[9:10], rows, torch.from_numpy(y))
    assert not torch.equal(before[0], group.body()[0])


def test_batch_normalisation_needs_no_such_start():
    folds = small_problem(n_folds=2)[2]
    network = Network(nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8)), ScoreHead(8, 40))
    assert Group([network], folds[:1], 1e-3, 0.0).steps_of_head(1) == 0


def test_many_more_clusters_than_a_batch_can_be_told_apart():
    X, y = gaussians(6 * np.random.default_rng(0).standard_normal((400, 8)), 6, random_state=0)
    rows = observations(X, CPU)
    fold = holdout_fold(y, 0.2, np.random.default_rng(0))
    config, rng = TrainConfig(batch_size=16, epochs=6), np.random.default_rng(0)
    networks = networks_for(rows, [fold], k=400)
    history = Training(networks, rows, torch.from_numpy(y), [fold], config, rng).run()
    assert history.accuracy.max() > 0.95
