"""Time and memory against the number of clusters k and of observations n, with fitted slopes.

python -m benchmarks.growth [--device cuda] [--only "training step"] [--time-limit 90]
python -m benchmarks.growth --page

Every measurement is a line in benchmarks/results/growth.jsonl.gz; what is there is not measured
again.
``--page`` draws docs/images/scale/growth.png and writes the tables of
benchmarks/results/scale.md from these lines.  On a CPU the time is that of the processor, because
other programs may run.
"""

import argparse
import ctypes
import gc
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import unsplit
from benchmarks import head, results_file
from benchmarks.class_means import SPREAD, Near, estimate_by_means
from benchmarks.growth_page import print_slopes, write_page
from benchmarks.many_clusters import groups_in_clusters
from benchmarks.peak_memory import PeakMemory
from unsplit.data.rows.kinds import observations
from unsplit.devices import choose_device, private_randomness
from unsplit.networks.chunked import blocks_for
from unsplit.networks.network import MLP
from unsplit.networks.registry import RECIPES, build_network
from unsplit.networks.training.group import Fold, Group, epoch_minibatches
from unsplit.networks.training.loop import TrainConfig, used_decay
from unsplit.pairwise.divergences import HeldoutScores
from unsplit.pairwise.stored_pairs import count_confusions

RESULTS = Path(__file__).parent / "results" / "growth.jsonl.gz"
DIMENSIONS, FEATURES = 32, 256
# Observations of a cluster where all of them are merged or connected.
PER_CLUSTER, PER_GRAPH_CLUSTER = 10, 100
# Where clusters are merged, they are compared with those of so many groups.
NEAR_GROUPS = 3
BATCH = {"cpu": 256, "cuda": 4096}
# Held-out observations if k varies, and clusters if they do.
HELD_OUT = {"cpu": 10_000, "cuda": 100_000}
CLUSTERS = {"cpu": 1_000, "cuda": 10_000}

Record = dict[str, Any]
Work = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """One measurement: what is done, and how large it is."""

    what: str
    against: str
    size: int
    parameters: Mapping[str, int]
    prepare: Callable[[torch.device], Work]

    def described(self) -> Record:
        """What makes two measurements on one device the same."""
        named: Record = {"what": self.what, "against": self.against, "size": self.size}
        return {**named, **self.parameters}


def training_step(k: int, batch: int, device: torch.device, recorded: bool = True) -> Work:
    """A step as training takes it: features, loss, gradients, AdamW and the running mean.

    On a GPU it is started kernel by kernel if it is not to be recorded.
    """
    n = max(k, batch)
    X = np.random.default_rng(0).standard_normal((n, DIMENSIONS), np.float32)
    clusters, everything = np.arange(n) % k, np.arange(n)
    rows, fold = observations(X, device), Fold(everything, everything[:0], everything[:0])
    recipe = RECIPES["mlp"]
    config = TrainConfig(batch_size=batch).over(recipe.training)
    with private_randomness(0):
        network = build_network(rows, fold, recipe, k, "softmax")
    decay = used_decay(config.weight_decay, k, batch)
    group = Group([network], [fold], config.learning_rate, decay, config.averaging)
    group.recordable &= recorded
    batches = epoch_minibatches([everything], clusters, batch, np.random.default_rng(0))[:1]
    own = torch.from_numpy(clusters).to(device)
    return lambda: group.run(batches, rows, own)


def counting(k: int, n: int, device: torch.device) -> Work:
    """The confusions of n held-out observations with k clusters."""
    scores = held_out(k, n, device)
    return lambda: count_confusions(scores)


