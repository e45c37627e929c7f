"""Networks in training: what they leave behind, alone and stacked, and when it goes wrong."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from tests.any_data_cases import CPU, Items, clouds, images, ragged
from unsplit.data.labels import Parts
from unsplit.data.rows.kinds import observations
from unsplit.datasets import gaussians
from unsplit.errors import InputError
from unsplit.networks.network import Network, ScoreHead
from unsplit.networks.registry import RECIPES, build_network, recipe_for
from unsplit.networks.training.group import Fold, Group, can_be_stacked
from unsplit.networks.training.loop import TrainConfig, Training
from unsplit.pairwise.heldout_scores import crossfit_folds, heldout_scores

HALF = Fold(np.arange(12), np.arange(12, 24), np.arange(12, 24))


# Batch normalisation


def normed(width=8):
    return nn.Sequential(nn.Linear(2, width), nn.BatchNorm1d(width), nn.ReLU())


def problem(n=60, seed=0):
    X, y = gaussians([[0, 0], [3, 0], [0, 3]], n, random_state=seed)
    folds = crossfit_folds(y, 3, np.random.default_rng(seed))
    return observations(X, CPU), torch.from_numpy(y), folds


def networks_of(backbone, rows, folds, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        recipe = recipe_for(backbone, rows)
        return [build_network(rows, fold, recipe, 3, "softmax") for fold in folds]


def accuracy(network, rows, y, fold):
    with torch.no_grad():
        scores = network(rows.take(torch.from_numpy(fold.test)))
    return float((scores.argmax(1) == y[fold.test]).float().mean())


def test_kept_networks_know_the_scale_of_their_own_activations():
    rows, y, folds = problem()
    networks = networks_of(normed, rows, folds)
    Training(networks, rows, y, folds, TrainConfig(epochs=4), np.random.default_rng(0)).run()
    for network, fold in zip(networks, folds, strict=True):
        assert not network.training
        norm = network.backbone[-1][1]
        again = copy.deepcopy(network)
        # What the mean weights make of all the training rows.
        x = again.backbone[-1][0](again.backbone[0](rows.take(torch.from_numpy(fold.train))))
        torch.testing.assert_close(norm.running_mean, x.mean(0).detach(), atol=0.15, rtol=0.1)
        torch.testing.assert_close(norm.running_var, x.var(0).detach(), atol=0.1, rtol=0.3)
        again.backbone[-1][1].running_mean.copy_(x.mean(0).detach())
        again.backbone[-1][1].running_var.copy_(x.var(0).detach())
        kept, recomputed = (accuracy(net, rows, y, fold) for net in (network, again))
        assert recomputed > 0.8
        assert abs(kept - recomputed) < 0.05


def test_statistics_of_other_weights_would_not_do():
    # What the test above would miss if mean and present weights were alike.
    rows, y, folds = problem()
    (network,) = networks_of(normed, rows, folds[:1])
    group = Group([network], folds[:1], 0.05, 0.0)
    batches = torch.from_numpy(np.random.default_rng(0).choice(folds[0].train, (10, 1, 64)))
    group.run(batches, rows, y)
    present, mean = (net.backbone[-1][1].running_var for net in (network, group.means[0]))
    assert not torch.allclose(present, mean, rtol=0.2)


class Frozen(nn.Module):
    """Batch normalisation that was learned elsewhere and is not to be touched."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(2)
        self.norm.running_mean.fill_(5.0)
        self.layer = nn.Linear(2, 8)

    def train(self, mode=True):
        super().train(mode)
        self.norm.eval()
        return self

    def forward(self, x):
        return self.layer(self.norm(x)).relu()


def test_frozen_statistics_stay_as_they_are():
    rows, y, folds = problem()
    networks = networks_of(Frozen, rows, folds)
    Training(networks, rows, y, folds, TrainConfig(epochs=1), np.random.default_rng(0)).run()
    assert networks[0].backbone[-1].norm.running_mean.tolist() == [5.0, 5.0]


