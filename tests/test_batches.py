"""Clusters compared within batches: a batch effect is no difference."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy.special import expit, logsumexp

from benchmarks.common import as_options
from tests import reference
from tests.cli_cases import QUICK, read_csv, read_json, succeeds, unsplit
from unsplit import ClusterMerger, InputError, PairwiseTVD, TrainConfig, merge, pairwise_tvd, read
from unsplit.data.labels import Parts
from unsplit.errors import BatchWarning, PartitionWarning
from unsplit.merging.pairs import Mixtures
from unsplit.pairwise import divergences
from unsplit.pairwise.divergences import DIVERGENCES, rank_sums
from unsplit.pairwise.statistics import (
    CROSSFIT_VARIANCE,
    effective_counts,
    pair_weights,
    rank_sum_p_value,
)

GAPS = [0.0, 0.0, 4.0]


def confounded(n=120, rare=20, shift=3.0, gaps=GAPS, seed=0):
    """Clusters 0 and 1 of one distribution, each mostly in another batch; the last is different."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(gaps)), n)
    batch = np.where(np.arange(len(labels)) % n < rare, 1, 0)
    batch[labels == 1] ^= 1
    X = rng.standard_normal((len(labels), 3))
    X[:, 0] += np.array(gaps)[labels]
    X[:, 1] += shift * batch
    return X, labels, batch


def quick(X, labels, batch=None, **settings):
    settings = {"epochs": 3, "random_state": 0, "device": "cpu"} | settings
    return pairwise_tvd(X, labels, batch=batch, **as_options(**settings))


@pytest.fixture(scope="module")
def estimates():
    """Without and with batches."""
    X, labels, batch = confounded()
    return tuple(quick(X, labels, b, epochs=12) for b in (None, batch))


@pytest.fixture(scope="module")
def ragged():
    """Five clusters in three batches: some parts are empty, one holds one; 3 and 4 never meet."""
    rng = np.random.default_rng(1)
    sizes = np.array([[20, 12, 9, 15, 0], [8, 25, 0, 0, 11], [14, 1, 18, 0, 10]])
    parts = np.repeat(np.arange(15), sizes.ravel())
    batch, labels = parts // 5, parts % 5
    X = rng.standard_normal((len(parts), 2)) + np.column_stack([labels, 2 * batch])
    order = rng.permutation(len(parts))
    with pytest.warns(BatchWarning) as caught:
        result = quick(X[order], labels[order], batch[order])
    return result, caught, (X[order], labels[order], batch[order])


# --- what it is for ----------


def test_a_batch_effect_is_not_taken_for_a_difference(estimates):
    plain, within = estimates
    assert plain.tvd[0, 1] > 0.5
    assert plain.p_value[0, 1] < 1e-8
    assert within.tvd[0, 1] < 0.25
    assert within.p_value[0, 1] > 0.05
    low, high = within.confidence_interval()
    assert low[0, 1] == 0 < high[0, 1]


def test_a_true_difference_is_still_found(estimates):
    _, within = estimates
    assert (within.tvd[2, :2] > 0.85).all()
    assert (within.p_adjusted[2, :2] < 1e-6).all()


def test_auto_merges_within_batches_what_a_test_keeps_apart_without(estimates):
    X, labels, batch = confounded()
    with pytest.warns(PartitionWarning):
        assert merge(estimates[0], alpha=0.05).n_clusters == 3
    merger = ClusterMerger(training=TrainConfig(epochs=12), random_state=0, device="cpu")
    found = merger.fit_predict(X, initial_labels=labels, batch=batch)
    assert merger.tree_.groups.tolist() == [0, 0, 1]
    assert np.array_equal(found, [0, 0, 1] @ (labels == np.arange(3)[:, None]))
    # New observations need no batch: its parts in batches make up a cluster.
    assert merger.predict([[0, 0, 0], [0, 3, 0], [4, 0, 0]]).tolist() == [0, 0, 1]


