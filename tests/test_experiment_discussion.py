"""Experiment "discussion": its parts on small data, and what is made of their numbers."""

import itertools
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import rankdata

import unsplit
from experiments.core import Setting, name_of
from experiments.discussion import run as discussion
from experiments.discussion.claims import claims
from experiments.discussion.config import MEASURED, Size
from experiments.discussion.merging import agreement, run_merging, run_spectral
from experiments.discussion.overclusterings import GREEDY, Problem, problem
from experiments.discussion.summary import correlation, in_words, where
from experiments.discussion.tables import table
from experiments.discussion.training import NEVER, run_choosing, run_stopping
from unsplit import InputError
from unsplit.pairwise import api as estimates

TINY = Size(3, 20, 10)


@pytest.fixture(scope="module")
def six_clusters():
    return problem(("digits", "noise 0.3"), TINY, 0, None)


# --- over-clusterings -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clusters", "n_clusters", "n_clustered"),
    [("noise 0.3", 6, 60), ("k-means", 6, 60), ("greedy", GREEDY, 10 * GREEDY)],
)
def test_clusters_are_drawn_by_the_seed(clusters, n_clusters, n_clustered):
    one, same, other = (problem(("digits", clusters), TINY, seed, None) for seed in (0, 0, 1))
    assert len(np.unique(one.labels[one.labels >= 0])) == n_clusters
    assert (one.labels >= 0).sum() == n_clustered
    assert len(np.unique(one.categories)) == 3
    assert np.array_equal(one.labels, same.labels)
    assert not np.array_equal(one.X[:9], other.X[:9])


def test_digits_as_images_are_the_same_digits(six_clusters):
    images = problem(("digit images", "noise 0.3"), TINY, 0, None)
    assert images.X.shape == (60, 8, 8, 1)
    assert np.array_equal(images.X.reshape(60, 64), six_clusters.X)
    assert np.array_equal(images.labels, six_clusters.labels)


def test_features_and_categories_come_from_the_folder(tmp_path):
    names = [f"train/n0{category}/{i}.JPEG" for category in (2, 1) for i in range(4)]
    with zipfile.ZipFile(tmp_path / "tiny-imagenet-60.zip", "w") as archive:
        archive.writestr("words.txt", "")
        for name in names:
            archive.writestr(name, "")
    np.save(tmp_path / "tiny-imagenet-60.sscd64.npy", np.arange(16, dtype=np.float16).reshape(8, 2))
    found = problem(("imagenet", "noise 0.0"), Size(2, 3, 2), 0, tmp_path)
    assert found.X.shape == (6, 2)
    assert all(
        (category == "n02") == (x < 8)
        for x, category in zip(found.X[:, 0], found.categories, strict=True)
    )


def test_missing_files_are_named(tmp_path):
    with pytest.raises(
        InputError,
        match=r"needs tiny-imagenet-60.sscd64.npy and tiny-imagenet-60.zip; name the folder",
    ):
        problem(("imagenet", "greedy"), TINY, 0, tmp_path)


# --- merging --------------------------------------------------------------------------------------


def pair_counting_ari(a, b):
    """From the definition: pairs that are together in both, against what chance would give."""
    pairs = list(itertools.combinations(range(len(a)), 2))
    in_a = np.array([a[i] == a[j] for i, j in pairs])
    in_b = np.array([b[i] == b[j] for i, j in pairs])
    chance = in_a.sum() * in_b.sum() / len(pairs)
    return ((in_a & in_b).sum() - chance) / ((in_a.sum() + in_b.sum()) / 2 - chance)


