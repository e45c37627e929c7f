"""Memory that an estimate takes, and what to say before training if there is less."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial

import torch

from unsplit.data.memory import available_memory, free_memory, most_that_fits, require_memory
from unsplit.data.rows.base import Rows
from unsplit.devices import BLOCK_ELEMENTS, Draws, current
from unsplit.networks.activations import Activations, activations_of
from unsplit.networks.network import Network
from unsplit.networks.registry import BIG_BATCH, FIRST_LAYER, Recipe
from unsplit.networks.training.group import Fold, can_be_stacked
from unsplit.networks.training.loop import TrainConfig

# Number of features of the networks for vectors; others have 512 at most.
WIDTH = 256
# Copies of the output layer: weights, gradient, two moments, running mean, best weights, the stack
# of all folds and working space.
HEADS = 8
# Blocks of scores that are in memory at the same time when pairs are counted.
SCORE_BLOCKS = 6
# Distances, errors, and working space of all pairs.
MATRICES = 4
# Bytes for each held-out observation if only confused pairs are kept: some dozen confusions, each
# with two indices and a number, and once more while they are added up.
BYTES_OF_CONFUSIONS = 2 * 24 * 16

# Copies of a backbone beside the one that is built: gradient, two moments, running mean and best
# weights.
COPIES = 5
# The allocator of a processor keeps what layers give back, and often cannot use it for the next: so
# many bytes are taken for each that is saved for the gradients (benchmarks/memory_guard.py).
CPU_SAVED = 2.2


@dataclass(frozen=True)
class EstimateSize:
    """What the memory of an estimate depends on, beside data and backbones.

    Parameters
    ----------
    n_clusters, n_outputs : int
        Clusters, and classes of the networks: clusters within batches.
    n_folds : int
        Networks that are trained.
    n_watched, n_tested : int
        Observations of all folds that choose the epoch, and that are held out.
    is_sparse : bool
        Whether only confused pairs are kept.
    own_scores : bool
        Whether classifiers give scores for all clusters, and not features.

    Examples
    --------
    >>> EstimateSize(500, 500, 1, 50_000, 100_000).memory >> 20
    490
    """

    n_clusters: int
    n_outputs: int
    n_folds: int
    n_watched: int
    n_tested: int
    is_sparse: bool = False
    own_scores: bool = False

    def with_folds(self, folds: Sequence[Fold]) -> "EstimateSize":
        """The same with these folds."""
        watched = sum(len(fold.watch) for fold in folds)
        tested = sum(len(fold.test) for fold in folds)
        return replace(self, n_folds=len(folds), n_watched=watched, n_tested=tested)

    def with_clusters(self, n: int) -> "EstimateSize":
        """The same with so many clusters."""
        outputs = max(1, round(n * self.n_outputs / self.n_clusters))
        return replace(self, n_clusters=n, n_outputs=outputs)

    @property
    def memory(self) -> int:
        """Bytes that training and scoring take."""
        width = max(WIDTH, self.n_outputs) if self.own_scores else WIDTH
        head = 4 * self.n_folds * self.n_outputs * width
        # Networks of several folds are tried on a block of scores, others on a batch.
        block = BLOCK_ELEMENTS // self.n_outputs if self.n_folds > 1 else BIG_BATCH
        tried = min(self.n_watched, block)
        # Each of several processes trains a part of every head.
        training = HEADS * head // current().size
        training += 4 * tried * (4 * width + 3 * self.n_outputs)
        scores = min(self.n_tested // self.n_folds * self.n_clusters, BLOCK_ELEMENTS)
        pairs = 8 * MATRICES * self.n_clusters**2
        if self.is_sparse:
            pairs = BYTES_OF_CONFUSIONS * self.n_tested
        counting = 3 * head + 4 * SCORE_BLOCKS * scores + pairs
        return 4 * self.n_tested * width + max(training, counting)

    @property
    def memory_of_gpu(self) -> int:
        """Bytes that training and scoring take on a GPU."""
        pairs = 0 if self.is_sparse else 8 * self.n_clusters**2
        return 4 * self.n_folds * self.n_outputs * WIDTH * HEADS + pairs


# Other ways to choose folds: how they are called, and the folds.
OtherFolds = Iterable[tuple[str, Sequence[Fold]]]


def require_memory_of_estimate(
    estimate: EstimateSize, rows: Rows, may_be_sparse: bool, fewer_folds: Callable[[], OtherFolds]
) -> None:
    """Raise an error, before training, if an estimate will not fit into memory.

    Parameters
    ----------
    estimate : EstimateSize
    rows : Rows
    may_be_sparse : bool
        Whether the sparse form could be used.
    fewer_folds : callable
        Called if the estimate does not fit; fewer folds that might.
    """
    what = f"{estimate.n_clusters:,} clusters of {len(rows):,} observations"
    places: list[tuple[str, int, Callable[[EstimateSize], int]]]
    places = [(what, available_memory(), lambda one: one.memory)]
    if rows.device.type == "cuda":
        on_gpu = free_memory(rows.device)
        places.append((f"{what} on the GPU", on_gpu, lambda one: one.memory_of_gpu))
    for name, free, memory in places:
        others = partial(_others, estimate, may_be_sparse, fewer_folds)
        advice = partial(_advice, estimate, len(rows), free, memory, others)
        require_memory(memory(estimate), free, name, advice)


def _advice(
    estimate: EstimateSize,
    n_rows: int,
    free: int,
    memory: Callable[[EstimateSize], int],
    others: Callable[[], Iterator[tuple[str, EstimateSize]]],
) -> str:
    """What would fit: another form, fewer folds, fewer clusters or fewer observations."""
    ways = [words for words, other in others() if memory(other) <= free]
    number = _number_that_fits(estimate, n_rows, free, memory)
    return f"use {', or '.join(ways)}; otherwise {number}" if ways else number


def _others(
    estimate: EstimateSize, may_be_sparse: bool, fewer_folds: Callable[[], OtherFolds]
) -> Iterator[tuple[str, EstimateSize]]:
    """Estimates of the same clusters that take less memory, and how to ask for them."""
    if may_be_sparse and not estimate.is_sparse:
        words = 'form="sparse", which keeps only pairs that are ever confused'
        yield words, replace(estimate, is_sparse=True)
    for words, folds in fewer_folds():
        if len(folds) < estimate.n_folds:
            yield _trains(words, len(folds), estimate.n_folds), estimate.with_folds(folds)


def _trains(words: str, few: int, many: int) -> str:
    return f"{words}, which trains {few} network{'s' * (few > 1)} instead of {many}"


def _number_that_fits(
    estimate: EstimateSize, n_rows: int, free: int, memory: Callable[[EstimateSize], int]
) -> str:
    k = estimate.n_clusters
    fitting = most_that_fits(lambda n: memory(estimate.with_clusters(n)), free, k)
    if fitting < 2:
        share = free / memory(estimate.with_clusters(2))
        return f"at most {int(share * n_rows):,} observations would fit"
    return (
        f"at most {fitting:,} clusters would fit: merge the smallest first, or check that labels "
        "are clusters and not row ids"
    )


@dataclass(frozen=True)
class Networks:
    """What the memory of backbones depends on.

    Parameters
    ----------
    parameters : int
        Bytes of the parameters of one backbone.
    activations : Activations
    at_once : int
        Networks that are trained in the same steps.
    n_folds : int
        Networks in all.
    tried : int
        Observations that are scored at a time.
    on_cpu : bool
        Whether the allocator is that of a processor.

    Examples
    --------
    >>> Networks(10, Activations(0, 20, 5), 1, 2, 4, on_cpu=False).memory(3)  # 75 for a batch
    175
    """

    parameters: int
    activations: Activations
    at_once: int
    n_folds: int
    tried: int
    on_cpu: bool = True

    def memory(self, batch_size: int) -> int:
        """Bytes beside the networks themselves, if batches have so many observations."""
        found = self.activations
        steps, evaluation = found.of_training(batch_size), found.of_evaluation(self.tried)
        computed = max(steps, evaluation)
        if self.on_cpu:
            computed = steps + evaluation + int((CPU_SAVED - 1) * batch_size * found.saved)
        return COPIES * self.n_folds * self.parameters + self.at_once * computed


def require_memory_of_networks(
    networks: Sequence[Network],
    rows: Rows,
    folds: Sequence[Fold],
    recipe: Recipe,
    config: TrainConfig,
    draws: Draws,
    estimate: EstimateSize,
) -> None:
    """Raise an error, before training, if the activations of networks will not fit into memory.

    For vectors and counts the formulas above suffice, and nothing is tried.

    Parameters
    ----------
    networks : sequence of Network
        Untrained, one for each fold.
    rows : Rows
    folds : sequence of Fold
    recipe : Recipe
    config : TrainConfig
    draws : callable
        As for :func:`unsplit.devices.private_randomness`.
    estimate : EstimateSize
    """
    if recipe.name in FIRST_LAYER:
        return
    network, size, on_gpu = networks[0], current().size, rows.device.type == "cuda"
    try:
        activations = activations_of(network.backbone, rows, draws)
    except Exception:  # a user's network may not take so few; if it takes none, training says so
        return
    stacked = can_be_stacked(networks, rows) if config.batch_folds is None else config.batch_folds
    longest = max(len(fold.train) for fold in folds)
    tried = max(len(fold.watch) for fold in folds)
    batch_size = -(-min(config.batch_size, longest) // size)
    found = Networks(
        sum(p.nbytes for p in network.backbone.parameters()),
        activations,
        len(networks) if stacked else 1,
        len(networks),
        min(network.most_at_once, -(-tried // size)),
        rows.device.type != "cuda",
    )
    free = free_memory(rows.device) - (estimate.memory_of_gpu if on_gpu else estimate.memory)
    what = f"training {recipe.name} in batches of {min(config.batch_size, longest):,}"
    advice = partial(_smaller, found, batch_size, free, config, rows, recipe, size)
    where = " on the GPU" if on_gpu else ""
    require_memory(found.memory(batch_size), max(free, 0), f"{what}{where}", advice)


def _smaller(
    found: Networks,
    batch_size: int,
    free: int,
    config: TrainConfig,
    rows: Rows,
    recipe: Recipe,
    size: int,
) -> str:
    """What would fit: smaller batches, one fold, or smaller observations."""
    ways = []
    fitting = most_that_fits(found.memory, free, batch_size) * size
    if fitting > 1:
        ways.append(f"pass training={_written(replace(config, batch_size=fitting))}")
    if found.n_folds > 1 and replace(found, n_folds=1, at_once=1).memory(batch_size) <= free:
        ways.append(_trains("pass holdout=0.2", 1, found.n_folds))
    copies = COPIES * found.n_folds * found.parameters
    share = (free - copies) / max(found.memory(batch_size) - copies, 1)
    smaller = _observations(rows, share) if 0 < share < 1 and recipe.image_side is None else ""
    if smaller:
        ways.append(f"use {smaller}")
    return ", or ".join(ways) or "use a smaller backbone"


def _written(config: TrainConfig) -> str:
    """A configuration as it is typed, without what is usual."""
    usual = TrainConfig()
    given = [
        f"{field.name}={getattr(config, field.name)!r}"
        for field in fields(config)
        if getattr(config, field.name) != getattr(usual, field.name)
    ]
    return f"unsplit.TrainConfig({', '.join(given)})"


# Kinds of observations whose activations grow with one axis of a batch: which, and its name.
LONG = {"points": (1, "clouds", "points"), "sequences": (2, "sequences", "steps")}


def _observations(rows: Rows, share: float) -> str:
    """Name observations that have at most this share of the present numbers, if there are any."""
    if rows.kind == "images":
        side = int(min(rows.shape[1:]) * math.sqrt(share))
        return f"images of at most {side:,} pixels a side" if side > 1 else ""
    if rows.kind not in LONG:
        return ""
    axis, name, unit = LONG[rows.kind]
    largest = rows.take(torch.tensor([rows.largest], device=rows.device))
    length = int(share * largest.shape[axis])
    return f"{name} of at most {length:,} {unit}" if length > 1 else ""
