"""From observations and an over-clustering to the distances between all pairs of clusters."""

import logging
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from unsplit._typing import Index
from unsplit.data.array_files import checksum, digest
from unsplit.data.labels import (
    EncodedLabels,
    Parts,
    encode_batches,
    encode_labels,
    refuse_other_order,
)
from unsplit.data.rows.base import Rows, canonical_order, is_mapped
from unsplit.data.rows.kinds import VectorRows, observations, warn_of_order
from unsplit.data.rows.sequences import Ragged, RaggedRows
from unsplit.devices import (
    BLOCK_ELEMENTS,
    available_memory,
    check_seed,
    choose_device,
    current,
    free_memory,
    generator_of,
    memory_errors,
    one_thread,
    private_randomness,
    require_memory,
    usual_settings,
)
from unsplit.errors import (
    BatchWarning,
    InputError,
    SmallClusterWarning,
    check_choice,
    check_flag,
    is_number,
    is_whole,
    option,
    refuses_old_options,
    shown,
    warn,
)
from unsplit.networks.network import Network
from unsplit.networks.registry import (
    BEST,
    BIG_BATCH,
    FIRST_LAYER,
    Backbone,
    build_network,
    candidates_for,
    is_users,
    recipe_of,
    refuse_for_classifiers,
)
from unsplit.networks.sound import SoundRows
from unsplit.networks.training.checkpoint import Checkpoint
from unsplit.networks.training.group import Fold, draws_in_epoch
from unsplit.networks.training.loop import USUAL, TrainConfig, Training
from unsplit.networks.training.progress import Bars, EpochRecord, Reporter
from unsplit.pairwise.groups import has_several_groups, shared_batches
from unsplit.pairwise.heldout_scores import (
    Fitted,
    Trained,
    best_factor,
    best_of,
    estimate_of,
    heldout_scores,
    make_folds,
    of_clusters,
    require_folds,
)
from unsplit.pairwise.result import PairwiseTVD, by_groups

log = logging.getLogger("unsplit")

Progress = Callable[[EpochRecord], None] | Reporter

# Up to this many clusters all pairs are kept if they fit into memory, beyond it only those that are
# ever confused.
MANY_CLUSTERS = 10_000
# Bytes that estimate and merge need for each pair of clusters if all are kept: twenty matrices.
BYTES_A_PAIR = 8 * 20

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


