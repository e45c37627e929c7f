"""What a step of training costs with k outputs and with k², and how many clusters fit a budget."""

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from experiments.scaling.config import Config
from experiments.scaling.timings import at_most, tidy, wait
from unsplit.networks.backbones import ResNet18
from unsplit.networks.network import PairMatrixHead, ScoreHead

HEADS: dict[str, Any] = {"k": ScoreHead, "k2": PairMatrixHead}

# A weight, its gradient and Adam's two moments, in single precision.
STATE_BYTES = 4 * 4

# Two steps, because gradients and moments are there together from the second on; one to spare.
WARM_UP = 3

# What torch says when memory is short: cuDNN finds no way to compute that needs less.
SHORT_OF_MEMORY = ("out of memory", "unable to find an engine", "ALLOC_FAILED")

# Channels of ResNet-18's last maps times their 7 × 7 pixels: the features without pooling.
UNPOOLED = 512 * 7 * 7


def n_outputs(outputs: str, k: int) -> int:
    """Neurons of the last layer.

    Examples
    --------
    >>> n_outputs("k", 100), n_outputs("k2", 100)
    (100, 10000)
    """
    return k if outputs == "k" else k * k


def least_bytes(outputs: str, k: int, features: int, batch: int) -> int:
    """Memory that a step cannot do without: the head with Adam, its outputs and their gradient.

    Examples
    --------
    >>> least_bytes("k2", 100, 512, 0) / least_bytes("k", 100, 512, 0)
    100.0
    """
    return n_outputs(outputs, k) * (STATE_BYTES * (features + 1) + 2 * 4 * batch)


def most_clusters(outputs: str, features: int, batch: int, budget: int) -> int:
    """The largest k whose :func:`least_bytes` are within the budget.

    Examples
    --------
    >>> most_clusters("k2", 512, 0, 11 * 2**30)
    1199
    """
    n = budget // least_bytes(outputs, 1, features, batch)
    return n if outputs == "k" else math.isqrt(n)


def growth(outputs: str, config: Config, device: torch.device) -> dict[str, Any]:
    """Cost of a step for 50, 100, 200, … clusters; the last one is over the budget."""
    found: list[dict[str, Any]] = []
    k = 50
    while not found or found[-1]["bytes"] <= config.budget:
        try:
            found.append(step_cost(outputs, k, config, device))
        except torch.OutOfMemoryError:  # the card is smaller than the budget
            break
        k *= 2
    measured = device.type == "cuda"
    return {"budget": config.budget, "measured memory": measured, "growth": found}


def step_cost(outputs: str, k: int, config: Config, device: torch.device) -> dict[str, Any]:
    """Milliseconds and bytes of a step of the head alone; elsewhere than on CUDA, the least."""
    tidy(device)
    with torch.device(device):
        head = HEADS[outputs](config.features, k)
        features = torch.randn(config.batch, config.features, requires_grad=True)
    step = stepping(head, features, k, half=False)
    seconds = _seconds_a_step(step, config.steps, device)
    least = least_bytes(outputs, k, config.features, config.batch)
    cuda = device.type == "cuda"
    return {
        "k": k,
        "parameters": sum(p.numel() for p in head.parameters()),
        "ms": round(1000 * seconds, 3),
        "bytes": torch.cuda.max_memory_allocated() if cuda else least,
        "least bytes": least,
    }


def stepping(network: nn.Module, x: Tensor, k: int, half: bool) -> Callable[[], None]:
    """A function that takes one step of training: Adam and the paper's loss.

    ``half`` is for products in bfloat16, as the library has them on a GPU.
    """
    clusters = torch.arange(len(x), device=x.device) % k
    optimizer = torch.optim.Adam(network.parameters(), fused=True)
    head: Any = network[-1] if isinstance(network, nn.Sequential) else network

    def step() -> None:
        with torch.autocast(x.device.type, torch.bfloat16, enabled=half):
            scores = network(x)
        optimizer.zero_grad(set_to_none=True)
        head.loss(scores, clusters).backward()
        optimizer.step()

    return step


def reach(outputs: str, precision: str, config: Config, device: torch.device) -> dict[str, Any]:
    """How many clusters ResNet-18 can be trained with within the budget.

    On CUDA by taking steps with torch confined to it; elsewhere what the head alone allows.
    """
    size = config.features, config.batch, config.confined
    most = most_clusters(outputs, *size)
    if device.type == "cuda":
        with at_most(config.confined, device):
            most = largest(lambda k: _fits(outputs, k, precision, config, device), most)
    return {
        "budget": config.confined,
        "measured memory": device.type == "cuda",
        "pixels": config.pixels,
        "batch": config.batch,
        "most clusters": most,
        "head alone": {
            str(features): most_clusters(outputs, features, 0, config.confined)
            for features in (config.features, 4096, UNPOOLED)
        },
    }


def largest(fits: Callable[[int], bool], most: int, tolerance: float = 0.02) -> int:
    """The largest k up to ``most`` that fits, or one that is smaller by less than the tolerance.

    Examples
    --------
    >>> largest(lambda k: k <= 123, 1000, tolerance=0)
    123
    """
    low, high = 0, most + 1
    while high - low > 1 + tolerance * low:
        middle = min(max(math.isqrt(max(low, 1) * high), low + 1), high - 1)
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _fits(outputs: str, k: int, precision: str, config: Config, device: torch.device) -> bool:
    """Whether a few steps of the whole network can be taken."""
    tidy(device)
    try:
        _few_steps(outputs, k, precision, config, device)
    except RuntimeError as error:
        if not any(words in str(error) for words in SHORT_OF_MEMORY):
            raise
        return False
    return True


def _few_steps(outputs: str, k: int, precision: str, config: Config, device: torch.device) -> None:
    with torch.device(device):
        backbone = ResNet18(3, config.pixels)
        head = HEADS[outputs](backbone.out_features, k)
        images = torch.randn(config.batch, 3, config.pixels, config.pixels)
    network = nn.Sequential(backbone, head)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    step = stepping(network, images, k, half=precision == "bfloat16")
    for _ in range(WARM_UP):
        step()
    wait(device)


def _seconds_a_step(step: Callable[[], None], n_steps: int, device: torch.device) -> float:
    for _ in range(WARM_UP):
        step()
    wait(device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    for _ in range(n_steps):
        step()
    wait(device)
    return (time.perf_counter() - start) / n_steps
