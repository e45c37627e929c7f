"""What is put together to a network, and what is refused."""

import copy

import numpy as np
import pytest
import scipy.sparse
import torch
from torch import nn

from tests.any_data_cases import CPU, clouds, images, ragged
from tests.checks import containing
from unsplit.data.rows.kinds import observations
from unsplit.errors import InputError
from unsplit.networks.augmentation import ImageAugmentation
from unsplit.networks.network import Standardize, StandardizeSequences
from unsplit.networks.registry import build_network, n_features_out, recipe_for
from unsplit.networks.training.group import Fold

HALF = Fold(np.arange(12), np.arange(12, 24), np.arange(12, 24))


def built(X, backbone, **options):
    rows = observations(X, CPU, options.pop("kind", None))
    return build_network(rows, HALF, recipe_for(backbone, rows), 3, "softmax", **options)


def flat_layer(n, width=4):
    return nn.Sequential(nn.Flatten(), nn.Linear(n, width))


# Parts

PARTS = {
    "vectors": (clouds()[:, :, 0], flat_layer(12), [Standardize, nn.Sequential], 4096),
    "images": (images(), flat_layer(108), [Standardize, ImageAugmentation, nn.Sequential], 512),
    "grey": (
        images(channels=1),
        flat_layer(36),
        [Standardize, ImageAugmentation, nn.Sequential],
        512,
    ),
}


@pytest.mark.parametrize("case", PARTS)
def test_a_network_is_a_scale_perhaps_a_change_and_a_backbone(case):
    X, backbone, parts, most = PARTS[case]
    network = built(X, backbone)
    assert [type(part) for part in network.backbone] == parts
    assert network.most_at_once == most
    assert (network.head.in_features, network.head.n_clusters) == (4, 3)
    assert network.training
    assert all(module.training for module in network.modules())
    without = built(X, backbone, augment=False)
    assert [type(part) for part in without.backbone] == [Standardize, nn.Sequential]


def test_an_own_augmentation_comes_after_the_scale():
    network = built(images(), flat_layer(108), augment=nn.Dropout(0.1))
    assert [type(p) for p in network.backbone] == [Standardize, nn.Dropout, nn.Sequential]


def test_counts_are_not_standardised_and_sequences_keep_their_mask():
    counts = built(scipy.sparse.csr_array(clouds()[:, :, 0] ** 2), "auto")
    assert len(counts.backbone) == 1
    sequences = built(ragged(), "auto", augment=False)
    assert type(sequences.backbone[0]) is StandardizeSequences


@pytest.mark.parametrize("X", [images(), images().astype(float), clouds(), clouds()[:, :, 0]])
def test_standardised_by_the_rows_that_are_trained_on(X):
    rows = observations(X, CPU)
    scale = build_network(rows, HALF, recipe_for(nn.Flatten, rows), 3, "softmax").backbone[0]
    batch = scale(rows.take(torch.arange(12)))
    assert batch.dtype == torch.float32
    axes = (0, 2, 3) if rows.kind == "images" else (0, 1) if rows.kind == "points" else 0
    torch.testing.assert_close(
        batch.mean(axes), torch.zeros(batch.mean(axes).shape), atol=1e-5, rtol=0
    )
    torch.testing.assert_close(batch.var(unbiased=False), torch.tensor(1.0), atol=1e-4, rtol=0)
    # The other half is not quite like that.
    assert scale(rows.take(torch.arange(12, 24))).mean().abs() > 1e-4


# Backbones that do not do


class Returns(nn.Module):
    """Whatever a function of the batch gives."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def fails(error):
    def function(x):
        raise error

    return function


WRONG_OUTPUT = {
    "a map": (lambda x: x, (2, 3, 6, 6)),
    "one axis": (lambda x: x.mean(dim=(1, 2, 3)), (2,)),
    "no batch": (lambda x: x[0, 0], (6, 6)),
    "nothing": (lambda x: x.flatten(1)[:, :0], (2, 0)),
    "tuple": (lambda x: (x.flatten(1), x), "tuple"),
    "dict": (lambda x: {"features": x}, "dict"),
    "None": (lambda x: None, "NoneType"),
}


@pytest.mark.parametrize("case", WRONG_OUTPUT)
def test_output_of_the_wrong_shape_is_refused(case):
    function, got = WRONG_OUTPUT[case]
    parts = ("backbone", "(b, ...)", "(b, h)", "(2, 3, 6, 6)", got, "flatten")
    with pytest.raises(InputError, match=containing(*parts)):
        built(images(), Returns(function))


ERRORS = {
    "RuntimeError": (RuntimeError("mat1 and mat2\nmany lines"), "mat1 and mat2"),
    "KeyError": (KeyError("layer"), "'layer'"),
    "AssertionError": (AssertionError(), "AssertionError"),
    "of its own": (type("Odd", (Exception,), {})("odd"), "odd"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_a_backbone_that_raises_is_refused_and_its_error_shown(case):
    error, reason = ERRORS[case]
    with pytest.raises(InputError, match=containing("backbone", "(2, 3, 6, 6)", reason)) as caught:
        built(images(), Returns(fails(error)))
    assert "\n" not in str(caught.value)  # the first line of the error is enough
    assert caught.value.__cause__ is error


def test_a_backbone_for_another_size_is_refused():
    with pytest.raises(InputError, match=containing("backbone", "(2, 3, 6, 6)", "mat1 and")):
        built(images(), flat_layer(100))


def broken_inside():
    network = nn.Sequential(
        nn.Flatten(), nn.Linear(108, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 4)), nn.Linear(4, 2)
    )
    with torch.no_grad():
        network[2][1].bias[1] = torch.nan
    return network


class Divides(nn.Module):
    """Finite layers, and a division by zero after them."""

    def __init__(self):
        super().__init__()
        self.layer = flat_layer(108)

    def forward(self, x):
        return self.layer(x).abs() / 0


NOT_FINITE = {
    "a layer": broken_inside(),
    "between layers": nn.Sequential(Divides(), nn.ReLU()),
    "the last step": Divides(),
    "infinite": Returns(lambda x: x.flatten(1) * torch.inf),
}


@pytest.mark.parametrize("case", NOT_FINITE)
def test_features_that_are_not_finite_are_refused(case):
    backbone = NOT_FINITE[case]
    with pytest.raises(InputError, match="the network returned NaN or infinity for observation"):
        built(images(), backbone)


def test_trying_a_backbone_leaves_it_as_it_was():
    body = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(108), nn.Dropout(0.5), nn.Linear(108, 5))
    before = copy.deepcopy(body.state_dict())
    rows = observations(images().astype(np.float32), CPU)
    assert n_features_out(body, rows) == 5
    assert body.training
    assert all(torch.equal(v, before[name]) for name, v in body.state_dict().items())


@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")
def test_a_lazy_backbone_learns_its_sizes():
    network = built(images(), lambda: nn.Sequential(nn.Flatten(), nn.LazyLinear(7)))
    assert network.head.in_features == 7
    assert network.backbone[-1][1].weight.shape == (7, 108)
