"""From observations and an over-clustering to the distances between all pairs of clusters."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import ArrayLike
from tqdm.auto import tqdm

from unsplit._typing import Index
from unsplit.data.labels import EncodedLabels, encode_labels
from unsplit.data.rows.base import Rows
from unsplit.data.rows.hashing import scrambled
from unsplit.data.rows.kinds import observations
from unsplit.devices import available_memory, choose_device, require_memory
from unsplit.errors import InputError, SmallClusterWarning
from unsplit.networks.build import build_network
from unsplit.networks.losses import LOSSES
from unsplit.networks.registry import Augment, Backbone, recipe_for, wanted_kind
from unsplit.networks.training.loop import EpochRecord, TrainConfig
from unsplit.networks.training.sampling import Fold
from unsplit.pairwise.batch_effects import Subclusters, check_overlap, encode_batches
from unsplit.pairwise.folds import crossfit_folds, holdout_fold
from unsplit.pairwise.heldout_scores import Fitted, Progress, heldout_scores, summarize
from unsplit.pairwise.result import PairwiseTVD
from unsplit.randomness import generator_of, private_randomness

log = logging.getLogger("unsplit")

BLURRED_STEPS = 300

NOTHING_KNOWN = (
    "nothing is known about them: their TVD and p-value are set to 1, and n_batches to 0"
)


def pairwise_tvd(
    X: Any,
    labels: ArrayLike,
    *,
    batch: ArrayLike | None = None,
    backbone: Backbone = "auto",
    augment: Augment = "auto",
    training: TrainConfig | None = None,
    cv: int = 5,
    holdout: float | None = None,
    loss: str | None = None,
    blurred: bool = False,
    epochs: int = TrainConfig.epochs,
    device: str | torch.device = "auto",
    random_state: int | np.random.Generator | np.random.RandomState | None = None,
    progress: bool | Progress = False,
) -> PairwiseTVD:
    """Estimate the total variation distance between all pairs of clusters with one network.

    Parameters
    ----------
    X : array-like, SciPy sparse matrix, list of sequences, or torch Dataset
        Observations: vectors (n, d), images (n, h, w) or (n, h, w, c), point clouds
        (n, points, 3), sequences (n, length, channels) or a list of them with different lengths,
        counts in a sparse matrix, or any map-style Dataset.  They are standardised inside the
        folds.
    labels : array-like of shape (n,)
        The over-clustering: integers or strings; −1 and missing values mean noise, left out.
    batch : array-like of shape (n,), optional
        Donor, run, camera or whatever else changes observations without meaning a difference:
        clusters are compared within each batch, and the comparisons combined.
    backbone : str, torch.nn.Module or callable
        What turns a batch into features (b, h).  "auto" chooses by the data: "mlp" for vectors,
        "bag-of-words" for sparse matrices, "resnet18" for images, "pointnet++" for clouds,
        "resnet1d" for sequences, "logmel" for sound; there is also "single-layer".  A module of
        yours is copied for each fold, a function is called for each; networks of torchvision and
        timm lose their classifier.  Inputs are standardised.
    augment : "auto", False or torch.nn.Module
        What happens to batches in training.  "auto": small shifts of images, flips and changes of
        colour if they are photographs; jitter and dropout of points; shifts and noise in
        sequences; nothing for vectors.
    training : TrainConfig, optional
        How to train, all of it; None is what suits the backbone.  :func:`unsplit.select` finds
        one.
    cv : int
        Folds of cross-fitting: every observation is scored by a network that did not see it.
    holdout : float, optional
        Instead of cross-fitting, hold out this share of every cluster once, as the paper does.
    loss : {"softmax", "pairwise"}, optional
        Class-balanced cross-entropy (the default unless ``smooth``), or the paper's balanced
        pairwise logistic loss.  Both have the same minimiser.
    blurred : bool
        Compare densities blurred by half a standard deviation, with a network whose scores do not
        level off.  Not for TVDs, which come out too small where clusters are finely structured,
        but to see how clusters that only touch lie to each other: the ``blurred`` of
        :func:`unsplit.merge`.
    epochs : int
        The most epochs; training ends when the mean held-out accuracy stops improving.
    device : str or torch.device
        "auto" takes CUDA, else MPS, else the CPU.
    random_state : int, Generator, RandomState or None
        The same seed gives the same result, whatever the order of the rows and the names of the
        clusters.  No global random state is touched.
    progress : bool or callable
        Show a bar, or call this with an :class:`EpochRecord` after every epoch.

    Returns
    -------
    PairwiseTVD

    Examples
    --------
    >>> import unsplit
    >>> X, labels = unsplit.datasets.gaussians([[0, 0], [0, 0], [4, 0]], 200, random_state=0)
    >>> result = unsplit.pairwise_tvd(X, labels, random_state=0)
    >>> bool(result.tvd[0, 1] < 0.2 and result.tvd[0, 2] > 0.9)
    True
    """
    settings = Settings(backbone, cv, holdout, loss, blurred, epochs, device, augment, training)
    return fit(X, labels, settings, random_state, progress, batch).result


@dataclass(frozen=True)
class Settings:
    """The choices of :func:`pairwise_tvd`, under the same names."""

    backbone: Backbone = "auto"
    cv: int = 5
    holdout: float | None = None
    loss: str | None = None
    blurred: bool = False
    epochs: int = TrainConfig.epochs
    device: str | torch.device = "auto"
    augment: Augment = "auto"
    training: TrainConfig | None = None

    def __post_init__(self) -> None:
        cv, holdout, loss, epochs = self.cv, self.holdout, self.loss, self.epochs
        if holdout is None and (not isinstance(cv, (int, np.integer)) or cv < 2):
            raise InputError(f"cv must be a whole number of at least 2, got {cv!r}; 5 is usual.")
        if holdout is not None and not 0 < holdout < 1:
            raise InputError(
                f"holdout must be a share between 0 and 1, got {holdout!r}; the paper's is near "
                "0.2."
            )
        if loss is not None and loss not in LOSSES:
            raise InputError(f"loss must be one of {', '.join(LOSSES)}, got {loss!r}.")
        if not isinstance(epochs, (int, np.integer)) or epochs < 1:
            raise InputError(f"epochs must be a whole number of at least 1, got {epochs!r}.")
        if self.training is not None:
            _check_training(self.training, epochs)

    @property
    def loss_name(self) -> str:
        """The loss, where none was chosen the one that did best."""
        return self.loss or ("pairwise" if self.blurred else "softmax")

    def config(self, usual: TrainConfig) -> TrainConfig:
        """How to train a network that is usually trained so."""
        config = replace(self.training or usual, epochs=self.epochs)
        if not self.blurred:
            return config
        # The shape of the scores counts, not only their sign: strong decay would flatten their
        # far ends, and A, which sees signs alone, may be content before there is a shape.
        return replace(config, weight_decay=0.3, least_steps=BLURRED_STEPS, one_epoch=True)


def fit(
    X: Any,
    labels: ArrayLike,
    settings: Settings,
    random_state: object = None,
    progress: bool | Progress = False,
    batch: ArrayLike | None = None,
) -> Fitted:
    """What :func:`pairwise_tvd` does, keeping the networks."""
    where = choose_device(settings.device)
    rows = observations(X, where, kind_for(X, settings.backbone))
    encoded = encode_labels(labels, len(rows))
    recipe = recipe_for(settings.backbone, rows)
    config = settings.config(recipe.training)
    subclusters = subclusters_of(encoded, batch, rows, NOTHING_KNOWN)
    _check_sizes(encoded, subclusters, rows, settings)
    log.info("%s of shape %s: backbone %s", rows.kind, rows.shape, recipe.name)
    order, clusters = canonical_order(rows.keys, subclusters.of_rows)
    rng = generator_of(random_state)
    in_order = clusters[order]
    if settings.holdout is None:
        folds = crossfit_folds(in_order, settings.cv, rng)
    else:
        folds = [holdout_fold(in_order, settings.holdout, rng)]
    folds = [Fold(order[f.train], order[f.watch], order[f.test]) for f in folds]
    k = len(subclusters.cluster)
    names = np.zeros(k, np.int64)
    names[clusters[order]] = subclusters.of_rows[order]
    with private_randomness(int(rng.integers(2**63)), where), _reporter(progress) as tell:
        networks = [
            build_network(
                rows, fold, recipe, k, settings.loss_name, settings.blurred, settings.augment
            )
            for fold in folds
        ]
        scores, history = heldout_scores(networks, rows, clusters, folds, config, rng, tell, names)
    result = summarize(scores, subclusters, history, encoded)
    return Fitted(rows, clusters, folds, networks, names, subclusters, result, config, recipe.name)


def subclusters_of(
    encoded: EncodedLabels, batch: ArrayLike | None, rows: Rows, consequence: str
) -> Subclusters:
    """What the network is to tell apart: clusters, or clusters within batches.

    ``consequence`` is what follows for pairs of clusters that never meet, for the warning.
    """
    one = np.zeros(len(rows), np.int64)
    if batch is None:
        return Subclusters.cut(encoded.clusters, one)
    batches = encode_batches(batch, encoded)
    if batches.max() == 0:
        return Subclusters.cut(encoded.clusters, one)
    # Numbered by content, so that the names of batches do not matter either.
    subclusters = Subclusters.cut(encoded.clusters, canonical_order(rows.keys, batches)[1])
    check_overlap(subclusters, encoded.cluster_ids, consequence)
    return subclusters


def kind_for(X: Any, backbone: Backbone) -> str | None:
    """The kind of data that the backbone calls for; networks of others know no sparse tensors."""
    if scipy.sparse.issparse(X) and backbone not in ("auto", "bag-of-words"):
        return "vectors"
    return wanted_kind(backbone)


def canonical_order(keys: np.typing.NDArray[np.uint64], clusters: Index) -> tuple[Index, Index]:
    """Order rows and number clusters by content, so that neither order nor names matter.

    Returns the clustered rows in order, and for every row the new number of its cluster (−1 for
    noise).
    """
    used = np.flatnonzero(clusters >= 0)
    order = used[np.argsort(keys[used], kind="stable")]
    _, first = np.unique(clusters[order], return_index=True)
    # Of clusters that share their smallest row, what else they hold decides; the one added makes
    # rows of zeros count, whose key is 0.
    rest = np.zeros(len(first), np.uint64)
    np.add.at(rest, clusters[used], scrambled(keys[used]) + np.uint64(1))
    number = np.empty(len(first), np.int64)
    number[np.lexsort((rest, keys[order[first]]))] = np.arange(len(first))
    renamed = np.full(len(clusters), -1, np.int64)
    renamed[used] = number[clusters[used]]
    return order[np.argsort(renamed[order], kind="stable")], renamed


def _check_training(training: TrainConfig, epochs: int) -> None:
    if not isinstance(training, TrainConfig):
        raise InputError(f"training must be an unsplit.TrainConfig or None, got {training!r}.")
    if training.epochs not in (epochs, TrainConfig.epochs):
        raise InputError(
            f"epochs is {epochs} but training has {training.epochs}; say it once, as epochs."
        )


def _check_sizes(
    encoded: EncodedLabels, subclusters: Subclusters, rows: Rows, settings: Settings
) -> None:
    n, device = len(rows), rows.device
    k, n_folds = len(encoded.cluster_ids), settings.cv if settings.holdout is None else 1
    width = 512
    # Weights, gradient, two moments, mean and best of every head, which is kept for every batch;
    # hit rates, distances, errors, p-values and room to work for every pair.
    n_outputs = 5 * len(subclusters.cluster) + subclusters.table.size
    heads, matrices, features = 4 * n_folds * n_outputs * width, 8 * 8 * k * k, 4 * n * width
    advice = "merge the smallest clusters first, or check that labels are clusters and not row ids"
    what = f"{k:,} clusters of {n:,} observations"
    require_memory(heads + matrices + features, available_memory(), what, advice)
    if device.type == "cuda":
        free = torch.cuda.mem_get_info(device)[0]
        require_memory(heads + 8 * k * k, free, f"{what} on the GPU", advice)
    alone = encoded.cluster_ids[np.bincount(encoded.clusters[encoded.clusters >= 0]) < 2]
    if len(alone) and subclusters.n_batches == 1:
        named = ", ".join(str(name) for name in alone[:5]) + (", …" if len(alone) > 5 else "")
        warnings.warn(
            f"{len(alone)} of {k} clusters have one observation ({named}) and cannot hold any out: "
            "their distances are guesses from one side, flagged in `too_small`.",
            SmallClusterWarning,
            stacklevel=4,
        )


@contextmanager
def _reporter(progress: bool | Progress) -> Iterator[Progress | None]:
    if callable(progress):
        yield progress
        return
    if not progress:
        yield None
        return
    # No total: A decides when training ends.
    with tqdm(desc="training", unit=" epochs") as bar:

        def tell(record: EpochRecord) -> None:
            bar.set_postfix_str(f"A {record.accuracy:.3f}", refresh=False)
            bar.update()

        yield tell
