"""The problems and over-clusterings that merging methods are compared on."""

import functools
import gzip
import importlib.util
from pathlib import Path

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from benchmarks.peers.overclusterings import (
    COVERED,
    OVERCLUSTERINGS,
    SMALLEST,
    overclusterings_of,
    restricted,
)
from benchmarks.peers.problems import PROBLEMS, files
from benchmarks.peers.problems.batteries import BATTERIES, MORE_BATTERIES
from benchmarks.peers.problems.families import CHOSEN_ON, FAMILIES, HALVES, HELD_BACK, half_of
from benchmarks.peers.problems.features import BANDS, axis_quantiles, log_mel
from benchmarks.peers.problems.simulated import DRAWS, apart
from benchmarks.peers.task import Problem

DATA = Path(__file__).parents[2] / "shared" / "data"

# Observations (None: the seed decides), features, groups.
SHAPES = {
    "digits": (1797, 64, 10),
    "bladder cells": (2100, 30, 16),
    "pbmc68k": (700, 30, 10),
    "fashion-mnist": (2000, 50, 10),
    "imagenet": (2000, 64, 10),
    "modelnet40": (None, 30, 10),
    "spoken digits": (2000, 40, 10),
    "separated gaussians": (2000, 10, 10),
    "overlapping gaussians": (2000, 10, 10),
    "moons": (1000, 2, 2),
    "rings": (1500, 2, 3),
    "unequal sizes": (1550, 10, 5),
    "unequal densities": (1500, 2, 5),
    "one gaussian, 2-d": (2000, 2, 1),
    "one gaussian, 10-d": (2000, 10, 1),
    "one gaussian, 50-d": (2000, 50, 1),
    "uniform, 2-d": (2000, 2, 1),
    "uniform, 10-d": (2000, 10, 1),
    "uniform, 50-d": (2000, 50, 1),
    "battery: a1": (3000, 2, 20),
    "battery: atom": (800, 3, 2),
    "battery: chainlink": (1000, 3, 2),
    "battery: circles": (4000, 2, 4),
    "battery: compound": (399, 2, 6),
    "battery: cross": (2000, 2, 4),
    "battery: fuzzyx": (1000, 2, 5),
    "battery: glass": (214, 9, 6),
    "battery: hdbscan": (2309, 2, 6),
    "battery: jain": (373, 2, 2),
    "battery: labirynth": (3546, 2, 6),
    "battery: line": (250, 2, 2),
    "battery: mk4": (1500, 3, 3),
    "battery: olympic": (5000, 2, 5),
    "battery: parabolic": (1000, 2, 2),
    "battery: pathbased": (300, 2, 3),
    "battery: ring": (1000, 2, 2),
    "battery: ring_outliers": (1030, 2, 5),
    "battery: s1": (5000, 2, 15),
    "battery: s3": (5000, 2, 15),
    "battery: sonar": (208, 60, 2),
    "battery: spiral": (312, 2, 3),
    "battery: stripes": (5000, 2, 2),
    "battery: tetra": (400, 3, 4),
    "battery: wdbc": (569, 30, 2),
    "battery: windows": (2977, 2, 5),
    "battery: wingnut": (1016, 2, 2),
    "battery: z2": (900, 2, 5),
    "20 newsgroups": (4983, 50, 20),
    "mnist": (3000, 50, 10),
    "worm cells": (4186, 30, 10),
    "battery: engytime": (4096, 2, 2),
    "battery: hepta": (212, 3, 7),
    "battery: lsun": (400, 2, 3),
    "battery: target": (770, 2, 6),
    "battery: twodiamonds": (800, 2, 2),
    "battery: dense": (200, 2, 2),
    "battery: ring_noisy": (1050, 2, 2),
    "battery: zigzag": (250, 2, 3),
    "battery: zigzag_noisy": (300, 2, 3),
    "battery: zigzag_outliers": (280, 2, 3),
    "battery: square": (1000, 2, 2),
    "battery: a2": (5250, 2, 35),
    "battery: aggregation": (788, 2, 7),
    "battery: d31": (3100, 2, 31),
    "battery: flame": (240, 2, 2),
    "battery: r15": (600, 2, 15),
    "battery: s2": (5000, 2, 15),
    "battery: s4": (5000, 2, 15),
    "battery: ecoli": (336, 7, 8),
    "battery: ionosphere": (351, 34, 2),
    "battery: statlog": (2310, 19, 7),
    "battery: yeast": (1484, 8, 10),
    "battery: graph": (2500, 2, 10),
    "battery: mk1": (300, 2, 3),
    "battery: mk2": (1000, 2, 2),
    "battery: mk3": (600, 3, 3),
    "battery: smile": (1000, 2, 6),
    "battery: trapped_lovers": (5000, 3, 3),
    "battery: twosplashes": (400, 2, 2),
    "battery: z3": (1000, 2, 4),
}
# Where groups have fewer than eight observations.
SMALLEST_GROUPS = {"battery: target": 3, "battery: ecoli": 2, "battery: yeast": 5}
WITH_NOISE = [
    f"battery: {of}" for of in ("hdbscan", "ring_noisy", "zigzag_noisy", "zigzag_outliers")
]
SUBSETS = ["fashion-mnist", "imagenet", "modelnet40", "spoken digits"]