@refuses_old_options
def pairwise_tvd(
    X: Any,
    labels: ArrayLike,
    *,
    batch: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    backbone: Backbone = "auto",
    training: TrainConfig | None = None,
    cv: float | str = "auto",
    form: str = "auto",
    device: str | torch.device = "auto",
    random_state: int | np.random.Generator | np.random.RandomState | None = None,
    progress: bool | Progress = False,
    checkpoint: str | os.PathLike[str] | None = None,
) -> PairwiseTVD:
    """Estimate the total variation distance between all pairs of clusters with one network.

    Parameters
    ----------
    X : array-like, SciPy sparse matrix, list of sequences, or torch Dataset
        Observations: vectors (n, d), images (n, h, w) or (n, h, w, c), point clouds
        (n, points, 3), sequences (n, length, channels) or a list of them with different lengths,
        counts in a sparse matrix, or any map-style Dataset.  Values are standardised for you, by
        the training observations of each fold.
    labels : array-like of shape (n,)
        The over-clustering: one integer or string per observation.  Observations with −1 or a
        missing value are noise and are left out.
    batch : array-like of shape (n,), optional
        Donor, run, camera or any other batch of each observation, if there are batch effects.
        Clusters are then compared within each batch, and the comparisons are averaged.
    groups : array-like of shape (n,), optional
        Track, session, donor or document of each observation, if those of one group resemble each
        other.  Whole groups are held out, and errors and tests count groups.  Nothing is known
        about a cluster that is a single group: its TVDs and p-values are 1, its intervals [0, 1].
        Not together with ``batch``.
    backbone : str, torch.nn.Module, callable or scikit-learn classifier
        The network that turns a batch of observations into features (b, h).  "auto" chooses it by
        the kind of data: "mlp" for vectors, "bag-of-words" for sparse matrices, "resnet18" for
        images ("convnet", a small one, on a CPU), "pointnet++" for point clouds ("pointnet", a
        small one, on a CPU), "resnet1d" for sequences, "logmel" for sound.  On a CPU sound gets
        "mlp": what is for vectors reads cepstral statistics of each sound, and so do neighbours.
        "single-layer" works for all but sequences of different lengths.  Your own module is copied
        for each fold; a function that returns a module is called once for each fold.  Networks of
        torchvision and timm are used without their classifier.  Inputs are standardised.
        For vectors, "trees" (gradient boosting), "lda" (with shrinkage), "logistic-regression" or
        any classifier of scikit-learn with ``predict_proba`` or ``decision_function``: a copy is
        fitted in each fold.  "best" takes the one with the highest A among the network, the network
        with less weight decay, trees and lda; this costs several times as much.
    training : TrainConfig, optional
        How to train: epochs, loss, changes to the observations, learning rate and so on.  Settings
        that are not given are those that suit the backbone; :func:`unsplit.select` can choose.
    cv : int, float or "auto"
        Number of folds for cross-fitting.  Each observation is scored by a network that was not
        trained on it.  "auto" makes five folds; but of more than 20,000 observations, clusters of
        at least 300 are held out once, a third of each or 200, and at most 600 are trained on; and
        so are all clusters if less than a hundredth of the observations is in smaller ones.  A
        share between 0 and 1, such as 0.2, is held out of every cluster once, as in the paper.
    form : {"auto", "dense", "sparse"}
        "dense" keeps all pairs in (k, k) arrays, "sparse" only pairs that are ever confused; all
        others have the TVD 1.  "auto" is "sparse" for more than 10,000 clusters without batches,
        and where (k, k) arrays would not fit into memory.
    device : str or torch.device
        "auto" uses CUDA if available, else MPS, else the CPU.
    random_state : int, Generator, RandomState or None
        The same seed gives the same result, in whatever order the rows come and whatever the
        clusters are called.  Global random states are left alone.
    progress : bool, callable or Reporter
        True shows a progress bar for each epoch, and about how long it will take; a function is
        called with an :class:`EpochRecord` after every epoch; a :class:`Reporter` is told of every
        step.
    checkpoint : str or path, optional
        A folder in which training is kept from time to time.  If the program is killed, the same
        call continues from there; the folder is removed when the estimate is made.

    Returns
    -------
    PairwiseTVD
        Of very many clusters a sparse one, which stores only pairs that are ever confused.

    Examples
    --------
    >>> import unsplit
    >>> X, labels = unsplit.datasets.gaussians([[0, 0], [0, 0], [4, 0]], 200, random_state=0)
    >>> result = unsplit.pairwise_tvd(X, labels, random_state=0)
    >>> bool(result.tvd[0, 1] < 0.2 and result.tvd[0, 2] > 0.9)
    True
    """
    settings = Settings(backbone, cv, device, training, form)
    refuse_other_order(X, labels=labels, batch=batch, groups=groups)
    check_seed(random_state)
    kept = None if checkpoint is None else Checkpoint(checkpoint)
    seed = random_state if kept is None else kept.seeded(random_state)
    result = fit(X, labels, settings, seed, progress, batch, kept, groups).result
    if kept is not None:
        kept.remove()
    return result


@dataclass(frozen=True)
class Settings:
    """The choices of :func:`pairwise_tvd`, under the same names."""

    backbone: Backbone = "auto"
    cv: float | str = "auto"
    device: str | torch.device = "auto"
    training: TrainConfig | None = None
    form: str = "auto"

    def __post_init__(self) -> None:
        check_choice("form", self.form, ("auto", "dense", "sparse"))
        automatic = isinstance(self.cv, str) and self.cv == "auto"
        if not (automatic or is_share(self.cv) or (is_whole(self.cv) and int(self.cv) >= 2)):
            raise InputError(
                f"{option('cv')} must be a number of folds of at least 2, a share to hold out "
                f'between 0 and 1, or "auto", got {shown(self.cv)}; 5 is usual.'
            )
        if self.training is not None and not isinstance(self.training, TrainConfig):
            raise InputError(
                f"training must be an unsplit.TrainConfig or None, got {shown(self.training)}; "
                "pass for example unsplit.TrainConfig(epochs=50)."
            )
        refuse_for_classifiers(self.backbone, self.config(TrainConfig()))

    def is_sparse(self, n_clusters: int, divided: bool = False) -> bool:
        """Whether only confused pairs of this many clusters are stored; ``divided`` by batch."""
        if divided:
            if self.form == "sparse":
                raise InputError(
                    'form="sparse" cannot compare clusters within batches or count groups; leave '
                    'batch and groups out, or use form="dense".'
                )
            return False
        if self.form != "auto":
            return self.form == "sparse"
        too_large = BYTES_A_PAIR * n_clusters**2 > available_memory()
        return n_clusters > MANY_CLUSTERS or too_large

    def config(self, usual: TrainConfig = USUAL) -> TrainConfig:
        """How to train a network that is usually trained so."""
        return usual if self.training is None else self.training.over(usual)


