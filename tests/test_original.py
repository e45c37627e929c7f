"""The paper's method in one call, against a slow twin written from the equations."""

import re
from dataclasses import replace
from pathlib import Path
from pkgutil import resolve_name

import numpy as np
import pytest
import torch
from scipy.cluster.hierarchy import linkage
from sklearn.datasets import load_digits
from sklearn.naive_bayes import GaussianNB
from torch import nn

import unsplit
from tests import reference
from unsplit import InputError, TrainConfig, original
from unsplit.data.rows.base import canonical_order
from unsplit.data.rows.kinds import observations

EPOCHS, STEPS, PATIENCE, RATE = 5, 10, 2, 1e-3
# The batch is everything, so a step follows the gradient of the paper's L itself.
FULL_BATCH = TrainConfig(batch_size=10**6, patience=PATIENCE, learning_rate=RATE)


def digits(n_digits, parts, each, seed=0):
    """Digits, each cut at random into parts of unequal size."""
    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    rows, labels = [], []
    for digit in range(n_digits):
        members = rng.permutation(np.flatnonzero(y == digit))
        for part in range(parts):
            n = each + 5 * part
            rows.append(members[:n])
            members = members[n:]
            labels += [digit * parts + part] * n
    order = rng.permutation(len(labels))
    return X[np.concatenate(rows)][order], np.array(labels)[order]


def in_order(X, labels):
    """Rows and clusters as they are numbered by content, and the name of each cluster."""
    rows = observations(X, torch.device("cpu"))
    order, clusters = canonical_order(rows.keys, labels)
    names = np.zeros(clusters.max() + 1, np.int64)
    names[clusters[order]] = labels[order]
    return clusters, names


def leaves(tree):
    """The initial clusters of both sides of every merge of the result, with its distance."""
    sets = [{leaf} for leaf in range(len(tree.cluster_ids))]
    found = []
    for merge in tree.merges:
        left, right = sets[merge.left], sets[merge.right]
        sets.append(left | right)
        found.append((left, right, merge.statistic))
    return found[: tree.taken.sum()]


class Double(nn.Module):
    """To double precision: Adam's first step is the sign of a gradient, which rounding can turn."""

    def forward(self, x):
        return x.double()


@pytest.fixture
def double_precision():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize("distance", ["scores", "pairs"])
def test_the_same_merges_as_the_slow_twin(distance, monkeypatch):
    X, labels = digits(3, 2, 30)
    torch.manual_seed(0)
    backbone = nn.Sequential(Double(), nn.Linear(64, 12), nn.Tanh())
    weights = [p.detach().numpy().copy() for p in backbone.parameters()]
    folds = []

    def recorded(train, validation, test):
        assert validation is test
        folds.append((train, test))
        return unsplit.networks.training.group.Fold(train, validation, test)

    monkeypatch.setattr(original, "Fold", recorded)
    tree, distances = unsplit.paper(
        X, labels, n_clusters=3, distance=distance, backbone=backbone, random_state=0,
        training=replace(FULL_BATCH, epochs=EPOCHS),
    )  # fmt: skip
    assert len(folds) == 3
    clusters, names = in_order(X, labels)
    estimates = []

    def estimated(clusters, k):
        fold = folds[len(estimates)]
        D = reference.trained_as_published(
            X, clusters, k, fold, weights, distance == "pairs", EPOCHS, STEPS, RATE, PATIENCE
        )
        estimates.append(D)
        return D

    expected = reference.merged_as_published(clusters, 3, estimated)
    first = np.zeros((6, 6))
    first[np.ix_(names, names)] = estimates[0]
    np.testing.assert_allclose(distances, first, atol=1e-6)
    assert len(leaves(tree)) == len(expected) == 3
    for (left, right, statistic), (one, other, value) in zip(leaves(tree), expected, strict=True):
        assert {frozenset(left), frozenset(right)} == {
            frozenset(names[list(one)].tolist()),
            frozenset(names[list(other)].tolist()),
        }
        assert statistic == pytest.approx(value, abs=1e-6)


def test_euclidean_distance_is_the_mean_over_all_pairs_also_after_merges():
    X, labels = digits(3, 2, 20)
    tree, distances = unsplit.paper(X, labels, n_clusters=3, distance="euclidean")
    clusters, names = in_order(X, labels)

    def mean(clusters, k):
        D = np.zeros((k, k))
        for i in range(k):
            for j in range(k):
                pairs = [(a, b) for a in X[clusters == i] for b in X[clusters == j]]
                D[i, j] = np.mean([np.linalg.norm(a - b) for a, b in pairs])
        return D

    expected = reference.merged_as_published(clusters, 3, mean)
    np.testing.assert_allclose(distances[np.ix_(names, names)], mean(clusters, 6), atol=1e-6)
    found = [{frozenset(left), frozenset(right)} for left, right, _ in leaves(tree)]
    assert found == [
        {frozenset(names[list(one)].tolist()), frozenset(names[list(other)].tolist())}
        for one, other, _ in expected
    ]
    for (_, _, statistic), (_, _, value) in zip(leaves(tree), expected, strict=True):
        assert statistic == pytest.approx(value, abs=1e-6)


def test_it_trains_on_four_fifths_and_validates_on_what_it_tests():
    clusters = np.repeat([0, 1, 2, 3], [100, 25, 2, 1])
    held_out = original.split(clusters, np.random.default_rng(0))
    assert np.bincount(clusters[held_out], minlength=4).tolist() == [20, 5, 1, 0]