class Counts(nn.Module):
    """Learns something that is no weight."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 8)
        self.register_buffer("batches", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        if self.training:
            self.batches += 1
        return self.layer(x).relu()


def test_other_things_learned_on_the_way_are_kept():
    rows, y, folds = problem()
    networks = networks_of(Counts, rows, folds)
    config = TrainConfig(batch_folds=False, epochs=2)
    history = Training(networks, rows, y, folds, config, np.random.default_rng(0)).run()
    seen = [int(network.backbone[-1].batches) for network in networks]
    assert seen == [10 * (epoch + 1) for epoch in history.kept_epoch]


# One alone and several stacked


@pytest.mark.parametrize("n", [1, 3])
def test_one_network_alone_is_asked_like_several_stacked(n):
    rows, y, folds = problem()
    networks = networks_of("mlp", rows, folds[:n])
    group = Group(networks, folds[:n], 1e-3, 0.0, averaging=0.5)
    before = copy.deepcopy(networks[0].state_dict())
    rng = np.random.default_rng(0)
    batches = torch.from_numpy(np.stack([rng.choice(f.train, (10, 32)) for f in folds[:n]], 1))
    first, second = (group.run(batches, rows, y) for _ in range(2))
    assert second < first < np.log(3) + 1e-3
    assert group.steps_taken == 20
    found = group.validation_accuracy(rows, y)
    assert found.shape == (n,)
    assert (found > 0.7).all()
    group.keep(np.ones(n, bool))
    group.run(batches, rows, y)
    group.restore()
    assert not any(network.training for network in networks)
    assert any(not torch.equal(v, before[k]) for k, v in networks[0].state_dict().items())
    # What was kept is what was tried, not what came after.
    for network, fold, tried in zip(networks, folds, found, strict=False):
        again = Group([network], [fold], 1e-3, 0.0).validation_accuracy(rows, y)
        assert again[0] == pytest.approx(tried, abs=1e-6)


def test_alone_and_stacked_learn_the_same():
    rows, y, folds = problem()
    found = {}
    for stacked in (True, False):
        networks = networks_of("mlp", rows, folds)
        config = replace(RECIPES["mlp"].training, batch_folds=stacked, epochs=1)
        rng = np.random.default_rng(0)
        training = Training(networks, rows, y, folds, config, rng)
        scores, _ = heldout_scores(training, Parts.cut(y.numpy()))
        found[stacked] = scores.dense()
    assert np.abs(found[True] - found[False]).max() < 1e-3 * found[True].std()


def test_what_torch_cannot_batch_trains_alone():
    class Odd(nn.Module):
        def forward(self, x):
            try:
                bool(x.any())  # a look at values
            except RuntimeError:
                raise ValueError("no such batch") from None
            return x

    rows, y, folds = problem()
    networks = networks_of(Odd, rows, folds)
    assert not can_be_stacked(networks, rows)
    history = Training(
        networks, rows, y, folds, TrainConfig(epochs=2), np.random.default_rng(0)
    ).run()
    assert history.accuracy[-1] > 0.7


class Sums(nn.Module):
    def forward(self, x):
        return x.sum(-1)


@pytest.mark.parametrize("X", [images(), clouds(), ragged(), Items(images()[:, 0])])
def test_other_data_than_vectors_are_not_stacked(X):
    rows = observations(X, CPU)
    flat = nn.Flatten if rows.kind != "sequences" else Sums
    networks = [
        build_network(rows, HALF, recipe_for(flat, rows), 3, "softmax", augment=False)
        for _ in range(2)
    ]
    assert not can_be_stacked(networks, rows)


# Loss that goes wrong


@pytest.mark.parametrize("n", [1, 2])
def test_a_loss_that_is_no_number_is_reported(n):
    class Breaks(nn.Module):
        """Well in eval mode, in which networks are tried."""

        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 4)

        def forward(self, x):
            return self.layer(x) / 0 if self.training else self.layer(x)

    rows, y, folds = problem()
    networks = networks_of(Breaks, rows, folds[:n])
    group = Group(networks, folds[:n], 1e-3, 0.0)
    batches = torch.from_numpy(np.stack([np.resize(f.train, (3, 20)) for f in folds[:n]], 1))
    message = "the loss became nan within 3 steps .* extreme values, .* lower learning_rate"
    with pytest.raises(InputError, match=message):
        group.run(batches, rows, y)


@pytest.mark.parametrize("n", [1, 3])
def test_a_score_that_is_no_number_is_no_miss(n):
    rows, y, folds = problem()
    row = folds[0].validation[5]
    odd = rows.take(torch.tensor([row]))

    class Gap(nn.Module):
        def forward(self, x):
            return torch.where((x == odd).all(dim=-1, keepdim=True), torch.nan, x)

    networks = [Network(Gap(), ScoreHead(2, 3)) for _ in range(n)]
    group = Group(networks, folds[:n], 1e-3, 0.0)
    message = f"NaN or infinity for observation {row} of X; check it, or your own network"
    with pytest.raises(InputError, match=message):
        group.validation_accuracy(rows, y)
