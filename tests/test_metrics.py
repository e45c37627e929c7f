import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from unsplit.errors import InputError
from unsplit.metrics import (
    category_counts,
    correct_merges,
    majority_categories,
    n_unique_majorities,
    purity,
    quality,
)

quick = settings(deadline=None, max_examples=30, derandomize=True)

# Cluster 2: two cats, one dog; cluster 5: one of each; cluster 9: three dogs; the fox is noise.
LABELS = [2, 2, 2, 5, 5, 9, 9, 9, -1]
CATEGORIES = ["cat", "cat", "dog", "dog", "cat", "dog", "dog", "dog", "fox"]


def test_category_counts_follow_sorted_clusters_and_categories_without_noise():
    assert category_counts(LABELS, CATEGORIES).tolist() == [[2, 1], [1, 1], [0, 3]]


def test_majorities_with_a_tie_going_to_the_first_category():
    assert majority_categories(LABELS, CATEGORIES).tolist() == ["cat", "cat", "dog"]


def test_purity_leaves_noise_out():
    assert purity(LABELS, CATEGORIES) == pytest.approx((2 + 1 + 3) / 8)


def test_pure_clusters_have_purity_one():
    assert purity([0, 0, 1, 2], ["x", "x", "y", "x"]) == 1.0


def test_unique_majorities_count_each_category_once():
    assert n_unique_majorities(LABELS, CATEGORIES) == 2
    assert n_unique_majorities([0, 0, 1, 1], [3, 3, 3, 3]) == 1


@quick
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=2, max_size=40))
def test_majority_and_purity_against_counting_by_hand(observations):
    labels, categories = (list(column) for column in zip(*observations, strict=True))
    assume(len(set(labels)) > 1)
    majorities, right = [], 0
    for cluster in sorted(set(labels)):
        members = [c for s, c in observations if s == cluster]
        best = min(set(members), key=lambda c: (-members.count(c), c))
        majorities.append(best)
        right += members.count(best)
    assert majority_categories(labels, categories).tolist() == majorities
    assert purity(labels, categories) == pytest.approx(right / len(labels))
    assert n_unique_majorities(labels, categories) == len(set(majorities))


def quality_by_double_loop(distances, categories):
    k = len(categories)
    pairs = [(i, j) for i in range(k) for j in range(i + 1, k)]
    same = [distances[i, j] for i, j in pairs if categories[i] == categories[j]]
    different = [distances[i, j] for i, j in pairs if categories[i] != categories[j]]
    won = sum((s < d) + (s == d) / 2 for s in same for d in different)
    return won / (len(same) * len(different))


@quick
@given(st.lists(st.integers(0, 2), min_size=3, max_size=8), st.integers(0, 2**32 - 1))
def test_quality_against_a_double_loop_over_pairs(categories, seed):
    assume(1 < len(set(categories)) < len(categories))
    k = len(categories)
    # Few values, so that many pairs tie.
    upper = np.triu(np.random.default_rng(seed).integers(0, 4, (k, k)) / 4, 1)
    distances = upper + upper.T
    expected = quality_by_double_loop(distances, categories)
    assert quality(distances, categories) == pytest.approx(expected, abs=1e-12)


def test_quality_counts_ties_half():
    # Same-category pair (0, 1); it is below 0.9 and ties with 0.5.
    distances = [[0, 0.5, 0.5], [0.5, 0, 0.9], [0.5, 0.9, 0]]
    assert quality(distances, ["a", "a", "b"]) == pytest.approx(0.75)


def test_quality_of_reversed_distances_is_zero():
    distances = [[0, 0.9, 0.1], [0.9, 0, 0.2], [0.1, 0.2, 0]]
    assert quality(distances, ["a", "a", "b"]) == 0.0


@pytest.mark.parametrize(
    ("majorities", "found"),
    [(["a", "a", "a"], "the same category"), (["a", "b", "c"], "different categories")],
)
def test_quality_needs_both_kinds_of_pairs(majorities, found):
    with pytest.raises(InputError, match=f"majorities must .* only pairs of {found}; pass"):
        quality(np.zeros((3, 3)), majorities)


def test_correct_merges_numbers_new_clusters_as_scipy_does():
    counts = [[5, 0], [4, 1], [0, 6], [1, 3]]
    # 4 = 0 + 1 and 5 = 2 + 3 are right, joining the two is not.
    assert correct_merges([(0, 1), (2, 3), (4, 5)], counts).tolist() == [1, 2, 2]


def test_correct_merges_goes_by_the_majority_of_everything_merged_so_far():
    counts = [[3, 0], [0, 4], [0, 1]]
    # 3 = 0 + 1 is wrong and holds 3 and 4: from then on it is of the second category.
    assert correct_merges([(0, 1), (3, 2)], counts).tolist() == [0, 1]


def test_correct_merges_of_nothing_is_empty():
    assert correct_merges([], [[1, 0], [0, 1]]).tolist() == []
