"""The four words, and the order in which pairs are to be looked at."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.merging_cases import known_pair
from unsplit.merging.decision import (
    BEYOND,
    BY_RULE,
    CLOSEST,
    GRAPH,
    MUST_LINK,
    NUMBER,
    WORDS,
    Merge,
    doubt,
)
from unsplit.merging.pairs import Contrast
from unsplit.merging.tree import Row
from unsplit.report.sections import how_sure

quick = settings(deadline=None, max_examples=100, derandomize=True)

shares = st.floats(0, 1)
p_values = st.one_of(shares, st.floats(1e-12, 0.3))
n_observations = st.integers(0, 400)
strengths = st.one_of(st.floats(0, 3), st.sampled_from([0.8, 1.25, 2.0, math.inf]))


def word_of(*evidence, **more):
    return known_pair(*evidence, **more).verdict


def rank(*evidence, **more):
    return WORDS.index(word_of(*evidence, **more))


# --- the words ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "p", "word"),
    [
        (0.0, 0.2, 1.0, "same"),
        (0.0, 0.21, 1.0, "probably same"),
        (0.0, 0.5, 0.2, "probably same"),
        (0.0, 0.51, 1.0, "unclear"),  # too few observations to say more
        (0.0, 0.1, 0.19, "unclear"),  # near the level
        (0.05, 0.3, 1.0, "unclear"),  # a difference, though not among so many pairs
        (0.04, 0.06, 1e-9, "unclear"),  # a difference, though perhaps none that matters
        (0.05, 0.4, 0.009, "different"),
        (0.05, 0.4, 0.011, "unclear"),
        (0.5, 1.0, 1.0, "different"),  # plain, though not significant among so many pairs
    ],
)
def test_words_where_clusters_overlap(low, high, p, word):
    assert word_of(low, high, p) == word


@pytest.mark.parametrize(
    ("strength", "smaller", "word"),
    [
        (0.0, 10**6, "different"),
        (0.79, 10**6, "different"),
        (0.79, 1, "different"),
        (0.8, 10**6, "unclear"),  # near the limit
        (1.24, 10**6, "unclear"),
        (1.25, 15, "probably same"),
        (1.25, 14, "unclear"),  # a few have neighbours outside whatever they are
        (1.99, 10**6, "probably same"),
        (math.inf, 10**6, "probably same"),  # neighbours alone are never quite sure
    ],
)
def test_words_where_neighbours_decide(strength, smaller, word):
    assert word_of(0.9, 1.0, 1e-12, strength=strength, smaller=smaller) == word


@pytest.mark.parametrize(
    ("strength", "stability", "word"),
    [
        (0.5, 0.0, "different"),
        (0.5, 0.1, "different"),
        (0.5, 0.15, "unclear"),
        (3.0, 0.95, "unclear"),
        (3.0, 1.0, "probably same"),
        (1.0, 1.0, "unclear"),
    ],
)
def test_what_resampled_data_contradict_is_unclear(strength, stability, word):
    assert word_of(0.9, 1.0, 1e-12, strength=strength, stability=stability) == word
    # Where tests find no difference, nothing else is asked.
    assert word_of(0.0, 0.1, 1.0, strength=strength, stability=stability) == "same"


def test_what_cannot_be_told_apart_is_the_same_whoever_its_neighbours_are():
    assert word_of(0.0, 0.1, 1.0, strength=0.0) == "same"
    assert word_of(0.0, 0.4, 1.0, strength=0.5) == "probably same"
    assert word_of(0.0, 0.9, 0.5, strength=0.5) == "unclear"


def test_what_is_not_known_is_unclear():
    assert word_of(math.nan, math.nan, math.nan) == "unclear"
    assert word_of(0.0, 1.0, 1.0) == "unclear"


@quick
@given(shares, shares, p_values, strengths, n_observations)
def test_words_move_one_way_with_the_strength(low, high, p, strength, smaller):
    low, high = sorted((low, high))
    word = rank(low, high, p, strength=strength, smaller=smaller)
    assert rank(low, high, p, strength=strength * 1.2, smaller=smaller) <= word
    assert rank(low, high, p / 3, strength=strength, smaller=smaller) >= word
    # More observations say it the more surely.
    assert rank(low, high, p, strength=strength, smaller=smaller + 50) <= word
    # Two that need neighbours to be different are never more so than those that need none.
    assert word <= rank(low, high, p)


@quick
@given(shares, shares, p_values)
def test_words_move_one_way(low, high, p):
    low, high = sorted((low, high))
    word = rank(low, high, p)
    # A smaller p-value and a TVD that is larger for sure speak for a difference.
    assert rank(low, high, p / 3) >= word
    assert rank((low + high) / 2, high, p) >= word
    # A TVD that is smaller for sure does not.
    assert rank(low, (low + high) / 2, p) <= word


def test_doubt_is_nothing_on_the_limit_and_grows_to_both_sides():
    for name, limit in (("p_adjusted", 0.05), ("strength", 1.0)):
        known = {"low": 0.9, "high": 1.0, "p_adjusted": 1e-12}
        doubts = [
            doubt(known_pair(**known | {name: limit * factor})) for factor in (0.2, 0.5, 1, 2, 5)
        ]
        assert doubts[2] == pytest.approx(0.0, abs=1e-12)
        assert doubts == pytest.approx(doubts[::-1])
        assert doubts[0] > doubts[1] > doubts[2]
        assert math.isfinite(doubt(known_pair(**known | {name: 0.0})))
    # Neighbours decide where there are some.
    assert doubt(known_pair(0.9, 1.0, 0.05, strength=math.e)) == pytest.approx(1.0)
    assert doubt(known_pair(math.nan, math.nan, math.nan)) == 0.0


# --- how often they are right ---------------------------------------------------------------------


def words_of_tests(n, shift, times=100, n_pairs=1):
    """Scores of two clusters of n that a classifier tells apart as far as the shift allows."""
    rng = np.random.default_rng(0)
    of_a, folds, words = np.arange(2 * n) < n, np.arange(2 * n) % 5, []
    for _ in range(times):
        contrast = Contrast(rng.standard_normal(2 * n) + shift * (of_a - 0.5), of_a, folds, 5)
        words.append(word_of(*contrast.interval, min(1.0, contrast.p_value * n_pairs)))
    return {word: words.count(word) / times for word in WORDS}


@pytest.mark.parametrize("n", [5, 20, 100, 400])
def test_the_same_is_hardly_ever_called_different(n):
    assert words_of_tests(n, 0.0)["different"] <= 0.02
    assert words_of_tests(n, 0.0, n_pairs=45)["different"] == 0.0


def test_few_observations_are_unclear_and_many_are_not():
    for shift in (0.0, 1.0):
        assert words_of_tests(10, shift, n_pairs=45)["unclear"] >= 0.95
    assert words_of_tests(40, 0.0, n_pairs=45)["probably same"] >= 0.8
    assert words_of_tests(400, 0.0, n_pairs=45)["same"] >= 0.95


@pytest.mark.parametrize("n", [10, 30, 300])
def test_what_is_far_apart_is_called_different(n):
    assert words_of_tests(n, 8.0, n_pairs=1000)["different"] == 1.0


# --- what to look at first ------------------------------------------------------------------------


def row(
    step=None,
    *,
    sizes=(90, 90),
    tvd=0.1,
    low=0.0,
    high=0.2,
    p=1.0,
    strength=math.nan,
    stage=BY_RULE,
    reason=GRAPH,
):
    evidence = (tvd, low, high, p, 7.0, 1.0, 0.5, strength)
    return Row(Merge(0, 1, *sizes, tvd, tvd, *evidence, stage, reason, 1.0, ""), step)


def test_unclear_pairs_come_first_and_what_overrules_the_evidence_next():
    ordered = [
        row(0, high=0.4, p=0.06),
        row(1, high=0.4, p=0.11),
        row(2, tvd=0.5, high=0.9),
        row(3, tvd=0.4, high=0.9),
        row(tvd=0.4, high=0.9),
        row(tvd=0.5, high=0.9),
        row(4, low=0.4, high=0.9, p=1e-5),  # merged though different
        row(high=0.1),  # kept apart though the same
        row(5, high=0.4, p=0.3),
        row(6, high=0.4),
        row(low=0.4, high=0.9, p=1e-3),
        row(low=0.4, high=0.9, p=0.0),
        row(7, high=0.1),
    ]
    words = "unclear " * 6 + "different same probably_same probably_same different different same"
    assert [r.pair.verdict.replace(" ", "_") for r in ordered] == words.split()
    assert [r.against_evidence for r in ordered] == [i in (6, 7) for i in range(13)]
    rng = np.random.default_rng(0)
    # Of the two that overrule the evidence, the first is the one with a p-value near the level.
    shuffled = [ordered[i] for i in rng.permutation(len(ordered))]
    found = sorted(shuffled, key=lambda r: r.urgency)
    assert found == [*ordered[:6], ordered[7], ordered[6], *ordered[8:]]


def test_where_neighbours_decide_the_strength_says_how_close_it_was():
    far = {"low": 0.9, "high": 1.0, "p": 1e-9}
    ordered = [
        row(0, **far, strength=1.01),
        row(None, **far, strength=0.9),
        row(1, **far, strength=1.2),
        row(2, **far, strength=0.3),  # merged though different
        row(3, **far, strength=1.3),
        row(4, **far, strength=1.9),
        row(None, **far, strength=0.7),
        row(None, **far, strength=0.1),
    ]
    words = "unclear unclear unclear different probably probably different different"
    assert [r.pair.verdict.split()[0] for r in ordered] == words.split()
    shuffled = [ordered[i] for i in np.random.default_rng(0).permutation(len(ordered))]
    assert sorted(shuffled, key=lambda r: r.urgency) == ordered


def test_clusters_of_a_few_come_after_what_a_person_can_decide():
    far = {"low": 0.9, "high": 1.0, "p": 1e-9}
    tiny = row(0, **far, strength=1.01, sizes=(9, 500))  # nearest to the limit
    ordered = [row(1, **far, strength=1.2, sizes=(10, 500)), tiny, row(2, **far, strength=1.3)]
    assert [r.pair.verdict for r in ordered] == ["unclear", "unclear", "probably same"]
    assert ordered[0].urgency < ordered[1].urgency < ordered[2].urgency
    # Also where neighbours say nothing, and also among those kept apart.
    apart = [row(high=0.9, tvd=0.5), row(high=0.9, tvd=0.2, sizes=(500, 9))]
    assert apart[0].urgency < apart[1].urgency


def test_pairs_without_scores_stay_in_the_order_of_their_distances():
    blank = replace(row().pair, tvd=math.nan, low=math.nan, high=math.nan, p_adjusted=math.nan)
    rows = [Row(replace(blank, statistic=s), None) for s in (0.3, 0.1, 0.2)]
    found = sorted(rows, key=lambda r: r.urgency)
    assert [r.pair.statistic for r in found] == [0.1, 0.2, 0.3]


def test_only_what_a_link_or_a_number_decided_is_said_to_be_decided_so():
    different = {"low": 0.8, "high": 1.0, "p": 1e-9}
    by_rule, told = row(0, **different), row(0, **different, stage=NUMBER)
    assert "The decision goes against the verdict for 1 pair." in how_sure([by_rule])
    assert "link" not in how_sure([by_rule])
    assert "1 pair was decided by a link, a cut or a requested number" in how_sure([told])
    assert "goes against" not in how_sure([told])
    for other in (
        row(0, **different, stage=MUST_LINK),
        row(0, **different, stage=BEYOND),  # the tree was cut later
        row(0, **different, reason=CLOSEST),  # the rule allows everything
        Row(row(high=0.1).pair, None, taken_apart=True),
    ):
        assert other.by_request
        assert other.against_evidence
