"""From observations and an over-clustering to the distances between all pairs of clusters."""

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from tqdm.auto import tqdm

from unsplit.backbones import MLP, Standardize
from unsplit.data import VectorRows, vector_rows
from unsplit.devices import available_memory, choose_device, device_for_sums, require_memory
from unsplit.divergences import directed_means, hit
from unsplit.ensemble import BLOCK_ELEMENTS, Network, Rows
from unsplit.errors import InputError, SmallClusterWarning
from unsplit.heads import ScoreHead
from unsplit.labels import EncodedLabels, encode_labels
from unsplit.losses import LOSSES
from unsplit.randomness import generator_of, private_randomness
from unsplit.result import PairwiseTVD
from unsplit.sampling import Fold, Index, crossfit_folds, holdout_fold
from unsplit.scores import HeldoutScores
from unsplit.training import EpochRecord, History, TrainConfig, train

Progress = Callable[[EpochRecord], None]


def pairwise_tvd(
    X: ArrayLike,
    labels: ArrayLike,
    *,
    backbone: str | nn.Module = "auto",
    cv: int = 5,
    holdout: float | None = None,
    loss: str = "softmax",
    epochs: int = TrainConfig.epochs,
    device: str | torch.device = "auto",
    random_state: int | np.random.Generator | np.random.RandomState | None = None,
    progress: bool | Progress = False,
) -> PairwiseTVD:
    """Estimate the total variation distance between all pairs of clusters with one network.

    Parameters
    ----------
    X : array-like or SciPy sparse matrix of shape (n, d)
        Observations as vectors.  They are standardised inside the folds.
    labels : array-like of shape (n,)
        The over-clustering: integers or strings; −1 and missing values mean noise, left out.
    backbone : "auto" or torch.nn.Module
        What turns a batch (b, d) into features (b, h).  "auto" is a small MLP; a module of yours
        is copied for each fold and gets standardised inputs.
    cv : int
        Folds of cross-fitting: every observation is scored by a network that did not see it.
    holdout : float, optional
        Instead of cross-fitting, hold out this share of every cluster once, as the paper does.
    loss : {"softmax", "pairwise"}
        Class-balanced cross-entropy, or the paper's balanced pairwise logistic loss.  Both have
        the same minimiser.
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
    _check_choices(cv, holdout, loss, epochs)
    where = choose_device(device)
    rows = vector_rows(X, where)
    encoded = encode_labels(labels, len(rows))
    _check_sizes(encoded, rows, backbone, cv if holdout is None else 1)
    order, clusters = canonical_order(rows.keys, encoded.clusters)
    rng = generator_of(random_state)
    in_order = clusters[order]
    if holdout is None:
        folds = crossfit_folds(in_order, cv, rng)
    else:
        folds = [holdout_fold(in_order, holdout, rng)]
    folds = [Fold(order[f.train], order[f.watch], order[f.test]) for f in folds]
    config = TrainConfig(epochs=epochs)
    k = len(encoded.cluster_ids)
    with private_randomness(int(rng.integers(2**63)), where), _reporter(progress) as tell:
        networks = [build_network(rows, fold, backbone, k, loss) for fold in folds]
        scores, history = heldout_scores(networks, rows, clusters, folds, config, rng, tell)
    new_index = np.zeros(k, np.int64)
    new_index[clusters[encoded.clusters >= 0]] = encoded.clusters[encoded.clusters >= 0]
    return summarize(scores.renamed(new_index), history, encoded)


def canonical_order(keys: np.typing.NDArray[np.uint64], clusters: Index) -> tuple[Index, Index]:
    """Order rows and number clusters by content, so that neither order nor names matter.

    Returns the clustered rows in order, and for every row the new number of its cluster (−1 for
    noise).
    """
    used = np.flatnonzero(clusters >= 0)
    order = used[np.argsort(keys[used], kind="stable")]
    _, first = np.unique(clusters[order], return_index=True)
    number = np.empty(len(first), np.int64)
    number[np.argsort(first)] = np.arange(len(first))
    renamed = np.full(len(clusters), -1, np.int64)
    renamed[used] = number[clusters[used]]
    return order[np.argsort(renamed[order], kind="stable")], renamed


def build_network(
    rows: VectorRows, fold: Fold, backbone: str | nn.Module, n_clusters: int, loss: str
) -> Network:
    """An untrained network that standardises by the fold's training rows."""
    standardize = Standardize(*rows.moments(fold.train))
    if isinstance(backbone, nn.Module):
        body: nn.Module = copy.deepcopy(backbone)
    elif backbone in ("auto", "mlp"):
        body = MLP(rows.n_features)
    else:
        raise InputError(f'backbone must be "auto", "mlp" or a torch.nn.Module, got {backbone!r}.')
    body = nn.Sequential(standardize, body).to(rows.device)
    return Network(body, ScoreHead(_n_features_out(body, rows), n_clusters, loss)).to(rows.device)