def is_share(cv: Any) -> bool:
    """Whether this is a share to hold out, and no number of folds."""
    return is_number(cv) and 0 < cv < 1


@usual_settings()
def fit(
    X: Any,
    labels: ArrayLike | EncodedLabels,
    settings: Settings,
    random_state: object = None,
    progress: bool | Progress = False,
    batch: ArrayLike | None = None,
    checkpoint: Checkpoint | None = None,
    groups: ArrayLike | None = None,
) -> Fitted:
    """Do what :func:`pairwise_tvd` does, and keep the trained networks.

    Parameters
    ----------
    X, labels, random_state, progress, batch, groups
        As for :func:`pairwise_tvd`.
    settings : Settings
        All other choices.
    checkpoint : Checkpoint, optional
        Keeps the training from time to time; if it has one, training continues from there.
    """
    check_seed(random_state)
    with memory_errors("comparing the clusters", LESS_DATA):
        where = choose_device(settings.device)
        rows = rows_for(X, settings.backbone, where)
        encoded = encode_labels(labels, len(rows))
        if is_whole(settings.cv):
            require_folds(int(settings.cv), encoded.clusters)
        recipes = candidates_for(settings.backbone, rows)
        given = getattr(rows, "values", None)
        if groups is None and isinstance(given, np.ndarray) and not is_mapped(given):
            warn_of_order(given, encoded.clusters)
        outputs = outputs_of(encoded, batch, rows.keys)
        group_of = groups_of(encoded, groups, batch, rows.keys)
        named = " or ".join(recipe.name for recipe in recipes)
        log.info("%s of shape %s: backbone %s", rows.kind, rows.shape, named)
        n_clusters = len(encoded.cluster_ids)
        divided = outputs.n_batches > 1 or group_of is not None
        # By the free memory of rank 0, if there are several processes.
        is_sparse = current().share(settings.is_sparse(n_clusters, divided))
        if is_sparse:
            log.info("%d clusters: only pairs that are ever confused are kept", n_clusters)
        order, of_content = canonical_order(rows.keys, outputs.of_rows, group_of)
        outputs = outputs.renumbered(of_content)
        rng = generator_of(random_state)
        given = of_content[order], rng, None if group_of is None else group_of[order]
        folds = [fold.of(order) for fold in make_folds(settings.cv, *given)]
        # No rows choose an epoch of what is fitted once.
        if recipe_of(settings.backbone).fitted_once:
            folds = [fold.without_validation() for fold in folds]
        k = len(outputs.cluster)
        require_memory_of_estimate(rows, recipes[0].name, n_clusters, k, folds, is_sparse)
        alone = encoded.cluster_ids[np.sort(outputs.cluster[outputs.sizes < 2])]
        if outputs.n_batches == 1 and len(alone):
            warn(
                f"{len(alone)} of {n_clusters} clusters have one observation ({some_of(alone)}), "
                "which cannot be held out: their distances are rough guesses from the other "
                "cluster alone, and are marked in `too_small`.",
                SmallClusterWarning,
            )
        n_draws = draws_in_epoch(max(len(fold.train) for fold in folds), k)
        seed = int(rng.integers(2**63))
        lent_on = where if is_users(settings.backbone, settings.config().augment) else None
        found: list[Trained] = []
        with reporting(progress, "training") as reporter:
            for recipe in recipes:
                config = settings.config(recipe.training_for(n_draws))
                with private_randomness(seed, lent_on):
                    networks = [
                        build_network(rows, fold, recipe, k, config.loss, config.augment)
                        for fold in folds
                    ]
                    if checkpoint is not None and not found:
                        about = {
                            "data": digest(np.sort(rows.keys)),
                            "labels": [digest(rows.keys[order]), digest(of_content[order])],
                            **({} if group_of is None else {"groups": digest(group_of[order])}),
                            "settings": _described(networks, config, settings),
                            "seed": [seed, str(rng.bit_generator.state)],
                            "device": where.type,
                        }
                        checkpoint.begin(about)
                    # The file has room for the networks of one training.
                    kept = checkpoint if len(recipes) == 1 else None
                    given = networks, rows, torch.from_numpy(outputs.of_rows).to(where), folds
                    training = Training(*given, config, rng, reporter, kept)
                    scores, history = heldout_scores(training, outputs)
                found.append(Trained(recipe.name, config, networks, scores, history))
        best = found[0]
        if len(found) > 1:
            with private_randomness(seed):
                best = best_of(found, rows, outputs, folds)
            log.info("the highest A: %s", best.name)
        with one_thread(best.scores.are_few):
            factor = best_factor(best.scores)
            scores = of_clusters(best.scores, outputs, factor)
            result = estimate_of(scores, encoded, best.history, 1 / factor, is_sparse)
            if group_of is not None:
                result = by_groups(result, group_of[scores.rows])
        return Fitted(rows, outputs, result, replace(best, scores=scores))


