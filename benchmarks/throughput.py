"""Images per second: our training loop against a plain one, and streaming against the decoder.

python -m benchmarks.throughput [--device cuda] [--folder FOLDER] [--repeat 5] [--compile]
    [--clusters 1000 26000] [--size 64] [--batch 512]

The plain loop always has 1,000 clusters, so that ``--clusters`` shows what more of them cost.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.common import print_table
from unsplit.data.readers.folders import find_files
from unsplit.data.readers.media import ImageFiles, read_images
from unsplit.data.rows.base import Rows
from unsplit.data.rows.datasets import DatasetRows, Decoder
from unsplit.data.rows.kinds import observations
from unsplit.devices import choose_device, mixed_precision
from unsplit.networks.augmentation import ImageAugmentation
from unsplit.networks.backbones import ResNet18
from unsplit.networks.registry import RECIPES, build_network
from unsplit.networks.training.group import Fold, Group, epoch_minibatches

# Clusters of the plain loop.
K = 1000


def ours(rows: Rows, clusters: Any, batch: int, k: int = K) -> Callable[[int], None]:
    """So many steps of our loop, with everything it does."""
    everything = np.arange(len(rows))
    fold = Fold(everything, everything[:0], everything)
    network = build_network(rows, fold, RECIPES["resnet18"], k, "softmax")
    group = Group([network], [fold], learning_rate=1e-3, weight_decay=0.1)
    on_device = torch.from_numpy(clusters).to(rows.device)
    rng = np.random.default_rng(0)

    def run(steps: int) -> None:
        left = steps
        while left > 0:
            batches = epoch_minibatches([everything], clusters, batch, rng)[:left]
            group.run(batches, rows, on_device)
            left -= len(batches)

    return run


def plain(
    images: Tensor, clusters: Any, batch: int, compiled: bool = False
) -> tuple[str, Callable[[int], None]]:
    """A loop as one writes it: ResNet-18, cross-entropy, data on the device, augmentation on."""
    device = images.device
    try:
        from torchvision.models import resnet18

        name, network = "torchvision", resnet18(num_classes=K)
    except (ImportError, RuntimeError):
        name = "our own"
        network = nn.Sequential(ResNet18(3, images.shape[-1]), nn.Linear(512, K))
    network = network.to(device, memory_format=torch.channels_last)
    if compiled:
        name, network = f"{name}, compiled", torch.compile(network)
    augment = ImageAugmentation.for_images(3, RECIPES["resnet18"].more_augmentation)
    optimizer = torch.optim.AdamW(network.parameters(), fused=True)
    labels = torch.from_numpy(clusters).to(device)
    loss = nn.CrossEntropyLoss()

    def run(steps: int) -> None:
        network.train()
        for _ in range(steps):
            index = torch.randint(len(images), (batch,), device=device)
            x = augment(images[index].float().div_(255).sub_(0.5).mul_(4))
            with mixed_precision(device):
                value = loss(network(x).float(), labels[index])
            optimizer.zero_grad(set_to_none=True)
            value.backward()
            optimizer.step()

    return name, run


def seconds(run: Callable[[int], None], steps: int, cuda: bool) -> float:
    """How long so many steps take."""
    if cuda:
        torch.cuda.synchronize()
    start = time.perf_counter()
    run(steps)
    if cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - start


def rate(run: Callable[[int], None], steps: int, batch: int, cuda: bool, alone: bool) -> float:
    """Images per second; ``alone`` without what comes once at the end of an epoch."""
    before = seconds(run, steps, cuda) if alone else 0.0
    n_timed = 2 * steps if alone else steps
    return steps * batch / (seconds(run, n_timed, cuda) - before)


class PeakMemory:
    """Most memory of a GPU that is held at once, beside what other loops keep there."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.gib = device, "–"

    def __enter__(self) -> "PeakMemory":
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self.device)
            self._before = torch.cuda.memory_allocated(self.device)
        return self

    def __exit__(self, *reason: object) -> None:
        if self.device.type == "cuda":
            most = torch.cuda.max_memory_allocated(self.device) - self._before
            self.gib = f"{most / 2**30:.2f}"


