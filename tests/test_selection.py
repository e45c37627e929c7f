"""Choosing a network without ground truth: halving, failures, invariances."""

import io
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from tests.selection_cases import layer, quick, rings, xor
from unsplit import ClusterMerger, InputError, TrainConfig, pairwise_tvd, select
from unsplit import selection as api
from unsplit.datasets import gaussians
from unsplit.networks.registry import DEEP
from unsplit.networks.training.loop import MAX_EPOCHS, TOLERANCE, USUAL
from unsplit.selection import Candidate, named, usual_candidates

COLUMNS = [
    "candidate", "backbone", "augment", "learning_rate", "weight_decay", "batch_size", "epochs",
    "mean_accuracy", "round", "seconds", "why",
]  # fmt: skip


CANDIDATES = {
    "line": nn.Identity(),
    "narrow": layer(3),
    "slow": Candidate(layer(32), TrainConfig(learning_rate=3e-4)),
    "dropout": layer(32, nn.Dropout(0.2)),
    "mlp": "mlp",
}


@pytest.fixture(scope="module")
def halved():
    """A selection and the course of every candidate."""
    X, labels = rings()
    curves = {name: [] for name in CANDIDATES}
    chosen = quick(CANDIDATES, X, labels, progress=lambda name, r: curves[name].append(r))
    return X, labels, chosen, curves


@pytest.fixture(scope="module")
def full(halved):
    """Every candidate trained alone until it ends by itself: A after every epoch."""
    X, labels, *_ = halved
    curves = {name: [] for name in CANDIDATES}
    for name, candidate in CANDIDATES.items():
        tell = lambda name, record: curves[name].append(record.accuracy)  # noqa: E731
        quick({name: candidate}, X, labels, progress=tell)
    return curves


def best_so_far(curve):
    best = -np.inf
    for accuracy in curve:
        best = accuracy if accuracy > best + TOLERANCE else best
    return best


def naive_halving(curves, budget):
    """From full courses: epochs, last round and A of every candidate, written from the rule."""
    alive, found = list(curves), {}
    for turn in range(1, 100):
        for name in alive:
            seen = curves[name][:budget]
            found[name] = (len(seen), turn, best_so_far(seen))
        if all(len(curves[name]) <= budget for name in alive):
            return found
        alive = sorted(alive, key=lambda name: -found[name][2])[: max(2, math.ceil(len(alive) / 2))]
        budget *= 2


def test_rounds_are_those_of_the_rule_and_training_goes_on_from_where_it_was(halved, full):
    # 192 rows in training are ten steps an epoch, and the first round has at least 100 steps.
    expected = naive_halving(full, budget=10)
    assert len({turn for _, turn, _ in expected.values()}) > 1
    trials = {trial.name: trial for trial in halved[2].trials}
    for name, (epochs, turn, accuracy) in expected.items():
        assert (trials[name].epochs, trials[name].round) == (epochs, turn)
        assert trials[name].mean_accuracy == accuracy
        # Also with dropout the course is the one it has alone.
        assert [record.accuracy for record in halved[3][name]] == full[name][:epochs]
        assert [record.epoch for record in halved[3][name]] == list(range(epochs))


def test_the_first_round_has_four_epochs_and_a_hundred_steps_for_all():
    X, labels = xor(40)
    small = [
        Candidate(layer(4), TrainConfig(learning_rate=r, batch_size=4)) for r in (1e-2, 1e-3, 1e-5)
    ]
    # 32 steps an epoch: one of three is dropped after four epochs, the others go on.
    assert sorted(trial.epochs for trial in quick(small, X, labels, epochs=5).trials) == [4, 5, 5]
    # Ten steps an epoch of the fourth: five epochs are not yet enough to drop anyone.
    trials = quick([*small, layer(4)], X, labels, epochs=5).trials
    assert [(trial.epochs, trial.round) for trial in trials] == [(5, 1)] * 4


def test_the_last_two_train_to_their_end(halved, full):
    two = {name: CANDIDATES[name] for name in ("slow", "dropout")}
    assert all(len(full[name]) > 10 for name in two)  # longer than the first round
    trials = quick(two, *halved[:2]).trials
    assert {trial.name: trial.epochs for trial in trials} == {n: len(full[n]) for n in two}