def test_neighbours_are_looked_for_within_batches():
    X, labels, batch = confounded(n=30, gaps=[0, 5, 10], shift=0.0)
    merger = ClusterMerger(cv=2, training=TrainConfig(epochs=3), device="cpu", random_state=0)
    graph = merger.fit(X, initial_labels=labels, batch=batch).neighbours_
    left, right = graph.adjacency.nonzero()
    assert np.array_equal(np.sort(graph.batches), np.sort(batch))
    assert np.array_equal(graph.batches[left], graph.batches[right])
    whole = merger.fit(X, initial_labels=labels).neighbours_
    assert set(whole.batches) == {0}


def test_merging_knows_batches():
    X, labels, batch = confounded(n=60, gaps=[0, 0, 6])
    merger = ClusterMerger(cv=2, training=TrainConfig(epochs=10), random_state=0, device="cpu")
    merger.fit(X, initial_labels=labels, batch=batch)
    assert merger.tree_.groups.tolist() == [0, 0, 1]


def test_a_leaning_network_makes_no_difference():
    # Whoever is larger in a batch wins every tie there: all hits counted alike would call the
    # two different, though the network knows nothing.
    X, labels, batch = confounded(n=50, rare=10, gaps=[0, 0])
    result = quick(X, labels, batch)
    scores = result.scores
    leaning = np.where(
        scores.batch_sizes == scores.batch_sizes.max(axis=1, keepdims=True), 1.0, 0.0
    )
    scores.weights[:] = 0
    scores.bias[:] = np.tile(leaning, (scores.n_folds, 1))
    assert divergences.directed_means(scores, divergences.hit)[0, 1] == pytest.approx(0.5)
    assert divergences.divergence(scores, "lecam")[0, 1] == pytest.approx(0, abs=1e-6)
    counts = scores.counts.sum(axis=0)
    alike = sum(leaning[b, c] for b, c in zip(scores.batches, scores.clusters, strict=True))
    assert alike / counts.sum() > 0.75


# --- against slow twins ----------


def by_batch(scores):
    """Scores, clusters and folds of each batch's held-out observations, one batch at a time."""
    dense = scores.dense()
    for batch in range(scores.n_batches):
        inside = scores.batches == batch
        yield dense[inside].astype(float), scores.clusters[inside], scores.folds[inside]


def naive_mean(scores, of_margin, unknown):
    """Mean of a function of the margin, within batches and over them."""
    k = scores.n_clusters
    means = np.full((k, k), unknown)
    for i in range(k):
        for j in range(k):
            found, weights = [], []
            for z, clusters, _ in by_batch(scores):
                mine, others = np.flatnonzero(clusters == i), np.flatnonzero(clusters == j)
                if len(mine) and len(others):
                    found.append(np.mean([of_margin(z[x, i] - z[x, j]) for x in mine]))
                    weights.append(len(mine) * len(others) / (len(mine) + len(others)))
            if weights:
                means[i, j] = np.average(found, weights=weights)
    return means


def test_hit_rates_are_means_within_batches(ragged):
    result, _, _ = ragged
    expected = naive_mean(result.scores, lambda m: (m > 0) + 0.5 * (m == 0), 1.0)
    np.testing.assert_allclose(result.hit_rate, expected, atol=1e-12)
    assert result.hit_rate[3, 4] == 1.0


def test_soft_hits_are_means_within_batches(ragged):
    result, _, _ = ragged
    mean = naive_mean(result.scores, expit, 1.0)
    expected = np.clip(mean + mean.T - 1, 0, 1)
    np.testing.assert_allclose(result.divergence("lecam"), expected, atol=1e-6)


