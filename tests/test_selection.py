"""Choosing a network without ground truth: what is tried, failures, invariances."""

import io
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from tests.selection_cases import layer, quick, rings, xor
from unsplit import ClusterMerger, TrainConfig, pairwise_tvd, select
from unsplit.datasets import gaussians
from unsplit.errors import SmallClusterWarning
from unsplit.networks.registry import DEEP, VECTORS
from unsplit.networks.training.loop import MAX_EPOCHS
from unsplit.selection import Candidate, named, usual_candidates

COLUMNS = [
    "candidate", "backbone", "augment", "learning_rate", "weight_decay", "batch_size", "epochs",
    "mean_accuracy", "seconds", "why",
]  # fmt: skip


CANDIDATES = {
    "line": nn.Identity(),
    "narrow": layer(3),
    "slow": Candidate(layer(32), TrainConfig(learning_rate=3e-4)),
    "dropout": layer(32, nn.Dropout(0.2)),
    "mlp": "mlp",
}


@pytest.fixture(scope="module")
def chosen_of_five():
    """A selection and the course of every candidate."""
    X, labels = rings()
    curves = {name: [] for name in CANDIDATES}
    chosen = quick(CANDIDATES, X, labels, progress=lambda name, r: curves[name].append(r))
    return X, labels, chosen, curves


def test_each_candidate_is_an_estimate_of_its_own(chosen_of_five):
    _, _, chosen, curves = chosen_of_five
    for trial in chosen.trials:
        assert len(curves[trial.name]) == trial.epochs
        assert VECTORS.patience < trial.epochs
    best = chosen.trials[0].mean_accuracy
    assert best > {trial.name: trial.mean_accuracy for trial in chosen.trials}["line"] + 0.3


def test_settings_are_those_of_an_estimate(chosen_of_five):
    X, labels, chosen, _ = chosen_of_five
    how = {"cv": 2, "random_state": 0, "device": "cpu"}
    best = pairwise_tvd(X, labels, **chosen.settings, **how)
    line = pairwise_tvd(X, labels, backbone=nn.Identity(), **how)
    assert best.mean_accuracy > line.mean_accuracy + 0.3


def test_settings_are_what_was_given_for_all_and_for_the_candidate():
    X, labels = xor(10)
    plain = quick(["mlp"], X, labels, epochs=1)
    assert plain.settings == {"backbone": "mlp", "training": TrainConfig(epochs=1)}
    slower = Candidate("mlp", TrainConfig(augment=False, learning_rate=0.01))
    expected = TrainConfig(epochs=1, augment=False, learning_rate=0.01)
    found = quick([slower], X, labels, epochs=1).settings
    assert found == {"backbone": "mlp", "training": expected}


def test_without_candidates_the_usual_ones_are_tried():
    X, labels = xor(10)
    selection = select(X, labels, training=TrainConfig(epochs=1), random_state=0, device="cpu")
    names = {str(candidate) for candidate in usual_candidates()}
    assert {trial.name for trial in selection.trials} == names
    frame = selection.to_frame()
    assert frame["candidate"].tolist() == [trial.name for trial in selection.trials]
    assert list(frame) == list(selection.table())


def test_a_merger_takes_the_settings():
    X, labels = xor(10)
    found = quick([Candidate("mlp", TrainConfig(learning_rate=0.01))], X, labels, epochs=2)
    merger = ClusterMerger(2, **found.settings, cv=2, device="cpu", random_state=0)
    assert merger.fit(X, initial_labels=labels).n_iter_ == 2


def test_what_a_candidate_does_not_vary_is_what_suits_the_backbone():
    assert TrainConfig().over(DEEP) == DEEP
    assert TrainConfig(learning_rate=0.01).over(DEEP) == replace(DEEP, learning_rate=0.01)
    varied = TrainConfig(weight_decay=0.0, batch_size=8).over(DEEP)
    assert varied == replace(DEEP, weight_decay=0.0, batch_size=8)


def test_table_has_a_row_for_every_candidate_best_first(chosen_of_five):
    table = chosen_of_five[2].table()
    assert list(table) == COLUMNS
    frame = pd.DataFrame(table)
    assert sorted(frame["candidate"]) == sorted(CANDIDATES)
    assert frame["candidate"][0] == chosen_of_five[2].name
    assert chosen_of_five[2].best is chosen_of_five[2].trials[0].candidate
    assert (frame["mean_accuracy"][0] >= frame["mean_accuracy"]).all()
    assert frame["why"][0] == "the highest A"
    rates = dict(zip(frame["candidate"], frame["learning_rate"], strict=True))
    assert (rates["slow"], rates["mlp"]) == (3e-4, VECTORS.learning_rate)
    backbones = dict(zip(frame["candidate"], frame["backbone"], strict=True))
    assert (backbones["line"], backbones["mlp"]) == ("Identity", "mlp")
    assert (frame["seconds"] > 0).all()