def held_out(k: int, n: int, device: torch.device) -> HeldoutScores:
    """Scores of observations in Gaussian groups of ten clusters each, as of a trained network."""
    draw = partial(torch.randn, generator=torch.Generator(device).manual_seed(0), device=device)
    centres, spread = draw(-(-k // 10), FEATURES), float(SPREAD)
    clusters = torch.arange(n, device=device) * k // n
    weights = centres.repeat_interleave(10, 0)[:k]
    features = (centres[clusters // 10] + spread * draw(n, FEATURES)).cpu().numpy()
    # Clusters of a group differ by little, as if each had been learned from some observations.
    weights += spread * draw(k, FEATURES) / PER_CLUSTER**0.5
    bias = -0.5 * weights.square().sum(1)
    index = np.arange(n)
    return HeldoutScores(
        features, weights.cpu().numpy()[None], bias.cpu().numpy()[None],
        clusters.cpu().numpy(), 0 * index, index,
    )  # fmt: skip


def merging(k: int, device: torch.device) -> Work:
    """A whole tree from a sparse estimate of k clusters, without a neighbour graph."""
    X, clusters, groups = groups_in_clusters(np.full(k, PER_CLUSTER), DIMENSIONS, "random")
    group_of = np.zeros(k, np.int64)
    group_of[clusters] = groups
    result = estimate_by_means(X, clusters, 1, lambda _: None, Near(group_of, NEAR_GROUPS))
    return lambda: unsplit.merge(result)


def graph(n: int, device: torch.device) -> Work:
    """The fifteen nearest neighbours of n observations, and the edges between their clusters."""
    sizes = np.full(-(-n // PER_GRAPH_CLUSTER), PER_GRAPH_CLUSTER)
    X, clusters, _ = groups_in_clusters(sizes, DIMENSIONS, "random")
    return lambda: unsplit.neighbour_graph(X, clusters, device=device, everything=True)


def halves(first: int, last: int) -> list[int]:
    """1, 3, 10, 30, … times ten to a power, from ``first`` to ``last``.

    Examples
    --------
    >>> halves(100, 3000)
    [100, 300, 1000, 3000]
    """
    numbers = (m * 10**e for e in range(10) for m in (1, 3))
    return [n for n in numbers if first <= n <= last]


def backbone_cost() -> dict[str, int]:
    """Parameters of the backbone, and operations for one observation."""
    weights = list(MLP(DIMENSIONS, FEATURES // 2).parameters())
    operations = 2 * sum(weight.numel() for weight in weights if weight.ndim == 2)
    return {"parameters": sum(weight.numel() for weight in weights), "operations": operations}


def cases(kind: str) -> Iterator[Case]:
    """All measurements on a device of this kind, each series from small to large."""
    cuda, batch, n, k = kind == "cuda", BATCH[kind], HELD_OUT[kind], CLUSTERS[kind]
    given: dict[str, int]
    for size in halves(100, 10**6):
        given = {"k": size, "batch": batch, "features": FEATURES} | backbone_cost()
        yield Case("training step", "k", size, given, partial(training_step, size, batch))
    for size in halves(100, 10**6 if cuda else 100_000):
        given = {"k": size, "n": n, "features": FEATURES}
        yield Case("counting", "k", size, given, partial(counting, size, n))
    for size in halves(1000, 10**6 if cuda else 100_000):
        given = {"k": k, "n": size, "features": FEATURES}
        yield Case("counting", "n", size, given, partial(counting, k, size))
    for size in (*halves(1000, 30_000), 50_000, 100_000, 200_000, *([400_000] if cuda else [])):
        given = {"n": size, "dimensions": DIMENSIONS}
        yield Case("neighbour graph", "n", size, given, partial(graph, size))
    for size in halves(100, 10**6):
        given = {"k": size, "n": PER_CLUSTER * size, "dimensions": DIMENSIONS}
        yield Case("merging", "k", size, given, partial(merging, size))


def speeds(device: torch.device) -> Record:
    """What benchmarks.plan must know of a device to predict a step."""
    cuda, batch = device.type == "cuda", BATCH[device.type]
    a, b, out = (torch.randn(SIDE[device.type], SIDE[device.type], device=device) for _ in "abc")
    if cuda:
        a, b, out = a.bfloat16(), b.bfloat16(), out.bfloat16()
    matmul = 2 * len(a) ** 3 / best_time(lambda: torch.mm(a, b, out=out), device)
    one, other = (torch.ones(MOVED_AT_ONCE, device=device) for _ in range(2))
    # The running mean of the weights: two numbers are read, one is written.
    memory = 12 * MOVED_AT_ONCE / best_time(lambda: one.lerp_(other, 0.5), device)
    few, many = LOSS_OF[device.type]
    at_once = head.at_once("softmax")
    in_blocks = head.in_blocks("softmax", blocks_for(batch, a.dtype, device))
    found = {
        "what": "speeds",
        "matmul": matmul,
        "memory": memory,
        "share": loss_rate(in_blocks, many, batch, device) / matmul,
        "at_once": loss_rate(at_once, few, batch, device, repeated=cuda) / matmul,
        "fixed": best_time(training_step(2, 2, device), device),
    }
    if cuda:  # steps over blocks of clusters are not recorded
        more = loss_time(in_blocks, 2, batch, device) - loss_time(at_once, 2, batch, device)
        step = training_step(2, 2, device, recorded=False)
        found["starting"] = best_time(step, device) + max(0.0, more)
    return found


# Rows of the products for the ceiling, weights whose mean is taken, and clusters of the loss, few
# enough to have all scores at once and many.
SIDE = {"cpu": 1024, "cuda": 8192}
MOVED_AT_ONCE = 2**26
LOSS_OF = {"cpu": (10_000, 100_000), "cuda": (3_000, 10**6)}


def loss_rate(
    loss: head.Loss, k: int, batch: int, device: torch.device, repeated: bool = False
) -> float:
    """Operations a second of the loss, without what it costs however few clusters there are."""
    took, fixed = (loss_time(loss, n, batch, device, repeated) for n in (k, 2))
    operations = head.Problem(k, FEATURES, batch, device).operations
    # On a GPU the calls may take longer than the products, so that nothing would be left.
    return operations / max(took - fixed, took / 10)


def loss_time(
    loss: head.Loss, k: int, batch: int, device: torch.device, repeated: bool = False
) -> float:
    """Seconds of the loss and its gradients; if repeated by the GPU, without starting them."""
    work = loss_and_gradients(loss, head.Problem(k, FEATURES, batch, device))
    work()  # kernels are compiled when they are first used
    if not repeated:
        return best_time(work, device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return best_time(graph.replay, device)


def loss_and_gradients(loss: head.Loss, problem: head.Problem) -> Work:
    """The loss of a batch, and its gradients by features, weights and bias."""
    *parts, clusters = problem.tensors(torch.float32)

    def work() -> None:
        for part in parts:
            part.grad = None
        loss(parts[0], parts[1], parts[2], clusters).backward()

    return work


SMALL: dict[str, Callable[[torch.device], Work]] = {
    "training step": partial(training_step, 100, 64),
    "counting": partial(counting, 100, 1000),
    "neighbour graph": partial(graph, 1000),
    "merging": partial(merging, 100),
}


def measure(case: Case, device: torch.device) -> Record:
    """Best time of some repeats, and the most memory above what there was before."""
    cuda = device.type == "cuda"
    before, held = settled_memory(device)
    work = case.prepare(device)
    settled_memory(device)
    if cuda:
        torch.cuda.reset_peak_memory_stats(device)
    with PeakMemory() as memory:
        seconds = best_time(work, device)
    on_device = torch.cuda.max_memory_allocated(device) - held if cuda else 0
    return {
        **case.described(),
        "seconds": seconds,
        "main_bytes": memory.anonymous - before,
        "device_bytes": on_device,
    }


def settled_memory(device: torch.device) -> tuple[int, int]:
    """Main memory and that of the GPU, after all that is no longer used was given back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with PeakMemory() as memory:
        pass
    if device.type != "cuda":
        return memory.anonymous, 0
    torch.cuda.empty_cache()
    return memory.anonymous, torch.cuda.memory_allocated(device)


# Calls end when so many seconds are spent; what takes much longer is called once.
ENOUGH = {"cpu": 2.0, "cuda": 0.3}
FEWEST, MOST = 3, 200


def best_time(work: Work, device: torch.device) -> float:
    """Least seconds of some calls: of the processor on a CPU, otherwise by the clock."""
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    times: list[float] = []
    enough = ENOUGH[device.type]
    while len(times) < MOST and (
        sum(times) < enough or (len(times) < FEWEST and times[-1] < 2 * enough)
    ):
        head.wait(device)
        start = clock()
        work()
        head.wait(device)
        times.append(clock() - start)
    return min(times)


def is_there(case: Case, machine: Record, records: Sequence[Record]) -> bool:
    """Whether this was measured on this device already."""
    wanted = case.described() | {"device": machine["device"]}
    return any(wanted.items() <= record.items() for record in records)


def machine_of(device: torch.device) -> Record:
    """Where and with what measurements are made."""
    cuda = device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(device) if cuda else "CPU",
        "kind": device.type,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "unsplit": unsplit.__version__,
    }


def expected(case: Case, machine: Record, records: Sequence[Record]) -> float:
    """Seconds that a measurement may take, from the largest smaller one of the series."""
    wanted = {"what": case.what, "against": case.against, "device": machine["device"]}
    alike = [record for record in records if wanted.items() <= record.items()]
    smaller = {r["size"]: r["took"] for r in alike if r["size"] < case.size}
    if not smaller:
        return 0.0
    return float(smaller[max(smaller)] * (case.size / max(smaller)) ** 1.2)


def work_off(todo: Sequence[Case], device: torch.device, results: Path, deadline: float) -> None:
    """Measure what is not known yet, and write each line as soon as it is there."""
    machine, warm = machine_of(device), set[str]()
    for case in todo:
        records = results_file.read(results)
        if is_there(case, machine, records):
            continue
        seconds = expected(case, machine, records)
        if time.monotonic() + seconds > deadline:
            print(f"left out: {case.what}, {case.against} = {case.size:,}, about {seconds:.0f} s")
            continue
        if case.what not in warm:
            SMALL[case.what](device)()  # whatever is loaded or compiled when it is first used
            warm.add(case.what)
        start = time.monotonic()
        record = machine | measure(case, device) | {"took": time.monotonic() - start}
        results_file.add(results, record)
        print(record, flush=True)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--only", nargs="+", choices=SMALL, default=list(SMALL))
    parser.add_argument("--largest", type=int, default=10**9, help="largest k or n")
    parser.add_argument("--time-limit", type=float, default=float("inf"), help="seconds in all")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", action="store_true", help="only draw and write what is known")
    given = parser.parse_args(arguments)
    if given.page:
        write_page(results_file.read(given.results))
        return
    deadline = time.monotonic() + given.time_limit
    device = choose_device(given.device)
    warnings.simplefilter("ignore", unsplit.errors.SmallClusterWarning)
    warnings.simplefilter("ignore", unsplit.errors.ConfusionWarning)
    todo = [c for c in cases(device.type) if c.what in given.only and c.size <= given.largest]
    measured = {r["device"] for r in results_file.read(given.results) if r["what"] == "speeds"}
    if "training step" in given.only and machine_of(device)["device"] not in measured:
        results_file.add(given.results, machine_of(device) | speeds(device))
    work_off(todo, device, given.results, deadline)
    print_slopes(results_file.read(given.results))


if __name__ == "__main__":
    main()