def test_agreement_is_that_of_clustered_observations():
    rng = np.random.default_rng(0)
    labels, categories = rng.integers(-1, 5, 40) * 10, rng.integers(0, 3, 40)
    groups = np.array([0, 1, 0, 2, 1])
    used = labels >= 0
    expected = pair_counting_ari(categories[used], groups[labels[used] // 10])
    given = Problem(np.zeros((40, 1)), categories, labels, {})
    assert agreement(given, groups) == pytest.approx(expected)


def test_spectral_part_has_every_statistic_both_ways(six_clusters):
    found = run_spectral(six_clusters, 0, "cpu", 2)
    assert found["k"] == 6
    assert found["groups"] == 3
    assert (
        set(found["ARI"]["linkage"]) == set(found["ARI"]["spectral"]) == {"tv", "lecam", "overlap"}
    )
    assert 0 < found["CPU seconds of A"] < found["CPU seconds"]


@pytest.mark.parametrize("strategy", MEASURED)
def test_every_training_is_counted(strategy, monkeypatch):
    given = problem(("digits", "noise 0.3"), Size(2, 20, 10), 0, None)
    trainings = []

    def counting(*arguments, **named):
        trainings.append(1)
        return training(*arguments, **named)

    training = estimates.Training
    monkeypatch.setattr(estimates, "Training", counting)
    found = run_merging(given, strategy, 0, "cpu", 2)
    assert found["trainings"] == (2 if strategy == "paper" else len(trainings))
    assert len(trainings) == 1
    assert (found["groups"], found["merges"]) == (2, 2)
    assert 0 <= found["correct"] <= 2
    assert found["purity"] == pytest.approx(0.7)


def test_one_distribution_in_pieces_is_merged_right_by_all_ways():
    rng = np.random.default_rng(0)
    categories = np.repeat([0, 1], 40)
    X = rng.normal(size=(80, 2)) + 9 * categories[:, None]
    given = Problem(X, categories, np.repeat(np.arange(4), 20), {})
    for strategy in ("linkage", "paper"):
        found = run_merging(given, strategy, 0, "cpu", 30)
        assert (found["correct"], found["merges"], found["ARI"]) == (2, 2, 1.0)


# --- training -------------------------------------------------------------------------------------


def test_fixed_lengths_are_kept_to_and_a_ends_the_other(six_clusters):
    found = run_stopping(six_clusters, "paper", (1, 12), 0, "cpu", 50)
    assert [one["epochs run"] for one in found["fixed"]] == [1, 12]
    assert found["epochs run"] < 50
    result = unsplit.pairwise_tvd(
        six_clusters.X, six_clusters.labels, cv=0.2, device="cpu", random_state=0,
        training=replace(six_clusters.training, epochs=12, loss="pairwise", least_steps=NEVER),
    )  # fmt: skip
    assert result.history.kept_epoch.tolist() == [11]
    assert found["fixed"][1]["A"] == result.mean_accuracy


def test_highest_a_is_chosen_and_what_cannot_be_trained_is_said(six_clusters):
    found = run_choosing(six_clusters, "learning rate", (1e-3, 1e30, 1e-1), 0, "cpu", 3)
    able = {t["value"]: t["A"] for t in found["tried"] if "A" in t}
    assert set(able) == {1e-3, 1e-1}
    assert found["A"] == able[found["chosen"]] == max(able.values())
    assert "loss became" in found["tried"][1]["failed"]
    assert found["searched"] in able


def test_networks_can_be_chosen(six_clusters):
    found = run_choosing(six_clusters, "network", ("single-layer", "usual"), 0, "cpu", 2)
    one, other = found["tried"]
    assert one["A"] != other["A"]
    assert "searched" not in found


# --- trials ---------------------------------------------------------------------------------------


def test_trials_are_small_and_those_that_need_files_come_last():
    trials = discussion.trials(quick=False)
    assert len({name_of(trial) for trial in trials}) == len(trials)
    needs = [trial["data"] == "imagenet" for trial in trials]
    assert needs == sorted(needs)
    assert any(needs)
    assert all(discussion.minutes(trial) <= 2 for trial in trials)
    assert sum(map(discussion.minutes, trials)) < 20


def test_a_trial_leads_to_its_part():
    trial = {
        "part": "stopping",
        "data": "digits",
        "clusters": "noise 0.3",
        "s": 10,
        "estimator": "paper",
        "seed": 0,
    }
    assert trial in discussion.trials(quick=True)
    found = discussion.run(trial, Setting(None, "cpu", quick=True))
    assert [one["epochs run"] for one in found["fixed"]] == [1, 4]


# --- what is made of the numbers ------------------------------------------------------------------


def outcome(a, one_minus_q, **more):
    return {
        "A": a,
        "1-Q": {"tv": one_minus_q, "lecam": one_minus_q / 2},
        "CPU seconds": 1.0,
        **more,
    }


def stopped(clusters, course, reached, seed=0):
    """``course`` has A and 1 − Q after 5, 10, … epochs."""
    fixed = [outcome(*point, **{"epochs run": 5 * 2**i}) for i, point in enumerate(course)]
    where = {"part": "stopping", "data": "digits", "clusters": clusters, "estimator": "paper"}
    return where | outcome(0.9, reached, fixed=fixed, **{"epochs run": 12}) | {"seed": seed}


def chosen(clusters, setting, points):
    """``points`` has value, A and 1 − Q; the first is what A chose."""
    tried = [outcome(a, q, value=value) for value, a, q in points] + [{"value": 9.0, "failed": "x"}]
    where = {"part": "choosing", "data": "digits", "clusters": clusters, "setting": setting}
    return where | outcome(*points[0][1:]) | {"seed": 0, "chosen": points[0][0], "tried": tried}


def merged(strategy, correct, seconds):
    return {
        "part": "merging", "data": "digits", "clusters": "noise 0.3", "strategy": strategy,
        "seed": 0, "k": 20, "groups": 10, "merges": 10, "correct": correct, "ARI": correct / 10,
        "trainings": 19, "CPU seconds": seconds,
    }  # fmt: skip


def grouped(linkage, spectral, price_of_a=0.001):
    names = ("tv", "lecam", "overlap")
    ways = {"linkage": linkage, "spectral": spectral}
    scores = {way: dict.fromkeys(names, value) for way, value in ways.items()}
    return {
        "part": "spectral", "data": "imagenet", "clusters": "greedy", "seed": 0, "k": 20,
        "purity": 0.875,
        "highest ARI": 0.8, "ARI": scores,
        "CPU seconds": 2.0, "CPU seconds of A": price_of_a,
    }  # fmt: skip


def verdicts(results):
    return [claim.verdict for claim in claims(results)]


FOLLOWS, COST, ENDS, RATE, MOMENTUM, NETWORK, SPECTRAL, CHEAPER = range(8)
RISING = [(0.7, 0.4), (0.8, 0.2), (0.9, 0.1)]
TURNED = [(0.9, 0.1), (0.8, 0.2), (0.7, 0.4)]
AGAINST = [(0.7, 0.1), (0.8, 0.2), (0.9, 0.4)]


def test_nothing_measured_is_said_to_be_so():
    assert verdicts([]) == ["not measured"] * 8
    assert table([]) == ""


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (RISING, TURNED, "reproduced"),
        (RISING, AGAINST, "changed"),
        (AGAINST, AGAINST, "not reproduced"),
    ],
)
def test_whether_q_follows_a(first, second, expected):
    found = claims([stopped("noise 0.3", first, 0.1), stopped("k-means", second, 0.1)])[FOLLOWS]
    assert found.verdict == expected
    word = "1.00" if second is TURNED else "-1.00"
    assert f"digits by k-means {word}; with Q of lecam" in found.ours


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [(0.12, 0.12, "reproduced"), (0.12, 0.13, "changed"), (0.13, 0.13, "not reproduced")],
)
def test_whether_a_ends_training_well(first, second, expected):
    results = [stopped("noise 0.3", TURNED, first), stopped("k-means", TURNED, second)]
    found = claims(results)[ENDS]
    assert found.verdict == expected
    assert f"best fixed length: digits {first / 0.1:.2f}, digits by k-means" in found.ours
    assert f"over that of 20 epochs: digits {first / 0.4:.2f}" in found.ours
    assert "would have risen" not in found.ours