def test_why_a_candidate_is_not_the_best(chosen_of_five):
    best, *others = chosen_of_five[2].trials
    for trial in others:
        assert trial.why == f"A is {best.mean_accuracy - trial.mean_accuracy:.3f} lower"


def test_the_report_shows_all(chosen_of_five):
    lines = repr(chosen_of_five[2]).splitlines()
    assert lines[0] == f"Selection: {chosen_of_five[2].name}, the best of 5"
    assert [line.split("  ")[2].split(" (")[0] for line in lines[1:]] == [
        trial.name for trial in chosen_of_five[2].trials
    ]


def without_seconds(selection):
    table = selection.table()
    table.pop("seconds")
    return pd.DataFrame(table)


def test_same_seed_same_choice_in_any_order_of_candidates_and_rows(chosen_of_five):
    X, labels, chosen, _ = chosen_of_five
    backwards = dict(reversed(CANDIDATES.items()))
    shuffled = np.random.default_rng(0).permutation(len(X))
    again = quick(backwards, X[shuffled], np.array(list("dbca"))[labels][shuffled])
    pd.testing.assert_frame_equal(without_seconds(again), without_seconds(chosen))


def test_another_seed_holds_out_others():
    X, labels = gaussians([[0, 0], [1, 0]], 60)
    first, second = (quick(["mlp"], X, labels, epochs=2, random_state=s) for s in (0, 1))
    assert first.trials[0].mean_accuracy != second.trials[0].mean_accuracy


def test_of_equals_the_smaller_network_is_taken():
    X, labels = gaussians([[0, 0], [50, 0], [0, 50]], 20)
    candidates = {"a": layer(64), "b": layer(8), "c": layer(32)}
    chosen = quick(candidates, X, labels)
    assert [trial.mean_accuracy for trial in chosen.trials] == [1.0, 1.0, 1.0]
    assert chosen.name == "b"


def test_one_candidate_is_trained_to_its_end():
    X, labels = xor(20)
    (trial,) = quick(["auto"], X, labels).trials
    assert (trial.name, trial.backbone) == ("auto", "mlp")
    assert VECTORS.patience < trial.epochs < MAX_EPOCHS
    assert trial.mean_accuracy > 0.8


def pictures():
    """Two clusters of small images, brighter at the top and at the bottom."""
    labels = np.repeat([0, 1], 30)
    X = np.random.default_rng(0).integers(0, 150, (60, 6, 6)).astype(np.uint8)
    X[labels == 1, :3] += 50
    return X, labels


def convolution():
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten())


KINDS = {
    "a": "mlp",
    "b": "mlp",
    "c": convolution,
    "d": Candidate(convolution, TrainConfig(augment=False)),
}


def test_candidates_for_several_kinds_of_data_are_compared():
    table = quick(KINDS, *pictures(), epochs=2).table()
    words = dict(zip(table["candidate"], table["augment"], strict=True))
    assert words == {"a": "auto", "b": "auto", "c": "auto", "d": "none"}
    assert np.isfinite(table["mean_accuracy"]).all()


def test_noise_is_left_out_and_clusters_of_one_are_not_held_out():
    X, labels = xor(20)
    labels[:10], labels[10] = -1, 7
    with pytest.warns(SmallClusterWarning):
        (trial,) = quick(["mlp"], X, labels, epochs=2).trials
    with pytest.warns(SmallClusterWarning):
        (without,) = quick(["mlp"], X[10:], labels[10:], epochs=2).trials
    assert trial.mean_accuracy == without.mean_accuracy


def test_networks_of_others_and_the_global_random_state_are_left_alone():
    X, labels = xor(20)
    module = nn.Sequential(nn.Linear(2, 4), nn.Dropout(0.5))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    torch.manual_seed(7)
    state = torch.random.get_rng_state()
    quick([module], X, labels, epochs=2)
    assert torch.equal(torch.random.get_rng_state(), state)
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])


def test_bar_only_when_asked_for(monkeypatch):
    X, labels = xor(10)
    shown = io.StringIO()
    monkeypatch.setattr("sys.stderr", shown)
    quick(["mlp"], X, labels, epochs=1)
    assert shown.getvalue() == ""
    quick(["mlp"], X, labels, epochs=1, progress=True)
    assert "selecting" in shown.getvalue()


def test_names_say_what_candidates_are():
    small = Candidate("mlp", TrainConfig(augment=False, batch_size=64))
    given = ["mlp", nn.Identity(), xor, small, nn.Identity()]
    names = [name for name, _ in named(given)]
    assert names == ["mlp", "Identity", "xor", "mlp, augment none, batch_size 64", "Identity (2)"]
