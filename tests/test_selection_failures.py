"""Candidates that fail, input that cannot be used, and training as told."""

import numpy as np
import pytest
import torch
from torch import nn

from tests.checks import exactly
from tests.selection_cases import Explodes, layer, quick, refused, xor
from unsplit import InputError, TrainConfig, pairwise_tvd
from unsplit.errors import OutOfMemoryWarning
from unsplit.networks.registry import RECIPES, VECTORS
from unsplit.pairwise.api import Settings
from unsplit.selection import Candidate


def test_candidates_that_fail_are_listed_with_their_sentence():
    X, labels = xor(20)
    memory = torch.cuda.OutOfMemoryError("CUDA out of memory.\nSee the manual.")
    candidates = {
        "clouds": "pointnet++",
        "three": nn.Linear(3, 4),
        "sound": "logmel",
        "wild": Candidate(layer(4), TrainConfig(learning_rate=1e38)),
        "huge": Explodes(memory),
        "fine": layer(8),
    }
    with pytest.warns(OutOfMemoryWarning, match="parts"):
        chosen = quick(candidates, X, labels, epochs=4)
    assert chosen.name == "fine"
    why = {trial.name: trial.why for trial in chosen.trials}
    assert why["clouds"] == refused("pointnet++")
    assert why["three"] == refused(nn.Linear(3, 4))
    assert why["sound"] == refused("logmel")
    assert why["wild"].startswith("the loss became nan within 10 steps of training; ")
    assert why["huge"].startswith("comparing the clusters needs more memory than is available")
    failed = chosen.trials[1:]
    assert np.isnan([trial.mean_accuracy for trial in failed]).all()


def test_a_bug_in_a_network_is_not_hidden():
    X, labels = xor(20)
    with pytest.raises(ZeroDivisionError):
        quick([layer(4), Explodes(ZeroDivisionError())], X, labels, epochs=1)


UNKNOWN = (
    'backbone must be "auto", {}, a torch.nn.Module or a function that returns one, or a '
    "scikit-learn classifier with predict_proba or decision_function, got {!r}."
).format
NAMES = ", ".join(map(repr, RECIPES))

NEITHER = (
    'candidates must be a list or a mapping of at least one, for example ["auto"], got {}.'
).format

BAD_CANDIDATES = {
    "none": ([], NEITHER("[]")),
    "not in a list": ("mlp", NEITHER("'mlp'")),
    "unknown name": (["auto", "vgg"], UNKNOWN(NAMES, "vgg")),
    "a number": ({"five": 5}, UNKNOWN(NAMES, 5)),
}


@pytest.mark.parametrize("case", BAD_CANDIDATES)
def test_candidates_that_cannot_be_used(case):
    candidates, sentence = BAD_CANDIDATES[case]
    with pytest.raises(InputError, match=exactly(sentence)):
        quick(candidates, *xor(20))


def test_all_fail():
    clouds, images = refused("pointnet++"), refused("resnet18")
    with pytest.raises(InputError, match=exactly(clouds)):
        quick({"a": "pointnet++", "b": "pointnet++"}, *xor(20))
    with pytest.raises(InputError, match=exactly(f"{clouds} {images}")):
        quick({"a": "pointnet++", "b": "resnet18"}, *xor(20))


def test_all_fail_in_training():
    sentence = "too wide. too deep."
    candidates = {"a": Explodes(InputError("too wide.")), "b": Explodes(InputError("too deep."))}
    with pytest.raises(InputError, match=exactly(sentence)):
        quick(candidates, *xor(20))


@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        ({"augment": "flip"}, "augment must be \"auto\", False or a torch.nn.Module, got 'flip'."),
        ({"learning_rate": 0}, "learning_rate must be a positive number, such as 0.001, got 0."),
        ({"weight_decay": -1.0}, "weight_decay must be a number of at least 0, got -1.0."),
        ({"batch_size": 0.5}, "batch_size must be a whole number of at least 1, got 0.5."),
    ],
)
def test_candidates_that_cannot_be_made(choice, sentence):
    with pytest.raises(InputError, match=exactly(sentence)):
        Candidate(training=TrainConfig(**choice))


def test_data_that_cannot_be_used():
    X, labels = xor(10)
    with pytest.raises(InputError, match="X has 40 observations but labels has 39"):
        quick(["mlp"], X, labels[:-1])
    with pytest.raises(InputError, match="cv must be a share to hold out between 0 and 1, got 2"):
        quick(["mlp"], X, labels, cv=2)
    sentence = "every cluster has only one observation"
    with pytest.raises(InputError, match=sentence):
        quick(["mlp"], X, np.arange(40))


def test_an_estimate_trains_as_told():
    X, labels = xor(20)
    usual, slow = TrainConfig(epochs=2), TrainConfig(epochs=2, learning_rate=1e-9)
    settings = {"cv": 2, "random_state": 0, "device": "cpu"}
    loss = pairwise_tvd(X, labels, training=slow, **settings).history.loss
    # A network that does not move knows no more than a coin.
    np.testing.assert_allclose(loss, np.log(2), atol=1e-4)
    assert pairwise_tvd(X, labels, training=usual, **settings).history.loss[-1] < 0.6


def test_training_that_cannot_be_used():
    with pytest.raises(InputError, match=r"training must be an unsplit\.TrainConfig.*got 3"):
        Settings(training=3)


def test_what_is_not_given_is_as_suits_the_network():
    X, labels = xor(20)
    how = {"cv": 2, "random_state": 0, "device": "cpu"}
    short, same = TrainConfig(epochs=3), VECTORS.over(TrainConfig(epochs=3))
    first, again = (pairwise_tvd(X, labels, training=t, **how) for t in (short, same))
    assert len(first.history.epoch) == 3
    np.testing.assert_array_equal(first.tvd, again.tvd)
