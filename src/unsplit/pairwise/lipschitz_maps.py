"""Lower bounds on 1-Wasserstein distances: maps that lengthen no distance, trained and evaluated.

**The bound.**  W1(P, Q) is the largest E_P f − E_Q f over 1-Lipschitz functions f.  Let φ be a map
that never lengthens a distance, and m_i the mean of φ over cluster i.  For every unit vector u the
function u·φ is 1-Lipschitz.  The best u for a pair points from m_j to m_i and gives |m_i − m_j|.
Trained outputs z_i = w_i·φ could not do better, because (w_i − w_j)/|w_i − w_j| is just another u.
So the cluster means are the best heads for all pairs at once, and only φ has to be learned.

**Many maps.**  One φ cannot serve many pairs.  At any x, the gradients of all u·φ come from one
contraction: in one dimension two of them can be 1 only for the same u, and the best φ for several
clusters tends to be an isometry, which gives only the distance of the means.  Several maps that
are contractions one by one can do more: W1(i, j) ≥ max_b |m_i^b − m_j^b|.  The network has some
dozens of small maps (:class:`LipschitzMaps`).  Each kind of map is trained to raise the mean over
pairs of this maximum; the identity is added without training.  All pairs share all maps.

**Training.**  With the directions u_ij fixed, the sum over pairs is linear in φ(x): members of
cluster i are pushed along Σ_j u_ij.  This linear function touches the true goal from below, so
minibatches have unbiased gradients, and only the cluster means are compared k² times.

**Held-out values.**  The map and direction of a pair are chosen on training rows and evaluated on
held-out rows, so the expected value is at most W1, before it is cut off at zero.  One number per
kind of map comes from the other folds: how much trained maps lose on new rows.  Those folds were
trained on the held-out rows; with few clusters, where this could matter, rows are set aside.

X is centred and divided by one number, and results are multiplied by it, so distances stay
Euclidean and in the unit of X.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from tqdm.auto import tqdm

from unsplit._typing import Index, Matrix
from unsplit.data.labels import encode_labels
from unsplit.data.rows.base import canonical_order
from unsplit.data.rows.kinds import VectorRows, numeric_matrix
from unsplit.devices import (
    check_seed,
    choose_device,
    generator_of,
    memory_errors,
    private_randomness,
    usual_settings,
)
from unsplit.errors import check_flag, check_whole
from unsplit.networks.network import DrawFromRun
from unsplit.networks.training.group import Fold, epoch_minibatches
from unsplit.networks.training.loop import judge_of
from unsplit.pairwise.heldout_scores import crossfit_folds, require_folds
from unsplit.pairwise.statistics import crossfit_widening
from unsplit.pairwise.wasserstein import PairwiseWasserstein

# Number of directions that narrow and wide folding maps fold (even numbers), and their layers.
WIDTHS = 2, 16
DEPTH = 4

# Length of Adam's usual step: of a matrix, in the Frobenius norm; of a bias or a coordinate of a
# centre, relative to the data's.  With the betas below no step is longer than 2.35 times that, and
# Newton's iteration converges from every start within 0.73.
MATRIX_STEP = 0.2
SHIFT_STEP = 0.05

# This many steps take singular values from 1 ± MATRIX_STEP to 1 within single precision.
NEWTON_STEPS = 4

ROWS_AT_ONCE = 4096
ELEMENTS_AT_ONCE = 2**22
BATCH_SIZE = 128

# A difference shorter than this has no direction.
NO_LENGTH = 1e-6

# At the start of training, maps whose distances differ by this much (E|x|² = 1) share a pair.
TEMPERATURE = 0.02


@usual_settings()
def pairwise_wasserstein(
    X: ArrayLike,
    labels: ArrayLike,
    *,
    cv: int = 5,
    epochs: int = 10,
    n_maps: int = 16,
    device: str | torch.device = "auto",
    random_state: int | np.random.Generator | np.random.RandomState | None = None,
    progress: bool = False,
) -> PairwiseWasserstein:
    """Estimate lower bounds on the 1-Wasserstein distance between all pairs of clusters.

    One network serves all pairs.  Distances are Euclidean and in the unit of X: features are not
    standardised.

    Parameters
    ----------
    X : array-like or SciPy sparse matrix of shape (n, d)
        Vectors; a sparse matrix is made dense.
    labels : array-like of shape (n,)
        The clusters: integers or strings; −1 and missing values mean noise and are left out.
    cv : int
        Folds of cross-fitting: every observation is evaluated by functions that were trained
        without it.
    epochs : int
        Passes over the training rows, of at least ten steps each.
    n_maps : int
        Number of maps of each kind; all pairs share them.
    device : str or torch.device
        "auto" uses CUDA if it is available, else MPS, else the CPU.
    random_state : int, Generator, RandomState or None
        The same seed gives the same result, whatever the order of the rows and the names of the
        clusters.  The global random state is not changed.
    progress : bool
        Show a progress bar.

    Returns
    -------
    PairwiseWasserstein
        Distances and standard errors; can be saved, made a data frame, and merged.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.standard_normal((100, 2)) + shift for shift in (0, 0, 3)])
    >>> labels = np.repeat(["a", "b", "c"], 100)
    >>> result = pairwise_wasserstein(X, labels, epochs=5, random_state=0)
    >>> np.abs(result.distance - 3 * np.sqrt(2) * np.array([[0, 0, 1], [0, 0, 1], [1, 1, 0]])) < 0.5
    array([[ True,  True,  True],
           [ True,  True,  True],
           [ True,  True,  True]])
    """
    check_whole("cv", cv, 2, "5 is usual")
    check_whole("epochs", epochs, 1)
    check_whole("n_maps", n_maps, 1)
    check_flag("progress", progress)
    check_seed(random_state)
    where, values = choose_device(device), numeric_matrix(X)
    with memory_errors("comparing the clusters", "use fewer features or fewer clusters"):
        values = values if isinstance(values, np.ndarray) else values.toarray()
        encoded = encode_labels(labels, len(values))
        require_folds(cv, encoded.clusters)
        keys = VectorRows(values, torch.device("cpu")).keys
        order, renumbered = canonical_order(keys, encoded.clusters)
        clusters = renumbered[order]
        # Rows with mean zero and mean squared length one, and the length that is now one.
        centred = values[order].astype(np.float64)
        centred -= centred.mean(axis=0)
        scale = float(np.sqrt(np.einsum("ij,ij->", centred, centred) / len(centred))) or 1.0
        x = torch.from_numpy((centred / scale).astype(np.float32)).to(where)
        rng = generator_of(random_state)
        folds = crossfit_folds(clusters, cv, rng)
        with private_randomness(int(rng.integers(2**63))):
            with DrawFromRun():
                maps = LipschitzMaps(len(folds), n_maps, x.shape[1]).to(where)
            given = Given(maps, x, clusters, folds)
            means, history = train(given, epochs, rng, progress)
            sums = heldout_sums(given, means, choose_maps(given, means))
    # Back to the order of the names.
    number = np.empty(len(encoded.cluster_ids), np.int64)
    number[encoded.clusters[order]] = clusters
    value, stderr = (scale * part[np.ix_(number, number)] for part in combine_folds(*sums))
    return PairwiseWasserstein(
        encoded.cluster_ids,
        np.bincount(clusters)[number],
        np.maximum(value, 0.0),
        stderr,
        sums[2].sum(axis=0)[number],
        scale * history,
    )


class LipschitzMaps(nn.Module):
    """The identity and maps of three kinds, none of which lengthens a distance, for M models.

    The kinds are narrow and wide :class:`FoldingMaps`, and :class:`RadialMaps`.  Rows of x should
    have mean zero and E|x|² = 1, because folds and centres are drawn for such data.
    """

    def __init__(self, n_models: int, n_maps: int, n_features: int) -> None:
        super().__init__()
        self.n_models = n_models
        self.folding = [FoldingMaps(n_models, n_maps, n_features, width) for width in WIDTHS]
        self.radial = RadialMaps(n_models, n_maps, n_features)
        self.kinds = nn.ModuleList([*self.folding, self.radial])  # so torch finds their parameters

    def forward(self, x: Tensor) -> list[Tensor]:
        """Outputs for x (M or 1, b, n_features), of each kind of shape (M, maps, b, outputs)."""
        identity = x[:, None].expand(self.n_models, -1, -1, -1)
        return [identity, *(maps(x) for maps in self.kinds)]

    def optimizer(self) -> torch.optim.Adam:
        """Adam with steps small enough for :meth:`make_orthonormal`."""
        groups = [{"params": [self.radial.centres], "lr": SHIFT_STEP * self.radial.typical}]
        for maps in self.folding:
            groups.append({"params": list(maps.biases), "lr": SHIFT_STEP * maps.typical})
            for w in maps.weights:
                rate = MATRIX_STEP / math.sqrt(w.shape[-1] * w.shape[-2])
                groups.append({"params": [w], "lr": rate})
        return torch.optim.Adam(groups, betas=(0.9, 0.99))

    @torch.no_grad()
    def make_orthonormal(self) -> None:
        """Make all matrices orthonormal again after a training step."""
        for maps in self.folding:
            for weight in maps.weights:
                weight.copy_(nearest_orthonormal(weight))


class FoldingMaps(nn.Module):
    """Maps x → ψ(Uᵀx) that look at a few directions and fold them.

    U has ``width`` orthonormal columns (or rows, where there are fewer features), and ψ alternates
    rotations with :func:`fold_coordinates`.
    """

    def __init__(self, n_models: int, n_maps: int, n_features: int, width: int) -> None:
        super().__init__()
        sizes, stack = [n_features] + [width] * DEPTH, (n_models, n_maps)
        self.typical = 1 / math.sqrt(max(n_features, width))
        self.weights = nn.ParameterList([_orthonormal(*stack, a, b) for a, b in pairwise(sizes)])
        self.biases = nn.ParameterList(
            [self.typical * torch.randn(*stack, 1, width // 2) for _ in range(DEPTH)]
        )

    def forward(self, x: Tensor) -> Tensor:
        """ψ(Uᵀx), shape (M, n_maps, b, width)."""
        folded = x[:, None]
        for weight, bias in zip(self.weights, self.biases, strict=True):
            folded = fold_coordinates(folded @ weight, bias)
        return folded


class RadialMaps(nn.Module):
    """Maps x → |x − c|, the distance from a point.

    They are needed where one cluster is a stretched copy of another, in any number of dimensions.
    """

    def __init__(self, n_models: int, n_maps: int, n_features: int) -> None:
        super().__init__()
        self.typical = 1 / math.sqrt(n_features)
        self.centres = nn.Parameter(self.typical * torch.randn(n_models, n_maps, n_features))

    def forward(self, x: Tensor) -> Tensor:
        """Distances, shape (M, n_maps, b, 1)."""
        return distances(self.centres, x)[..., None]


def distances(a: Tensor, b: Tensor) -> Tensor:
    """Euclidean distances; matrix products would lose digits between close points."""
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")


def fold_coordinates(z: Tensor, bias: Tensor) -> Tensor:
    """Fold the first half of the coordinates, each at minus its bias; no distance grows.

    Between rotations this is equivalent to sorting coordinates in pairs (GroupSort), which is the
    same fold turned by 45 degrees, and it is faster.

    Examples
    --------
    >>> fold_coordinates(torch.tensor([-3.0, 1.0, -5.0, 7.0]), torch.tensor([1.0, 1.0]))
    tensor([ 2.,  2., -5.,  7.])
    """
    half = bias.shape[-1]
    return torch.cat([(z[..., :half] + bias).abs(), z[..., half:]], dim=-1)


def nearest_orthonormal(weight: Tensor) -> Tensor:
    """The orthonormal matrix (..., a, b) closest to one that is nearly orthonormal.

    Uses Newton's iteration for the polar factor, which needs only matrix products and is therefore
    fast on every device.
    """
    tall = weight.shape[-2] > weight.shape[-1]
    for _ in range(NEWTON_STEPS):
        cubed = weight @ (weight.mT @ weight) if tall else (weight @ weight.mT) @ weight
        weight = 1.5 * weight - 0.5 * cubed
    return weight


def _orthonormal(n_models: int, n_maps: int, a: int, b: int) -> Tensor:
    """Random matrices (M, B, a, b) with orthonormal columns, or rows if there are fewer of them."""
    drawn = torch.linalg.qr(torch.randn(n_models, n_maps, max(a, b), min(a, b))).Q
    return (drawn if a >= b else drawn.mT).contiguous()


class Given(NamedTuple):
    """The maps of all folds, and the rows that they are trained, chosen and tested on."""

    maps: LipschitzMaps
    x: Tensor
    clusters: Index
    folds: Sequence[Fold]


# --- means of clusters ----------------------------------------------------------------------------


@torch.no_grad()
def cluster_means(given: Given, parts: Sequence[Index]) -> tuple[list[Tensor], Tensor]:
    """Means of the mapped rows of clusters over the part of the rows that each model uses.

    Of each kind of map, shape (M, maps, k, outputs), and the numbers of observations (M, k);
    without any, a mean is zero.
    """
    maps, x, clusters, _ = given
    k, n_models = int(clusters.max()) + 1, len(parts)
    used = torch.zeros(n_models, len(x), dtype=torch.bool)
    for mask, part in zip(used, parts, strict=True):
        mask[torch.from_numpy(part)] = True
    used, y = used.to(x.device), torch.from_numpy(clusters).to(x.device)
    counts = torch.stack([y[rows].bincount(minlength=k) for rows in used]).cpu()
    means = [
        torch.zeros(n_models, kind.shape[1], k, kind.shape[-1], dtype=torch.double)
        for kind in maps(x[None, :1])
    ]
    for at in torch.arange(len(x), device=x.device).split(ROWS_AT_ONCE):
        # Matrix products, because index_add is not deterministic on a GPU.
        here, place = torch.unique(y[at], return_inverse=True)
        is_member = place == torch.arange(len(here), device=x.device)[:, None]
        share = (is_member & used[:, None, at]) / counts.to(x)[:, here, None].clamp_min(1)
        for mean, mapped in zip(means, maps(x[at][None]), strict=True):
            mean[:, :, here.cpu()] += (share[:, None] @ mapped).cpu()
    return means, counts


# --- training -------------------------------------------------------------------------------------


def train(
    given: Given, epochs: int, rng: np.random.Generator, progress: bool = False
) -> tuple[list[Tensor], Matrix]:
    """Train one model per fold in place to move the means of clusters apart.

    Returned are the means of the training rows at the end, and the mean over folds and pairs of the
    bound that the trained maps give on training rows, before each epoch and at the end.
    """
    maps, x, clusters, folds = given
    y, trained = torch.from_numpy(clusters).to(x.device), [fold.train for fold in folds]
    optimizer, history = maps.optimizer(), []
    models = torch.arange(len(folds), device=x.device)[:, None]
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for epoch in tqdm(range(epochs), desc="training", unit=" epochs", disable=not progress):
        means, _ = cluster_means(given, trained)
        directions, attained = push_directions(means, TEMPERATURE * (1 - epoch / epochs))
        history.append(attained)
        pushes = [push.to(x).transpose(1, 2) for push in directions]
        batches = epoch_minibatches(trained, clusters, BATCH_SIZE, rng)
        for rows in batches.to(x.device):
            optimizer.zero_grad()
            _, *mapped = maps(x[rows])
            of_kinds = zip(mapped, pushes, strict=True)
            pushed = sum((z * push[models, y[rows]].transpose(1, 2)).sum() for z, push in of_kinds)
            (-pushed / rows.shape[1]).backward()
            optimizer.step()
            maps.make_orthonormal()
        schedule.step()
    maps.make_orthonormal()  # to the last digit
    means, _ = cluster_means(given, trained)
    return means, np.array([*history, push_directions(means, TEMPERATURE)[1]])


def push_directions(means: Sequence[Tensor], temperature: float) -> tuple[list[Tensor], float]:
    """Σ_j u_ij for every cluster i under each trained map, and the mean bound over all pairs.

    u_ij is the unit vector from the mean of j to that of i under the map that moves them furthest
    apart, so each pair trains one map of every kind; kinds are trained independently.  The choice
    is soft: maps that come within ``temperature`` of the best get a share of the pair, because
    otherwise maps that started badly would never be trained.
    """
    _, *trained = means
    n_models, n_maps, k, _ = trained[0].shape
    pushes, total = [torch.empty_like(kind) for kind in trained], 0.0
    for rows in torch.arange(k).split(max(1, ELEMENTS_AT_ONCE // (n_models * n_maps * k))):
        longest = torch.zeros(n_models, len(rows), k, dtype=torch.double)
        for push, kind in zip(pushes, trained, strict=True):
            length = distances(kind[:, :, rows], kind)
            longest = torch.maximum(longest, length.amax(dim=1))
            share = torch.softmax(length / temperature, dim=1) / length.clamp_min(NO_LENGTH)
            push[:, :, rows] = kind[:, :, rows] * share.sum(-1, keepdim=True) - share @ kind
        total += float(longest.sum())
    return pushes, total / (n_models * k * (k - 1))


# --- held-out values ------------------------------------------------------------------------------


def choose_maps(given: Given, means: Sequence[Tensor]) -> Index:
    """Which map to use for each pair in each fold, shape (K, k, k); 0 is the identity.

    Trained maps look better on training rows than they are, wide maps most of all.  So a map is
    used only if its gain over the identity on training rows is larger than what the best maps of
    its kind lose, on average over pairs, on new rows: the rows of the other folds, or rows that
    were set aside.
    """
    validated, counts = cluster_means(given, [fold.validation for fold in given.folds])
    seen = counts > 0
    pairs = (seen[:, None] & seen[:, :, None]).triu(1)
    plain, plain_validated = _lengths(means[0][:, 0], validated[0][:, 0])
    chosen, best_gain = torch.zeros(plain.shape, dtype=torch.long), torch.zeros_like(plain)
    number, judge = 0, judge_of(given.folds)
    for kind, kind_validated in zip(means[1:], validated[1:], strict=True):
        longest, lost, best = torch.zeros_like(plain), torch.zeros_like(plain), chosen.clone()
        for mean, mean_validated in zip(kind.unbind(1), kind_validated.unbind(1), strict=True):
            number += 1
            length, length_validated = _lengths(mean, mean_validated)
            longer = length > longest
            longest = longest.where(~longer, length)
            lost = lost.where(~longer, length - length_validated)
            best[longer] = number
        lost_by_fold = ((lost - plain + plain_validated) * pairs).sum((1, 2)) / pairs.sum((1, 2))
        gain = longest - plain - torch.from_numpy(judge(lost_by_fold.numpy()))[:, None, None]
        better = gain > best_gain  # False where the loss is unknown (NaN)
        chosen, best_gain = chosen.where(~better, best), best_gain.where(~better, gain)
    return chosen.numpy()


def _lengths(means: Tensor, validated: Tensor) -> tuple[Tensor, Tensor]:
    """Distances of means (K, k, h), and those of validation means in the same directions."""
    length, crossed = distances(means, means), means @ validated.mT
    same = crossed.diagonal(dim1=1, dim2=2)
    products = same[:, None] + same[:, :, None] - crossed - crossed.mT
    return length, products / length.clamp_min(NO_LENGTH)


@torch.no_grad()
def heldout_sums(
    given: Given, means: Sequence[Tensor], choice: Index
) -> tuple[Matrix, Matrix, Index]:
    """Sums over held-out rows of the functions f_ij of all pairs.

    f_ij is zero halfway between the training means, and f_ji = −f_ij.

    Of the held-out rows of cluster i: the sum of f_ij in each fold (K, k, k), the sum of its square
    over all folds (k, k), and their number (K, k).
    """
    maps, x, clusters, folds = given
    k = choice.shape[1]
    first, second = np.zeros((len(folds), k, k)), np.zeros((k, k))
    counts = np.stack([np.bincount(clusters[fold.test], minlength=k) for fold in folds])
    for f, i in np.argwhere(counts > 0).tolist():
        members = torch.from_numpy(folds[f].test[clusters[folds[f].test] == i])
        of_maps = [mean for kind in means for mean in kind[f]]
        for part in members.split(ROWS_AT_ONCE):
            mapped = [rows for kind in maps(x[part.to(x.device)][None]) for rows in kind[f]]
            values = torch.empty(len(part), k, dtype=torch.double)
            for b in np.unique(choice[f, i]):
                j, own = np.flatnonzero(choice[f, i] == b), of_maps[b][i]
                apart = own - of_maps[b][j]
                length = apart.norm(dim=1)
                along = apart / length.clamp_min(NO_LENGTH)[:, None]
                values[:, j] = (mapped[b].cpu().double() - own) @ along.T + length / 2
            first[f, i] += values.sum(dim=0).numpy()
            second[i] += values.square().sum(dim=0).numpy()
    return first, second, counts


def combine_folds(first: Matrix, second: Matrix, counts: Index) -> tuple[Matrix, Matrix]:
    """Bounds and their standard errors, (k, k), from what :func:`heldout_sums` gives.

    Both clusters of a pair have the same weight in a fold, n_i n_j / (n_i + n_j), because functions
    of different folds differ by constants.  Errors are widened as those of TVDs are, since folds
    share training data (docs/statistics.md).
    """
    n = counts[:, :, None].astype(float)
    other = n.swapaxes(1, 2)
    weight = n * other / np.maximum(n + other, 1.0)
    side, total = first / np.maximum(n, 1.0), weight.sum(axis=0)
    known = total > 0
    total = np.maximum(total, 0.25)
    value = (weight * (side + side.swapaxes(1, 2))).sum(axis=0) / total
    size = np.maximum(n.sum(axis=0), 2.0)
    spread = np.maximum(second - first.sum(axis=0) ** 2 / size, 0.0) / (size - 1)
    variance = spread * (weight**2 / np.maximum(n, 1.0)).sum(axis=0) / total**2
    stderr = np.sqrt(variance + variance.T)
    stderr *= crossfit_widening(value / np.maximum(stderr, NO_LENGTH))
    stderr[~known] = np.inf
    np.fill_diagonal(stderr, 0.0)
    return value, stderr