def test_training_that_ended_too_early_is_named():
    results = [
        stopped("noise 0.3", [(0.8, 0.2), (0.95, 0.1)], 0.2),
        stopped("k-means", TURNED, 0.1),
    ]
    assert claims(results)[ENDS].ours.endswith("would have risen further by: digits 0.050.")


def test_the_best_length_is_best_on_the_mean_of_the_seeds():
    first = stopped("noise 0.3", [(0.8, 0.0), (0.8, 0.1)], 0.1)
    second = stopped("noise 0.3", [(0.8, 0.4), (0.8, 0.1)], 0.1, seed=1)
    found = claims([first, second])[ENDS]
    assert "best fixed length: digits 1.00" in found.ours
    assert found.verdict == "reproduced"


def test_perfect_distances_are_no_division_by_zero():
    flat = [(0.8, 0.0), (0.7, 0.0)]
    assert verdicts([stopped("noise 0.3", flat, 0.0)])[ENDS] == "reproduced"
    assert verdicts([stopped("noise 0.3", flat, 0.1)])[ENDS] == "not reproduced"


@pytest.mark.parametrize(
    ("chosen_error", "expected"), [(0.11, "reproduced"), (0.2, "not reproduced")]
)
def test_what_the_choice_of_a_costs(chosen_error, expected):
    for setting, place in (("learning rate", RATE), ("network", NETWORK)):
        tried = [(1e-3, 0.9, chosen_error), (1e-2, 0.8, 0.1), (1e-1, 0.7, 0.3)]
        found = claims([chosen("noise 0.3", setting, tried)])
        assert found[place].verdict == expected
        assert f"choice: digits {chosen_error - 0.1:.3f}; by the worst choice: digits 0.200" in (
            found[place].ours
        )
        assert found[MOMENTUM].verdict == "not measured"


