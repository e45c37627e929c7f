"""Networks that the authors of DeepCluster published: files of theirs, read into plain torch.

Such a file is a mapping with "arch", which is "alexnet" or "vgg16", and "state_dict", with weights
named ``features.module.*`` (or ``features.*``), ``classifier.*``, ``top_layer.*``, and
``sobel.*`` where gradients of grey images go in.  How wide layers are is read off the weights.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from experiments.imagenet_realistic.deepcluster import Sobel
from unsplit import InputError

# Pixels a side of the images that they were trained on.
SIDE = 224

# Stride and padding of every convolution, and "pool"; kernels are in the file.
ALEXNET: tuple[Any, ...] = ((4, 2), "pool", (1, 2), "pool", (1, 1), (1, 1), (1, 1), "pool")
VGG16: tuple[Any, ...] = tuple(layer for n in (2, 2, 3, 3, 3) for layer in (*[(1, 1)] * n, "pool"))
LAYERS = {"alexnet": (ALEXNET, (3, 2)), "vgg16": (VGG16, (2, 2))}

# Where the fully connected layers stand among activations and dropout.
LINEAR = {"alexnet": (1, 4), "vgg16": (0, 3)}

State = Mapping[str, Tensor]


def load_published(path: Path) -> nn.Module:
    """A network from standardised images (b, 3, 224, 224) to features (b, d).

    The features are those that DeepCluster itself clusters: of the last layer before the
    classifier, before its activation.
    """
    arch, state = _read(path)
    plan, pool = LAYERS[arch]
    parts: list[nn.Module] = [Sobel()] if "sobel.0.weight" in state else []
    parts.append(_convolutions(plan, pool, state, path))
    parts.append(nn.Flatten())
    first, last = (_linear(state, f"classifier.{place}", path) for place in LINEAR[arch])
    parts += [first, nn.ReLU(), last]
    network = nn.Sequential(*parts).eval()
    _check_width(network, first.in_features, path)
    return network.requires_grad_(False)


def _read(path: Path) -> tuple[str, State]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise InputError(f"there is no checkpoint {path}; name a file.") from None
    except Exception:  # bytes that torch did not write can fail anywhere in its reader
        content = None
    if not isinstance(content, dict) or not {"arch", "state_dict"} <= content.keys():
        raise InputError(
            f'{path} is no checkpoint of DeepCluster: it has no "arch" and "state_dict"; pass one '
            "of those that its authors published."
        )
    if content["arch"] not in LAYERS:
        raise InputError(
            f"{path} holds the network {content['arch']!r}; those that can be read are "
            f"{' and '.join(LAYERS)}."
        )
    # Trained in parallel, its layers are one level further down.
    state = {name.replace(".module.", "."): v for name, v in content["state_dict"].items()}
    return content["arch"], state


def _convolutions(
    plan: tuple[Any, ...], pool: tuple[int, int], state: State, path: Path
) -> nn.Sequential:
    """Convolutions, normalised if the file says so, in the places that their names number."""
    layers: list[nn.Module] = []
    for step in plan:
        if step == "pool":
            layers.append(nn.MaxPool2d(*pool))
            continue
        weight = _tensor(state, f"features.{len(layers)}.weight", path)
        wide, narrow, kernel, _ = weight.shape
        layers.append(nn.Conv2d(narrow, wide, kernel, *step))
        if f"features.{len(layers)}.running_mean" in state:
            layers.append(nn.BatchNorm2d(wide))
        layers.append(nn.ReLU())
    network = nn.Sequential(*layers)
    for name, parameter in network.state_dict().items():
        # Files are older than these counters, which nothing depends on.
        if not name.endswith("num_batches_tracked"):
            parameter.copy_(_tensor(state, f"features.{name}", path))
    return network


def _linear(state: State, name: str, path: Path) -> nn.Linear:
    weight = _tensor(state, f"{name}.weight", path)
    layer = nn.Linear(weight.shape[1], weight.shape[0])
    layer.load_state_dict({"weight": weight, "bias": _tensor(state, f"{name}.bias", path)})
    return layer


def _tensor(state: State, name: str, path: Path) -> Tensor:
    if name not in state:
        raise InputError(f"{path} has no weights {name}; the file is incomplete.")
    return state[name]


@torch.no_grad()
def _check_width(network: nn.Sequential, width: int, path: Path) -> None:
    convolutions = network[:-3]
    found = math.prod(convolutions(torch.zeros(1, 3, SIDE, SIDE)).shape[1:])
    if found != width:
        raise InputError(
            f"{path} is not for images of {SIDE} pixels: the convolutions give {found} numbers and "
            f"the next layer takes {width}."
        )
