"""Choosing a network with batches: recognising the batch is no merit."""

import numpy as np
import pandas as pd
import pytest

from tests import selection_cases
from tests.checks import exactly
from tests.cli_cases import QUICK, read_csv, read_json, succeeds, unsplit
from tests.selection_cases import Column, layer, quick, ragged_donors, two_donors
from unsplit import ClusterMerger, InputError, TrainConfig, pairwise_tvd
from unsplit.errors import BatchWarning
from unsplit.pairwise import api as estimates

SEEN = {"cluster": Column(0), "donor": Column(1)}
NEVER_MEET = "1 of 10 pairs of clusters share no batch with at least two observations of each"


def without_seconds(selection):
    table = selection.table()
    table.pop("seconds")
    return pd.DataFrame(table)


# --- what it is for ----------


def test_a_network_that_only_sees_the_batch_wins_without_batches_and_loses_with_them():
    X, labels, donor = two_donors()
    plain, within = quick(SEEN, X, labels), quick(SEEN, X, labels, batch=donor)
    assert (plain.name, within.name) == ("donor", "cluster")
    assert plain.trials[0].mean_accuracy > 0.75
    # Within a donor, the column of donors is the same everywhere: exactly a coin toss.
    best, other = (trial.mean_accuracy for trial in within.trials)
    assert other == pytest.approx(0.5, abs=1e-12)
    assert best > 0.6


def test_settings_are_those_of_an_estimate_within_batches():
    X, labels, donor = two_donors()
    chosen = quick(SEEN, X, labels, batch=donor)
    how = {"cv": 2, "random_state": 0, "device": "cpu"}
    best = pairwise_tvd(X, labels, batch=donor, **chosen.settings, **how)
    other = pairwise_tvd(X, labels, batch=donor, backbone=SEEN["donor"], **how)
    assert best.mean_accuracy > other.mean_accuracy + 0.1
    merger = ClusterMerger(n_clusters=2, **chosen.settings, **how)
    merger.fit(X, initial_labels=labels, batch=donor)
    assert np.array_equal(merger.pairwise_.scores.batch_sizes, best.scores.batch_sizes)


def test_the_table_is_as_without_batches():
    X, labels, donor = two_donors(40, 8)
    plain, within = (quick(SEEN, X, labels, batch=b, epochs=2) for b in (None, donor))
    assert list(within.table()) == list(plain.table())
    assert sorted(within.table()["candidate"]) == sorted(SEEN)


# --- A is the A of an estimate ----------


def test_accuracy_is_that_of_an_estimate_that_holds_out_the_same():
    X, labels, donor = ragged_donors()
    config = TrainConfig(epochs=5)
    with pytest.warns(BatchWarning, match=NEVER_MEET) as caught:
        (trial,) = quick({"one": layer(8)}, X, labels, batch=donor, epochs=5).trials
    assert len(caught) == 1
    assert caught[0].filename == selection_cases.__file__  # whoever called select
    seed = int(np.random.default_rng(0).integers(2**62))
    how = {"backbone": layer(8), "training": config, "cv": 0.2, "device": "cpu"}
    with pytest.warns(BatchWarning):
        result = pairwise_tvd(X, labels, batch=donor, random_state=seed, **how)
    assert trial.mean_accuracy == result.mean_accuracy


def test_whole_groups_are_held_out():
    X, labels, donor = two_donors(60, 12)
    groups = donor * 100 + np.arange(len(X)) // 3
    plain, grouped = (quick(SEEN, X, labels, groups=g, epochs=2) for g in (None, groups))
    assert sorted(trial.name for trial in grouped.trials) == sorted(SEEN)
    assert grouped.trials[0].mean_accuracy != plain.trials[0].mean_accuracy


def test_a_warning_about_the_data_is_given_once():
    X, labels, donor = ragged_donors()
    with pytest.warns(BatchWarning) as caught:
        quick({"small": layer(4), "large": layer(16)}, X, labels, batch=donor, epochs=2)
    assert len(caught) == 1


# --- what must not matter ----------