def require_memory_of_estimate(
    rows: Rows,
    backbone: str,
    n_clusters: int,
    n_outputs: int,
    folds: Sequence[Fold],
    is_sparse: bool,
) -> None:
    """Raise an error, before training, if networks or pairs will not fit into memory.

    ``n_outputs`` are the classes of the networks: clusters within batches.  What a batch takes in
    training is not estimated: there, an error of torch is caught.
    """
    n_folds, n_tested = len(folds), sum(len(fold.test) for fold in folds)
    n_numbers = rows.n_features if isinstance(rows, VectorRows) else math.prod(rows.shape)
    clusters = f"{n_clusters:,} clusters of {len(rows):,} observations"
    first, head = 4 * FIRST_LAYER.get(backbone, 0) * n_numbers, 4 * WIDTH * n_outputs
    # At most as many observations are tried at a time.
    block = BLOCK_ELEMENTS // n_outputs if n_folds > 1 else BIG_BATCH
    n_tried = min(sum(len(fold.validation) for fold in folds), block)
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


def _described(
    networks: Sequence[Network], config: TrainConfig, settings: Settings
) -> dict[str, Any]:
    """Name what training depends on beside data, labels and seed."""
    own = settings.backbone.state_dict() if isinstance(settings.backbone, nn.Module) else {}
    return {
        "training": asdict(replace(config, augment=False)),  # the network shows its own
        "network": str(networks[0]),
        **({"backbone": BEST} if settings.backbone == BEST else {}),
        "weights": checksum({}, {name: value.cpu().numpy() for name, value in own.items()}),
        "folds": str(settings.cv),
    }


def outputs_of(encoded: EncodedLabels, batch: ArrayLike | None, keys: NDArray[np.uint64]) -> Parts:
    """Return the classes that the network learns: clusters, or clusters within batches."""
    batches = None if batch is None else encode_batches(batch, encoded)
    names = encoded.cluster_ids
    if batches is None or batches.max() == 0:
        return Parts.cut(encoded.clusters)
    # Numbered by content, so that names do not change the result.
    clusters = canonical_order(keys, encoded.clusters, batches)[1]
    outputs = Parts.cut(clusters, canonical_order(keys, batches, encoded.clusters)[1])
    named = np.unique(np.stack([clusters, encoded.clusters]), axis=1)[1][-len(names) :]
    outputs = replace(outputs, cluster=named[outputs.cluster])
    # A single observation cannot be held out, so it does not count.
    table = np.where(outputs.table > 1, outputs.table, 0)
    unknown = np.argwhere(np.triu(shared_batches(table) == 0, 1))
    n_pairs = math.comb(len(names), 2)
    if len(unknown) == n_pairs:
        raise InputError(
            "no two clusters share a batch with at least two observations of each, so no pair can "
            "be compared within a batch; leave batch out, or use batches that clusters share."
        )
    if len(unknown):
        named = some_of([f"{names[i]}–{names[j]}" for i, j in unknown[:4]], 3)
        warn(
            f"{len(unknown)} of {n_pairs} pairs of clusters share no batch with at least two "
            f"observations of each ({named}), so they cannot be compared: their TVD and p-value "
            "are set to 1, and their n_batches to 0.",
            BatchWarning,
        )
    return outputs