def test_the_winner_is_the_best_in_a_full_run(halved, full):
    final = {name: best_so_far(curve) for name, curve in full.items()}
    assert halved[2].name == max(final, key=final.get)
    assert final[halved[2].name] > final["line"] + 0.3


def test_settings_are_those_of_an_estimate(halved):
    X, labels, chosen, _ = halved
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


def test_table_has_a_row_for_every_candidate_best_first(halved):
    table = halved[2].table()
    assert list(table) == COLUMNS
    frame = pd.DataFrame(table)
    assert sorted(frame["candidate"]) == sorted(CANDIDATES)
    assert frame["candidate"][0] == halved[2].name
    assert halved[2].best is halved[2].trials[0].candidate
    assert (frame["mean_accuracy"][0] >= frame["mean_accuracy"]).all()
    assert frame["why"][0] == "the highest A"
    assert (np.diff(frame["round"]) <= 0).all()
    rates = dict(zip(frame["candidate"], frame["learning_rate"], strict=True))
    assert (rates["slow"], rates["mlp"]) == (3e-4, USUAL.learning_rate)
    backbones = dict(zip(frame["candidate"], frame["backbone"], strict=True))
    assert (backbones["line"], backbones["mlp"]) == ("Identity", "mlp")
    assert (frame["seconds"] > 0).all()


def test_why_a_candidate_was_dropped(halved):
    *dropped, last = sorted(halved[2].trials, key=lambda trial: trial.round)
    dropped = [trial for trial in dropped if trial.round < last.round]
    assert dropped
    for trial in dropped:
        n_kept = 3 if trial.round == 1 else 2
        assert trial.why == f"not among the best {n_kept} after {trial.epochs} epochs"
    assert halved[2].trials[1].why == "no higher A at the end of training"


def test_the_report_shows_all(halved):
    lines = repr(halved[2]).splitlines()
    assert lines[0] == f"Selection: {halved[2].name}, the best of 5"
    assert [line.split("  ")[2].split(" (")[0] for line in lines[1:]] == [
        trial.name for trial in halved[2].trials
    ]


def without_seconds(selection):
    table = selection.table()
    table.pop("seconds")
    return pd.DataFrame(table)


def test_same_seed_same_choice_in_any_order_of_candidates_and_rows(halved):
    X, labels, chosen, _ = halved
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
    assert TrainConfig.patience < trial.epochs < MAX_EPOCHS
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


def test_kinds_of_data_are_made_once_each(monkeypatch):
    made = []

    def spy(X, device, kind=None):
        rows = observations(X, device, kind)
        made.append(rows.kind)
        return rows

    observations = api.observations
    monkeypatch.setattr(api, "observations", spy)
    chosen = quick(KINDS, *pictures(), epochs=2)
    assert made == ["images", "vectors"]
    assert all(trial.round == 1 for trial in chosen.trials)
    table = chosen.table()
    words = dict(zip(table["candidate"], table["augment"], strict=True))
    assert words == {"a": "auto", "b": "auto", "c": "auto", "d": "none"}


def test_all_kinds_hold_out_the_same_in_any_order_of_candidates(monkeypatch):
    problems = []

    def spy(run, rows, subclusters, fold, *_):
        problems.append((rows.kind, subclusters.of_rows, fold))
        raise InputError("Seen.")

    monkeypatch.setattr(api.Run, "prepare", spy)
    for candidates in (["mlp", "resnet18"], ["resnet18", "mlp"]):
        with pytest.raises(InputError, match="Seen"):
            quick(candidates, *pictures())
    assert [kind for kind, *_ in problems] == ["vectors", "images", "images", "vectors"]
    for _, clusters, fold in problems:
        assert np.array_equal(fold.test, problems[0][2].test)
        assert np.array_equal(clusters, problems[0][1])
        assert len(fold.test) == 12
        assert len(np.union1d(fold.test, fold.train)) == 60


def test_noise_is_left_out_and_clusters_of_one_are_not_held_out():
    X, labels = xor(20)
    labels[:10], labels[10] = -1, 7
    (trial,) = quick(["mlp"], X, labels, epochs=2).trials
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