def heldout_scores(
    networks: Sequence[Network],
    rows: Rows,
    clusters: Index,
    folds: Sequence[Fold],
    config: TrainConfig,
    rng: np.random.Generator,
    on_epoch: Progress | None = None,
) -> tuple[HeldoutScores, History]:
    """Train one network per fold and score each fold's ``test`` rows with it."""
    device = next(networks[0].parameters()).device
    on_device = torch.from_numpy(clusters).to(device)
    history = train(networks, rows, on_device, folds, config, rng, on_epoch)
    parts = []
    for network, fold in zip(networks, folds, strict=True):
        test = fold.test[np.argsort(clusters[fold.test], kind="stable")]
        parts.append((test, _features(network, rows, test, device)))
    test_rows = np.concatenate([test for test, _ in parts])
    scores = HeldoutScores(
        features=np.concatenate([features for _, features in parts]),
        weights=np.stack([n.head.weight.detach().float().cpu().numpy() for n in networks]),
        bias=np.stack([n.head.bias.detach().float().cpu().numpy() for n in networks]),
        clusters=clusters[test_rows],
        folds=np.repeat(np.arange(len(folds)), [len(test) for test, _ in parts]),
        rows=test_rows,
    )
    return scores, history


def summarize(scores: HeldoutScores, history: History, labels: EncodedLabels) -> PairwiseTVD:
    """Count the hits of all pairs."""
    return PairwiseTVD(
        cluster_ids=labels.cluster_ids,
        sizes=np.bincount(labels.clusters[labels.clusters >= 0]),
        n_heldout=scores.counts.sum(axis=0),
        hit_rate=directed_means(scores, hit, device_for_sums()),
        scores=scores,
        history=history,
        n_noise=labels.n_noise,
    )


@torch.no_grad()
def _features(
    network: Network, rows: Rows, index: Index, device: torch.device
) -> np.typing.NDArray[np.float32]:
    step = max(1, BLOCK_ELEMENTS // 4096)
    parts = [
        network.backbone(rows.take(torch.from_numpy(index[start : start + step]).to(device)))
        for start in range(0, len(index), step)
    ]
    width = network.head.in_features
    found: Tensor = torch.cat(parts) if parts else torch.zeros(0, width)
    return found.float().cpu().numpy()


@torch.no_grad()
def _n_features_out(body: nn.Module, rows: VectorRows) -> int:
    """Width of the features, found by trying two rows."""
    training = body.training
    try:
        probe = body.eval()(rows.take(torch.zeros(2, dtype=torch.long, device=rows.device)))
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"backbone cannot take a batch of shape (2, {rows.n_features}): {reason}"
        ) from None
    body.train(training)
    if probe.ndim != 2 or len(probe) != 2:
        raise InputError(
            "backbone must turn a batch (b, d) into features (b, h), but turned (2, "
            f"{rows.n_features}) into {tuple(probe.shape)}; flatten its output."
        )
    return int(probe.shape[1])


def _check_choices(cv: int, holdout: float | None, loss: str, epochs: int) -> None:
    if holdout is None and (not isinstance(cv, (int, np.integer)) or cv < 2):
        raise InputError(f"cv must be a whole number of at least 2, got {cv!r}; 5 is usual.")
    if holdout is not None and not 0 < holdout < 1:
        raise InputError(
            f"holdout must be a share between 0 and 1, got {holdout!r}; the paper's is near 0.2."
        )
    if loss not in LOSSES:
        raise InputError(f"loss must be one of {', '.join(LOSSES)}, got {loss!r}.")
    if not isinstance(epochs, (int, np.integer)) or epochs < 1:
        raise InputError(f"epochs must be a whole number of at least 1, got {epochs!r}.")


def _check_sizes(
    encoded: EncodedLabels, rows: VectorRows, backbone: str | nn.Module, n_folds: int
) -> None:
    n, device = len(rows), rows.device
    k = len(encoded.cluster_ids)
    width = (
        256
        if isinstance(backbone, str)
        else _n_features_out(copy.deepcopy(backbone).to(device), rows)
    )
    # Weights, gradient, two moments, mean and best of every head; hit rates, distances, errors,
    # p-values and room to work for every pair.
    heads, matrices, features = 6 * 4 * n_folds * k * width, 8 * 8 * k * k, 4 * n * width
    advice = "merge the smallest clusters first, or check that labels are clusters and not row ids"
    what = f"{k:,} clusters of {n:,} observations"
    require_memory(heads + matrices + features, available_memory(), what, advice)
    if device.type == "cuda":
        free = torch.cuda.mem_get_info(device)[0]
        require_memory(heads + 8 * k * k, free, f"{what} on the GPU", advice)
    alone = encoded.cluster_ids[np.bincount(encoded.clusters[encoded.clusters >= 0]) < 2]
    if len(alone):
        named = ", ".join(str(name) for name in alone[:5]) + (", …" if len(alone) > 5 else "")
        warnings.warn(
            f"{len(alone)} of {k} clusters have one observation ({named}) and cannot hold any out: "
            "their distances are guesses from one side, flagged in `too_small`.",
            SmallClusterWarning,
            stacklevel=3,
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