def groups_of(
    encoded: EncodedLabels,
    groups: ArrayLike | None,
    batch: ArrayLike | None,
    keys: NDArray[np.uint64],
) -> Index | None:
    """Return the group of every row, numbered by content; −1 for noise, None without groups."""
    if groups is None:
        return None
    if batch is not None:
        raise InputError(
            "groups cannot be held out where clusters are compared within batches; pass groups or "
            "batch, not both."
        )
    given = encode_batches(groups, encoded, "groups")
    numbers = canonical_order(keys, given, encoded.clusters)[1]
    names = encoded.cluster_ids
    alone = names[~has_several_groups(encoded.clusters, numbers)]
    if len(names) - len(alone) < 2:
        raise InputError(
            f"{len(alone)} of {len(names)} clusters are one group each, so no pair can be compared "
            "on groups that were not trained on; pass clusters of several groups, or as groups "
            "shorter parts that do not depend on each other, such as blocks of a track."
        )
    if len(alone):
        warn(
            f"{len(alone)} of {len(names)} clusters are one group each ({some_of(alone)}), so "
            "nothing is known about them from other groups: their TVDs and p-values are set to 1, "
            "and their intervals to [0, 1].",
            SmallClusterWarning,
        )
    return numbers


def some_of(names: Sequence[Any] | NDArray[Any], most: int = 5) -> str:
    """The first of some names.

    Examples
    --------
    >>> some_of(["a", "b", "c"], 2)
    'a, b, …'
    """
    return ", ".join(map(str, names[:most])) + ", …" * (len(names) > most)


def rows_for(X: Any, backbone: Backbone, device: torch.device) -> Rows:
    """Wrap observations as the backbone needs them; its kind decides, or else the data.

    Networks from elsewhere cannot read sparse tensors, so they get dense vectors.  Sound becomes
    vectors for what reads vectors and, on a CPU, wherever nothing was chosen.
    """
    kind = recipe_of(backbone).kind
    automatic = isinstance(backbone, str) and backbone == "auto"
    if isinstance(X, Ragged) and X.rate is not None:
        as_vectors = kind == "vectors" or (automatic and device.type == "cpu")
        return SoundRows(X, device) if as_vectors else RaggedRows(X, device)
    if scipy.sparse.issparse(X) and not automatic and kind != "counts":
        kind = "vectors"
    return observations(X, device, kind)


def check_progress(progress: object) -> None:
    """Raise an error unless this is True, False, a function or a reporter."""
    if not callable(progress) and not isinstance(progress, Reporter):
        check_flag("progress", progress, "a function or a Reporter")


@contextmanager
def reporting(progress: bool | Progress, phase: str | None = None) -> Iterator[Reporter]:
    """Turn what a user passed as ``progress`` into a reporter.

    Parameters
    ----------
    progress : bool, callable or Reporter
    phase : str, optional
        The phase that begins, unless the user's own reporter is told of phases elsewhere.

    Examples
    --------
    >>> with reporting(print) as reporter:
    ...     reporter.on_epoch(EpochRecord(0, 0.7, 0.6, 1.0))
    EpochRecord(epoch=0, loss=0.7, accuracy=0.6, seconds=1.0)
    """
    check_progress(progress)
    if isinstance(progress, Reporter):
        yield progress
        return
    reporter = Reporter()
    if callable(progress):
        reporter.on_epoch = progress  # type: ignore[assignment, method-assign]
    elif progress:
        reporter = Bars()
    if phase is not None:
        reporter.on_phase(phase)
    try:
        yield reporter
    finally:
        reporter.close()
