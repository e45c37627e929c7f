"""The losses over blocks of clusters, against the ceiling of the device and all scores at once.

python -m benchmarks.head [--device cuda] [--clusters 1000000] [--features 512] [--batch 4096]
    [--losses pairwise] [--blocks 16384 65536] [--write head.jsonl.gz]

Forward and backward are timed together.  The pairwise loss needs three products of batch × clusters
× features multiplications, the softmax loss four; the share of the ceiling counts three for both,
because that is what the gradients need when all scores are held at once.
"""

import argparse
import json
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks import results_file
from benchmarks.common import print_table
from unsplit.devices import choose_device
from unsplit.networks.chunked import Blocks, blocks_for, chunked_loss, product_type
from unsplit.networks.chunked_kernel import reason_against
from unsplit.networks.network import LOSSES

Loss = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
PRODUCTS = 3


@dataclass(frozen=True)
class Variant:
    """A way to compute the loss."""

    name: str
    loss: str
    weights: torch.dtype
    compute: Loss


def ceiling(device: torch.device, side: int, repeats: int) -> float:
    """Operations a second of a large product, in bfloat16 on CUDA."""
    kind = torch.bfloat16 if device.type == "cuda" else torch.float32
    a, b = (torch.randn(side, side, device=device, dtype=kind) for _ in range(2))
    out = torch.empty_like(a)
    return 2 * side**3 / seconds(lambda: torch.mm(a, b, out=out), device, repeats)