def test_overlap_is_a_mean_within_batches(ragged):
    result, _, _ = ragged
    total, weight = np.zeros((5, 5)), np.zeros((5, 5))
    for z, clusters, _ in by_batch(result.scores):
        counts = np.bincount(clusters, minlength=5)
        posterior = np.exp(z - logsumexp(z, axis=1, keepdims=True))
        inner = sum(np.outer(p, p) / counts[c] for p, c in zip(posterior, clusters, strict=True))
        for i in range(5):
            for j in range(5):
                if counts[i] and counts[j]:
                    w = counts[i] * counts[j] / (counts[i] + counts[j])
                    total[i, j] += w * (1 - inner[i, j] / np.sqrt(inner[i, i] * inner[j, j]))
                    weight[i, j] += w
    expected = np.where(weight > 0, total / np.maximum(weight, 1e-9), 1.0)
    np.testing.assert_allclose(result.divergence("overlap"), expected, atol=1e-5)


def test_a_cluster_has_no_share_in_a_batch_without_it(ragged):
    scores = ragged[0].scores
    absent = scores.batch_sizes[scores.batches] == 0
    assert absent.any()
    np.testing.assert_array_equal(np.isneginf(scores.dense()), absent)


def test_rank_sums_never_compare_batches(ragged):
    result, _, _ = ragged
    U = rank_sums(result.scores)
    for i, j in zip(*np.triu_indices(5, 1), strict=True):
        expected = sum(
            reference.rank_sum(z, clusters, folds, i, j)
            for z, clusters, folds in by_batch(result.scores)
        )
        assert U[i, j] == expected


@pytest.mark.parametrize("n_folds", [1, 5])
def test_variance_grows_with_networks_not_with_batches(n_folds):
    counts = np.array([[4, 6], [9, 2], [3, 3], [5, 5], [8, 1]])
    U = np.array([[0.0, 60.0], [60.0, 0.0]])
    a, b = counts.T
    variance = (a * b * (a + b + 1) / 12).sum() * (CROSSFIT_VARIANCE if n_folds > 1 else 1)
    z = (60 - (a * b).sum() / 2 - 0.5) / np.sqrt(variance)
    p = rank_sum_p_value(U, counts, n_folds)[0, 1]
    assert p == pytest.approx(torch.special.ndtr(torch.tensor(-z, dtype=torch.float64)).item())


@pytest.mark.parametrize("cv", ["auto", 0.4])
def test_under_one_distribution_p_values_are_not_small(cv):
    # Clusters and batches that have nothing to do with the features: 84 pairs that are the same.
    p = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X, labels, batch = (
            rng.standard_normal((280, 4)),
            np.arange(280) % 7,
            rng.integers(3, size=280),
        )
        p += quick(X, labels, batch, cv=cv).p_value[np.triu_indices(7, 1)].tolist()
    assert np.mean(np.array(p) < 0.05) < 0.12
    assert 0.35 < np.mean(p) < 0.65


def test_weights_by_hand():
    counts = np.array([[10, 40], [40, 10], [7, 0]])
    assert [pair_weights(n)[0, 1] for n in counts] == [8, 8, 0]
    # Half the mean of ten and half that of forty.
    assert effective_counts(counts)[0, 1] == pytest.approx(1 / (0.25 / 10 + 0.25 / 40))
    assert effective_counts(np.array([[5, 0], [0, 5]]))[0, 1] == 0


# --- pairs that share no batch ----------


def test_nothing_is_said_of_a_pair_without_a_shared_batch(ragged):
    result, caught, _ = ragged
    (message,) = [str(w.message) for w in caught]
    assert "1 of 10 pairs of clusters" in message
    assert "(3–4)" in message
    assert "TVD and p-value are set to 1" in message
    assert caught[0].filename == __file__
    assert not result.comparable[3, 4]
    assert result.comparable.sum() == 23
    assert [result.divergence(name)[3, 4] for name in DIVERGENCES] == [1] * len(DIVERGENCES)
    assert result.p_value[3, 4] == result.p_adjusted[3, 4] == 1
    low, high = result.confidence_interval()
    assert (low[3, 4], high[3, 4]) == (0, 1)
    others = [(i, j) for i in range(5) for j in range(i) if (i, j) != (4, 3)]
    expected = np.mean([result.balanced_accuracy[pair] for pair in others])
    assert result.mean_accuracy == pytest.approx(expected)
    frame = result.to_frame().set_index(["cluster_a", "cluster_b"])
    assert frame.loc[(3, 4), ["n_batches", "n_a", "n_b"]].tolist() == [0, 0, 0]
    assert frame.loc[(0, 1), ["n_batches", "n_a", "n_b"]].tolist() == [2, 28, 37]
    assert "in 5 folds within 3 batches" in repr(result)