@functools.cache
def load(name: str, seed: int = 0) -> Problem:
    return fresh(name, seed)


def fresh(name: str, seed: int) -> Problem:
    try:
        return PROBLEMS[name](DATA, seed)
    except (FileNotFoundError, ImportError) as error:
        pytest.skip(str(error))


def test_every_problem_has_its_shape_pinned():
    assert list(PROBLEMS) == list(SHAPES)


@pytest.mark.parametrize("name", SHAPES)
def test_shape_and_groups(name):
    n, d, n_true = SHAPES[name]
    problem = load(name)
    assert problem.name == name
    assert problem.X.shape == (n or len(problem.X), d)
    assert 200 <= len(problem.X) <= 5250
    assert problem.X.dtype == np.float64
    assert np.isfinite(problem.X).all()
    assert problem.y.shape == (len(problem.X),)
    assert problem.y.dtype == np.int64
    counts = np.bincount(problem.y[problem.y >= 0])
    assert counts.min() >= SMALLEST_GROUPS.get(name, 8)
    assert problem.n_true == len(counts) == n_true
    assert (problem.y.min() == -1) == (name in WITH_NOISE)


def test_every_problem_is_in_one_family_and_half():
    assert sorted(name for names in FAMILIES.values() for name in names) == sorted(PROBLEMS)
    held_back = {
        family: [name for name in names if half_of(name) == HELD_BACK]
        for family, names in FAMILIES.items()
    }
    assert held_back["real"] == ["digits", "imagenet", "mnist", "pbmc68k"]
    assert held_back["simulated"] == [
        "overlapping gaussians",
        "separated gaussians",
        "unequal sizes",
    ]
    assert len(held_back["battery"]) == 14 + 15
    assert held_back["structureless"] == []


