"""Steps that are recorded and repeated give what the same steps give one by one."""

import numpy as np
import pytest
import torch
from torch import nn

import unsplit
from unsplit.networks.network import MLP, Network, ScoreHead
from unsplit.networks.training import group
from unsplit.networks.training.recorded import can_be_recorded

KINDS = pytest.mark.parametrize("how", [{"cv": 3}, {"cv": 0.3}], ids=["stacked", "one network"])
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def estimate(device="cpu", **how):
    centres = np.random.default_rng(0).normal(size=(6, 10))
    X, labels = unsplit.datasets.gaussians(centres, 150, random_state=0)
    return unsplit.pairwise_tvd(
        X, labels, training=unsplit.TrainConfig(epochs=4), device=device, random_state=0, **how
    )


class Repeated:
    """A recorded step that counts instead of recording, so that it works without a GPU."""

    made = taken = 0

    def __init__(self, step, x, own):
        Repeated.made += 1
        self.step, self.shape = step, x.shape

    def fits(self, x):
        return x.shape == self.shape

    def __call__(self, x, own):
        Repeated.taken += 1
        return self.step(x, own)


@pytest.fixture
def counted(monkeypatch):
    """Let steps be recorded on a CPU."""
    monkeypatch.setattr(Repeated, "made", 0)
    monkeypatch.setattr(Repeated, "taken", 0)
    monkeypatch.setattr(group, "RecordedStep", Repeated)
    before = group.Group.__init__

    def recordable(self, *args, **more):
        before(self, *args, **more)
        self.recordable = can_be_recorded(self.networks[0])

    monkeypatch.setattr(group.Group, "__init__", recordable)


@KINDS
def test_repeated_steps_change_nothing(monkeypatch, counted, how):
    with monkeypatch.context() as plain:
        plain.setattr(group.Group, "_record", lambda self, x, own: None)
        expected = estimate(**how)
    assert Repeated.taken == 0
    found = estimate(**how)
    assert Repeated.made == 1
    assert Repeated.taken > 10
    np.testing.assert_array_equal(found.tvd, expected.tvd)
    np.testing.assert_array_equal(found.history.loss, expected.history.loss)


def test_without_a_recording_training_goes_on(monkeypatch, counted):
    class Refused(Repeated):
        def __init__(self, step, x, own):
            Repeated.made += 1
            raise RuntimeError("operation not permitted when stream is capturing")

    expected = estimate()
    monkeypatch.setattr(group, "RecordedStep", Refused)
    monkeypatch.setattr(Repeated, "made", 0)
    np.testing.assert_array_equal(estimate().tvd, expected.tvd)
    assert Repeated.made == 1  # and not tried again


def test_nothing_is_recorded_over_blocks_of_clusters(monkeypatch, counted):
    monkeypatch.setattr(group, "BLOCK_ELEMENTS", 100)
    estimate()
    assert Repeated.made == 0


def test_nothing_is_recorded_on_a_cpu(monkeypatch):
    monkeypatch.setattr(group, "RecordedStep", Repeated)
    made = Repeated.made
    estimate()
    assert Repeated.made == made


class Counting(MLP):
    """A user's network that does something else in every step."""


@pytest.mark.parametrize(
    "backbone",
    [
        nn.Sequential(nn.AlphaDropout(), MLP(3)),
        nn.Sequential(MLP(3), nn.Dropout()),
        nn.Sequential(MLP(3), nn.BatchNorm1d(256)),
        Counting(3),
    ],
    ids=["noise", "dropout", "batch normalisation", "a user's own"],
)
def test_networks_that_are_not_recorded(backbone):
    assert not can_be_recorded(Network(backbone, ScoreHead(256, 4)))
    assert can_be_recorded(Network(nn.Sequential(nn.Identity(), MLP(3)), ScoreHead(256, 4)))


@on_gpu
@KINDS
def test_steps_recorded_on_a_gpu_change_nothing(monkeypatch, how):
    found = estimate("cuda", **how)
    monkeypatch.setattr(group, "can_be_recorded", lambda network: False)
    expected = estimate("cuda", **how)
    np.testing.assert_array_equal(found.history.loss, expected.history.loss)
    np.testing.assert_array_equal(found.tvd, expected.tvd)
