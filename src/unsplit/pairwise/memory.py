"""Memory that an estimate takes, and what to say before training if there is less."""

import copy
import math
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from unsplit.data.memory import free_memory, require_memory
from unsplit.data.rows.base import Rows
from unsplit.data.rows.kinds import VectorRows
from unsplit.devices import BLOCK_ELEMENTS, current, mixed_precision, private_randomness
from unsplit.networks.network import Network
from unsplit.networks.registry import BIG_BATCH, FIRST_LAYER, Recipe
from unsplit.networks.training.group import Fold, can_be_stacked
from unsplit.networks.training.loop import TrainConfig

# Number of features of the networks for vectors; others have 512 at most.
WIDTH = 256
# Copies of all weights: gradient, two moments, running mean, best weights, the network itself, and
# the stack of all folds.
COPIES = 7
# Blocks of scores that are in memory at the same time when pairs are counted.
SCORE_BLOCKS = 6
# Distances, errors, and working space of all pairs.
MATRICES = 4
# Bytes for each held-out observation if only confused pairs are kept: some dozen confusions, each
# with two indices and a number, and once more while they are added up.
BYTES_OF_CONFUSIONS = 2 * 24 * 16
# The allocator of a processor keeps what layers give back, and often cannot use it for the next: so
# many bytes are taken for each that is kept for the gradients, and for each of the largest layer
# (benchmarks/memory_guard.py).
CPU_TAKEN = 2, 3

FEWER_CLUSTERS = "merge the smallest first, or check that labels are clusters and not row ids"
LESS_DATA = "use fewer features, fewer clusters, a smaller backbone or a smaller batch_size"