def test_sets_added_later_alternate_among_themselves():
    for names in (BATTERIES, MORE_BATTERIES):
        halves = [half_of(name) for name in sorted(names)]
        assert halves == [*HALVES] * (len(names) // 2)
    assert half_of("battery: a1") == half_of("battery: a2") == CHOSEN_ON
    assert half_of("battery: atom") == half_of("battery: aggregation") == HELD_BACK


@pytest.mark.parametrize("name", [*DRAWS, *SUBSETS])
def test_the_seed_decides(name):
    first, again, other = load(name), fresh(name, 0), load(name, 1)
    np.testing.assert_array_equal(first.X, again.X)
    np.testing.assert_array_equal(first.y, again.y)
    assert first.X.shape != other.X.shape or not np.allclose(first.X, other.X)


def test_problems_of_one_seed_share_no_numbers():
    assert not np.isin(load("one gaussian, 2-d").X, load("one gaussian, 10-d").X).any()


# k-means given the true number: what it should and should not be able to do.
@pytest.mark.parametrize(
    ("name", "lowest", "highest"),
    [
        ("separated gaussians", 0.99, 1.0),
        ("unequal sizes", 0.5, 1.0),  # it may rather cut the largest than find the smallest
        ("overlapping gaussians", 0.4, 0.9),
        ("moons", 0.1, 0.5),
        ("rings", -0.1, 0.2),
        ("digits", 0.5, 0.8),
        ("bladder cells", 0.3, 0.7),
        ("pbmc68k", 0.3, 0.7),
        ("fashion-mnist", 0.25, 0.6),
        ("imagenet", 0.1, 0.5),
        ("modelnet40", 0.25, 0.7),
        ("spoken digits", 0.2, 0.6),
    ],
)
def test_problems_are_neither_trivial_nor_hopeless(name, lowest, highest):
    problem = load(name)
    found = KMeans(problem.n_true, n_init=5, random_state=0).fit_predict(problem.X)
    assert lowest <= adjusted_rand_score(problem.y, found) <= highest


def test_overlapping_gaussians_are_told_apart_nine_times_in_ten():
    problem = load("overlapping gaussians")
    centres = np.stack([problem.X[problem.y == c].mean(axis=0) for c in range(10)])
    nearest = ((problem.X[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
    assert 0.8 < (nearest == problem.y).mean() < 0.95


def test_centres_are_apart():
    sds = np.array([4.0, 1.0, 0.5, 2.0])
    centres = apart(sds, 2, 2.5, np.random.default_rng(0))
    for i in range(4):
        for j in range(i):
            assert np.linalg.norm(centres[i] - centres[j]) >= 2.5 * (sds[i] + sds[j])


def test_missing_file_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(files, "DEBIAN", tmp_path / "debian")
    with pytest.raises(FileNotFoundError, match=r"no pbmc68k.* run python -m benchmarks.*scanpy"):
        PROBLEMS["pbmc68k"](tmp_path, 0)
    with pytest.raises(FileNotFoundError, match="dataset-fashion-mnist"):
        PROBLEMS["fashion-mnist"](tmp_path, 0)
    with pytest.raises(FileNotFoundError, match="pass the data folder that holds it"):
        PROBLEMS["imagenet"](tmp_path, 0)


def test_fashion_mnist_keeps_images_and_labels_together(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "CACHE", tmp_path / "cache")
    rng = np.random.default_rng(0)
    labels = rng.integers(10, size=2500).astype(np.uint8)
    images = rng.integers(20, size=(2500, 784)).astype(np.uint8)
    images[np.arange(2500), labels] = 255  # the label is the bright pixel
    for name, header, content in (("labels-idx1", 8, labels), ("images-idx3", 16, images)):
        with gzip.open(tmp_path / f"train-{name}-ubyte.gz", "wb") as file:
            file.write(bytes(header) + content.tobytes())
    problem = PROBLEMS["fashion-mnist"](tmp_path, 0)
    found = KMeans(10, n_init=1, random_state=0).fit_predict(problem.X)
    assert adjusted_rand_score(problem.y, found) > 0.9


def test_axis_quantiles_do_not_see_the_order_of_points():
    rng = np.random.default_rng(0)
    points = rng.standard_normal((3, 128, 3))
    quantiles = axis_quantiles(points, 4)
    assert quantiles.shape == (3, 12)
    np.testing.assert_array_equal(quantiles, axis_quantiles(rng.permuted(points, axis=1), 4))
    np.testing.assert_array_equal(quantiles[1, 4:8], np.sort(points[1, :, 1])[16::32])


def test_log_mel_does_not_hear_loudness_or_silence_at_the_ends():
    time = np.arange(4000) / 8000
    sound = 1000 * np.sin(2 * np.pi * (500 + 1000 * time) * time)
    heard = log_mel(sound)
    assert heard.shape == (16 * BANDS,)
    np.testing.assert_allclose(log_mel(5 * sound), heard, atol=1e-9)
    later = log_mel(np.pad(sound, (1600, 1600)))
    backwards = log_mel(sound[::-1])
    assert np.abs(later - heard).mean() < 0.5 < np.abs(backwards - heard).mean()
    assert np.isfinite(log_mel(sound[:100])).all()


@functools.cache
def small() -> Problem:
    """Four groups of unequal size, one of them stretched, and an outlier."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), (20, 60, 100, 140))
    X = 6 * np.eye(4)[y] + rng.standard_normal((len(y), 4))
    X[-1] = 100
    return Problem("small", X, y)


def make(name: str, problem: Problem, k: int, seed: int):
    if name == "leiden" and not (
        importlib.util.find_spec("leidenalg") and importlib.util.find_spec("igraph")
    ):
        pytest.skip("leidenalg and igraph are not installed")
    return OVERCLUSTERINGS[name](problem, k, seed)


@pytest.mark.parametrize("k", [8, 16, 32])
@pytest.mark.parametrize("name", OVERCLUSTERINGS)
def test_about_k_clusters_none_tiny_and_none_empty(name, k):
    labels = make(name, small(), k, 0)
    assert labels.shape == small().y.shape
    assert labels.dtype == np.int64
    counts = np.bincount(labels[labels >= 0])
    assert counts.min() >= SMALLEST
    assert 0.7 * k <= len(counts) <= 1.1 * k
    if name != "greedy":
        assert labels.min() == 0


@pytest.mark.parametrize("name", OVERCLUSTERINGS)
def test_same_seed_same_clusters(name):
    first = make(name, small(), 16, 3)
    np.testing.assert_array_equal(first, make(name, small(), 16, 3))
    same = np.array_equal(first, make(name, small(), 16, 4))
    assert same == (name == "greedy")  # which has nothing random


@pytest.mark.parametrize("name", ["k-means", "gaussian mixture", "birch", "leiden", "greedy"])
def test_clusters_found_in_the_features_are_nearly_pure(name):
    problem, labels = restricted(small(), make(name, small(), 16, 0))
    assert purity(problem.y, labels) > 0.95


def purity(y, labels) -> float:
    return sum(np.bincount(y[labels == c]).max() for c in np.unique(labels)) / len(y)


def test_random_split_is_pure_and_larger_groups_get_more_pieces():
    problem = small()
    labels = OVERCLUSTERINGS["random split"](problem, 16, 0)
    assert purity(problem.y, labels) == 1.0
    assert [len(np.unique(labels[problem.y == c])) for c in range(4)] == [1, 3, 5, 7]
    assert len(np.unique(np.bincount(labels)[-7:])) > 1


def test_noisy_split_moves_a_fifth_to_other_groups():
    problem = load("separated gaussians")
    labels = OVERCLUSTERINGS["noisy random split"](problem, 20, 0)
    assert purity(problem.y, labels) == pytest.approx(0.8, abs=1e-9)


def test_noise_needs_a_second_group():
    assert set(overclusterings_of(small())) == set(OVERCLUSTERINGS)
    missing = set(OVERCLUSTERINGS) - set(overclusterings_of(load("uniform, 2-d")))
    assert missing == {"noisy random split"}


def noisy() -> Problem:
    """The small problem, every fifth observation of it noise, and no group 0."""
    y = np.where(np.arange(len(small().y)) % 5 == 0, -1, small().y)
    return Problem("noisy", small().X, np.where(y == 0, -1, y))


def test_noise_is_no_group_and_there_is_nothing_to_split():
    assert noisy().n_true == 3
    assert set(overclusterings_of(noisy())) == {"k-means", "gaussian mixture", "birch", "leiden"}


def test_restricting_keeps_noise_and_numbers_the_groups_anew():
    kept, _ = restricted(noisy(), np.zeros(len(noisy().y), np.int64))
    np.testing.assert_array_equal(kept.y, np.where(noisy().y < 0, -1, noisy().y - 1))


def test_greedy_covers_half_and_restricting_drops_the_rest():
    problem = small()
    labels = OVERCLUSTERINGS["greedy"](problem, 8, 0)
    kept, clusters = restricted(problem, labels)
    assert len(clusters) == 8 * int(COVERED * len(problem.X) / 8)
    assert clusters.min() == 0
    np.testing.assert_array_equal(kept.X, problem.X[labels >= 0])
    assert kept.n_true == len(np.unique(problem.y[labels >= 0])) == kept.y.max() + 1
    whole, same = restricted(problem, problem.y)
    np.testing.assert_array_equal(whole.X, problem.X)
    np.testing.assert_array_equal(same, problem.y)
