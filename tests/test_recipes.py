"""Networks by name, networks of others, and what happens to batches in training."""

import copy
import functools

import numpy as np
import pytest
import scipy.sparse
import torch
from torch import nn

import unsplit
from tests.any_data_cases import CPU, clouds, images, ragged
from tests.checks import exactly
from unsplit.data.rows.kinds import observations
from unsplit.data.rows.sequences import Ragged
from unsplit.errors import InputError
from unsplit.networks.augmentation import ImageAugmentation, PointAugmentation, SequenceAugmentation
from unsplit.networks.backbones import (
    MLP,
    AudioNet,
    BagOfWords,
    ConvNet,
    PointNet,
    ResNet1d,
    SingleLayer,
)
from unsplit.networks.backbones.images import without_classifier
from unsplit.networks.registry import RECIPES, augmentation_for, default_name, recipe_for, recipe_of
from unsplit.networks.training.loop import USUAL

ROWS = {
    "vectors": observations(clouds()[:, :, 0], CPU),
    "counts": observations(scipy.sparse.csr_array(clouds()[:, :, 0] ** 2), CPU),
    "images": observations(images(), CPU),
    "points": observations(clouds(), CPU),
    "sequences": observations(ragged(), CPU),
    "sound": observations(Ragged.of(ragged(channels=1), rate=8000), CPU),
}

AUTO = {
    "vectors": ("mlp", MLP),
    "counts": ("bag-of-words", BagOfWords),
    "images": ("convnet", ConvNet),
    "points": ("pointnet", PointNet),
    "sequences": ("resnet1d", ResNet1d),
    "sound": ("logmel", AudioNet),
}


def built(backbone, rows):
    return recipe_for(backbone, rows).build(rows, np.arange(len(rows)))


@pytest.mark.parametrize("kind", AUTO)
def test_auto_is_the_network_for_this_kind_of_data(kind):
    rows, (name, network) = ROWS[kind], AUTO[kind]
    assert default_name(rows) == name
    recipe = recipe_for("auto", rows)
    assert recipe is recipe_for(name, rows) is RECIPES[name]
    assert recipe_of(name).kind == rows.kind
    backbone = built("auto", rows)
    assert isinstance(backbone, network)
    with torch.no_grad():
        features = backbone.eval()(rows.take(torch.tensor([0, 1])).float())
    assert features.shape == (2, backbone.out_features)


@pytest.mark.parametrize(
    ("kind", "device", "name"),
    [
        ("images", "cpu", "convnet"),
        ("images", "cuda", "resnet18"),
        ("images", "mps", "resnet18"),
        ("points", "cpu", "pointnet"),
        ("points", "cuda", "pointnet++"),
    ],
)
def test_images_and_clouds_get_a_small_network_on_a_cpu_and_a_large_one_on_a_gpu(
    kind, device, name
):
    rows = copy.copy(ROWS[kind])
    rows.device = torch.device(device)
    assert default_name(rows) == name
    assert recipe_for("auto", rows) is RECIPES[name]


@pytest.mark.parametrize("kind", ["vectors", "images", "points"])
def test_a_single_layer_takes_everything_of_one_shape(kind):
    assert recipe_of("single-layer").kind is None
    backbone = built("single-layer", ROWS[kind])
    assert isinstance(backbone, SingleLayer)
    assert backbone(ROWS[kind].take(torch.tensor([0, 1])).float()).shape == (2, 1024)


def test_a_single_layer_takes_no_sequences_of_different_lengths():
    message = '"single-layer" cannot read sequences of different lengths; use "resnet1d"'
    with pytest.raises(InputError, match=message):
        built("single-layer", ROWS["sequences"])


def test_networks_fit_the_data():
    assert built("auto", ROWS["images"]).layers[0].in_channels == 3
    assert built("resnet18", ROWS["images"]).conv1.in_channels == 3
    coloured = observations(clouds(numbers=6), CPU, "points")
    assert built("pointnet++", coloured).in_features == 6
    assert built("auto", coloured).in_features == 6
    assert built("auto", ROWS["sequences"]).first.in_channels == 3  # two and the mask
    long = observations([np.zeros(n) for n in (5, 4000, 4000)], CPU)
    assert built("auto", long).stride == 8


def test_sound_that_does_not_say_its_rate_is_refused():
    with pytest.raises(
        InputError, match='backbone "logmel" needs to know the number of samples per second'
    ):
        built("logmel", ROWS["sequences"])


