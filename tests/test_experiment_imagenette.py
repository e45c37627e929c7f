"""The paper's claim in its own regime: draws, kept estimates, and what the numbers say."""

import numpy as np
import pytest

import unsplit
from experiments import core, story
from experiments.core import Claim
from experiments.imagenette import material, numbers, reading, run, tables
from experiments.imagenette.config import FULL

CATEGORIES = np.repeat(np.array(list("abcdefghij")), 50)


def result(draw, method="cross-fitted", side=96, s=75, variant="usual", **others):
    return {
        "representation": "sscd",
        "categories": "all",
        "draw": draw,
        "s": s,
        "side": side,
        "method": method,
        "variant": variant,
        "seed": 0,
        "purity": 0.9,
        "unique": 8,
        "possible": 12,
        **others,
    }


def merges(wrong_after, n=19):
    """CM of a way whose first so many merges are right."""
    return [min(m, wrong_after) for m in range(1, n + 1)]


def results(network, both, paper=5, euclidean=6):
    auto = {"clusters": 9, "ARI": 0.6}
    found = []
    for draw in range(1, 5):
        found += [
            result(draw, "features", side=0, CM={"euclidean": merges(euclidean)},
                   auto={"HDBSCAN": auto, "Leiden": auto}),
            result(draw, "paper", CM={"paper": merges(paper)}, A=0.9,
                   **{"training seconds": 20.0}),
            result(draw, CM={"average overlap": merges(network),
                             "average overlap + graph": merges(both)}, A=0.9,
                   auto=dict.fromkeys(("network", "graph of scores", "graph of features"), auto),
                   **{"training seconds": 10.0}),
        ]  # fmt: skip
    return found


def test_a_draw_has_its_share_of_every_category_and_no_other():
    names = material.half_of(CATEGORIES, "second")
    rows = material.drawn(CATEGORIES, names, 0.7, draw=3)
    chosen, counts = np.unique(CATEGORIES[rows], return_counts=True)
    assert chosen.tolist() == list("fghij")
    assert counts.tolist() == [35] * 5
    assert len(np.unique(rows)) == len(rows)
    assert not np.array_equal(rows, material.drawn(CATEGORIES, names, 0.7, draw=4))


def test_halves_have_nothing_in_common():
    halves = [set(material.half_of(CATEGORIES, which)) for which in ("first", "second")]
    assert not halves[0] & halves[1]
    assert halves[0] | halves[1] == set(material.half_of(CATEGORIES, "all"))


def test_an_estimate_in_short_has_the_same_distances():
    X, labels = unsplit.datasets.gaussians([[0, 0], [1, 0], [3, 0]], 40, random_state=0)
    whole = unsplit.pairwise_tvd(X, labels, epochs=2, cv=3, random_state=0)
    short = material.in_short(whole)
    assert short.scores.features.shape == (120, 3)
    for name in ("tv", "overlap", "lecam"):
        np.testing.assert_allclose(short.divergence(name), whole.divergence(name), atol=1e-5)
    trees = [unsplit.merge(r, n_clusters=1, strategy="compose") for r in (whole, short)]
    np.testing.assert_allclose(trees[0].linkage, trees[1].linkage, atol=1e-5)


def test_a_kept_estimate_is_not_made_again(tmp_path, monkeypatch):
    monkeypatch.setattr(material, "CACHE", tmp_path / "cache")
    X, labels = unsplit.datasets.gaussians([[0, 0], [1, 0]], 30, random_state=0)
    setting, trial = core.Setting(None, "cpu", quick=False), {"draw": 1}
    made = []

    def estimate():
        made.append(1)
        return unsplit.pairwise_tvd(X, labels, epochs=2, cv=2, random_state=0), 3.0

    first, seconds = material.kept_estimate(trial, setting, estimate)
    again, later = material.kept_estimate(trial, setting, estimate)
    assert len(made) == 1
    assert seconds == later == 3.0
    np.testing.assert_allclose(first.divergence("lecam"), again.divergence("lecam"), atol=1e-6)


def test_trials_are_all_different_and_those_without_a_network_come_first():
    trials = run.trials(quick=False)
    names = [core.file_of(trial) for trial in trials]
    assert len(set(names)) == len(names)
    without = [
        trial["method"] == "features" for trial in trials if trial["representation"] == "sscd"
    ]
    assert without == sorted(without, reverse=True)
    assert {t["s"] for t in trials if "s" in t} == set(FULL.sizes)


def test_only_the_same_draws_are_compared():
    some = results(network=8, both=9)
    some = [r for r in some if not (r["method"] == "features" and r["draw"] == 2)]
    ours, euclidean = numbers.paired(some, numbers.regime(some), numbers.NETWORK)
    assert ours.shape == euclidean.shape == (3, 12)
    assert (ours[:, -1] == 8).all()
    assert (euclidean[:, -1] == 6).all()


def test_verdicts_follow_the_numbers():
    verdicts = {c.paper: c.verdict for c in reading.claims(results(network=8, both=9))}
    assert list(verdicts.values()) == [
        "not reproduced", "reproduced", "reproduced", "reached", "reached", "reached",
    ]  # fmt: skip
    worse = [c.verdict for c in reading.claims(results(network=4, both=6, paper=5))]
    assert worse[1] == "not reproduced"
    assert worse[4:] == ["not reached", "not reached"]


def test_nothing_is_claimed_without_results():
    assert {c.verdict for c in reading.claims([])} == {"not measured"}
    assert reading.table([]) == ""


def test_tables_have_the_numbers():
    some = results(network=8, both=9)
    some.append(result(1, variant="more augmentation", A=0.95, CM={"average overlap": merges(10)}))
    assert "| 6.0 / 6.0 |" in tables.by_way(some)
    assert "+2.00 ± 0.00" in tables.against_euclidean(some)
    assert "| 1 | 0.9000 | 0.9500 | 1 of 1 | 7.0 / 8.0 | 7.0 / 10.0 |" in tables.augmentation(some)
    assert "| 10 | 8.00 |" in tables.costs(some)
    assert "9.0, 0.60" in tables.automatic(some)


def test_the_story_quotes_the_claims():
    claims = {"scaling": [Claim("About 26,000 clusters, …", "many; more", "reproduced"),
                          Claim("With k² outputs …", "few", "changed")]}  # fmt: skip
    lines = story.story(claims).splitlines()
    assert "| many | **reproduced** |" in lines[-2]
    assert "| few | **changed** |" in lines[-1]
    with pytest.raises(ValueError, match="has 0 claims"):
        story.story({"scaling": []})
