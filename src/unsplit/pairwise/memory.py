"""Memory that an estimate takes, and what to say before training if there is less."""

import math
from collections.abc import Sequence

from unsplit.data.memory import available_memory, free_memory, require_memory
from unsplit.data.rows.base import Rows
from unsplit.data.rows.kinds import VectorRows
from unsplit.devices import BLOCK_ELEMENTS, current
from unsplit.networks.registry import BIG_BATCH, FIRST_LAYER
from unsplit.networks.training.group import Fold

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

FEWER_CLUSTERS = (
    "merge the smallest first, check that labels are clusters and not row ids, or pass "
    'form="sparse", which keeps only pairs that are ever confused'
)
LESS_DATA = "use fewer features, fewer clusters, a smaller backbone or a smaller batch_size"


def require_memory_of_estimate(
    rows: Rows,
    backbone: str,
    n_clusters: int,
    n_outputs: int,
    folds: Sequence[Fold],
    is_sparse: bool,
) -> None:
    """Raise an error, before training, if networks or pairs will not fit into memory.

    What a batch takes in training is not estimated: there, an error of torch is caught.

    Parameters
    ----------
    rows : Rows
    backbone : str
        Name of the recipe.
    n_clusters, n_outputs : int
        Clusters, and classes of the networks: clusters within batches.
    folds : sequence of Fold
    is_sparse : bool
        Whether only confused pairs are kept.
    """
    n_folds, n_tested = len(folds), sum(len(fold.test) for fold in folds)
    n_numbers = rows.n_features if isinstance(rows, VectorRows) else math.prod(rows.shape)
    clusters = f"{n_clusters:,} clusters of {len(rows):,} observations"
    first, head = 4 * FIRST_LAYER.get(backbone, 0) * n_numbers, 4 * WIDTH * n_outputs
    # Networks of several folds are tried on a block of scores, others on a batch.
    block = BLOCK_ELEMENTS // n_outputs if n_folds > 1 else BIG_BATCH
    n_tried = min(sum(len(fold.watch) for fold in folds), block)
    # Each of several processes trains a part of every head.
    weights = COPIES * n_folds * (first + head // current().size)
    training = weights + 4 * n_tried * (4 * WIDTH + 3 * n_outputs)
    networks = f"{n_folds} network{'s' * (n_folds > 1)}"
    what = f"training {networks} for {clusters} of {n_numbers:,} numbers each"
    require_memory(training, free_memory(rows.device), what, LESS_DATA)

    scores = min(n_tested // n_folds * n_clusters, BLOCK_ELEMENTS)
    pairs = BYTES_OF_CONFUSIONS * n_tested if is_sparse else 8 * MATRICES * n_clusters**2
    counting = 4 * n_tested * WIDTH + 3 * n_folds * head + 4 * SCORE_BLOCKS * scores + pairs
    require_memory(counting, available_memory(), f"comparing {clusters}", FEWER_CLUSTERS)