@pytest.mark.parametrize("backbone", ["vgg", "", 3, None, ["mlp"], ("mlp",)])
def test_unknown_backbones_are_refused(backbone):
    sentence = (
        "backbone must be \"auto\", 'mlp', 'bag-of-words', 'resnet18', 'convnet', 'pointnet++', "
        "'pointnet', 'resnet1d', 'logmel', 'single-layer', 'trees', 'lda', 'logistic-regression', "
        "'best', a torch.nn.Module or a function that returns one, or a scikit-learn classifier "
        f"with predict_proba or decision_function, got {backbone!r}."
    )
    with pytest.raises(InputError, match=exactly(sentence)):
        recipe_of(backbone)


@pytest.mark.parametrize(
    ("backbone", "kind", "holds", "use"),
    [
        ("mlp", "vectors", "sequences", "resnet1d"),
        ("resnet18", "images", "sound", "logmel"),
        ("bag-of-words", "counts", "points", "pointnet"),
    ],
)
def test_a_network_for_other_data_is_refused(backbone, kind, holds, use):
    rows = ROWS[holds]
    sentence = f'backbone "{backbone}" is for {kind}, but X holds {rows.kind}; use "{use}".'
    with pytest.raises(InputError, match=exactly(sentence)):
        recipe_for(backbone, rows)


# Networks of others


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(12, 4)

    def forward(self, x):
        return self.layer(x)


def make_own():
    return Own()


OWN = {
    "module": (Own(), "Own"),
    "class": (Own, "Own"),
    "function": (make_own, "make_own"),
    "lambda": (lambda: Own(), "<lambda>"),
    "partial": (functools.partial(nn.Linear, 12, 4), "partial"),
}


@pytest.mark.parametrize("case", OWN)
def test_a_module_is_copied_and_a_function_called_for_every_network(case):
    backbone, name = OWN[case]
    assert recipe_of(backbone).kind is None
    recipe = recipe_for(backbone, ROWS["vectors"])
    assert (recipe.name, recipe.kind) == (name, None)
    first, second = (built(backbone, ROWS["vectors"]) for _ in range(2))
    assert isinstance(first, nn.Module)
    assert first is not second
    assert first is not backbone
    shared = {id(p) for p in first.parameters()} & {id(p) for p in second.parameters()}
    assert not shared
    same = all(
        torch.equal(p, q) for p, q in zip(first.parameters(), second.parameters(), strict=True)
    )
    assert same == isinstance(backbone, nn.Module)


def test_a_function_that_gives_the_same_module_every_time_does_no_harm():
    module = Own()
    first, second = (built(lambda: module, ROWS["vectors"]) for _ in range(2))
    assert len({id(module), id(first), id(second)}) == 3
    with torch.no_grad():
        first.layer.weight.zero_()
    assert module.layer.weight.any()
    assert second.layer.weight.any()


def test_how_networks_of_others_are_trained_depends_on_the_data():
    assert recipe_for(Own, ROWS["vectors"]).training == USUAL
    assert recipe_for(Own, ROWS["images"]).training == RECIPES["resnet18"].training


@pytest.mark.parametrize(
    ("backbone", "sentence"),
    [
        (
            lambda: 7,
            "backbone '<lambda>' did not return a network, but 7; pass a torch.nn.Module, or a "
            "function without parameters that returns one.",
        ),
        (
            lambda: Own,
            "backbone '<lambda>' did not return a network, but <class 'tests.test_recipes.Own'>; "
            "pass a torch.nn.Module, or a function without parameters that returns one.",
        ),
        (
            nn.Flatten().forward,
            "backbone 'forward' did not return a network, but TypeError(\"Flatten.forward() "
            "missing 1 required positional argument: 'input'\"); pass a torch.nn.Module, or a "
            "function without parameters that returns one.",
        ),
    ],
)
def test_functions_that_make_no_network_are_refused(backbone, sentence):
    with pytest.raises(InputError, match=exactly(sentence)):
        built(backbone, ROWS["vectors"])


def test_what_a_function_raises_is_shown():
    def broken():
        raise OSError("no weights here")

    with pytest.raises(OSError, match="no weights here"):
        built(broken, ROWS["vectors"])


# torchvision and timm, which need not be there


def like_torchvision(**layers):
    """A module that says it comes from torchvision."""

    class Network(nn.Module):
        __module__ = "torchvision.models.resnet"

        def __init__(self):
            super().__init__()
            for name, layer in layers.items():
                setattr(self, name, layer)

        def forward(self, x):
            for layer in self.children():
                x = layer(x)
            return x

    return Network()


