"""From X of every kind to all pairwise distances, and on to new observations."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
import torch
from torch import nn

from benchmarks.common import as_options
from tests.any_data_cases import Items, mapped
from tests.checks import about, exactly
from unsplit import InputError, TrainConfig, pairwise_tvd
from unsplit.data.rows.sequences import Ragged
from unsplit.networks.backbones import PointNet2, ResNet1d
from unsplit.pairwise.api import Settings, fit

N = 10  # observations a cluster
LABELS = np.repeat([0, 1, 2], N)


class SmallConvolution(nn.Module):
    """A network for images, which a test can wait for."""

    def __init__(self, channels=1):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(channels, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()
        )

    def forward(self, x):
        return self.layers(x).mean(dim=(2, 3))


class SetOfPoints(nn.Module):
    """A network for clouds: the largest responses of all points."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 8)

    def forward(self, x):
        return self.layer(x).amax(dim=1)


class MaskedMean(nn.Module):
    """A network for sequences: mean and mean square of what is real."""

    def forward(self, x):
        values, mask = x[:, :-1], x[:, -1:]
        n = mask.sum(-1)
        return torch.cat([(values * mask).sum(-1) / n, (values**2 * mask).sum(-1) / n], dim=1)


def noise(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal((3 * N, *shape))


def grey_images():
    """Bright ones and dark ones; clusters 0 and 1 are alike."""
    level = np.array([100, 100, 180])[LABELS][:, None, None]
    return (level + 20 * noise(6, 6)).astype(np.uint8)


def three_clouds():
    return noise(12, 3) * np.array([1, 1, 3])[LABELS][:, None, None]


def ragged_lists():
    lengths = np.random.default_rng(1).integers(4, 12, 3 * N)
    height = np.array([0, 0, 3])[LABELS]
    return [x[:n] + h for x, n, h in zip(noise(12, 2), lengths, height, strict=True)]


def few_counts():
    rate = np.array([[1, 1, 0.1], [1, 1, 0.1], [0.1, 0.1, 3]])[LABELS]
    return np.random.default_rng(0).poisson(np.repeat(rate, 3, axis=1)).astype(float)


def colour_items():
    return [np.stack([image] * 3) for image in grey_images()]


SOUNDS = Ragged.of([100 * x[:, :1] for x in ragged_lists()])
SOUND = replace(SOUNDS, rate=1000)

# X, and a backbone for it that a test can wait for.
KINDS = {
    "vectors": (noise(3) + LABELS[:, None], "auto"),
    "counts": (scipy.sparse.csr_matrix(few_counts()), "auto"),
    "images": (grey_images(), SmallConvolution),
    "points": (three_clouds(), SetOfPoints),
    "pointnet++": (three_clouds(), lambda: PointNet2(3, (8, 4), out_features=16)),
    "sequences": (np.stack([x[:4] for x in ragged_lists()]), MaskedMean),
    "ragged": (ragged_lists(), MaskedMean),
    "resnet1d": (ragged_lists(), lambda: ResNet1d(2, length=8, width=4)),
    "sound": (SOUND, MaskedMean),
    "Dataset": (Items(colour_items()), SmallConvolution(3)),
    "Dataset of vectors": (Items(list(noise(3) + LABELS[:, None])), "auto"),
    "sparse, own network": (scipy.sparse.csr_matrix(few_counts()), lambda: nn.Linear(9, 4)),
    "images as vectors": (grey_images(), "mlp"),
    "single-layer": (three_clouds(), "single-layer"),
}


def quick(X, labels=LABELS, **settings):
    return pairwise_tvd(
        X,
        labels,
        **as_options(**{"epochs": 1, "cv": 2, "random_state": 0, "device": "cpu"} | settings),
    )


def of_some(X, index):
    """The observations of X at ``index``."""
    if isinstance(X, Ragged):
        parts = [X.flat[X.offsets[i] : X.offsets[i + 1]] for i in index]
        return Ragged.of(parts, X.rate)
    if isinstance(X, Items):
        return Items([X[i] for i in index])
    return [X[i] for i in index] if isinstance(X, list) else X[index]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_data_gives_distances_and_takes_new_observations(kind):
    X, backbone = KINDS[kind]
    settings = Settings(backbone, cv=2, training=TrainConfig(epochs=1), device="cpu")
    fitted = fit(X, LABELS, settings, random_state=0)
    result = fitted.result
    assert result.sizes.tolist() == [N, N, N]
    assert np.array_equal(np.sort(result.scores.rows), np.arange(3 * N))
    assert np.isfinite(result.scores.dense()).all()
    assert np.array_equal(result.tvd, result.tvd.T)
    # New observations are judged one by one, whatever else is in the batch.
    everyone = fitted.log_posterior(X)
    assert everyone.shape == (3 * N, 3)
    assert (everyone < 0).all()
    some = np.array([25, 3, 14])
    np.testing.assert_allclose(
        fitted.log_posterior(of_some(X, some)), everyone[some], rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("kind", ["images", "ragged", "counts", "Dataset"])
def test_what_differs_is_told_from_what_does_not(kind):
    X, backbone = KINDS[kind]
    result = quick(X, backbone=backbone, epochs=15, augment=False)
    assert result.tvd[0, 1] < 0.5
    assert result.tvd[0, 2] > 0.7
    assert result.tvd[1, 2] > 0.7


ORDERED = ("vectors", "counts", "images", "pointnet++", "ragged", "resnet1d")


@pytest.mark.parametrize("kind", ORDERED)
def test_neither_the_order_of_rows_nor_names_of_clusters_matter(kind):
    X, backbone = KINDS[kind]
    rng = np.random.default_rng(5)
    order, names = rng.permutation(3 * N), np.array(["b", "c", "a"])
    result = quick(X, backbone=backbone)
    other = quick(of_some(X, order), names[LABELS[order]], backbone=backbone)
    assert other.cluster_ids.tolist() == ["a", "b", "c"]
    where = np.searchsorted(other.cluster_ids, names)
    assert np.array_equal(other.tvd[np.ix_(where, where)], result.tvd)
    assert np.array_equal(other.history.loss, result.history.loss)
    # And every observation has the very same scores.
    ours, theirs = np.argsort(result.scores.rows), np.argsort(order[other.scores.rows])
    dense = other.scores.dense()[theirs][:, where]
    assert np.array_equal(dense, result.scores.dense()[ours])


def test_a_dataset_with_keys_can_be_in_any_order():
    order = np.random.default_rng(5).permutation(3 * N)
    network, results = SmallConvolution(3), []
    for index in (np.arange(3 * N), order):
        data = Items([colour_items()[i] for i in index])
        data.keys = (7 * index + 3) % 31
        results.append(quick(data, LABELS[index], backbone=network))
    assert np.array_equal(results[0].tvd, results[1].tvd)


@pytest.mark.parametrize("kind", ["images", "points", "sequences"])
def test_mapped_from_disk_gives_the_same_to_the_bit(kind, tmp_path):
    X, backbone = KINDS[kind]
    inside = quick(X, backbone=backbone)
    outside = quick(mapped(X, tmp_path / "X.npy"), backbone=backbone)
    assert np.array_equal(outside.scores.features, inside.scores.features)
    assert np.array_equal(outside.tvd, inside.tvd)


def test_layouts_and_arrays_and_datasets_give_the_same():
    colours = np.stack(colour_items())
    network = SmallConvolution(3)
    expected = quick(colours, backbone=network).scores.features
    last = np.moveaxis(colours, 1, -1)
    for X in (last, np.ascontiguousarray(last), torch.from_numpy(colours)):
        assert np.array_equal(quick(X, backbone=network).scores.features, expected)
    with_keys = Items(colour_items())
    from_arrays = fit(
        colours, LABELS, Settings(network, cv=2, training=TrainConfig(epochs=1), device="cpu"), 0
    )
    with_keys.keys = from_arrays.rows.keys
    streamed = quick(with_keys, backbone=network).scores.features
    np.testing.assert_allclose(streamed, expected, rtol=1e-4, atol=1e-5)


# Numbers of features of the networks for a CPU.
AUTO = {"images": 256, "points": 128, "sequences": 256, "ragged": 256, "sound": 256}


@pytest.mark.parametrize("kind", AUTO)
def test_auto_finds_a_network(kind):
    X, labels = of_some(KINDS[kind][0], np.arange(12)), np.repeat([0, 1], 6)
    result = quick(X, labels, cv=0.2)
    assert result.scores.features.shape == (2, AUTO[kind])
    assert np.isfinite(result.scores.dense()).all()


def test_one_network_for_a_split_and_several_for_folds():
    X, backbone = KINDS["images"]
    assert quick(X, backbone=backbone, cv=0.2).n_heldout.tolist() == [2, 2, 2]
    assert quick(X, backbone=backbone, cv=3).n_heldout.tolist() == [N, N, N]


def test_own_modules_are_not_trained_in_place():
    network, change = SmallConvolution(), nn.Dropout(0.1)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    quick(grey_images(), backbone=network, augment=change)
    quick(grey_images(), backbone=lambda: network, augment=change)
    assert all(torch.equal(v, before[name]) for name, v in network.state_dict().items())
    assert network.training
    assert all(p.grad is None for p in network.parameters())


def test_augmentation_happens_in_training_only():
    seen = {True: 0, False: 0}

    class Watch(nn.Module):
        def forward(self, x):
            type(self).count(self.training)
            return x

        @staticmethod
        def count(training):
            seen[training] += 1

    quick(grey_images(), backbone=SmallConvolution, augment=Watch())
    assert seen[True] >= 20  # ten steps for each of two folds
    assert seen[False] >= 2


def test_the_seed_decides():
    X, backbone = KINDS["points"]
    one, same, other = (quick(X, backbone=backbone, random_state=s) for s in (1, 1, 2))
    assert np.array_equal(one.scores.features, same.scores.features)
    assert not np.array_equal(one.scores.features, other.scores.features)


BAD = {
    "labels": (
        lambda: (grey_images(), LABELS[1:], {"backbone": SmallConvolution}),
        "X has 30 observations but labels has 29; pass one label for each row of X.",
    ),
    "clouds with gaps": (
        lambda: (np.where(three_clouds() > 5, np.nan, three_clouds()), LABELS, {}),
        "observation 20 of X has values that are NaN, infinite or larger than 1e+30; remove "
        "such observations or fill in the values first.",
    ),
    "a loss that explodes": (
        lambda: (noise(3), LABELS, {"backbone": Explodes}),
        "the loss became nan within 10 steps of training; check X for extreme values, or choose a "
        "lower learning_rate.",
    ),
    "a network for more channels": (
        lambda: (grey_images(), LABELS, {"backbone": SmallConvolution(3)}),
        "backbone cannot take a batch of shape (2, 1, 6, 6): Given groups=1, weight of size "
        "[4, 3, 3, 3], expected input[2, 1, 6, 6] to have 3 channels, but got 1 channels instead",
    ),
    "augmentation": (
        lambda: (grey_images(), LABELS, {"backbone": SmallConvolution, "augment": "flip"}),
        "augment must be \"auto\", False or a torch.nn.Module, got 'flip'.",
    ),
}


class Explodes(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 4)

    def forward(self, x):
        return self.layer(x) * (torch.inf if self.training else 1)


@pytest.mark.parametrize("case", BAD)
def test_bad_data_and_networks_get_one_sentence(case):
    make, sentence = BAD[case]
    X, labels, settings = make()
    with pytest.raises(InputError, match=exactly(sentence)) as caught:
        quick(X, labels, **settings)
    assert "\n" not in str(caught.value)


def test_new_observations_must_be_like_those_fitted():
    fitted = fit(
        grey_images(),
        LABELS,
        Settings(SmallConvolution, cv=2, training=TrainConfig(epochs=1), device="cpu"),
        0,
    )
    sentence = "X has observations of shape (1, 5, 6), but … trained on … (1, 6, 6); …"
    with pytest.raises(InputError, match=about(sentence)):
        fitted.log_posterior(grey_images()[:, 1:])
