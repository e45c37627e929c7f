"""Choosing a network with batches: recognising the batch is no merit."""

import numpy as np
import pandas as pd
import pytest
import torch

from tests import selection_cases
from tests.checks import exactly
from tests.cli_cases import QUICK, read_csv, read_json, succeeds, unsplit
from tests.selection_cases import Column, layer, quick, ragged_donors, two_donors
from unsplit import ClusterMerger, InputError, TrainConfig, pairwise_tvd
from unsplit import selection as api
from unsplit.data.labels import EncodedLabels
from unsplit.errors import BatchWarning
from unsplit.networks.training.loop import history_of
from unsplit.pairwise.heldout_scores import scores_of, summarize

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
    assert np.array_equal(merger.pairwise_.scores.subclusters, best.scores.subclusters)


def test_the_table_is_as_without_batches():
    X, labels, donor = two_donors(40, 8)
    plain, within = (quick(SEEN, X, labels, batch=b, epochs=2) for b in (None, donor))
    assert list(within.table()) == list(plain.table())
    assert sorted(within.table()["candidate"]) == sorted(SEEN)


# --- A is the A of an estimate ----------


@pytest.fixture(scope="module")
def watched():
    """What A was measured on after every epoch, and what came out."""
    X, labels, donor = ragged_donors()
    seen, records = [], []

    def spy(networks, folds, rows, subclusters):
        found = measure(networks, folds, rows, subclusters)
        (network,), (fold,) = networks, folds
        names = np.arange(len(subclusters.cluster))
        z = network(rows.take(torch.from_numpy(fold.watch))).detach().numpy()
        scores = scores_of([network], rows, subclusters.of_rows, [fold.watch], names)
        seen.append((subclusters, fold, z, scores, found))
        return found

    measure = api.validation_accuracy
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api, "validation_accuracy", spy)
        tell = lambda _, record: records.append(record)  # noqa: E731
        with pytest.warns(BatchWarning) as caught:
            quick({"one": layer(8)}, X, labels, batch=donor, epochs=5, progress=tell)
    return (X, labels, donor), seen, records, caught


def naive_accuracy(subclusters, fold, z):
    """A from the scores of subclusters, written from the docs: pair by pair, batch by batch."""
    cell_of = {
        (c, b): i
        for i, (c, b) in enumerate(zip(subclusters.cluster, subclusters.batch, strict=True))
    }
    own = subclusters.of_rows[fold.watch]
    pairs = []
    for i in range(5):
        for j in range(i):
            accuracy, weights = [], []
            for b in range(subclusters.n_batches):
                both = [cell_of.get((i, b)), cell_of.get((j, b))]
                n = [int((own == cell).sum()) if cell is not None else 0 for cell in both]
                if min(n) == 0:
                    continue
                hits = []
                for mine, other in (both, both[::-1]):
                    margin = z[own == mine, mine] - z[own == mine, other]
                    hits.append(np.mean((margin > 0) + (margin == 0) / 2))
                accuracy.append(np.mean(hits))
                weights.append(n[0] * n[1] / sum(n))
            if weights:
                pairs.append(np.average(accuracy, weights=weights))
    assert len(pairs) == 9
    return np.mean(pairs)


def test_accuracy_is_counted_within_batches(watched):
    _, seen, records, _ = watched
    assert len(seen) == len(records) == 5
    for (subclusters, fold, z, _, found), record in zip(seen, records, strict=True):
        assert found[0] == record.accuracy
        assert found[0] == pytest.approx(naive_accuracy(subclusters, fold, z), abs=1e-12)
    assert len({record.accuracy for record in records}) > 1


def test_accuracy_is_that_of_an_estimate_by_the_same_network(watched):
    (_, labels, _), seen, records, _ = watched
    history = history_of(records, np.zeros(1, np.int64))
    for subclusters, _, _, scores, found in seen:
        clusters = subclusters.cluster[subclusters.of_rows]
        encoded = EncodedLabels(np.arange(5), clusters)
        result = summarize(scores, subclusters, history, encoded)
        assert result.mean_accuracy == pytest.approx(found[0], abs=1e-12)
        assert (~result.comparable).sum() == 2
        # The same partition, under other names.
        assert len(set(zip(clusters, labels, strict=True))) == 5


def test_the_same_are_held_out_as_in_an_estimate(watched):
    (X, labels, donor), seen, _, _ = watched
    how = {"cv": 0.2, "training": TrainConfig(epochs=1), "random_state": 0, "device": "cpu"}
    with pytest.warns(BatchWarning):
        result = pairwise_tvd(X, labels, batch=donor, **how)
    fold = seen[0][1]
    assert np.array_equal(np.sort(fold.watch), np.sort(result.scores.rows))
    assert len(np.union1d(fold.watch, fold.train)) == len(X)
    # Of every cluster in every batch, a fifth but at least one, and one stays in training.
    held = pd.crosstab(donor[fold.watch], labels[fold.watch])
    held = held.reindex(index=range(3), columns=range(5), fill_value=0)
    assert held.to_numpy().tolist() == [[4, 2, 2, 3, 0], [2, 5, 0, 0, 2], [3, 0, 4, 0, 2]]


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
    # Said before anything is trained.
    monkeypatch.setattr(api.Run, "prepare", lambda *_: pytest.fail("prepared"))
    with pytest.raises(InputError, match=exactly(sentence)):
        quick(SEEN, X, labels, batch=change(donor))


def test_a_warning_says_which_pairs_are_left_out(watched):
    (warning,) = watched[3]
    assert str(warning.message) == f"{NEVER_MEET} (3–4), so A leaves them out."
    assert warning.filename == selection_cases.__file__  # whoever called select


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
