"""The paper's claim in its own regime: draws, kept estimates, and what the numbers say."""

import numpy as np
import pytest
from scipy.cluster.hierarchy import cophenet

import unsplit
from experiments import core, story
from experiments.core import Claim
from experiments.imagenette import material, numbers, reading, regime, run, tables
from experiments.imagenette.config import FULL
from experiments.texts import ELSEWHERE

CATEGORIES = np.repeat(np.array(list("abcdefghij")), 50)


DEFAULT, LESS = "more augmentation", "usual"


def result(draw, method="cross-fitted", side=96, s=75, variant=DEFAULT, seed=0, **others):
    return {
        "representation": "sscd",
        "categories": "all",
        "draw": draw,
        "s": s,
        "side": side,
        "method": method,
        "variant": variant,
        "seed": seed,
        "purity": 0.9,
        "unique": 8,
        "possible": 12,
        **others,
    }


def merges(wrong_after, n=19):
    """CM of a way whose first so many merges are right."""
    return [min(m, wrong_after) for m in range(1, n + 1)]


AUTO = {"clusters": 9, "ARI": 0.6}


def training(draw, network, both, variant=DEFAULT, seconds=10.0, **others):
    names = ("network", "graph of scores", "graph of features")
    CM = {"average overlap": merges(network), "average overlap + graph": merges(both)}
    about = {"A": 0.9, "auto": dict.fromkeys(names, AUTO), "training seconds": seconds}
    return result(draw, variant=variant, CM=CM, **about | others)


