"""DeepCluster, trained here or as its authors published it."""

import math
import zipfile

import numpy as np
import pytest
import torch
from scipy.ndimage import correlate
from sklearn.cluster import KMeans
from torch.nn import functional as F

from experiments.core import Setting
from experiments.imagenet_realistic import material
from experiments.imagenet_realistic.checkpoint import load_published
from experiments.imagenet_realistic.config import Plan
from experiments.imagenet_realistic.deepcluster import Learned, Sobel, learn, standardized
from experiments.imagenet_realistic.pseudo_labels import balanced, k_means, moved, whitened
from experiments.images import gratings
from unsplit import InputError


def points(n, d, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32))


def test_whitened_components_are_uncorrelated_and_of_one_variance():
    x = points(400, 6) @ torch.diag(torch.tensor([9.0, 5, 3, 2, 1, 0.5])) + 7
    found = whitened(x, 3).double()
    assert torch.allclose(found.norm(dim=1), torch.ones(400, dtype=torch.float64), atol=1e-6)
    # The slow twin: project on eigenvectors one by one, divide by the deviation, then normalise.
    centred = x.double() - x.double().mean(0)
    values, vectors = np.linalg.eigh(np.cov(centred.T.numpy(), bias=True))
    columns = [centred.numpy() @ vectors[:, -1 - i] / math.sqrt(values[-1 - i]) for i in range(3)]
    twin = np.stack(columns, axis=1)
    twin /= np.linalg.norm(twin, axis=1, keepdims=True)
    np.testing.assert_allclose(np.abs(found.numpy()), np.abs(twin), atol=1e-5)


def test_features_that_do_not_vary_stay_finite():
    x = torch.cat([points(20, 2), torch.ones(20, 3)], dim=1)
    assert torch.isfinite(whitened(x, 5)).all()
    assert torch.isfinite(whitened(torch.ones(4, 3), 2)).all()


def test_k_means_is_scikit_learns_from_the_same_start():
    x = points(300, 4)
    torch.manual_seed(3)
    start = x[torch.randperm(300)[:7]]
    torch.manual_seed(3)
    found = k_means(x, 7, iterations=200)
    twin = KMeans(7, init=start.numpy(), n_init=1, max_iter=200, tol=0).fit(x.numpy())
    np.testing.assert_array_equal(found.numpy(), twin.labels_)


def test_a_cluster_without_points_splits_another():
    x = torch.tensor([[1.0], [1.1], [1.2], [8.0]])
    centres = moved(x, torch.tensor([0, 0, 0, 1]), torch.zeros(3, 1))
    means = torch.tensor([1.1, 8.0])
    gaps = (centres[2] / means - 1).abs()
    assert gaps.min() < 0.01  # beside one of the two others
    assert centres[2] not in centres[:2]
    np.testing.assert_allclose(centres[:2, 0], means, rtol=0.01)


def test_every_pseudo_label_is_drawn_equally_often():
    labels = torch.tensor([0] * 900 + [1] * 90 + [3] * 10)
    drawn = labels[balanced(labels, 30_000)].bincount()
    assert drawn[2] == 0
    np.testing.assert_allclose(drawn[[0, 1, 3]], 10_000, rtol=0.05)


def test_gradients_are_those_of_grey():
    x = points(3, 3 * 6 * 5).reshape(3, 3, 6, 5)
    across = np.array([[1, 0, -1], [2, 0, -2], [1, 0, -1]])
    for image, found in zip(x.numpy(), Sobel()(x).numpy(), strict=True):
        for kernel, one in zip((across, across.T), found, strict=True):
            twin = correlate(image.mean(axis=0), kernel, mode="constant")
            np.testing.assert_allclose(one, twin, atol=1e-5)