def on_device(args: argparse.Namespace, device: torch.device) -> None:
    rng = np.random.default_rng(0)
    shape = (args.images, args.size, args.size, 3)
    pixels = rng.integers(256, size=shape, dtype=np.uint8)
    clusters = np.arange(args.images) % K
    rows = observations(pixels, device)
    images = torch.from_numpy(pixels).to(device).movedim(-1, 1)
    loops = {}
    for compiled in [False, True][: 1 + args.compile]:
        name, simple = plain(images, clusters, args.batch, compiled)
        loops[f"plain ({name} ResNet-18)"] = simple
    for k in args.clusters:
        loops[f"unsplit, {k:,} clusters"] = ours(rows, np.arange(args.images) % k, args.batch, k)
    cuda = device.type == "cuda"
    found: dict[str, list[float]] = {name: [] for name in loops}
    held = {}
    for name, run in loops.items():
        start = time.perf_counter()
        with PeakMemory(device) as peak:
            run(args.steps // 4 + 1)
        held[name] = peak.gib
        print(f"{name}: {time.perf_counter() - start:.1f} s to warm up", flush=True)
    for _ in range(3):
        for name, run in loops.items():
            found[name].append(rate(run, args.steps, args.batch, cuda, args.steps_alone))
    best = {name: max(values) for name, values in found.items()}
    base = next(iter(best.values()))
    table = [
        (name, f"{value:,.0f}", f"{value / base:.3f}", held[name]) for name, value in best.items()
    ]
    title = f"{args.size} px, batch {args.batch}, data on {device.type}"
    print_table(title, ("loop", "images a second", "ratio", "peak GiB"), table)


def streamed(args: argparse.Namespace, device: torch.device) -> None:
    """The folder path without keeping images on the device."""
    found = find_files(args.folder)[0]
    seen, found = read_images(found, size=args.size)
    # As often as it takes to make an epoch last longer than the start of a stream.
    dataset = ImageFiles(found.paths * args.repeat, seen.size, seen.channels)
    clusters = np.unique(found.labels, return_inverse=True)[1].astype(np.int64)
    clusters = np.tile(clusters, args.repeat)
    everything = np.arange(len(dataset))
    order = epoch_minibatches([everything], clusters, args.batch, np.random.default_rng(0))[:, 0]
    decoder = Decoder(dataset, pin=device.type == "cuda")
    for _ in range(2):
        start = time.perf_counter()
        for _batch in decoder.stream(list(order.numpy())):
            pass
        limit = order.numel() / (time.perf_counter() - start)
    workers = decoder.workers
    decoder.close()
    rows = DatasetRows(dataset, "images", device)
    rows._fits = lambda: False  # type: ignore[method-assign]
    run = ours(rows, clusters, args.batch)
    run(len(order))
    value = rate(run, len(order), args.batch, device.type == "cuda", alone=False)
    table = [("decoder alone", f"{limit:,.0f}", 1.0), ("training", f"{value:,.0f}", value / limit)]
    title = f"JPEGs from disk, {workers} workers, batch {args.batch}"
    print_table(title, ("what", "images a second", "ratio"), table)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="auto")
    parser.add_argument("--folder", help="images to stream, one subfolder per cluster")
    parser.add_argument("--compile", action="store_true", help="a compiled plain loop as well")
    parser.add_argument("--repeat", type=int, default=5, help="times the folder is listed")
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--clusters", type=int, nargs="+", default=[K], help="of our loop")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument(
        "--steps-alone", action="store_true", help="without what comes once at the end of an epoch"
    )
    args = parser.parse_args()
    device = choose_device(args.device)
    on_device(args, device)
    if args.folder:
        streamed(args, device)


if __name__ == "__main__":
    main()
