"""Maps that lengthen no distance: their training, their choice and what they are worth."""

import numpy as np
import pytest
import scipy.linalg
import torch

from tests.wasserstein_cases import clusters_at, exact, normal
from unsplit.pairwise import lipschitz_maps as lipschitz
from unsplit.pairwise.heldout_scores import crossfit_folds
from unsplit.pairwise.lipschitz_maps import (
    Given,
    LipschitzMaps,
    cluster_means,
    fold_coordinates,
    nearest_orthonormal,
)


def trained_maps(x, clusters, n_folds=3, n_maps=2, epochs=2, seed=0):
    """Everything that is made on the way, for two maps of each kind: 0 to 3 fold."""
    rng = np.random.default_rng(seed)
    folds = crossfit_folds(clusters, n_folds, rng)
    x = torch.from_numpy(x.astype(np.float32))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        maps = LipschitzMaps(n_folds, n_maps, x.shape[1])
    means, history = lipschitz.train(Given(maps, x, clusters, folds), epochs, rng)
    return maps, x, folds, means, history


@pytest.fixture(scope="module")
def overlapping():
    """Four clusters of different shapes around the origin, E|x|² = 1, and maps trained on them."""
    X, clusters = clusters_at(np.zeros((4, 3)), 60, normal, seed=1)
    X *= np.array([0.3, 0.6, 1.0, 1.0])[clusters, None]
    X[clusters == 3] += [0.5, 0, 0]
    X = (X - X.mean(0)) / np.sqrt(((X - X.mean(0)) ** 2).sum(1).mean())
    return clusters, *trained_maps(X, clusters)


# The maps.


def written_out(maps, model, b, x):
    """One map from its definition, x (n, d) in float64."""
    kind, b = divmod(b, 2)
    if kind == 2:
        centre = maps.radial.centres[model, b].detach().double()
        return (x - centre).square().sum(1, keepdim=True).sqrt()
    weights = [w[model, b].detach().double() for w in maps.folding[kind].weights]
    biases = [bias[model, b].detach().double() for bias in maps.folding[kind].biases]
    z = x
    for weight, bias in zip(weights, biases, strict=True):
        z = z @ weight
        half = z.shape[1] // 2
        z = torch.cat([(z[:, :half] + bias).abs(), z[:, half:]], dim=1)
    return z


def of_each_map(kinds):
    """What there is of every map by itself, first of the identity."""
    return [one for kind in kinds for one in kind.unbind(1)]


def lengths(means):
    """|m_i − m_j| under every map, shape (models, 1 + maps, k, k)."""
    parts = [mean[:, :, None] - mean[:, None] for mean in of_each_map(means)]
    return np.stack([part.norm(dim=-1).numpy() for part in parts], axis=1)


@pytest.mark.parametrize("d", [1, 2, 3, 9])
def test_maps_never_lengthen_a_distance(d):
    rng = np.random.default_rng(d)
    X, clusters = clusters_at(rng.standard_normal((3, d)), 40, normal)
    maps, *_ = trained_maps(X / np.sqrt((X**2).sum(1).mean()), clusters, epochs=3)
    x = torch.from_numpy(rng.standard_normal((300, d)))
    near = x + 1e-3 * torch.from_numpy(rng.standard_normal((300, d)))
    for y in (near, x.flip(0), 10 * x.flip(0)):
        for model, b in np.ndindex(3, 6):
            mapped = written_out(maps, model, b, x) - written_out(maps, model, b, y)
            assert (mapped.norm(dim=1) <= (x - y).norm(dim=1) * (1 + 1e-5)).all()


def test_matrices_are_orthonormal_to_the_last_digit_in_the_end(monkeypatch):
    monkeypatch.setattr(lipschitz, "NEWTON_STEPS", 2)  # too few for any one step
    X, clusters = clusters_at(np.eye(2, 5), 30, normal)
    maps, *_ = trained_maps(X / np.sqrt(5), clusters, epochs=1)
    for weight in (w.detach() for kind in maps.folding for w in kind.weights):
        tall = weight.shape[-2] > weight.shape[-1]
        product = weight.mT @ weight if tall else weight @ weight.mT
        identity = torch.eye(product.shape[-1]).expand_as(product)
        torch.testing.assert_close(product, identity, atol=2e-6, rtol=0)