def strange():
    """Clusters 0 and 2 of batch 0, 1 and 3 of batch 1; without the batches 0 and 1 are the same."""
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2, 3], 60)
    means = np.array([[0, 0], [0, 0], [6, 0], [0, 6]])
    return rng.standard_normal((240, 2)) + means[labels], labels, labels % 2


@pytest.fixture(scope="module")
def strangers():
    with pytest.warns(BatchWarning, match="4 of 6 pairs"):
        return quick(*strange(), epochs=15)


def quietly(*what, **merge_options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PartitionWarning)
        return merge(*what, **merge_options)


@pytest.mark.parametrize("merge_options", [{}, {"alpha": 0.05}, {"max_tvd": 0.9}])
def test_strangers_are_not_merged_unless_they_must_be(strangers, merge_options):
    tree = quietly(strangers, **merge_options)
    assert tree.n_clusters == 4
    assert tree.stopped.endswith(" or has no batch with two observations of each")
    stranger = Mixtures(strangers).contrast(0, 1)
    assert (stranger.tvd, stranger.p_value, stranger.interval) == (1.0, 1.0, (0.0, 1.0))
    forced = quietly(strangers, n_clusters=1)
    why = "no batch has at least two observations of each; merged to reach the requested number"
    assert forced.merges[-1].why == f"{why} of clusters"
    assert [step.why.startswith("no batch") for step in forced.merges] == [False, False, True]


def test_one_that_meets_both_brings_strangers_together():
    X, labels, batch = strange()
    X[labels == 3] -= [0, 6]  # as 0 and 1 are, and in the batches of both
    batch[labels == 3] = np.arange(60) % 2
    with pytest.warns(BatchWarning, match=r"2 of 6 pairs .* \(0–1, 1–2\)"):
        result = quick(X, labels, batch, epochs=20)
    assert quietly(result).groups.tolist() == [0, 0, 1, 0]


# --- merged clusters ----------


def union_z(scores, members):
    """Score of a union for every held-out observation, from the mixture within its batch."""
    z, total = scores.dense().astype(float), np.zeros(len(scores.rows))
    for x in range(len(z)):
        n = scores.batch_sizes[scores.batches[x], members].astype(float)
        total[x] = logsumexp(z[x, members], b=n / n.sum()) if n.sum() else -np.inf
    return total


@settings(max_examples=8, deadline=None, derandomize=True)
@given(st.permutations(range(5)))
def test_unions_are_mixtures_within_batches(ragged, order):
    result, scores = ragged[0], ragged[0].scores
    (a, b, c), rest = order[:3], order[3:]
    evidence = Mixtures(result), Mixtures(result, columns=True)
    for one in evidence:
        one.merge(a, b)
        one.merge(a, c)
        one.merge(rest[0], rest[1])
    left, right = union_z(scores, [a, b, c]), union_z(scores, rest)
    of_left = np.isin(scores.clusters, [a, b, c])
    rates, weights = [], []
    for batch in range(3):
        sides = [(scores.batches == batch) & side for side in (of_left, ~of_left)]
        n = [side.sum() for side in sides]
        if min(n):
            margins = (left - right)[sides[0]], (right - left)[sides[1]]
            rates.append([(m > 0).mean() for m in margins])
            weights.append(n[0] * n[1] / sum(n))
    expected = np.average(rates, axis=0, weights=weights)
    for one in evidence:
        contrast = one.contrast(a, rest[0])
        assert contrast.hit_rate[0, 1] == pytest.approx(expected[0], abs=1e-9)
        assert contrast.hit_rate[1, 0] == pytest.approx(expected[1], abs=1e-9)
        assert np.isfinite(contrast.values).all()