def test_spectral_and_merging_claims():
    assert verdicts([grouped(0.5, 0.5)])[SPECTRAL] == "reproduced"
    assert verdicts([grouped(0.5, 0.4)])[SPECTRAL] == "not reproduced"
    assert "tv 0.60 (+0.10)" in claims([grouped(0.5, 0.6)])[SPECTRAL].ours
    assert verdicts([grouped(0.5, 0.5, price_of_a=1.0)])[COST] == "not reproduced"
    costly = [merged("compose", 3, 6.0), merged("paper", 9, 30.0)]
    assert verdicts([*costly, merged("linkage", 9, 2.0)])[CHEAPER] == "reproduced"
    assert verdicts([*costly, merged("linkage", 8, 2.0)])[CHEAPER] == "not reproduced"
    assert verdicts([*costly, merged("linkage", 9, 40.0)])[CHEAPER] == "not reproduced"
    assert verdicts(costly)[CHEAPER] == "not measured"


def test_correlation_is_of_ranks():
    rng = np.random.default_rng(0)
    points = [outcome(a, q) for a, q in rng.random((9, 2))]
    ranks = rankdata([p["A"] for p in points]), rankdata([-p["1-Q"]["tv"] for p in points])
    assert correlation(points) == pytest.approx(np.corrcoef(*ranks)[0, 1])
    assert np.isnan(correlation([outcome(0.5, 0.1), outcome(0.5, 0.2)]))


def test_tables_have_a_row_for_what_there_is():
    text = table([merged("paper", 9, 30.0), merged("linkage", 10, 2.0)])
    assert text.count("**") == 2
    rows = text.splitlines()[4:]
    assert rows == [
        "| digits, random split, 30 % noise | linkage | 10 of 10 | 1.00 | 19 | 2.0 |",
        "| digits, random split, 30 % noise | paper | 9 of 10 | 0.90 | 19 | 30.0 |",
    ]
    tried = [(1e-3, 0.9, 0.2), (1e-2, 0.8, 0.1)]
    row = table([chosen("k-means", "learning rate", tried)]).splitlines()[-1]
    assert row.startswith(
        "| digits, k-means | learning rate | 0.001 | 0.01 | 0.200 | 0.100 | 0.200 | 0.100 | -1.00 |"
    )
    row = table([stopped("k-means", TURNED, 0.12)]).splitlines()[-1]
    assert row.startswith("| digits, k-means | paper | 12 | 0.1200 | 5 | 0.1000 | 20 | 0.4000 |")
    assert "| 20 | 0.88 | 0.80 | 0.50 | 0.60 |" in table([grouped(0.5, 0.6)])


def test_figures_are_drawn_from_any_part(tmp_path):
    tried = [(1e-3, 0.9, 0.2), (1e-2, 0.8, 0.0)]
    everything = [
        grouped(0.5, 0.6), merged("linkage", 9, 2.0), merged("paper", 9, 20.0),
        stopped("noise 0.3", RISING, 0.1), chosen("noise 0.3", "learning rate", tried),
    ]  # fmt: skip
    for results, drawn in ((everything, 3), (everything[1:2], 1), (everything[:1], 1), ([], 0)):
        paths = discussion.draw(results, tmp_path)
        assert len(paths) == drawn
        assert all(path.stat().st_size > 5000 for path in paths)


def test_words_and_selection():
    assert in_words(("digit images", "noise 0.3")) == "digit images, random split, 30 % noise"
    assert where([{"a": 1, "b": 2}, {"a": 1}], a=1, b=2) == [{"a": 1, "b": 2}]