def results(network, both, paper=5, euclidean=6):
    """Four draws; with less augmentation one merge fewer is right."""
    found = []
    for draw in range(1, 5):
        found += [
            result(draw, "features", side=0, variant=LESS, CM={"euclidean": merges(euclidean)},
                   auto={"HDBSCAN": AUTO, "Leiden": AUTO}),
            result(draw, "paper", variant=LESS, CM={"paper": merges(paper)}, A=0.9,
                   **{"training seconds": 20.0}),
            training(draw, network, both),
            training(draw, network - 1, both - 1, LESS, seconds=5.0, A=0.8),
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
    whole = unsplit.pairwise_tvd(
        X, labels, training=unsplit.TrainConfig(epochs=2), cv=3, random_state=0
    )
    short = material.in_short(whole)
    assert short.scores.features.shape == (120, 3)
    for name in ("tv", "overlap", "lecam"):
        np.testing.assert_allclose(short.divergence(name), whole.divergence(name), atol=1e-5)
    trees = [unsplit.merge(r, n_clusters=1) for r in (whole, short)]
    whole, short = (cophenet(tree.linkage) for tree in trees)
    np.testing.assert_allclose(short, whole, atol=1e-5)


def test_a_kept_estimate_is_not_made_again(tmp_path, monkeypatch):
    monkeypatch.setattr(material, "CACHE", tmp_path / "cache")
    X, labels = unsplit.datasets.gaussians([[0, 0], [1, 0]], 30, random_state=0)
    setting, trial = core.Setting(None, "cpu", quick=False), {"draw": 1}
    made = []

    def estimate():
        made.append(1)
        return unsplit.pairwise_tvd(
            X, labels, training=unsplit.TrainConfig(epochs=2), cv=2, random_state=0
        ), 3.0

    first, seconds = material.kept_estimate(trial, setting, estimate)
    again, later = material.kept_estimate(trial, setting, estimate)
    assert len(made) == 1
    assert seconds == later == 3.0
    np.testing.assert_allclose(first.divergence("lecam"), again.divergence("lecam"), atol=1e-6)


def test_trials_are_all_different_and_those_without_a_network_come_first():
    trials = run.trials(quick=False)
    names = [core.name_of(trial) for trial in trials]
    assert len(set(names)) == len(names)
    without = [
        trial["method"] == "features" for trial in trials if trial["representation"] == "sscd"
    ]
    assert without == sorted(without, reverse=True)
    assert {t["s"] for t in trials if "s" in t} == set(FULL.sizes)


def test_the_default_comes_before_less_augmentation():
    trials = [t for t in run.trials(quick=False) if t.get("method") == "cross-fitted"]
    assert {t["variant"] for t in trials} == {DEFAULT, LESS}
    assert next(t for t in trials)["variant"] == DEFAULT
    variants = [t["variant"] for t in trials]
    assert variants == sorted(variants)  # "more …" is before "usual"


def test_every_result_in_the_repository_is_a_trial():
    known = {core.name_of(trial) for trial in run.trials(quick=False)}
    there = core.results_in(core.folder_of("imagenette") / "results")
    assert {result["name"] for result in there} <= known


def test_only_the_same_draws_are_compared():
    some = results(network=8, both=9)
    some = [r for r in some if not (r["method"] == "features" and r["draw"] == 2)]
    ours, euclidean, draws = numbers.paired(some, numbers.complete(some), numbers.NETWORK)
    assert draws.tolist() == [1, 3, 4]
    assert ours.shape == euclidean.shape == (3, 12)
    assert (ours[:, -1] == 8).all()
    assert (euclidean[:, -1] == 6).all()


def test_cases_of_one_draw_count_once():
    some = results(network=8, both=8)
    some += [training(1, 12, 12, side=112), training(1, 12, 12, side=112, s=100)]
    gap = numbers.paired(some, numbers.regime(some), numbers.BOTH).gap()
    assert gap.shape == (4, 12)
    assert gap[:, -1].tolist() == [4, 2, 2, 2]  # s = 100 has no Euclidean distance here


def test_augmentations_are_never_in_one_mean():
    some = [
        r for r in results(network=8, both=9) if not (r["variant"] == DEFAULT and r["draw"] > 3)
    ]
    (place,) = numbers.shown(some)
    assert place.variant == DEFAULT
    assert sorted(numbers.curves(some, place, numbers.NETWORK)) == [1, 2, 3]
    few = [r for r in some if r["variant"] == LESS or r["draw"] == 1]  # no standard error
    (place,) = numbers.shown(few)
    assert str(place) == "SSCD, s = 75, 96 px, less augmentation"
    assert {c[-1] for c in numbers.curves(few, place, numbers.NETWORK).values()} == {7}


def test_verdicts_follow_the_numbers():
    verdicts = [c.verdict for c in reading.claims(results(network=8, both=9))]
    assert verdicts == [
        "not measured", ELSEWHERE, "reproduced", "reproduced", "reached", "reached",
        "reached", "reached",
    ]  # fmt: skip
    worse = [c.verdict for c in reading.claims(results(network=4, both=6, paper=5))]
    assert worse[2] == "not reproduced"
    assert worse[5:7] == ["not reached", "not reached"]


def test_the_aim_is_that_of_all_pixels():
    some = results(network=8, both=7)
    some += [training(draw, 8, 1, side=112) for draw in (1, 2)]
    claim = reading.claims(some)[5]
    assert claim.ours.startswith("+0.00 or more at 1–7, then +1.00 ± 0.00 after 12 (4 cases")
    assert "112 pixels: -5.00 or more at 1–7, then -5.00 ± 0.00 after 12 (2 cases)" in claim.ours
    assert claim.verdict == "not reached"


def test_purity_is_that_of_the_papers_size():
    def claim(at_100, at_75):
        purity = {100: at_100, 75: at_75}
        some = [
            result(1, "features", side=0, s=s, variant=LESS, CM={"euclidean": [1]}, purity=p)
            for s, p in purity.items()
        ]
        return reading.claims(some)[0]

    assert claim(0.92, 0.8).verdict == "reproduced"
    assert claim(0.85, 0.9).verdict == "changed"
    assert claim(0.5, 0.6).verdict == "not reproduced"
    assert claim(0.85, 0.9).ours == "s = 75: 90%–90%, s = 100: 85%–85%"


def test_seconds_are_compared_where_as_many_ran_at_a_time():
    some = results(network=8, both=9)
    for r in some:
        r["at once"] = 8 if r["variant"] == DEFAULT and r["draw"] > 1 else 7
        if r["at once"] == 8:
            r["training seconds"] = 90.0
    (default, *_, paper), cases, alike = regime.costs(some)
    assert (cases, alike) == (4, 1)
    assert (default.seconds, default.alike) == (70.0, 10.0)
    assert (paper.seconds, paper.right) == (20.0, 5.0)
    claim = reading.claims(some)[-1]
    assert claim.verdict == "not reached"
    assert claim.ours.endswith(
        "in the 1 cases that ran beside as many others each time 10 against 20"
    )


def test_a_second_seed_is_compared_with_the_first():
    some = results(network=8, both=9)
    assert regime.seeds(some) == ""
    some += [training(1, 7, 8, seed=1), training(2, 7, 6, seed=1)]
    said = regime.seeds(some)
    assert "overlap and edges 7.00 where the first has 9.00 (-2.00 ± 1.00)" in said
    assert (
        "+1.00 ± 1.00 after 12 (standard error over draws): the aim of one merge more is re" in said
    )
    rows = regime.by_size(some).splitlines()
    assert [row.split(" | ")[-1] for row in rows if "seed" in row] == [
        "+1.00 ± 1.00 |",
        "+3.00 ± 0.00 |",
    ]


def test_nothing_is_claimed_without_results():
    assert {c.verdict for c in reading.claims([])} == {"not measured"}
    assert reading.table([]) == ""


def test_tables_have_the_numbers():
    some = results(network=8, both=9)
    assert "| 6.0 / 6.0 |" in tables.by_way(some)
    assert "+2.00 ± 0.00" in tables.against_euclidean(some)
    assert "| 4 | 0.8000 | 0.9000 | 4 of 4 | 7.00 | 8.00 | +1.00 ±" in tables.augmentation(some)
    assert "| 12 | 5.00 | 20 | 20 |" in regime.costs_table(some)
    assert "9.0, 0.60" in tables.automatic(some)


def test_odd_draws_choose_the_way():
    assert "choose overlap and edges, which is the default." in tables.by_half(results(8, 9), [])
    assert "choose overlap, which is not the default." in tables.by_half(results(9, 8), [])


def test_the_story_quotes_the_claims():
    claims = {"scaling": [Claim("About 26,000 clusters, …", "many; more", "reproduced"),
                          Claim("With k² outputs …", "few", "changed")]}  # fmt: skip
    lines = story.main_claims(claims).splitlines()
    assert "| many | **reproduced** |" in lines[-2]
    assert "| few | **changed** |" in lines[-1]
    with pytest.raises(ValueError, match="has 0 claims"):
        story.main_claims({"scaling": []})


def test_both_are_shown_by_which_of_the_two_is_ahead():
    rows = regime.by_lead(results(network=8, both=9)).splitlines()
    assert rows[2:] == ["| network ahead by 2 or more | 4 | 6.00 | 8.00 | 9.00 |"]
    rows = regime.by_lead(results(network=5, both=7)).splitlines()
    assert rows[2:] == ["| features ahead by 1 | 4 | 6.00 | 5.00 | 7.00 |"]
    assert regime.by_lead([]) == ""


def test_cases_as_pure_as_the_papers_are_named():
    some = results(network=8, both=9)
    for r in some:
        r["purity"] = 0.9 if r["draw"] == 2 else 0.88
    assert regime.as_pure(some).endswith("Euclidean distance: 9 against 6 (draw 2, s = 75, 96 px).")
    assert regime.as_pure([r for r in some if r["draw"] != 2]) == ""