def test_unmerged_clusters_are_as_in_the_estimate(ragged):
    result = ragged[0]
    low, high = result.confidence_interval()
    for evidence in (Mixtures(result), Mixtures(result, columns=True)):
        for a, b in [(0, 1), (1, 2), (2, 4), (3, 4)]:
            contrast = evidence.contrast(a, b)
            assert contrast.tvd == pytest.approx(result.tvd[a, b], abs=1e-12)
            assert contrast.interval == pytest.approx((low[a, b], high[a, b]), abs=1e-9)
            assert contrast.p_value == pytest.approx(result.p_value[a, b], rel=1e-6)


# --- what must not matter ----------


def test_order_and_names_do_not_matter(ragged):
    result, _, (X, labels, batch) = ragged
    rng = np.random.default_rng(3)
    order, names = rng.permutation(len(X)), np.array(["e", "b", "d", "a", "c"])
    runs = np.array(["run 7", "run 9", "run 1"])
    with pytest.warns(BatchWarning):
        other = quick(X[order], names[labels[order]], runs[batch[order]])
    where = np.searchsorted(other.cluster_ids, names)
    for name in ("hit_rate", "tvd", "p_value", "stderr", "n_batches"):
        assert np.array_equal(getattr(other, name)[np.ix_(where, where)], getattr(result, name))


def test_one_batch_is_none():
    X, labels, _ = confounded(n=30)
    plain, one = quick(X, labels), quick(X, labels, np.full(len(X), "run 1"))
    assert one.scores.batch_sizes is None
    assert np.array_equal(one.hit_rate, plain.hit_rate)
    assert np.array_equal(one.p_value, plain.p_value)
    assert list(one.table()) == list(plain.table())


def test_batches_of_noise_alone_are_left_out():
    X, labels, batch = confounded(n=30)
    noisy = np.append(labels, [-1, -1])
    known = quick(np.vstack([X, X[:2] + 9]), noisy, [*batch, 7, None])
    assert known.scores.n_batches == 2
    assert np.array_equal(known.hit_rate, quick(X, labels, batch).hit_rate)


def test_save_and_load_keep_batches(ragged, tmp_path):
    result = ragged[0]
    result.save(tmp_path / "pairs.npz")
    without = PairwiseTVD.load(tmp_path / "pairs.npz")
    for name, column in result.table().items():
        assert np.array_equal(without.table()[name], column), name
    assert repr(without) == repr(result)
    assert np.array_equal(without.n_batches, result.n_batches)
    result.save(tmp_path / "pairs.npz", scores=True)
    again = PairwiseTVD.load(tmp_path / "pairs.npz")
    assert np.array_equal(again.scores.batch_sizes, result.scores.batch_sizes)
    assert np.array_equal(again.scores.batches, result.scores.batches)
    assert np.array_equal(again.p_value, result.p_value)
    assert np.array_equal(again.divergence("lecam"), result.divergence("lecam"))
    assert repr(again) == repr(result)


def test_cells_by_hand():
    parts = Parts.cut(np.array([2, 0, -1, 0, 2]), np.array([1, 0, 0, 1, 1]))
    assert parts.table.tolist() == [[1, 0, 0], [1, 0, 2]]
    again = parts.renumbered(np.array([0, 2, -1, 1, 0]))
    assert again.table.tolist() == parts.table.tolist()
    assert again.cluster.tolist() == [2, 0, 0]


# --- bad input, files ----------