class LikeTimm(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(12, 8)
        self.fc = nn.Linear(8, 10)
        self.asked = []

    def reset_classifier(self, num_classes, global_pool=None):
        self.asked.append(num_classes)
        self.fc = nn.Identity()

    def forward(self, x):
        return self.fc(self.stem(x))


def stem():
    return nn.Linear(12, 8)


FOREIGN = {
    "resnet": (like_torchvision(stem=stem(), fc=nn.Linear(8, 10)), 8),
    "densenet": (like_torchvision(stem=stem(), classifier=nn.Linear(8, 10)), 8),
    "swin": (like_torchvision(stem=stem(), head=nn.Linear(8, 10)), 8),
    "vit": (like_torchvision(stem=stem(), heads=nn.Sequential(nn.Linear(8, 10))), 8),
    "mobilenet": (
        like_torchvision(
            stem=stem(), classifier=nn.Sequential(nn.Dropout(0.2), nn.Linear(8, 1000))
        ),
        8,
    ),
    "vgg": (
        like_torchvision(
            stem=stem(),
            classifier=nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Dropout(), nn.Linear(6, 1000)),
        ),
        6,
    ),
    "ends in no linear layer": (
        like_torchvision(stem=stem(), classifier=nn.Sequential(nn.Linear(8, 10), nn.Sigmoid())),
        8,
    ),
    "squeezenet": (
        like_torchvision(
            stem=nn.Sequential(stem(), nn.Unflatten(1, (8, 1, 1))),
            classifier=nn.Sequential(nn.Conv2d(8, 10, 1), nn.ReLU(), nn.Flatten()),
        ),
        10,
    ),
    "timm": (LikeTimm(), 8),
    "someone's own": (nn.Sequential(stem(), nn.Linear(8, 10)), 10),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_known_networks_lose_their_classifier(case):
    network, width = FOREIGN[case]
    before = {name: value.clone() for name, value in network.state_dict().items()}
    backbone = built(network, ROWS["vectors"])
    assert backbone(torch.rand(2, 12)).shape == (2, width)
    # The user's own still has it.
    assert network.state_dict().keys() == before.keys()
    assert all(torch.equal(v, before[name]) for name, v in network.state_dict().items())


def test_timm_is_asked_for_no_classes():
    assert without_classifier(LikeTimm()).asked == [0]
    assert LikeTimm().asked == []


def test_an_attribute_that_is_only_called_so_is_left_alone():
    network = nn.Sequential(stem())
    network.reset_classifier = "not a function"
    assert without_classifier(network) is network
    plain = like_torchvision(stem=stem())
    plain.fc = None
    assert without_classifier(plain)(torch.rand(2, 12)).shape == (2, 8)


# Augmentation

AUGMENTED = {
    "vectors": None,
    "counts": None,
    "images": ImageAugmentation,
    "points": PointAugmentation,
    "sequences": SequenceAugmentation,
}


@pytest.mark.parametrize("kind", AUGMENTED)
@pytest.mark.parametrize("augment", ["auto", True])
def test_augmentation_suits_the_kind_of_data(kind, augment):
    found = augmentation_for(augment, ROWS[kind])
    expected = AUGMENTED[kind]
    assert found is None if expected is None else type(found) is expected
    assert augmentation_for(False, ROWS[kind]) is None


def test_photographs_may_be_mirrored_and_others_not():
    assert augmentation_for("auto", ROWS["images"]).flip
    assert not augmentation_for("auto", observations(images(channels=1), CPU)).flip


def test_photographs_are_changed_more_for_a_deep_network():
    assert [name for name, recipe in RECIPES.items() if recipe.more_augmentation] == ["resnet18"]
    assert augmentation_for("auto", ROWS["images"], more=True).zoom > 0
    assert augmentation_for("auto", ROWS["images"]).zoom == 0


def test_an_own_augmentation_is_copied():
    own = nn.Dropout(0.3)
    found = augmentation_for(own, ROWS["images"])
    assert found is not own
    assert found.p == 0.3


@pytest.mark.parametrize("augment", ["flips", None, 2, nn.Dropout, lambda x: x])
def test_other_augmentations_are_refused(augment):
    sentence = f'augment must be "auto", False or a torch.nn.Module, got {augment!r}.'
    with pytest.raises(InputError, match=exactly(sentence)):
        unsplit.TrainConfig(augment=augment)