@dataclass(frozen=True)
class EstimateSize:
    """What the memory of an estimate depends on, beside the data.

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
    backbone, batch : int
        Bytes of the weights of a backbone, and of what a batch needs in training.
    own_scores : bool
        Whether classifiers give scores for all clusters, and not features.
    """

    n_clusters: int
    n_outputs: int
    n_folds: int
    n_watched: int
    n_tested: int
    is_sparse: bool = False
    backbone: int = 0
    batch: int = 0
    own_scores: bool = False

    @property
    def width(self) -> int:
        """Number of features that are scored."""
        return max(WIDTH, self.n_outputs) if self.own_scores else WIDTH

    @property
    def head(self) -> int:
        """Bytes of the weights of an output layer."""
        return 4 * self.n_outputs * self.width

    @property
    def training(self) -> int:
        """Bytes that training takes."""
        # Networks of several folds are tried on a block of scores, others on a batch.
        block = BLOCK_ELEMENTS // self.n_outputs if self.n_folds > 1 else BIG_BATCH
        tried = 4 * min(self.n_watched, block) * (4 * self.width + 3 * self.n_outputs)
        # Each of several processes trains a part of every head.
        weights = self.backbone + self.head // current().size
        return COPIES * self.n_folds * weights + tried + self.batch

    @property
    def counting(self) -> int:
        """Bytes that scores and pairs take after training."""
        scores = min(self.n_tested // self.n_folds * self.n_clusters, BLOCK_ELEMENTS)
        pairs = 8 * MATRICES * self.n_clusters**2
        if self.is_sparse:
            pairs = BYTES_OF_CONFUSIONS * self.n_tested
        features = 4 * self.n_tested * self.width
        return features + 3 * self.n_folds * self.head + 4 * SCORE_BLOCKS * scores + pairs


def require_memory_of_estimate(size: EstimateSize, rows: Rows, may_be_sparse: bool) -> None:
    """Raise an error, before training, if an estimate will not fit into memory.

    Parameters
    ----------
    size : EstimateSize
    rows : Rows
    may_be_sparse : bool
        Whether the sparse form could be used.
    """
    clusters = f"{size.n_clusters:,} clusters of {len(rows):,} observations"
    networks = f"{size.n_folds} network{'s' * (size.n_folds > 1)}"
    what = f"training {networks} for {clusters} of {_numbers(rows):,} numbers each"
    one = f"pass holdout=0.2, which trains 1 network instead of {size.n_folds}"
    free = free_memory(rows.device)
    advice = partial(_advice, replace(size, n_folds=1).training <= free, one, LESS_DATA)
    require_memory(size.training, free, what, advice)

    sparse = 'pass form="sparse", which keeps only pairs that are ever confused'
    free = free_memory(torch.device("cpu"))
    fits = may_be_sparse and replace(size, is_sparse=True).counting <= free
    require_memory(
        size.counting, free, f"comparing {clusters}", partial(_advice, fits, sparse, FEWER_CLUSTERS)
    )


def _advice(fits: bool, way: str, otherwise: str) -> str:
    return f"{way}, or {otherwise}" if fits else otherwise


def _numbers(rows: Rows) -> int:
    return rows.n_features if isinstance(rows, VectorRows) else math.prod(rows.shape)


def first_layer(rows: Rows, recipe: Recipe) -> int:
    """Bytes of the weights of a first layer that grows with the number of features."""
    return 4 * FIRST_LAYER.get(recipe.name, 0) * _numbers(rows)


def with_networks(
    size: EstimateSize,
    networks: list[Network],
    rows: Rows,
    folds: list[Fold],
    config: TrainConfig,
    lent_on: torch.device | None,
) -> EstimateSize:
    """The same estimate with what these untrained networks take, found by trying one of them.

    Parameters
    ----------
    size : EstimateSize
    networks, folds : lists of Network and Fold
    rows : Rows
    config : TrainConfig
    lent_on : torch.device, optional
        As for :func:`unsplit.devices.private_randomness`.
    """
    backbone = networks[0].backbone
    weights = sum(param.nbytes for param in backbone.parameters())
    try:
        kept, largest = bytes_of_one(backbone, rows, lent_on)
    except Exception:  # a user's network may not take so few; if it takes none, training says so
        return replace(size, backbone=weights)
    stacked = can_be_stacked(networks, rows) if config.batch_folds is None else config.batch_folds
    n = -(-min(config.batch_size, max(len(fold.train) for fold in folds)) // current().size)
    of_kept, of_largest = (1, 1) if rows.device.type == "cuda" else CPU_TAKEN
    each = of_kept * kept + of_largest * largest
    batch = int(n * each * (len(networks) if stacked else 1))
    return replace(size, backbone=weights, batch=batch)


def bytes_of_one(
    backbone: nn.Module, rows: Rows, lent_on: torch.device | None = None
) -> tuple[int, int]:
    """Bytes that a backbone keeps of an observation for the gradients, and its largest layer's.

    Neither the backbone nor the random numbers of the run change.

    Parameters
    ----------
    backbone : torch.nn.Module
        On the device of the rows; a copy is tried with the largest of them.
    rows : Rows
    lent_on : torch.device, optional
        As for :func:`unsplit.devices.private_randomness`.

    Examples
    --------
    >>> from unsplit.data import observations
    >>> rows = observations([[1.0, 2.0], [3.0, 5.0]], torch.device("cpu"))
    >>> backbone = nn.Sequential(nn.Linear(2, 100), nn.Sigmoid())
    >>> bytes_of_one(backbone, rows)  # input and output are kept; the last layer has twice 100
    (408, 800)
    """
    tried = copy.deepcopy(backbone).train()
    own = {x.untyped_storage().data_ptr() for x in (*tried.parameters(), *tried.buffers())}
    kept: dict[int, int] = {}
    largest = 0

    def note(tensor: Tensor) -> Tensor:
        if tensor.layout == torch.strided and tensor.untyped_storage().data_ptr() not in own:
            storage = tensor.untyped_storage()
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    def look(_: nn.Module, given: tuple[Any, ...], found: Any) -> None:
        nonlocal largest
        tensors = [value for value in (*given, found) if isinstance(value, Tensor)]
        # Bytes become numbers of four bytes somewhere inside.
        largest = max(largest, sum(max(4, t.element_size()) * t.numel() for t in tensors))

    n = 2  # batch normalisation needs two
    with ExitStack() as stack:
        stack.enter_context(private_randomness(0, lent_on))
        for module in tried.modules():
            stack.callback(module.register_forward_hook(look).remove)
        stack.enter_context(saved_tensors_hooks(note, lambda tensor: tensor))
        stack.enter_context(mixed_precision(rows.device))
        features = tried(rows.take(torch.full((n,), rows.largest, device=rows.device)))
        # Held until here, so that no two storages had the same place.
        del features
    return sum(kept.values()) // n, largest // n