BAD = {
    "short": (lambda b: b[:-1], "X has 90 observations but batch has 89; pass one batch for each"),
    "matrix": (lambda b: b[:, None], r"batch has shape \(90, 1\); pass one batch"),
    "NaN": (
        lambda b: np.where(np.arange(90) < 5, np.nan, b),
        r"batch is missing \(-1, NaN or empty\) for 5 of 90 observations, the first in row 0",
    ),
    "None": (lambda b: [None, *map(str, b[1:])], "batch is missing .* for 1 of 90 observations"),
    "codes": (lambda b: b - (b == 1) * 2, "batch is missing .* for 45 of 90 observations"),
    "by cluster": (
        lambda b: np.repeat([0, 1, 2], 30),
        "no two clusters share a batch with at least two observations of each",
    ),
    "a batch each": (lambda b: np.arange(90), "no two clusters share a batch"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_batches_get_one_clear_sentence(case):
    X, labels, _ = confounded(n=30)
    change, message = BAD[case]
    with pytest.raises(InputError, match=message) as caught:
        quick(X, labels, change(np.arange(90) % 2))
    assert "\n" not in str(caught.value)


@pytest.fixture
def table(tmp_path, monkeypatch):
    """data.csv with clusters and donors, and donors.csv with the donors alone."""
    monkeypatch.chdir(tmp_path)
    X, labels, batch = confounded(n=40)
    donors = np.array(["ann", "bob"])[batch]
    lines = [f"{x[0]},{x[1]},{x[2]},{c},{d}" for x, c, d in zip(X, labels, donors, strict=True)]
    (tmp_path / "data.csv").write_text("\n".join(["x,y,z,cluster,donor", *lines]))
    (tmp_path / "donors.csv").write_text("\n".join(["cluster,donor", *(f"0,{d}" for d in donors)]))
    np.savez(tmp_path / "data.npz", X=X, cluster=labels)
    return X, labels, batch


def test_a_batch_is_a_column_or_a_file(table):
    X, labels, batch = table
    expected = pairwise_tvd(
        X, labels, batch=batch, cv=2, training=TrainConfig(epochs=3), device="cpu", random_state=3
    )
    for data, column in (("data.csv", "donor"), ("data.npz", "donors.csv")):
        where = (data, "--labels", "cluster", "--batch", column, "--out", "out", "--seed", 3)
        succeeds(unsplit("distances", *where, *QUICK))
        found = PairwiseTVD.load("out/distances.npz")
        assert np.array_equal(found.hit_rate, expected.hit_rate)
        assert set(read_csv("out/pairs.csv")["n_batches"]) == {"2"}
        assert read_json("out/distances.json")["batch"] == column


def test_arrays_and_folders_have_batches_too(tmp_path):
    np.savez(
        tmp_path / "clouds.npz", points=np.zeros((4, 9, 3)), cluster=[0, 0, 1, 1], run=[5, 6, 5, 6]
    )
    found = read(tmp_path / "clouds.npz", "cluster", "run")
    assert (found.labels.tolist(), found.batch.tolist()) == ([0, 0, 1, 1], [5, 6, 5, 6])
    with pytest.raises(InputError, match=r"there is no column .day. in .*clouds\.npz .*no file"):
        read(tmp_path / "clouds.npz", "cluster", "day")
    for name in ("cats/1.png", "cats/2.png", "dogs/1.png"):
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8), len(name), np.uint8)).save(tmp_path / "photos" / name)
    runs = tmp_path / "runs.csv"
    runs.write_text("id,batch\ndogs/1.png,a\ncats/2.png,b\ncats/1.png,a\n")
    found = read(tmp_path / "photos", batch=runs)
    assert (found.labels.tolist(), found.batch.tolist()) == (
        ["cats", "cats", "dogs"],
        ["a", "b", "a"],
    )
    with pytest.raises(
        InputError, match=r"there is no column .nowhere\.csv. in .* and no file of that name"
    ):
        read(tmp_path / "photos", batch="nowhere.csv")


def test_merge_takes_batches(table):
    where = ("data.csv", "--labels", "cluster", "--batch", "donor", "--out", "out", "--seed", 3)
    succeeds(unsplit("merge", *where, "--device", "cpu"))
    assert read_json("out/result.json")["mapping"] == {"0": "0 + 1", "1": "0 + 1", "2": "2"}
    assert read_json("out/result.json")["batch"] == "donor"
    wrong = unsplit("merge", *where[:4], "sex", *where[5:])
    assert "there is no column 'sex' in data.csv" in wrong.stderr
