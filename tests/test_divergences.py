"""Statistics of held-out scores against plain loops and against known densities."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from tests import reference
from unsplit.pairwise import divergences
from unsplit.pairwise.divergences import (
    DIVERGENCES,
    HeldoutScores,
    directed_means,
    divergence,
    hit,
    rank_sums,
)


def scores_of(dense, clusters, folds=None):
    """Held-out scores with given values: features are the scores, heads the identity."""
    dense = np.asarray(dense, np.float32)
    clusters = np.asarray(clusters)
    folds = np.zeros(len(clusters), np.int64) if folds is None else np.asarray(folds)
    k, n_folds = dense.shape[1], int(folds.max()) + 1
    order = np.lexsort((clusters, folds))
    return HeldoutScores(
        features=dense[order],
        weights=np.tile(np.eye(k, dtype=np.float32), (n_folds, 1, 1)),
        bias=np.zeros((n_folds, k), np.float32),
        clusters=clusters[order],
        folds=folds[order],
        rows=order,
    )


def random_scores(seed=0, k=5, n=60, ties=True):
    rng = np.random.default_rng(seed)
    dense = rng.standard_normal((n, k))
    if ties:
        dense = np.round(dense * 2)
    return scores_of(dense, rng.integers(0, k, n), rng.integers(0, 3, n))


@pytest.mark.parametrize("block", [1, 40, 2**24])
@pytest.mark.parametrize("ties", [False, True])
def test_hits_equal_the_loop_whatever_the_block_size(monkeypatch, block, ties):
    monkeypatch.setattr("unsplit.pairwise.divergences.BLOCK_ELEMENTS", block)
    scores = random_scores(ties=ties)
    expected = reference.hit_rates(scores.features, scores.clusters, 5)
    found = directed_means(scores, hit)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("block", [1, 300, 2**24])
@pytest.mark.parametrize("ties", [False, True])
def test_rank_sums_equal_the_loop_whatever_the_block_size(monkeypatch, block, ties):
    monkeypatch.setattr(divergences, "BLOCK_ELEMENTS", block)
    scores = random_scores(ties=ties)
    U = rank_sums(scores)
    for i in range(5):
        for j in range(5):
            if i != j:
                expected = reference.rank_sum(scores.features, scores.clusters, scores.folds, i, j)
                assert U[i, j] == expected


@pytest.mark.parametrize("block", [1, 300, 2**24])
def test_small_clusters_are_compared_across_folds_and_others_within(monkeypatch, block):
    monkeypatch.setattr(divergences, "BLOCK_ELEMENTS", block)
    scores = random_scores()
    small = np.array([True, False, True, True, False])
    U = rank_sums(scores, small)
    for i, j in np.argwhere(~np.eye(5, dtype=bool)):
        folds = np.zeros_like(scores.folds) if small[i] and small[j] else scores.folds
        assert U[i, j] == reference.rank_sum(scores.features, scores.clusters, folds, i, j)


@pytest.mark.parametrize("name", DIVERGENCES)
def test_symmetric_in_range_with_zero_diagonal(name):
    found = divergence(random_scores(), name)
    assert np.array_equal(found, found.T)
    assert (np.diag(found) == 0).all()
    assert found.min() >= 0
    assert found.max() <= 1


@pytest.mark.parametrize("name", DIVERGENCES)
def test_perfect_scores_give_one_and_no_scores_give_zero(name):
    clusters = np.repeat(np.arange(3), 4)
    perfect = 100.0 * np.eye(3)[clusters]
    off = ~np.eye(3, dtype=bool)
    np.testing.assert_allclose(divergence(scores_of(perfect, clusters), name)[off], 1.0)
    nothing = scores_of(np.zeros((12, 3)), clusters)
    np.testing.assert_allclose(divergence(nothing, name)[off], 0.0, atol=1e-6)


def densities(p, q):
    """What each divergence should be, by numerical integration."""

    def integral(f):
        return quad(f, -12, 14, limit=200)[0]

    def mixture(x):
        return (p(x) + q(x)) / 2

    def kl(a, x):
        return a(x) * np.log2(a(x) / mixture(x)) if a(x) > 0 else 0.0

    return {
        "tv": integral(lambda x: abs(p(x) - q(x))) / 2,
        "lecam": integral(lambda x: (p(x) - q(x)) ** 2 / (p(x) + q(x))) / 2,
        "js": integral(lambda x: (kl(p, x) + kl(q, x)) / 2),
        "hellinger": np.sqrt(1 - integral(lambda x: np.sqrt(p(x) * q(x)))),
    }


@pytest.mark.parametrize("distance", [0.5, 2.0])
def test_exact_log_densities_give_the_exact_divergences(distance):
    n = 40_000
    rng = np.random.default_rng(0)
    clusters = np.repeat([0, 1], n)
    x = rng.standard_normal(2 * n) + distance * clusters
    scores = scores_of(np.column_stack([norm.logpdf(x), norm.logpdf(x, distance)]), clusters)
    for name, exact in densities(norm.pdf, lambda x: norm.pdf(x, distance)).items():
        assert divergence(scores, name)[0, 1] == pytest.approx(exact, abs=0.01), name
    # P(a > b) for the best score, and the cosine of the two posteriors in L2 of the mixture.
    area = norm.cdf(distance / np.sqrt(2))
    assert divergence(scores, "auc")[0, 1] == pytest.approx(2 * area - 1, abs=0.01)
    share = 1 / (1 + np.exp(norm.logpdf(x, distance) - norm.logpdf(x)))
    inner = np.mean(share * (1 - share))
    cosine = inner / np.sqrt(np.mean(share**2) * np.mean((1 - share) ** 2))
    assert divergence(scores, "overlap")[0, 1] == pytest.approx(1 - cosine, abs=1e-4)


@pytest.mark.parametrize("name", DIVERGENCES)
def test_cluster_with_nothing_held_out_is_no_evidence(name):
    scores = scores_of(9.0 * np.eye(3)[[0, 0, 1, 1]], [0, 0, 1, 1])
    found = divergence(scores, name)
    assert np.isfinite(found).all()
    assert found[0, 1] > 0.9
    if name != "overlap":  # the only one that looks at the other clusters' observations
        assert found[0, 2] <= 0.75


def test_renaming_clusters_permutes_everything():
    scores = random_scores(ties=False)
    new_index = np.array([3, 0, 4, 1, 2])
    renamed = scores.renamed(new_index)
    for name in DIVERGENCES:
        before, after = divergence(scores, name), divergence(renamed, name)
        np.testing.assert_allclose(after[np.ix_(new_index, new_index)], before, atol=1e-6)


def test_dense_scores_are_features_times_heads():
    rng = np.random.default_rng(0)
    folds = np.array([0, 0, 1, 1, 1])
    scores = HeldoutScores(
        features=rng.standard_normal((5, 3)).astype(np.float32),
        weights=rng.standard_normal((2, 4, 3)).astype(np.float32),
        bias=rng.standard_normal((2, 4)).astype(np.float32),
        clusters=np.array([0, 1, 0, 2, 3]),
        folds=folds,
        rows=np.arange(5),
    )
    expected = np.einsum("nh,nkh->nk", scores.features, scores.weights[folds]) + scores.bias[folds]
    np.testing.assert_allclose(scores.dense(), expected, rtol=1e-5, atol=1e-6)
    assert scores.counts.tolist() == [[1, 1, 0, 0], [1, 0, 1, 1]]