def test_learning_leaves_other_random_numbers_alone_and_repeats():
    X, _ = gratings(3, 4, 0)
    plan = Plan(clusters=4, rounds=2, epochs=1, components=5)
    before = torch.get_rng_state()
    first, again = (learn(X, plan, "cpu", 1) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_array_equal(first.features, again.features)
    assert first.features.shape == (12, 5)
    assert len(first.loss) == len(first.stability) == 2
    assert first.stability[0] == 0 <= first.stability[1] <= 1
    # Four labels and a classifier that starts at nearly zero: the loss starts at log 4.
    assert first.loss[0] == pytest.approx(math.log(4), rel=0.3)


def published(path, arch, sobel=True, bn=True, parallel=True, width=4):
    """A file of the published kind, with few channels and random weights."""
    rng = torch.Generator().manual_seed(0)
    kernels = {"alexnet": (11, 5, 3, 3, 3), "vgg16": (3,) * 13}[arch]
    pools = {"alexnet": (0, 1, 4), "vgg16": (1, 3, 6, 9, 12)}[arch]
    state, place, channels = {}, 0, 2 if sobel else 3
    inside = "features.module" if parallel else "features"
    for i, kernel in enumerate(kernels):
        weight = torch.randn(width, channels, kernel, kernel, generator=rng)
        state[f"{inside}.{place}.weight"] = weight / kernel
        state[f"{inside}.{place}.bias"] = torch.randn(width, generator=rng)
        if bn:
            place += 1
            for name in ("weight", "bias", "running_mean"):
                state[f"{inside}.{place}.{name}"] = torch.randn(width, generator=rng)
            state[f"{inside}.{place}.running_var"] = torch.rand(width, generator=rng) + 0.5
        channels, place = width, place + 2 + (i in pools)
    places, side = {"alexnet": ((1, 4), 6), "vgg16": ((0, 3), 7)}[arch]
    for where, (out, into) in zip(places, ((8, width * side**2), (5, 8)), strict=True):
        state[f"classifier.{where}.weight"] = torch.randn(out, into, generator=rng) / into**0.5
        state[f"classifier.{where}.bias"] = torch.randn(out, generator=rng)
    state |= {"top_layer.weight": torch.zeros(9, 5), "top_layer.bias": torch.zeros(9)}
    if sobel:
        state |= {"sobel.0.weight": torch.ones(1), "sobel.1.weight": torch.ones(1)}
    torch.save({"epoch": 1, "arch": arch, "state_dict": state}, path)
    return {name.replace(".module", ""): value for name, value in state.items()}


# Where each convolution stands, its stride and padding, and whether pooling follows.
ALEXNET = ((0, 4, 2, 1), (4, 1, 2, 1), (8, 1, 1, 0), (11, 1, 1, 0), (14, 1, 1, 1))


def slow_alexnet(state, x):
    """Layer by layer, as the published network computes."""
    across = torch.tensor([[1.0, 0, -1], [2, 0, -2], [1, 0, -1]])
    x = F.conv2d(x.mean(1, keepdim=True), torch.stack([across, across.T])[:, None], padding=1)
    for place, stride, pad, pool in ALEXNET:
        weight, bias = (state[f"features.{place}.{name}"] for name in ("weight", "bias"))
        x = F.conv2d(x, weight, bias, stride, pad)
        names = ("running_mean", "running_var", "weight", "bias")
        x = F.relu(F.batch_norm(x, *(state[f"features.{place + 1}.{n}"] for n in names)))
        x = F.max_pool2d(x, 3, 2) if pool else x
    x = F.relu(F.linear(x.flatten(1), state["classifier.1.weight"], state["classifier.1.bias"]))
    return F.linear(x, state["classifier.4.weight"], state["classifier.4.bias"])


def slow_vgg(state, x):
    """The same without gradients and normalisation."""
    for place in (0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28):
        weight, bias = (state[f"features.{place}.{name}"] for name in ("weight", "bias"))
        x = F.relu(F.conv2d(x, weight, bias, padding=1))
        x = F.max_pool2d(x, 2) if place in (2, 7, 14, 21, 28) else x
    x = F.relu(F.linear(x.flatten(1), state["classifier.0.weight"], state["classifier.0.bias"]))
    return F.linear(x, state["classifier.3.weight"], state["classifier.3.bias"])


def test_published_alexnet_computes_what_its_weights_say(tmp_path):
    state = published(tmp_path / "net.pth.tar", "alexnet")
    x = points(2, 3 * 224 * 224).reshape(2, 3, 224, 224)
    network = load_published(tmp_path / "net.pth.tar")
    assert torch.allclose(network(x), slow_alexnet(state, x), atol=1e-4)
    assert not any(p.requires_grad for p in network.parameters())


def test_published_vgg_without_parallel_names_gradients_or_normalisation(tmp_path):
    path = tmp_path / "net.pth.tar"
    state = published(path, "vgg16", sobel=False, bn=False, parallel=False, width=2)
    x = points(2, 3 * 224 * 224).reshape(2, 3, 224, 224)
    assert torch.allclose(load_published(path)(x), slow_vgg(state, x), rtol=1e-4, atol=1e-4)


def test_other_files_are_refused_in_a_sentence(tmp_path):
    path = tmp_path / "net.pth.tar"
    with pytest.raises(InputError, match=r"there is no checkpoint .*net.pth.tar; name a file"):
        load_published(path)
    path.write_bytes(b"nonsense")
    with pytest.raises(InputError, match='no checkpoint of DeepCluster: it has no "arch"'):
        load_published(path)
    published(path, "alexnet")
    content = torch.load(path)
    torch.save(content | {"arch": "resnet"}, path)
    with pytest.raises(InputError, match="holds the network 'resnet'; those that can be read are"):
        load_published(path)
    content["state_dict"]["classifier.1.weight"] = torch.zeros(8, 7)
    torch.save(content, path)
    with pytest.raises(InputError, match="give 144 numbers and the next layer takes 7"):
        load_published(path)
    del content["state_dict"]["features.module.4.bias"]
    torch.save(content, path)
    with pytest.raises(InputError, match=r"has no weights features.4.bias; the file is incomplete"):
        load_published(path)


@pytest.fixture
def photographs(tmp_path):
    """A zip of nine images, three of a kind, and the setting that finds them."""
    Image = pytest.importorskip("PIL.Image")
    X, _ = gratings(3, 3, 0)
    with zipfile.ZipFile(tmp_path / "some.zip", "w") as archive:
        for i, pixels in enumerate(X):
            Image.fromarray(pixels).save(tmp_path / "x.png")
            archive.write(tmp_path / "x.png", f"train/n{i // 3}/{i}.png")
    return X, Setting(tmp_path / "some.zip", "cpu", quick=False)


def test_a_published_network_beside_the_images_gives_the_features(photographs):
    X, setting = photographs
    path = setting.data.parent / "deepcluster.pth.tar"
    state = published(path, "alexnet")
    found = material.features("deepcluster", setting)
    large = F.interpolate(
        standardized(torch.from_numpy(X)), (224, 224), mode="bilinear", antialias=True
    )
    twin = whitened(slow_alexnet(state, large), 64).numpy()
    assert found.shape == (9, 5)
    np.testing.assert_allclose(np.abs(found), np.abs(twin), atol=1e-2)


def test_deepcluster_is_trained_once_and_kept(photographs, tmp_path, monkeypatch):
    X, setting = photographs
    calls = []

    def fake(images, plan, device, seed):
        calls.append(images.shape)
        return Learned(np.full((len(images), 4), 0.5, np.float32), [2.0, 1.5], [0.0, 0.5], 3.0)

    monkeypatch.setattr(material, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(material, "learn", fake)
    first = material.learned(setting)
    material.learned.cache_clear()  # as if in another process
    again = material.learned(setting)
    assert calls == [X.shape]
    np.testing.assert_array_equal(again.features, first.features)
    assert again[1:] == ([2.0, 1.5], [0.0, 0.5], 3.0)
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".npz"]


def test_stored_features_have_a_row_for_every_image(photographs):
    _, setting = photographs
    folder = setting.data.parent
    with pytest.raises(InputError, match=r"there is no tiny-imagenet-60.sscd64.npy or features"):
        material.features("sscd", setting)
    np.save(folder / "features.npy", np.zeros((8, 2), np.float16))
    with pytest.raises(InputError, match="has 8 rows for 9 images; it must have one for each"):
        material.features("sscd", setting)
    np.save(folder / "features.npy", np.ones((9, 2), np.float16))
    assert material.features("sscd", setting).dtype == np.float32


def test_pictures_of_a_dataset_and_smaller_ones():
    X, _ = gratings(2, 3, 0)
    rows = np.array([4, 1])
    as_dataset = [torch.from_numpy(np.moveaxis(image, -1, 0).copy()) for image in X]
    np.testing.assert_array_equal(material.pictures(as_dataset, rows), X[rows])
    small = material.pictures(X, rows, 4)
    twin = X[rows].reshape(2, 4, 2, 4, 2, 3).mean(axis=(2, 4))
    np.testing.assert_allclose(small, twin, atol=0.5)
    np.testing.assert_array_equal(material.pictures(X, rows, 32), X[rows])
