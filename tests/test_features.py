"""Features of a network that the user has, and vectors from a file."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import Dataset

import unsplit
from tests.checks import exactly
from unsplit.data.readers.observations import Observations, with_vectors
from unsplit.errors import InputError

IMAGES = np.random.default_rng(0).integers(0, 256, (7, 6, 4, 3), dtype=np.uint8)
MEANS = IMAGES.mean(axis=(1, 2)) / 255  # of every channel


class ChannelMeans(nn.Module):
    """Also notes the sizes of batches and whether it is in evaluation mode."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.seen = []

    def forward(self, x):
        self.seen.append((len(x), self.training))
        return self.weight * x.mean(dim=(2, 3))

    def __deepcopy__(self, memo):
        return self  # so that the test sees what the copy has seen


class Pictures(Dataset):
    def __len__(self):
        return len(IMAGES)

    def __getitem__(self, index):
        return torch.from_numpy(IMAGES[index]).movedim(-1, 0)


def write_folder(folder):
    for i, image in enumerate(IMAGES):
        path = folder / f"cluster{i % 2}" / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image[:4]).save(path)


@pytest.mark.parametrize("X", [IMAGES, torch.from_numpy(IMAGES), Pictures()])
def test_rows_are_those_of_the_observations_in_batches_of_any_size(X):
    network = ChannelMeans()
    found = unsplit.features(network, X, batch_size=3, device="cpu")
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, MEANS, atol=1e-6)
    assert network.seen == [(3, False), (3, False), (1, False)]


def test_the_network_of_the_user_stays_as_it_is():
    network = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(72))
    before = {name: value.clone() for name, value in network.state_dict().items()}
    unsplit.features(network, IMAGES, device="cpu")
    assert network.training
    for name, value in network.state_dict().items():
        torch.testing.assert_close(value, before[name])


def test_a_folder_is_read_in_the_order_of_its_ids(tmp_path):
    write_folder(tmp_path)
    read = unsplit.read(tmp_path)
    order = [int(name.split("/")[1].split(".")[0]) for name in read.row_ids]
    means = IMAGES[order][:, :4].mean(axis=(1, 2)) / 255
    for X in (tmp_path, str(tmp_path), read):
        np.testing.assert_allclose(
            unsplit.features(ChannelMeans(), X, device="cpu"), means, atol=1e-6
        )


def test_transform_changes_batches_and_kind_says_what_arrays_are():
    halved = unsplit.features(ChannelMeans(), IMAGES, transform=lambda x: x / 2, device="cpu")
    np.testing.assert_allclose(halved, MEANS / 2, atol=1e-6)
    grey = IMAGES[..., 0].astype(np.float32)  # would count as sequences
    found = unsplit.features(ChannelMeans(), grey, kind="images", device="cpu")
    np.testing.assert_allclose(found[:, 0], grey.mean(axis=(1, 2)), rtol=1e-5)


def test_progress_is_shown_on_request(capsys):
    unsplit.features(nn.Flatten(), IMAGES, device="cpu")
    assert capsys.readouterr().err == ""
    unsplit.features(nn.Flatten(), IMAGES, device="cpu", progress=True)
    assert "7/7" in capsys.readouterr().err


class Returns(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.make = make

    def forward(self, x):
        return self.make(x)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda x: x,
            "the network must turn a batch (b, ...) into features (b, h), but turned (7, 3, 6, 4) "
            "into (7, 3, 6, 4); flatten its output, as nn.Sequential(network, nn.Flatten()) does.",
        ),
        (
            lambda x: {"features": x},
            "the network must turn a batch (b, ...) into features (b, h), but turned (7, 3, 6, 4) "
            "into dict; flatten its output, as nn.Sequential(network, nn.Flatten()) does.",
        ),
        (
            lambda x: torch.where(torch.arange(7)[:, None] == 4, torch.nan, x.mean((2, 3))),
            "the network returned NaN or infinity for observation 4 of X; check it, or your "
            "own network for a division by zero.",
        ),
        (
            lambda x: x.mean((2, 3)).to(torch.complex64),
            "the network returned complex numbers; return real features.",
        ),
    ],
)
def test_networks_without_usable_output_are_refused(make, sentence):
    with pytest.raises(InputError, match=exactly(sentence)):
        unsplit.features(Returns(make), IMAGES, device="cpu")


def test_a_network_for_other_images_and_other_mistakes_are_refused():
    with pytest.raises(InputError, match=r"cannot take a batch of shape \(7, 3, 6, 4\): "):
        unsplit.features(nn.Conv2d(1, 2, 3), IMAGES, device="cpu")
    with pytest.raises(InputError, match=r"transform cannot take a batch of shape \(7, 3, 6, 4\)"):
        unsplit.features(nn.Flatten(), IMAGES, transform=lambda x: x @ x, device="cpu")
    with pytest.raises(InputError, match=r"network must be a Module, .*; pass the network first"):
        unsplit.features(IMAGES, nn.Flatten())
    with pytest.raises(InputError, match="batch_size must be a whole number of at least 1, got 0"):
        unsplit.features(nn.Flatten(), IMAGES, batch_size=0)


# Vectors from a file

PHOTOS = Observations(None, None, np.array(["x/b.jpg", "x/a.jpg"]), np.array(["x", "x"]))
VECTORS = np.array([[1.0, 2.0], [3.0, 4.0]])


def test_vectors_without_ids_are_in_the_order_of_the_observations(tmp_path):
    np.save(tmp_path / "v.npy", VECTORS)
    found = with_vectors(PHOTOS, tmp_path / "v.npy", "photos")
    np.testing.assert_array_equal(found.X, VECTORS)
    assert found.row_ids is PHOTOS.row_ids
    assert found.labels is PHOTOS.labels


def test_vectors_with_ids_are_matched_and_others_ignored(tmp_path):
    ids = np.array(["x/a.jpg", "x/broken.jpg", "x/b.jpg"])
    values = np.array([[3.0, 4.0], [0.0, 0.0], [1.0, 2.0]])
    np.savez(tmp_path / "v.npz", X=values, id=ids)
    rows = [f"{i},{a},{b}" for i, (a, b) in zip(ids, values, strict=True)]
    (tmp_path / "v.csv").write_text("\n".join(["id,first,second", *rows]))
    for name in ("v.npz", "v.csv"):
        found = with_vectors(PHOTOS, tmp_path / name, "photos")
        np.testing.assert_array_equal(found.X, VECTORS)


def refused(path, sentence):
    with pytest.raises(InputError, match=exactly(sentence)):
        with_vectors(PHOTOS, path, "photos")


def test_vectors_that_do_not_belong_to_the_observations_are_refused(tmp_path):
    path = tmp_path / "v.npy"
    refused(path, f"there is no file of vectors {path}; check its name.")
    np.save(path, np.zeros((3, 2)))
    refused(
        path,
        f"{path} has 3 vectors but photos has 2 observations; give one vector for each, in the "
        "same order, or add a column 'id' to match them by name.",
    )
    path = tmp_path / "v.csv"
    path.write_text("id,first\na.jpg,1\nx/b.jpg,2\n")
    refused(
        path,
        f"{path} has no vector for 'x/a.jpg' of photos (1 of 2 are missing; its own ids are like "
        "'a.jpg'); use the ids that labels.csv has, or remove the ids to match vectors by order.",
    )
    path.write_text("v,w\n1,NA\n0,1\n")
    with pytest.raises(InputError, match="missing or infinite values"):
        with_vectors(PHOTOS, path, "photos")