def test_order_and_names_do_not_matter():
    X, labels, donor = ragged_donors()
    order = np.random.default_rng(3).permutation(len(X))
    names, runs = np.array(list("ebdac")), np.array(["run 7", "run 9", "run 1"])
    candidates = {"small": layer(4), "large": layer(16)}
    with pytest.warns(BatchWarning):
        first = quick(candidates, X, labels, batch=donor, epochs=4)
    backwards = dict(reversed(candidates.items()))
    with pytest.warns(BatchWarning):
        again = quick(backwards, X[order], names[labels[order]], batch=runs[donor[order]], epochs=4)
    pd.testing.assert_frame_equal(without_seconds(again), without_seconds(first), check_exact=True)


def test_one_batch_is_none():
    X, labels, _ = two_donors(40, 8)
    plain = quick(SEEN, X, labels, epochs=3)
    one = quick(SEEN, X, labels, batch=np.full(len(X), "ann"), epochs=3)
    pd.testing.assert_frame_equal(without_seconds(one), without_seconds(plain), check_exact=True)


def test_noise_needs_no_batch():
    X, labels, donor = two_donors(40, 8)
    expected = quick(SEEN, X, labels, batch=donor, epochs=3)
    noisy = np.vstack([X, X[:2] + 9]), np.append(labels, [-1, -1])
    found = quick(SEEN, *noisy, batch=[*donor, 7, None], epochs=3)
    pd.testing.assert_frame_equal(without_seconds(found), without_seconds(expected))


# --- bad input ----------

BAD = {
    "short": (
        lambda donor: donor[:-1],
        "X has 80 observations but batch has 79; pass one batch for each row of X.",
    ),
    "missing": (
        lambda donor: [None, *map(str, donor[1:])],
        "batch is missing (-1, NaN or empty) for 1 of 80 observations, the first in row 0; fill it "
        "in, or set their labels to -1 (noise).",
    ),
    "by cluster": (
        lambda donor: np.repeat([0, 1], 40),
        "no two clusters share a batch with at least two observations of each, so no pair can be "
        "compared within a batch; leave batch out, or use batches that clusters share.",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_batches_get_one_clear_sentence(case, monkeypatch):
    X, labels, donor = two_donors(40, 8)
    change, sentence = BAD[case]
    # Before anything is trained.
    monkeypatch.setattr(estimates, "build_network", lambda *_: pytest.fail("built"))
    with pytest.raises(InputError, match=exactly(sentence)):
        quick(SEEN, X, labels, batch=change(donor))


# --- commands ----------


@pytest.fixture
def table(tmp_path, monkeypatch):
    """data.csv with two features, clusters and donors."""
    monkeypatch.chdir(tmp_path)
    X, labels, donor = ragged_donors()
    frame = pd.DataFrame({"x": X[:, 0], "y": X[:, 1], "cluster": labels, "donor": donor})
    frame.to_csv("data.csv", index=False)
    return X, labels, donor


@pytest.mark.parametrize(
    ("command", "result"), [("distances", "distances.json"), ("merge", "result.json")]
)
def test_commands_pass_batches_on(table, command, result):
    X, labels, donor = table
    where = ("data.csv", "--labels", "cluster", "--batch", "donor", "--out", "out", "--seed", 3)
    succeeds(unsplit(command, *where, *QUICK, "--backbone", "select"))
    with pytest.warns(BatchWarning):
        expected = quick(None, X, labels, batch=donor, epochs=3, random_state=3)
    found = read_csv("out/candidates.csv")
    assert found["candidate"] == [trial.name for trial in expected.trials]
    accuracy = [trial.mean_accuracy for trial in expected.trials]
    assert [float(value) for value in found["mean_accuracy"]] == pytest.approx(accuracy, abs=1e-9)
    # Said once, and in the words of the estimate, which is what people read.
    (warning,) = (w for w in read_json(f"out/{result}")["warnings"] if "share no batch" in w)
    assert warning.endswith("their TVD and p-value are set to 1, and their n_batches to 0.")
