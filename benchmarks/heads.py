"""k outputs against k² outputs: quality, parameters, memory and time as k grows.

python -m benchmarks.heads [--device cpu] [--clusters 10 20 40 80 160]
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.common import print_table, split_digits
from unsplit.data.rows.kinds import observations
from unsplit.devices import choose_device
from unsplit.metrics import majority_categories, quality
from unsplit.networks.network import Network, PairMatrixHead, ScoreHead
from unsplit.networks.registry import RECIPES, build_network
from unsplit.networks.training.group import Fold, Group, epoch_minibatches
from unsplit.networks.training.loop import TrainConfig, Training
from unsplit.pairwise.heldout_scores import holdout_fold

WIDTH = 256
Head = Callable[[int, int], Any]
HEADS: dict[str, Head] = {"k": ScoreHead, "k²": PairMatrixHead}


def step_cost(make: Head, k: int, device: torch.device) -> tuple[float, float, int]:
    """Milliseconds a step, peak MiB (CUDA; else what Adam must hold), parameters of the head."""
    rng = np.random.default_rng(0)
    X, clusters = rng.standard_normal((4096, 64)), np.arange(4096) % k
    rows = observations(X, device)
    everything = np.arange(len(X))
    fold = Fold(everything, everything, everything)
    base = build_network(rows, fold, RECIPES["mlp"], k, "pairwise")
    network = Network(base.backbone, make(WIDTH, k)).to(device)
    n_parameters = sum(p.numel() for p in network.head.parameters())
    group = Group([network], [fold], learning_rate=1e-3, weight_decay=0.0)
    on_device = torch.from_numpy(clusters).to(device)
    batches = epoch_minibatches([everything], clusters, 256, rng)
    cuda = device.type == "cuda"
    group.run(batches[:4], rows, on_device)
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    group.run(batches, rows, on_device)
    milliseconds = (time.perf_counter() - start) / len(batches) * 1000
    # Weights, gradient, Adam's two moments, the running mean and the best so far.
    held = torch.cuda.max_memory_allocated() if cuda else 6 * 4 * n_parameters
    return milliseconds, held / 2**20, n_parameters


def grow(ks: list[int], device: torch.device) -> None:
    table: list[tuple[Any, ...]] = []
    for k in ks:
        row: list[Any] = [k]
        for make in HEADS.values():
            try:
                milliseconds, mebibytes, n_parameters = step_cost(make, k, device)
                row += [f"{n_parameters:,}", f"{mebibytes:,.0f}", f"{milliseconds:.2f}"]
            except (torch.OutOfMemoryError, RuntimeError) as error:
                row += ["–", type(error).__name__, "–"]
            if device.type == "cuda":
                torch.cuda.empty_cache()
        table.append(tuple(row))
    head = ("k", "k: parameters", "MiB", "ms a step", "k²: parameters", "MiB", "ms a step")
    print_table(f"Heads on {WIDTH} features, batch 256, on {device.type}", head, table)


def compare_quality(device: torch.device) -> None:
    table = []
    for size, noise in ((50, 0.0), (50, 0.3), (20, 0.0), (20, 0.3)):
        X, clusters, digit = split_digits(size, noise, 0)
        k, majority = int(clusters.max()) + 1, majority_categories(clusters, digit)
        rows = observations(X, device)
        for name, make in HEADS.items():
            fold = holdout_fold(clusters, 0.2, np.random.default_rng(0))
            with torch.random.fork_rng():
                torch.manual_seed(0)
                base = build_network(rows, fold, RECIPES["mlp"], k, "pairwise")
                network = Network(base.backbone, make(WIDTH, k)).to(device)
            on_device = torch.from_numpy(clusters).to(device)
            history = Training(
                [network], rows, on_device, [fold], TrainConfig(), np.random.default_rng(0)
            ).run()
            accuracy = heldout_accuracy(network, rows.take, clusters, fold, k, device)
            upper = accuracy[np.triu_indices(k, 1)]
            table.append(
                (
                    k,
                    f"{noise:.0%}",
                    name,
                    f"{quality(accuracy, majority):.4f}",
                    f"{upper.mean():.4f}",
                    len(history.epoch),
                    f"{history.seconds[-1]:.1f}",
                )
            )
    head = ("k", "noise", "outputs", "Q (hold-out)", "A", "epochs", "seconds")
    print_table(
        "Digits: quality of k and of k² outputs, the paper's loss and hold-out", head, table
    )


@torch.no_grad()
def heldout_accuracy(
    network: Network, take: Any, clusters: Any, fold: Fold, k: int, device: torch.device
) -> Any:
    """Balanced accuracy of all pairs on the test rows, from either head's margins."""
    index = torch.from_numpy(fold.test).to(device)
    own = torch.from_numpy(clusters[fold.test]).to(device)
    margins = network.head.margins(network(take(index)), own).cpu().numpy()
    rate = np.zeros((k, k))
    np.add.at(rate, clusters[fold.test], (margins > 0) + 0.5 * (margins == 0))
    rate /= np.bincount(clusters[fold.test], minlength=k)[:, None]
    return (rate + rate.T) / 2


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="auto")
    parser.add_argument("--clusters", type=int, nargs="+", default=[10, 20, 40, 80, 160])
    arguments = parser.parse_args()
    device = choose_device(arguments.device)
    compare_quality(device)
    grow(arguments.clusters, device)


if __name__ == "__main__":
    main()