def test_every_row_is_drawn_once():
    drawn = original.every_row(np.repeat([0, 1], [90, 10]), 200, np.random.default_rng(0))
    assert sorted(drawn[:100]) == sorted(drawn[100:]) == list(range(100))


def test_batches_give_the_loss_of_all_rows_on_average():
    rng = np.random.default_rng(0)
    clusters = np.repeat([0, 1, 2], [40, 15, 5])
    scores = torch.from_numpy(rng.normal(size=(60, 3)))
    sizes, own = torch.tensor([40, 15, 5]), torch.from_numpy(clusters)
    _, loss = original.HEADS["scores"]
    whole = original.weighted(loss, sizes, scores, own)
    assert whole.item() == pytest.approx(reference.total_loss_of_scores(scores, clusters))
    parts = torch.from_numpy(rng.permutation(60)).split(20)
    of_parts = [original.weighted(loss, sizes, scores[p], own[p]).item() for p in parts]
    assert np.mean(of_parts) == pytest.approx(whole.item())


def test_names_and_order_change_nothing_and_noise_is_left_out():
    X, labels = digits(3, 2, 15)
    X = np.concatenate([X, X[:5] + 100])
    labels = np.append(labels, np.full(5, -1))
    how = {"n_clusters": 3, "training": TrainConfig(epochs=3), "random_state": 0}
    tree, distances = unsplit.paper(X, labels, **how)
    shuffled = np.random.default_rng(1).permutation(len(X))
    names = np.array(["noise", *"fedcba"])[labels + 1]
    names[labels < 0] = "-1"
    again, other = unsplit.paper(X[shuffled], names[shuffled], **how)
    np.testing.assert_array_equal(other, distances[::-1, ::-1])
    group = {name: again.mapping[name] for name in "fedcba"}
    for i, one in enumerate("fedcba"):
        for j, two in enumerate("fedcba"):
            assert (group[one] == group[two]) == (tree.mapping[i] == tree.mapping[j])


def test_the_closest_pair_is_merged_whatever_neighbours_say():
    # Two clusters that one gap separates, and a third farther away: the graph connects none.
    X, labels = unsplit.datasets.gaussians([[0, 0], [2.2, 0], [30, 0]], 60, random_state=0)
    tree, distances = unsplit.paper(X, labels, n_clusters=2, random_state=0)
    assert tree.mapping == {0: 0, 1: 0, 2: 1}
    assert tree.merges[0].statistic == distances[0, 1] < distances[0, 2] == 1


def test_the_rest_of_the_tree_is_average_linkage():
    means = 4 * np.random.default_rng(0).normal(size=(7, 2))
    X, labels = unsplit.datasets.gaussians(means, 20, random_state=0)
    tree, distances = unsplit.paper(X, labels, n_clusters=7, distance="euclidean")
    between = distances[np.triu_indices(7, 1)]
    np.testing.assert_allclose(tree.linkage[:, 2], linkage(between, "average")[:, 2])


def test_the_tree_is_completed_without_training(monkeypatch):
    X, labels = digits(2, 3, 15)
    trained = []

    class Counted(original.Training):
        def __init__(self, *given, **more):
            trained.append(1)
            super().__init__(*given, **more)

    monkeypatch.setattr(original, "Training", Counted)
    tree, _ = unsplit.paper(X, labels, n_clusters=4, training=TrainConfig(epochs=1), random_state=0)
    assert len(trained) == 2
    assert (tree.n_clusters, len(tree.merges)) == (4, 5)
    assert (tree.strategy, tree.statistic) == ("paper", "balanced accuracy")
    assert str(tree).endswith("4 clusters were requested")


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"n_clusters": 9}, "n_clusters must be a whole number from 1 to 2"),
        ({"n_clusters": 1, "distance": "cosine"}, "distance must be"),
        ({"n_clusters": 1, "backbone": "best"}, "backbone 'best' is no network"),
        ({"n_clusters": 1, "backbone": GaussianNB()}, r"backbone GaussianNB\(\) is no network"),
    ],
)
def test_bad_choices_are_refused(wrong, says):
    X, labels = unsplit.datasets.gaussians([[0, 0], [4, 0]], 10, random_state=0)
    with pytest.raises(InputError, match=says):
        unsplit.paper(X, labels, **wrong)


def test_clusters_of_one_cannot_be_compared():
    with pytest.raises(InputError, match="every cluster has only one observation"):
        unsplit.paper(np.eye(3), [0, 1, 2], n_clusters=2)


PAGE = Path(__file__).parents[1] / "docs" / "method.md"


def test_the_table_for_readers_of_the_paper_names_what_exists():
    table = PAGE.read_text("utf-8").split("## For readers of the paper")[1]
    names = re.findall(r"`((?:unsplit|tests)\.[\w.]+)`", table)
    assert len(names) > 25
    for name in names:
        package, _, rest = name.partition(".")
        found = getattr(unsplit, rest, None) if package == "unsplit" else None
        assert found is not None or resolve_name(name) is not None, name


def test_the_table_has_every_equation_of_the_paper():
    table = PAGE.read_text("utf-8").split("## For readers of the paper")[1]
    first = [row.split("|")[1] for row in table.splitlines() if row.startswith("| (")]
    numbers = set()
    for entry in first:
        for one, last in re.findall(r"\((\d+)\)(?:–\((\d+)\))?", entry):
            numbers |= set(range(int(one), int(last or one) + 1))
    assert numbers == set(range(1, 25))
