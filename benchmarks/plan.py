"""What a run costs on machines that are not here: bytes, operations, messages and time.

python -m benchmarks.plan [--matmul 780] [--share 0.6] [--hbm 4] [--link 400] [--latency 20]
    [--clusters 1000000 10000000] [--observations 1000000000] [--ranks 1 8 64 512]
    [--measured benchmarks/results/growth.jsonl.gz]

The formulas follow networks/chunked.py, training/ranks.py and training/group.py.  The speeds
of a device are inputs, because only a measurement knows them: the ceiling of products in bfloat16
in TFLOP/s and the share of it that the loss reaches, counted as three products (benchmarks.head
prints both, for either loss), memory in TB/s, what a rank receives from the others in GB/s, and
what a message costs in µs.

The file that benchmarks.growth writes has steps and the speeds of the device that took them; the
ratio of the formula to the measurement is printed for each step.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import results_file
from benchmarks.common import print_table
from unsplit.devices import BLOCK_ELEMENTS
from unsplit.networks.chunked import CPU_BLOCK, GPU_BLOCK
from unsplit.networks.network import LARGE_HEAD
from unsplit.networks.training.group import ALWAYS_DRAWN, MOST_DRAWS

# Products of batch × clusters × features in a step: scores, and gradients of features and weights.
# The softmax loss computes the scores twice, but its share of the ceiling is counted by three too.
PRODUCTS = 3

# Bytes of each weight of a large head: weight, gradient and running mean in float32, first moment
# in bfloat16.  The weights kept so far are in main memory.  A smaller head has two moments in
# float32 and keeps its weights beside them.
HELD, HELD_SMALL = 4 + 4 + 4 + 2, 4 + 4 + 4 + 8 + 4
KEPT = 4
# To and from memory in a step, beside the loss: the optimizer reads gradient, weight and moments
# and writes the last, and the running mean is read and written with the weight.
MOVED, MOVED_SMALL = 4 + 8 + 4 + 12, 4 + 8 + 16 + 12
# Of each parameter of the backbone: weight, gradient, mean, best and two moments.
BACKBONE_HELD = 24
# Of each feature of an observation, in the layers of a small backbone and their gradients; much of
# it is bfloat16 on a GPU.
ACTIVATIONS = {"cpu": 40, "cuda": 14}
# Of each score if all are held at once: itself, its logarithm, and both gradients.  Otherwise a
# block of them, with a copy of its weights in bfloat16 on a GPU.
SCORE_HELD = {"cpu": 16, "cuda": 12}
BLOCK_ELEMENT, BLOCK = {"cpu": 4, "cuda": 2}, {"cpu": CPU_BLOCK, "cuda": GPU_BLOCK}
# What a checkpoint holds of a weight of the head.
IN_CHECKPOINT = 4 + 4 + 4 + 2

# Of n observations, those that are held out, the others being trained on.
HELD_OUT = 1 / 3


@dataclass(frozen=True)
class Run:
    """A training: its data, its network and its processes.

    Parameters
    ----------
    clusters, observations : int
    ranks : int
        Processes, each with a device.
    batch : int
        Observations in a step, of all ranks together.
    features : int
        Of the backbone.
    parameters, operations : float
        Of the backbone, and what it computes forward for one observation.
    loss : {"softmax", "pairwise"}
    epochs : int
    """

    clusters: int
    observations: int
    ranks: int = 1
    batch: int = 4096
    features: int = 512
    parameters: float = 1e6
    operations: float = 2e6
    loss: str = "softmax"
    epochs: int = 10


@dataclass(frozen=True)
class Device:
    """Speeds of a device.

    Parameters
    ----------
    matmul, memory, link : float
        Operations of products, bytes of its memory, and bytes from other ranks, in a second.
    share : float
        Of ``matmul``, what the loss over blocks of clusters reaches.
    latency : float
        Seconds of a message.
    at_once : float, optional
        As ``share``, where all scores of a batch are held at once because they are few.
    fixed : float
        Seconds of a step that has next to nothing to compute.
    starting : float
        Seconds that the processor takes to start a step over blocks of clusters, which is not
        recorded; a GPU computes meanwhile, at the latest when half of the step is started.
    """

    matmul: float
    share: float
    memory: float
    link: float = 1.0
    latency: float = 0.0
    at_once: float | None = None
    fixed: float = 0.0
    starting: float = 0.0


def weights(run: Run) -> float:
    """Weights of the head on one rank."""
    return run.clusters * run.features / run.ranks


def is_large(run: Run) -> bool:
    """Whether fewer moments of the head are kept."""
    return run.clusters * run.features > LARGE_HEAD


def in_blocks(run: Run) -> bool:
    """Whether the loss is computed over blocks of clusters."""
    return run.ranks > 1 or run.batch * run.clusters > BLOCK_ELEMENTS


def head_operations(run: Run) -> float:
    """Operations of the loss in a step on one rank.

    Examples
    --------
    >>> head_operations(Run(10**6, 10**7)) / 1e12
    12.582912
    """
    return PRODUCTS * 2 * run.batch * weights(run)


def backbone_operations(run: Run) -> float:
    """Operations of the backbone in a step on one rank, forward and backward."""
    return 3 * run.operations * run.batch / run.ranks


def step_operations(run: Run) -> float:
    """Operations of a step on one rank."""
    return head_operations(run) + backbone_operations(run)


def step_bytes(run: Run, kind: str = "cuda") -> float:
    """Bytes that go to and from the memory of one rank in a step, beside those of the loss.

    Examples
    --------
    >>> step_bytes(Run(1000, 10**7, batch=10, features=10, parameters=0))
    402800.0
    """
    of_head = MOVED if is_large(run) else MOVED_SMALL
    # What is kept of the features is written once and read once.
    of_batch = 2 * ACTIVATIONS[kind] * run.batch * run.features / run.ranks
    return of_head * weights(run) + MOVED_SMALL * run.parameters + of_batch


def gathered(run: Run, size: int = 2) -> float:
    """Bytes of the features that ranks exchange in a step; ``size`` is that of a number."""
    return run.batch * run.features * size


def summed(run: Run) -> float:
    """Bytes that are added up over all ranks in a step, in float32.

    The gradients of the features and of the backbone, and numbers of every observation: its own
    score, and two for the softmax (largest score and sum) or the pairwise loss (values and slopes).
    """
    return 4 * (run.batch * run.features + run.parameters + 3 * run.batch)


def received(run: Run) -> float:
    """Bytes that one rank receives in a step, if sums and gatherings go around in a ring."""
    others = (run.ranks - 1) / run.ranks
    return others * (gathered(run) + 2 * summed(run))


MESSAGES = 6


def step_seconds(run: Run, device: Device, kind: str = "cuda") -> tuple[float, float, float, float]:
    """Seconds of a step: products, memory, messages and a fixed part, one after the other."""
    talk = 0.0
    if run.ranks > 1:
        talk = received(run) / device.link + MESSAGES * device.latency
    share = device.share
    if device.at_once is not None and not in_blocks(run):
        share = device.at_once
    products = (head_operations(run) / share + backbone_operations(run)) / device.matmul
    moved = step_bytes(run, kind) / device.memory
    fixed = device.fixed
    if in_blocks(run) and device.starting:
        fixed = max(device.starting - products - moved, device.starting / 2)
    return products, moved, talk, fixed


def steps(run: Run) -> float:
    """Steps of an epoch: all that is trained on, but not more than so many draws of a cluster."""
    trained = (1 - HELD_OUT) * run.observations
    return min(trained, max(MOST_DRAWS * run.clusters, ALWAYS_DRAWN)) / run.batch


def counting_seconds(run: Run, device: Device) -> float:
    """Seconds in which every held-out observation is compared with every cluster, once."""
    operations = 2 * HELD_OUT * run.observations * weights(run)
    return operations / (device.share * device.matmul)


def memory(run: Run, kind: str = "cuda") -> float:
    """Bytes of the memory of one rank, on a device of this kind.

    Head, backbone, features of the whole batch and their gradients, what a small backbone keeps of
    its part of the batch, and scores.
    """
    held = HELD if is_large(run) else HELD_SMALL
    if is_large(run) and kind == "cpu":
        held += KEPT
    # Of all observations of the batch: features in bfloat16, and their gradient twice in float32.
    others = (2 + 4 + 4) * run.batch * run.features if run.ranks > 1 else 0
    batch = others + ACTIVATIONS[kind] * run.batch * run.features / run.ranks
    of_scores = SCORE_HELD[kind] * run.batch * run.clusters
    if in_blocks(run):
        elements = min(BLOCK[kind], run.batch * run.clusters // run.ranks)
        copied = 2 * elements // run.batch * run.features if kind == "cuda" else 0
        of_scores = BLOCK_ELEMENT[kind] * elements + copied
    return held * weights(run) + BACKBONE_HELD * run.parameters + batch + of_scores


def hours(run: Run, device: Device) -> float:
    """Hours of training and counting."""
    training = run.epochs * steps(run) * sum(step_seconds(run, device))
    return (training + counting_seconds(run, device)) / 3600


def row(run: Run, device: Device) -> list[str]:
    """What the table says about a run."""
    products, moved, talk, _ = (1e3 * seconds for seconds in step_seconds(run, device))
    return [
        f"{run.clusters:,}",
        f"{run.observations:.0e}".replace("e+0", "e").replace("e+", "e"),
        str(run.ranks),
        f"{run.batch:,}",
        f"{memory(run) / 2**30:,.1f}",
        f"{step_operations(run) / 1e12:,.1f}",
        f"{step_bytes(run) / 1e9:,.1f}",
        f"{received(run) / 1e6:,.0f}",
        f"{products:,.1f} + {moved:,.1f} + {talk:,.1f}",
        f"{IN_CHECKPOINT * weights(run) * run.ranks / 1e9:,.0f}",
        f"{hours(run, device):,.2g}",
    ]


HEADINGS = [
    "k", "n", "ranks", "batch", "GiB a rank", "TFLOP a step", "GB moved", "MB received",
    "ms a step: products + memory + messages", "GB of a checkpoint", "hours",
]  # fmt: skip


def device_of(speeds: Mapping[str, Any]) -> Device:
    """The device that benchmarks.growth measured."""
    names = "matmul", "share", "memory", "at_once", "fixed", "starting"
    return Device(**{name: speeds[name] for name in names if name in speeds})


def run_of(step: Mapping[str, Any]) -> Run:
    """The training of which benchmarks.growth measured a step."""
    names = "batch", "features", "parameters", "operations"
    return Run(step["k"], step["k"], **{name: step[name] for name in names})


COMPARED = [
    "device", "k", "batch", "ms measured", "by the formula", "ratio", "MiB measured",
    "by the formula", "ratio",
]  # fmt: skip


def compared(records: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    """What the formulas say about measured steps, by the speeds of the same device."""
    speeds = {r["device"]: device_of(r) for r in records if r["what"] == "speeds"}
    for step in (r for r in records if r["what"] == "training step"):
        run = run_of(step)
        seconds = sum(step_seconds(run, speeds[step["device"]], step["kind"]))
        held = memory(run, step["kind"])
        taken = step["device_bytes"] if step["kind"] == "cuda" else step["main_bytes"]
        yield [
            step["device"], f"{run.clusters:,}", f"{run.batch:,}",
            f"{1e3 * step['seconds']:,.1f}", f"{1e3 * seconds:,.1f}",
            f"{seconds / step['seconds']:.2f}",
            f"{taken / 2**20:,.0f}", f"{held / 2**20:,.0f}", f"{held / taken:.2f}",
        ]  # fmt: skip


def options() -> argparse.ArgumentParser:
    """The options, whose defaults are those of results/scale.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--matmul", type=float, default=780, help="TFLOP/s of products")
    parser.add_argument("--share", type=float, default=0.6, help="of it that the head reaches")
    parser.add_argument("--hbm", type=float, default=4.0, help="TB/s of memory")
    parser.add_argument("--link", type=float, default=400, help="GB/s that a rank receives")
    parser.add_argument("--latency", type=float, default=20, help="µs of a message")
    parser.add_argument("--clusters", type=int, nargs="+", default=[10**6, 10**7])
    parser.add_argument("--observations", type=int, default=10**9)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 8, 64, 512])
    parser.add_argument("--batch", type=int, default=4096, help="observations of each rank")
    parser.add_argument("--most", type=int, default=65536, help="observations of all ranks")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--measured", type=Path)
    return parser


def rows(given: argparse.Namespace) -> Iterator[list[str]]:
    """The plan: a row for every number of clusters and ranks."""
    device = Device(
        given.matmul * 1e12, given.share, given.hbm * 1e12, given.link * 1e9, given.latency / 1e6
    )
    for k in given.clusters:
        for r in given.ranks:
            batch = min(r * given.batch, given.most)
            yield row(Run(k, given.observations, r, batch, epochs=given.epochs), device)


def main() -> None:
    """Print the plan, or what the formulas say about measured steps."""
    given = options().parse_args()
    if given.measured is not None:
        found = list(compared(results_file.read(given.measured)))
        print_table("Steps, measured and by the formula", COMPARED, found)
        return
    speeds = f"{given.matmul:g} TFLOP/s × {given.share:g}, {given.hbm:g} TB/s, {given.link:g} GB/s"
    print_table(f"Training and counting, {speeds}", HEADINGS, list(rows(given)))


if __name__ == "__main__":
    main()