def test_jacobians_have_norm_at_most_one(overlapping):
    _, maps, x, *_ = overlapping
    jacobian = torch.func.vmap(torch.func.jacrev(lambda row: written_out(maps, 0, 1, row[None])[0]))
    norms = torch.linalg.matrix_norm(jacobian(x[:50].double()), 2)
    assert norms.max() <= 1 + 1e-5
    assert norms.min() > 0.99  # folding is all a map does: where it does not, it is an isometry


def test_maps_are_what_their_definition_says(overlapping):
    _, maps, x, *_ = overlapping
    identity, *trained = of_each_map(maps(x[None]))
    for model, number in np.ndindex(3, 6):
        expected = written_out(maps, model, number, x.double())
        torch.testing.assert_close(trained[number][model].double(), expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(identity[model], x)


@pytest.mark.parametrize("shape", [(4, 4), (6, 4), (1, 4), (7, 2)])
def test_nearest_orthonormal_against_scipy(shape):
    rng = np.random.default_rng(0)
    start = scipy.linalg.polar(rng.standard_normal(shape))[0]
    step = rng.standard_normal(shape)
    moved = start + 0.2 * step / np.linalg.norm(step)
    found = nearest_orthonormal(torch.from_numpy(moved)).numpy()
    np.testing.assert_allclose(found, scipy.linalg.polar(moved)[0], atol=1e-7)


def test_folding_is_sorting_in_pairs_turned():
    z = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    turn = torch.tensor([[1.0, 1.0], [-1.0, 1.0]]) / np.sqrt(2)
    turned = z @ turn
    folded = fold_coordinates(turned, torch.zeros(1)) @ turn.T
    ordered = torch.stack([z.max(dim=1).values, z.min(dim=1).values], dim=1)
    torch.testing.assert_close(folded, ordered)


# Cluster means and training.


def random_means(rng, n_models=2, n_maps=2, k=4):
    """Means under the identity and two kinds of maps, as maps could have given them."""
    shapes = (1, 3), (n_maps, 2), (1, 1)
    drawn = [rng.standard_normal((n_models, maps, k, h)) for maps, h in shapes]
    return [torch.from_numpy(means) for means in drawn]


def test_cluster_means_are_means(overlapping, monkeypatch):
    clusters, maps, x, folds, *_ = overlapping
    monkeypatch.setattr(lipschitz, "ROWS_AT_ONCE", 50)
    found, counts = cluster_means(Given(maps, x, clusters, folds), [fold.test for fold in folds])
    pairs = list(zip(of_each_map(found), of_each_map(maps(x[None])), strict=True))
    assert len(pairs) == 7
    for f, i in np.ndindex(3, 4):
        rows = folds[f].test[clusters[folds[f].test] == i]
        assert counts[f, i] == len(rows)
        for mean, mapped in pairs:
            expected = mapped[f][rows].mean(0).double()
            torch.testing.assert_close(mean[f, i], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("at_once", [1, 50, 10**6])
def test_pushes_are_the_gradient_of_the_longest_distances_of_each_kind(at_once, monkeypatch):
    monkeypatch.setattr(lipschitz, "ELEMENTS_AT_ONCE", at_once)
    means = random_means(np.random.default_rng(0), k=5)
    # Where maps have almost the same length, softly longest is not longest.
    pushes, value = lipschitz.push_directions(means, 1e-4)
    folding, radial = (mean.clone().requires_grad_() for mean in means[1:])
    of_kinds, longest = torch.zeros(()), 0.0
    for i, j in zip(*np.triu_indices(5, 1), strict=True):
        of_folding = (folding[:, :, i] - folding[:, :, j]).norm(dim=-1).amax(dim=1)
        of_radial = (radial[:, 0, i] - radial[:, 0, j]).norm(dim=-1)
        of_kinds = of_kinds + of_folding.sum() + of_radial.sum()
        longest += torch.maximum(of_folding, of_radial).sum().item()
    of_kinds.backward()
    for push, mean in zip(pushes, (folding, radial), strict=True):
        torch.testing.assert_close(push, mean.grad, rtol=0, atol=1e-8)
    assert value == pytest.approx(longest / (2 * 10))


def test_near_ties_share_a_pair_when_it_is_warm():
    means = random_means(np.random.default_rng(0), n_models=1, k=2)
    of_folding = lengths(means)[0, 1:3, 0, 1]
    (cold, _), _ = lipschitz.push_directions(means, 1e-4)
    (warm, _), _ = lipschitz.push_directions(means, 1e4)
    long, short = of_folding.argmax(), of_folding.argmin()
    assert cold[0, short].abs().max() < 1e-8
    torch.testing.assert_close(warm[0, long], cold[0, long] / 2, rtol=1e-3, atol=0)
    assert warm[0, short].abs().max() > 0.01


def test_training_drives_means_apart(overlapping):
    *_, means, history = overlapping
    assert history[-1] > 1.1 * history[0]
    upper = np.triu_indices(4, 1)
    longest = lengths(means)[:, 1:].max(axis=1)[:, *upper]
    assert history[-1] == pytest.approx(longest.mean())


# Values on rows held out.


def loops_over_pairs(clusters, maps, x, folds, choice):
    """Values and unwidened errors of all pairs from their definition."""
    k = choice.shape[1]
    value, stderr = np.zeros((k, k)), np.zeros((k, k))
    for i, j in zip(*np.triu_indices(k, 1), strict=True):
        residuals, per_fold, n = {i: [], j: []}, [], {i: [], j: []}
        for f, fold_ in enumerate(folds):
            b = choice[f, i, j]
            phi = written_out(maps, f, b - 1, x.double()).numpy() if b else x.double().numpy()
            train = {c: phi[fold_.train[clusters[fold_.train] == c]].mean(0) for c in (i, j)}
            u = (train[i] - train[j]) / np.linalg.norm(train[i] - train[j])
            middle = u @ (train[i] + train[j]) / 2
            test = {c: fold_.test[clusters[fold_.test] == c] for c in (i, j)}
            for c in (i, j):
                residuals[c].extend(phi[test[c]] @ u - middle)
                n[c].append(len(test[c]))
            per_fold.append(np.mean(phi[test[i]] @ u) - np.mean(phi[test[j]] @ u))
        weight = np.array([a * b / (a + b) for a, b in zip(n[i], n[j], strict=True)])
        weight /= weight.sum()
        variance = sum(np.var(residuals[c], ddof=1) * (weight**2 / n[c]).sum() for c in (i, j))
        value[i, j] = value[j, i] = weight @ per_fold
        stderr[i, j] = stderr[j, i] = np.sqrt(variance)
    return value, stderr


def test_values_and_errors_are_those_of_a_loop_over_pairs(overlapping):
    clusters, maps, x, folds, means, _ = overlapping
    keep = np.ones(len(clusters), bool)
    keep[np.flatnonzero(clusters == 1)[:29]] = False  # clusters of different sizes
    folds = [type(f)(f.train, f.validation, f.test[keep[f.test]]) for f in folds]
    rng = np.random.default_rng(0)
    choice = np.triu(rng.integers(0, 7, (3, 4, 4)), 1)
    choice = choice + choice.swapaxes(1, 2)
    sums = lipschitz.heldout_sums(Given(maps, x, clusters, folds), means, choice)
    value, stderr = lipschitz.combine_folds(*sums)
    expected, plain = loops_over_pairs(clusters, maps, x, folds, choice)
    np.testing.assert_allclose(value, expected, atol=1e-5)
    z = expected / np.where(plain > 0, plain, 1.0)
    np.testing.assert_allclose(stderr, plain * np.sqrt(1 + np.exp(-(z**2) / 8)), atol=1e-5)


def test_no_fold_exceeds_exact_transport_between_its_heldout_samples(overlapping):
    # Not by chance: each value is that of one 1-Lipschitz function on these very samples.
    clusters, maps, x, folds, means, _ = overlapping
    for b in range(7):
        choice = np.where(np.eye(4, dtype=bool), 0, b)[None].repeat(3, axis=0)
        first, _, counts = lipschitz.heldout_sums(Given(maps, x, clusters, folds), means, choice)
        side = first / counts[:, :, None]
        for f, i, j in np.ndindex(3, 4, 4):
            test = [folds[f].test[clusters[folds[f].test] == c] for c in (i, j)]
            assert side[f, i, j] + side[f, j, i] <= exact(*(x[t].numpy() for t in test)) + 1e-5


def test_the_identity_is_taken_where_trained_maps_only_learned_their_rows():
    X, clusters = clusters_at(2 * np.eye(5, 40), 20, normal)
    maps, x, folds, means, _ = trained_maps(X / np.sqrt(40), clusters, epochs=10)
    apart = lengths(means)
    upper = np.triu_indices(5, 1)
    assert (apart[:, 1:].max(axis=1) > apart[:, 0])[:, *upper].mean() > 0.9
    choice = lipschitz.choose_maps(Given(maps, x, clusters, folds), means)
    assert (choice[:, *upper] == 0).mean() > 0.5


def test_trained_maps_are_taken_where_means_say_nothing(overlapping):
    clusters, maps, x, folds, means, _ = overlapping
    choice = lipschitz.choose_maps(Given(maps, x, clusters, folds), means)
    assert (choice[:, 0, 2] > 0).all()
    np.testing.assert_array_equal(choice, choice.swapaxes(1, 2))
    np.testing.assert_array_equal(choice[:, range(4), range(4)], 0)


def test_rows_that_are_counted_have_no_say_in_the_choice(overlapping):
    clusters, maps, x, folds, means, _ = overlapping
    assert all(fold_.validates_on_test for fold_ in folds)
    choice = lipschitz.choose_maps(Given(maps, x, clusters, folds), means)
    moved = x.clone()
    moved[folds[0].test] = x[folds[0].test].mean(dim=0)  # trained maps now gain nothing there
    again = lipschitz.choose_maps(Given(maps, moved, clusters, folds), means)
    np.testing.assert_array_equal(again[0], choice[0])
    assert (again[1:] != choice[1:]).any()


def test_choice_of_maps_is_that_of_a_loop(overlapping):
    clusters, maps, x, folds, means, _ = overlapping
    validated, _ = cluster_means(
        Given(maps, x, clusters, folds), [fold_.validation for fold_ in folds]
    )
    length = lengths(means)
    of_maps = list(zip(of_each_map(means), of_each_map(validated), strict=True))
    pairs = list(zip(*np.triu_indices(4, 1), strict=True))
    kinds = ([1, 2], [3, 4], [5, 6])
    lost = np.zeros((3, 3))
    for kind, f in np.ndindex(3, 3):
        for i, j in pairs:
            b = max(kinds[kind], key=lambda b: length[f, b, i, j])
            products = [(m[f, i] - m[f, j]) @ (v[f, i] - v[f, j]) for m, v in of_maps]
            kept = np.array(products) / length[f, :, i, j]
            gained = length[f, b, i, j] - length[f, 0, i, j]
            lost[kind, f] += (gained - (kept[b] - kept[0])) / len(pairs)
    expected = np.zeros((3, 4, 4), int)
    for f in range(3):
        for i, j in pairs:
            worth = {0: length[f, 0, i, j]}
            for kind in range(3):
                others = np.mean([lost[kind, g] for g in range(3) if g != f])
                worth |= {b: length[f, b, i, j] - others for b in kinds[kind]}
            expected[f, i, j] = expected[f, j, i] = max(worth, key=worth.get)
    choice = lipschitz.choose_maps(Given(maps, x, clusters, folds), means)
    np.testing.assert_array_equal(choice, expected)
    assert len(set(choice.ravel())) > 2