def seconds(work: Callable[[], Any], device: torch.device, repeats: int) -> float:
    """Median time of a call, after two that do not count."""
    times = []
    for _ in range(repeats + 2):
        wait(device)
        start = time.perf_counter()
        work()
        wait(device)
        times.append(time.perf_counter() - start)
    return sorted(times[2:])[repeats // 2]


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def variants(
    losses: list[str], sizes: list[int], n_rows: int, device: torch.device
) -> Iterator[Variant]:
    """All ways that are compared; bfloat16 weights on CUDA as well as float32."""
    cuda = device.type == "cuda"
    kinds = [torch.bfloat16, torch.float32] if cuda else [torch.float32]
    products = torch.bfloat16 if cuda else torch.float32
    chosen = blocks_for(n_rows, products, device)
    tried = [chosen, *(Blocks(size, chosen.kernel) for size in sizes), Blocks(chosen.size)]
    for loss in losses:
        for kind in kinds:
            for blocks in dict.fromkeys(tried):
                name = described(blocks) + (", chosen" if blocks == chosen else "")
                yield Variant(name, loss, kind, in_blocks(loss, blocks))
            yield Variant("all scores at once", loss, kind, at_once(loss))
        if cuda:
            compiled = torch.compile(at_once(loss), dynamic=False)
            yield Variant("all scores at once, compiled", loss, kinds[0], compiled)


def described(blocks: Blocks) -> str:
    """The choices in words."""
    return f"blocks of {blocks.size:,}, " + ("kernel" if blocks.kernel else "plain")


def in_blocks(loss: str, blocks: Blocks) -> Loss:
    def compute(features: Tensor, weight: Tensor, bias: Tensor, clusters: Tensor) -> Tensor:
        return chunked_loss(features, weight, bias, clusters, loss, blocks)

    return compute


def at_once(loss: str) -> Loss:
    def compute(features: Tensor, weight: Tensor, bias: Tensor, clusters: Tensor) -> Tensor:
        kind = product_type(features, weight)
        scores = features.to(kind) @ weight.to(kind).T + bias.to(kind)
        return LOSSES[loss](scores, clusters).mean()

    return compute


@dataclass(frozen=True)
class Problem:
    """Random features and weights; clusters are drawn without repetition if there are enough."""

    n_clusters: int
    n_features: int
    n_rows: int
    device: torch.device

    def tensors(self, weights: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Features, weight and bias, which need gradients, and clusters."""
        generator = torch.Generator(self.device).manual_seed(0)
        kind = torch.bfloat16 if self.device.type == "cuda" else torch.float32

        def draw(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator, device=self.device, dtype=kind)

        weight = (draw(self.n_clusters, self.n_features) / self.n_features**0.5).to(weights)
        features, bias = draw(self.n_rows, self.n_features), torch.zeros(self.n_clusters)
        order = torch.randperm(self.n_clusters, generator=generator, device=self.device)
        clusters = order[torch.arange(self.n_rows, device=self.device) % self.n_clusters]
        parts = (part.requires_grad_() for part in (features, weight, bias.to(self.device)))
        return (*parts, clusters)  # type: ignore[return-value]

    @property
    def operations(self) -> float:
        """Operations of the products that are counted."""
        return PRODUCTS * 2.0 * self.n_rows * self.n_clusters * self.n_features


def measure(variant: Variant, problem: Problem, repeats: int) -> dict[str, Any]:
    """Time and peak memory of forward and backward; and the loss, which all should agree on."""
    *parts, clusters = problem.tensors(variant.weights)
    device, values = problem.device, []

    def step() -> None:
        for part in parts:
            part.grad = None
        loss = variant.compute(parts[0], parts[1], parts[2], clusters)
        loss.backward()
        values.append(loss.detach())

    cuda = device.type == "cuda"
    before = 0
    if cuda:
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
    time_taken = seconds(step, device, repeats)
    held = torch.cuda.max_memory_allocated(device) - before if cuda else None
    wide = {"dtype": torch.float32}
    slopes = [float(torch.linalg.vector_norm(part.grad, **wide)) for part in parts]
    return {
        "seconds": time_taken,
        "bytes": held,
        "value": float(values[-1]),
        "gradient_norms": slopes,
    }


def compared(
    problem: Problem, tried: Iterator[Variant], rate: float, repeats: int
) -> Iterator[dict[str, Any]]:
    """Measure every variant; one that fails is reported and the rest go on."""
    for variant in tried:
        record: dict[str, Any] = {
            "loss": variant.loss,
            "weights": str(variant.weights).removeprefix("torch."),
            "variant": variant.name,
        }
        try:
            record |= measure(variant, problem, repeats)
            record["share"] = problem.operations / record["seconds"] / rate
        except Exception as error:  # out of memory, or a kernel that does not compile
            traceback.print_exc(limit=3)
            record["error"] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        if problem.device.type == "cuda":
            torch.cuda.empty_cache()
        print(json.dumps(record), flush=True)
        yield record


def row_of(record: dict[str, Any]) -> tuple[str, ...]:
    """A row of the table."""
    names = record["loss"], record["weights"], record["variant"]
    if "error" in record:
        return (*names, "–", "–", "–", record["error"].split(":")[0])
    held = record["bytes"]
    return (
        *names,
        f"{record['seconds'] * 1000:.1f}",
        f"{record['share']:.0%}",
        "–" if held is None else f"{held / 2**30:.2f}",
        f"{record['value']:.5f}",
    )


HEADER = ("loss", "weights", "computed", "ms", "share of ceiling", "GiB above weights", "value")


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="auto")
    parser.add_argument("--clusters", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=512)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--losses", nargs="+", default=["pairwise", "softmax"])
    parser.add_argument("--blocks", type=int, nargs="+", default=[16_384, 65_536])
    parser.add_argument("--side", type=int, default=8192, help="of the product for the ceiling")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args(arguments)
    device = choose_device(given.device)
    rate = ceiling(device, given.side, given.repeats)
    problem = Problem(given.clusters, given.features, given.batch, device)
    print("kernels:", reason_against(device) or "usable", flush=True)
    tried = variants(given.losses, given.blocks, given.batch, device)
    records = list(compared(problem, tried, rate, given.repeats))
    if given.write:
        named = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
        settings = {
            "device": named, "ceiling": rate, "clusters": given.clusters,
            "features": given.features, "batch": given.batch,
        }  # fmt: skip
        results_file.write(given.write, [settings | record for record in records])
    title = (
        f"{given.clusters:,} clusters, {given.features} features, batch {given.batch:,}; ceiling "
        f"{rate / 1e12:.1f} TFLOP/s on {device.type}"
    )
    print_table(title, HEADER, [row_of(record) for record in records])
    return records


if __name__ == "__main__":
    main()
