"""Networks by name: for which data they are, and how they are built and trained."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from sklearn.base import is_classifier
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from unsplit._typing import Index
from unsplit.data.rows.base import Rows
from unsplit.data.rows.kinds import CountRows
from unsplit.data.rows.sequences import RaggedRows
from unsplit.devices import current
from unsplit.errors import InputError, option, shown
from unsplit.networks import augmentation, backbones
from unsplit.networks.backbones.classifiers import Classifier, ClassifierNetwork
from unsplit.networks.backbones.images import without_classifier
from unsplit.networks.network import (
    LARGE_HEAD,
    DrawFromRun,
    Network,
    ScoreHead,
    Standardize,
    StandardizeSequences,
    refuse_gaps,
)
from unsplit.networks.training.group import Fold
from unsplit.networks.training.loop import USUAL, Augment, TrainConfig

# A name, a network, a function that returns one, or a classifier of scikit-learn.
Backbone = Any

# The network for vectors learns faster.
VECTORS = replace(USUAL, learning_rate=2e-3, weight_decay=2.0, patience=4)
# Convolutions with batch normalisation need less weight decay than small networks.
DEEP = replace(USUAL, weight_decay=0.1)
# Small batches: with few images or clouds, an epoch is ten steps, whatever their size.
ON_CPU = replace(DEEP, learning_rate=3e-3, batch_size=64)
CLOUDS = replace(DEEP, learning_rate=3e-4, batch_size=64)

# Pixels that images are reduced to for the small network.
CPU_SIDE = 32

# Kinds of data with small networks, and how many observations these are given at a time.
SMALL_NETWORKS = ("vectors", "counts")
BIG_BATCH = 4096
# An epoch of small networks has no more steps than this, if batches are not larger than that.
MOST_STEPS = 256


@dataclass(frozen=True)
class Recipe:
    """A backbone, the data it is for, and how it is trained."""

    name: str
    kind: str | None  # of data; None for any
    build: Callable[[Rows, Index], nn.Module]  # from the rows and the indices of the training rows
    training: TrainConfig = USUAL
    image_side: int | None = None  # images with a longer shorter side are reduced to it first
    more_augmentation: bool = False  # whether photographs are changed more than a little
    fitted_once: bool = False  # a classifier, and no network that is trained in epochs
    of_user: bool = False  # a network that may draw from torch's global generator

    def training_for(self, n_draws: int) -> TrainConfig:
        """Settings of training for epochs of n observations: long ones get larger batches.

        A is not lower for it, and steps of small networks cost time whatever their size
        (docs/scale.md).  Networks for images and the like would take too much memory.

        Examples
        --------
        >>> [RECIPES["mlp"].training_for(n).batch_size for n in (10_000, 200_000, 20_000_000)]
        [256, 782, 4096]
        """
        if self.kind not in SMALL_NETWORKS:
            return self.training
        batch = min(max(self.training.batch_size, -(-n_draws // MOST_STEPS)), BIG_BATCH)
        return replace(self.training, batch_size=batch)


def _bag_of_words(rows: Rows, train: Index) -> nn.Module:
    assert isinstance(rows, CountRows)
    return backbones.BagOfWords(backbones.CountScaling.of(rows.values[train]))


def _resnet18(rows: Rows, train: Index) -> nn.Module:
    return backbones.ResNet18(rows.shape[0], min(rows.shape[1:]))


def _convnet(rows: Rows, train: Index) -> nn.Module:
    return backbones.ConvNet(rows.shape[0], min(*rows.shape[1:], CPU_SIDE))


def _resnet1d(rows: Rows, train: Index) -> nn.Module:
    return backbones.ResNet1d(rows.shape[0] - 1, rows.shape[1])


def _single_layer(rows: Rows, train: Index) -> nn.Module:
    if isinstance(rows, RaggedRows):
        raise InputError(
            f'{option("backbone")} "single-layer" cannot read sequences of different lengths; use '
            '"resnet1d".'
        )
    return backbones.SingleLayer(rows.shape)


def _logmel(rows: Rows, train: Index) -> nn.Module:
    if rows.rate is None:
        raise InputError(
            f'{option("backbone")} "logmel" needs to know the number of samples per second; read '
            'the sound with unsplit.read, or use "resnet1d".'
        )
    return backbones.AudioNet(rows.rate)


def _of_classifier(name: str, model: Any) -> Recipe:
    return Recipe(name, "vectors", lambda rows, train: Classifier(model), fitted_once=True)


# Chooses among several, for which its recipe stands.
BEST = "best"
# Ready-made classifiers of scikit-learn.
CLASSIFIERS = {
    "trees": HistGradientBoostingClassifier(early_stopping=False),
    "lda": LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"),
    "logistic-regression": LogisticRegression(max_iter=1000),
}


_MLP = Recipe("mlp", "vectors", lambda rows, train: backbones.MLP(rows.shape[0]), VECTORS)
RECIPES = {
    recipe.name: recipe
    for recipe in (
        _MLP,
        Recipe("bag-of-words", "counts", _bag_of_words),
        Recipe("resnet18", "images", _resnet18, DEEP, more_augmentation=True),
        Recipe("convnet", "images", _convnet, ON_CPU, CPU_SIDE),
        Recipe("pointnet++", "points", lambda rows, _: backbones.PointNet2(rows.shape[1]), CLOUDS),
        Recipe("pointnet", "points", lambda rows, _: backbones.PointNet(rows.shape[1]), ON_CPU),
        Recipe("resnet1d", "sequences", _resnet1d, DEEP),
        Recipe("logmel", "sequences", _logmel, DEEP),
        Recipe("single-layer", None, _single_layer),
        *(_of_classifier(name, model) for name, model in CLASSIFIERS.items()),
        replace(_MLP, name=BEST),
    )
}

# Kinds of data with a small network for CPUs, and a large one.
SMALL_AND_LARGE = {"images": ("convnet", "resnet18"), "points": ("pointnet", "pointnet++")}

# What "best" chooses from.  Integer columns need less weight decay than many noisy ones.
CANDIDATES = (
    _MLP,
    replace(_MLP, name="mlp with less weight decay", training=replace(VECTORS, weight_decay=0.1)),
    RECIPES["trees"],
    RECIPES["lda"],
)

# The recipe of what the data decide, until they are known.
AUTO = replace(_MLP, name="auto", kind=None)


def recipe_of(backbone: Backbone) -> Recipe:
    """Return the recipe that a backbone stands for, whatever the data.

    Examples
    --------
    >>> recipe_of("resnet18").kind, recipe_of("auto") is AUTO, recipe_of("lda").fitted_once
    ('images', True, True)
    """
    if isinstance(backbone, str) and backbone in (AUTO.name, *RECIPES):
        return RECIPES.get(backbone, AUTO)
    name = str(getattr(backbone, "__name__", type(backbone).__name__))
    if _is_classifier(backbone):
        return _of_classifier(name, backbone)
    if callable(backbone):
        return Recipe(name, None, lambda rows, _: _network_of(backbone, name), DEEP, of_user=True)
    raise InputError(
        f'backbone must be "auto", {", ".join(repr(name) for name in RECIPES)}, a torch.nn.Module '
        "or a function that returns one, or a scikit-learn classifier with predict_proba or "
        f"decision_function, got {shown(backbone)}."
    )


def _is_classifier(backbone: Any) -> bool:
    """Whether this is a classifier of scikit-learn that scores clusters."""
    able = hasattr(backbone, "predict_proba") or hasattr(backbone, "decision_function")
    return able and not isinstance(backbone, (type, nn.Module)) and bool(is_classifier(backbone))


def refuse_for_classifiers(backbone: Backbone, training: TrainConfig) -> None:
    """Raise an error if settings of networks are given for what is no network.

    A limit of epochs or no augmentation is none.

    Examples
    --------
    >>> refuse_for_classifiers("mlp", TrainConfig(patience=3))
    >>> refuse_for_classifiers("lda", TrainConfig(epochs=5))
    """
    recipe = recipe_of(backbone)
    is_network = not recipe.fitted_once and recipe.name != BEST
    for name, value in training.given.items():
        if not (is_network or name == "epochs" or isinstance(value, bool)):
            raise InputError(
                f"{name} is for networks, and backbone {shown(backbone)} is none, or chooses "
                f'among several; leave {name} out, or name a network such as "mlp".'
            )


def candidates_for(backbone: Backbone, rows: Rows) -> Sequence[Recipe]:
    """Return the recipe for a backbone; for "best", those to choose from."""
    recipe = recipe_for(backbone, rows)
    return CANDIDATES if recipe.name == BEST else [recipe]


def recipe_for(backbone: Backbone, rows: Rows) -> Recipe:
    """Return the recipe for a backbone; for "auto", the one that suits the data."""
    recipe = recipe_of(backbone)
    if recipe is AUTO:
        return RECIPES[default_name(rows)]
    if recipe.kind not in (None, rows.kind):
        raise InputError(
            f'{option("backbone")} "{recipe.name}" is for {recipe.kind}, but X holds {rows.kind}; '
            f'use "{default_name(rows)}".'
        )
    small = recipe.of_user and rows.kind == "vectors"
    return replace(recipe, training=USUAL) if small else recipe


def _network_of(backbone: Any, name: str) -> nn.Module:
    """Copy a network of the user, or one that a function makes, which may always be the same."""
    made = backbone
    if not isinstance(backbone, nn.Module):
        try:
            made = backbone()
        except TypeError as error:
            made = error
    if not isinstance(made, nn.Module):
        raise InputError(
            f"backbone {name!r} did not return a network, but {shown(made)}; pass a "
            "torch.nn.Module, or a function without parameters that returns one."
        )
    return without_classifier(copy.deepcopy(made))


def default_name(rows: Rows) -> str:
    """Return the name of the backbone that "auto" chooses for this kind of data and device.

    An epoch of ResNet-18 on a few hundred photographs takes a minute or more on a CPU, so images
    get a small network there: docs/photos.md.  So do clouds: docs/data.md.
    """
    if rows.kind in SMALL_AND_LARGE:
        return SMALL_AND_LARGE[rows.kind][rows.device.type != "cpu"]
    if rows.kind == "sequences":
        return "resnet1d" if rows.rate is None else "logmel"
    return {"vectors": "mlp", "counts": "bag-of-words"}[rows.kind]


def is_users(backbone: object, augment: object) -> bool:
    """Whether a part of a network is the user's, and may draw from torch's global generator.

    Examples
    --------
    >>> is_users("mlp", "auto"), is_users(nn.Dropout(), "auto")
    (False, True)
    >>> is_users("resnet18", augmentation.ImageAugmentation(crop=0.125))
    False
    """
    # Our augmentations draw from the generator of the run.
    if isinstance(augment, nn.Module) and type(augment).__module__ != augmentation.__name__:
        return True
    return recipe_of(backbone).of_user


def augmentation_for(augment: Augment, rows: Rows, more: bool = False) -> nn.Module | None:
    """Return the module that changes batches in training; None for no changes.

    "auto" chooses changes that are safe for this kind of data; ``more`` is for photographs.
    """
    if isinstance(augment, nn.Module):
        return copy.deepcopy(augment)
    if augment is False:
        return None
    if rows.kind == "images":
        return augmentation.ImageAugmentation.for_images(rows.shape[0], more)
    if rows.kind == "points":
        return augmentation.PointAugmentation.for_points()
    return augmentation.SequenceAugmentation() if rows.kind == "sequences" else None


# Units of the first layer, whose size grows with the number of features.
FIRST_LAYER = {"mlp": 256, "bag-of-words": 256, "single-layer": 1024}


def build_network(
    rows: Rows,
    fold: Fold,
    recipe: Recipe,
    n_clusters: int,
    loss: str,
    augment: Augment = "auto",
) -> Network:
    """Build an untrained network that standardises its input by the training rows of the fold."""
    with DrawFromRun():
        before = _before_backbone(rows, fold, recipe, augment)
        backbone = recipe.build(rows, fold.train)
        if isinstance(backbone, Classifier):
            scale = nn.Sequential(*before)
            return ClassifierNetwork(scale, backbone, n_clusters, BIG_BATCH).to(rows.device)
        body = nn.Sequential(*before, backbone).to(rows.device)
        head = _head(n_features_out(body, rows), n_clusters, loss, rows.device)
    most = BIG_BATCH if rows.kind in SMALL_NETWORKS else 2 * recipe.training.batch_size
    return Network(body, head, most)


def _before_backbone(rows: Rows, fold: Fold, recipe: Recipe, augment: Augment) -> list[nn.Module]:
    """What changes the observations before the backbone gets them."""
    parts: list[nn.Module] = []
    if recipe.image_side is not None:
        parts.append(backbones.Shrink(recipe.image_side))
    if rows.kind == "sequences":
        parts.append(StandardizeSequences(*rows.moments(fold.train)))
    elif rows.kind != "counts":
        parts.append(Standardize(*rows.moments(fold.train)))
    changes = augmentation_for(augment, rows, recipe.more_augmentation)
    return parts if changes is None else [*parts, changes]


def _head(n_features: int, n_clusters: int, loss: str, device: torch.device) -> ScoreHead:
    if current().size > 1 and n_features * n_clusters > LARGE_HEAD:
        # Each of several processes makes only its own part.
        with torch.device("meta"):
            return ScoreHead(n_features, n_clusters, loss)
    return ScoreHead(n_features, n_clusters, loss).to(device)


@torch.no_grad()
def n_features_out(body: nn.Sequential, rows: Rows) -> int:
    """Find the number of features of a backbone by passing two rows through it."""
    training = body.training
    two = rows.take(torch.zeros(2, dtype=torch.long, device=rows.device))
    probe = features_of(body.eval(), two, "backbone")
    body.train(training)
    refuse_gaps(probe, torch.zeros(2))
    return int(probe.shape[1])


def features_of(network: nn.Module, batch: Tensor, name: str) -> Tensor:
    """Features (b, h) of a batch; an error that begins with the name if a network has none."""
    shape = tuple(batch.shape)
    try:
        values = network(batch)
    except Exception as error:  # a user's network may raise anything
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"{name} cannot take a batch of shape {shape}: {reason}") from error
    right = isinstance(values, Tensor) and values.ndim == 2 and len(values) == len(batch)
    if not right or not values.numel():
        got = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise InputError(
            f"{name} must turn a batch (b, ...) into features (b, h), but turned {shape} into "
            f"{got}; flatten its output, as nn.Sequential(network, nn.Flatten()) does."
        )
    return values
