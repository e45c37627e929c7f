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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from torch import Tensor, nn
from tqdm.auto import tqdm

from unsplit._typing import Index
from unsplit.data.rows.base import canonical_order
from unsplit.data.rows.kinds import VectorRows
from unsplit.devices import generator_of, private_randomness
from unsplit.networks.network import OwnNumbers
from unsplit.networks.training.group import Fold
from unsplit.networks.training.loop import epoch_minibatches, mean_of_others, own
from unsplit.pairwise.heldout_scores import crossfit_folds
from unsplit.pairwise.statistics import CROSSFIT_VARIANCE, NULL_REACH

Array = NDArray[np.float64]

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


def bounds(
    values: Array,
    clusters: Index,
    cv: int,
    epochs: int,
    n_maps: int,
    device: torch.device,
    random_state: object,
    progress: bool,
) -> tuple[Array, Array, Index, Array]:
    """Bounds and standard errors (k, k), held-out rows of each cluster (k,), and training history.

    ``clusters`` are −1 for noise.
    """
    keys = VectorRows(values, torch.device("cpu")).keys
    order, renumbered = canonical_order(keys, clusters)
    ordered = renumbered[order]
    # Rows with mean zero and mean squared length one, and the length that is now one.
    centred = values[order].astype(np.float64)
    centred -= centred.mean(axis=0)
    scale = float(np.sqrt(np.einsum("ij,ij->", centred, centred) / len(centred))) or 1.0
    x = torch.from_numpy((centred / scale).astype(np.float32)).to(device)
    rng = generator_of(random_state)
    folds = crossfit_folds(ordered, cv, rng)
    seed = int(rng.integers(2**63))
    with private_randomness(seed):
        with OwnNumbers():
            maps = LipschitzMaps(len(folds), n_maps, x.shape[1]).to(device)
        means, history = train(maps, x, ordered, folds, epochs, rng, progress)
        choice = choose_maps(maps, x, ordered, folds, means)
        sums = heldout_sums(maps, x, ordered, folds, means, choice)
    # Back to the order of the names.
    number = np.empty(int(clusters.max()) + 1, np.int64)
    number[clusters[order]] = ordered
    value, stderr = (scale * part[np.ix_(number, number)] for part in combine_folds(*sums))
    return np.maximum(value, 0.0), stderr, sums[2].sum(axis=0)[number], scale * history


class LipschitzMaps(nn.Module):
    """B maps of three kinds, none of which lengthens a distance, for each of M models.

    The kinds are narrow and wide :class:`FoldingMaps`, and :class:`RadialMaps`.  How a map changes
    the difference δ of two observations follows from δ itself and the output of :meth:`forward`:

        |map(x) − map(y)|² = keeps · |δ|² + Σ signs · (forward(x) − forward(y))².

    Rows of x should have mean zero and E|x|² = 1, because folds and centres are drawn for such
    data.
    ``signs`` has shape (B, h), ``keeps`` and ``kind`` (numbers from 1 on) have shape (B,).
    """

    signs: Tensor
    keeps: Tensor
    kind: Tensor

    def __init__(self, n_models: int, n_maps: int, n_features: int) -> None:
        super().__init__()
        self.folding = [FoldingMaps(n_models, n_maps, n_features, width) for width in WIDTHS]
        self.radial = RadialMaps(n_models, n_maps, n_features)
        self.kinds = nn.ModuleList([*self.folding, self.radial])  # so torch finds their parameters
        signs = torch.zeros(len(self.kinds), 2 * max(WIDTHS))
        for row, width in zip(signs, WIDTHS, strict=False):
            row[:width], row[width : 2 * width] = 1.0, -1.0
        signs[-1, 0] = 1.0
        keeps = torch.tensor([1.0] * len(WIDTHS) + [0.0])
        kind = torch.arange(1, len(self.kinds) + 1)
        for name, values in (("signs", signs), ("keeps", keeps), ("kind", kind)):
            self.register_buffer(name, values.repeat_interleave(n_maps, dim=0))

    def forward(self, x: Tensor) -> Tensor:
        """Outputs of the maps for x (M, b, n_features), shape (M, B, b, h), padded with zeros."""
        found, h = [maps(x) for maps in self.kinds], self.signs.shape[1]
        return torch.cat([nn.functional.pad(f, (0, h - f.shape[-1])) for f in found], dim=1)

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
    """Maps x → (x − UUᵀx, ψ(Uᵀx)) that fold a few directions and leave the others unchanged.

    U has ``width`` orthonormal columns (or rows, where there are fewer features), and ψ alternates
    rotations with :func:`fold_coordinates`.  Without the folds such a map would be an isometry, so
    differences of means are seen from the start, and training can only add to them.
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
        """ψ(Uᵀx) and Uᵀx, shape (M, n_maps, b, 2 · width)."""
        inside = x[:, None] @ self.weights[0]
        folded = fold_coordinates(inside, self.biases[0])
        for weight, bias in zip(self.weights[1:], self.biases[1:], strict=True):
            folded = fold_coordinates(folded @ weight, bias)
        return torch.cat([folded, inside], dim=-1)


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
        # Matrix products would lose digits between close points.
        exactly = "donot_use_mm_for_euclid_dist"
        return torch.cdist(self.centres, x, compute_mode=exactly)[..., None]


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


# --- means of clusters ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ClusterMeans:
    """Means of clusters under M models of B maps and, as the first map, the identity.

    ``raw`` (M, k, d) are means of the observations themselves, ``mapped`` (M, 1 + B, k, h) those of
    the outputs of :class:`LipschitzMaps`, ``counts`` (M, k) their numbers of observations; without
    any, a mean is zero.  ``signs``, ``keeps`` and ``kind`` say how distances are computed from
    both; the identity keeps everything, and is the only map of kind 0.
    """

    raw: Array
    mapped: Array
    counts: Index
    signs: Array
    keeps: Array
    kind: Index

    @classmethod
    @torch.no_grad()
    def of(
        cls, maps: LipschitzMaps, x: Tensor, clusters: Index, parts: Sequence[Index]
    ) -> "ClusterMeans":
        """Means of the mapped rows x (n, d) over the part of them that each model uses."""
        k, n_models, (n_maps, h) = int(clusters.max()) + 1, len(parts), maps.signs.shape
        used = torch.zeros(n_models, len(x), dtype=torch.bool)
        for mask, part in zip(used, parts, strict=True):
            mask[torch.from_numpy(part)] = True
        used, y = used.to(x.device), torch.from_numpy(clusters).to(x.device)
        raw = torch.zeros(n_models, k, x.shape[1], dtype=torch.double)
        mapped = torch.zeros(n_models, 1 + n_maps, k, h, dtype=torch.double)
        for at in torch.arange(len(x), device=x.device).split(ROWS_AT_ONCE):
            # Matrix products, because index_add is not deterministic on a GPU.
            here, place = torch.unique(y[at], return_inverse=True)
            is_member = place == torch.arange(len(here), device=x.device)[:, None]
            member = (is_member & used[:, None, at]).to(x)
            raw[:, here.cpu()] += (member @ x[at]).cpu()
            mapped[:, 1:, here.cpu()] += (member[:, None] @ maps(x[at][None])).cpu()
        counts = torch.stack([y[rows].bincount(minlength=k) for rows in used]).cpu()
        size = counts.clamp_min(1)[..., None]
        signs = torch.cat([torch.zeros(1, h), maps.signs.cpu()]).double()
        keeps = torch.cat([torch.ones(1), maps.keeps.cpu()]).double()
        kind = torch.cat([torch.zeros(1, dtype=torch.long), maps.kind.cpu()])
        means = raw / size, mapped / size[:, None]
        return cls(*(t.numpy() for t in (*means, counts, signs, keeps, kind)))

    @property
    def n_clusters(self) -> int:
        """Number of clusters, k."""
        return self.raw.shape[1]

    def kinds(self) -> list[Index]:
        """Numbers of the maps of each kind, without the identity."""
        return [np.flatnonzero(self.kind == kind) for kind in np.unique(self.kind[1:])]

    def products(self, other: "ClusterMeans", rows: slice) -> Array:
        """(m_i − m_j)·(m'_i − m'_j) under every map, shape (M, 1 + B, rows, k).

        Differences are of these means and of those of ``other``.
        """
        raw = _products(self.raw, other.raw, rows)[:, None]
        mapped = _products(self.signs[:, None] * self.mapped, other.mapped, rows)
        return self.keeps[:, None, None] * raw + mapped

    def lengths(self, rows: slice) -> Array:
        """|m_i − m_j| under every map, shape (M, 1 + B, rows, k)."""
        return np.sqrt(np.maximum(self.products(self, rows), 0.0))

    def parts(self) -> Iterator[slice]:
        """Slices of the clusters, small enough to hold all their pairs in memory."""
        n_models, n_maps, k, _ = self.mapped.shape
        step = max(1, ELEMENTS_AT_ONCE // (n_models * n_maps * k))
        return (slice(start, min(start + step, k)) for start in range(0, k, step))


def _products(a: Array, b: Array, rows: slice) -> Array:
    """(a_i − a_j)·(b_i − b_j) for i in ``rows`` and all j, shape (..., rows, k)."""
    same = np.einsum("...ih,...ih->...i", a, b)
    crossed = a[..., rows, :] @ b.swapaxes(-1, -2) + b[..., rows, :] @ a.swapaxes(-1, -2)
    return same[..., rows, None] + same[..., None, :] - crossed


# --- training -------------------------------------------------------------------------------------


def train(
    maps: LipschitzMaps,
    x: Tensor,
    clusters: Index,
    folds: Sequence[Fold],
    epochs: int,
    rng: np.random.Generator,
    progress: bool = False,
) -> tuple[ClusterMeans, Array]:
    """Train one model per fold in place to move the means of clusters apart.

    Returned are the means of the training rows at the end, and the mean over folds and pairs of the
    bound that the trained maps give on training rows, before each epoch and at the end.
    """
    y, trained = torch.from_numpy(clusters).to(x.device), [fold.train for fold in folds]
    optimizer, history = maps.optimizer(), []
    models = torch.arange(len(folds), device=x.device)[:, None]
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for epoch in tqdm(range(epochs), desc="training", unit=" epochs", disable=not progress):
        means = ClusterMeans.of(maps, x, clusters, trained)
        directions, attained = push_directions(means, TEMPERATURE * (1 - epoch / epochs))
        history.append(attained)
        push = torch.from_numpy(directions).float().to(x.device).transpose(1, 2)
        batches = epoch_minibatches(trained, clusters, BATCH_SIZE, rng)
        for rows in batches.to(x.device):
            optimizer.zero_grad()
            pushed = maps(x[rows]) * push[models, y[rows]].transpose(1, 2)
            (-pushed.sum() / rows.shape[1]).backward()
            optimizer.step()
            maps.make_orthonormal()
        schedule.step()
    maps.make_orthonormal()  # to the last digit
    means = ClusterMeans.of(maps, x, clusters, trained)
    return means, np.array([*history, push_directions(means, TEMPERATURE)[1]])


def push_directions(means: ClusterMeans, temperature: float) -> tuple[Array, float]:
    """Σ_j u_ij for every cluster i, and the mean bound over all pairs.

    u_ij is the unit vector from the mean of j to that of i under the map that moves them furthest
    apart, so each pair trains one map of every kind; kinds are trained independently.  The choice
    is soft: maps that come within ``temperature`` of the best get a share of the pair, because
    otherwise maps that started badly would never be trained.

    The directions have shape (M, B, k, h); the identity is not trained.
    """
    k, found, total = means.n_clusters, np.empty_like(means.mapped), 0.0
    for rows in means.parts():
        length = means.lengths(rows)
        total += length[:, 1:].max(axis=1).sum()
        for kind in means.kinds():
            share = softmax(length[:, kind] / temperature, axis=1)
            share /= np.maximum(length[:, kind], NO_LENGTH)
            mapped = means.mapped[:, kind]
            kept = mapped[:, :, rows] * share.sum(-1, keepdims=True)
            found[:, kind, rows] = kept - share @ mapped
    push = means.signs[1:, None] * found[:, 1:]
    return push, float(total / (len(push) * k * (k - 1)))


# --- held-out values ------------------------------------------------------------------------------


def choose_maps(
    maps: LipschitzMaps, x: Tensor, clusters: Index, folds: Sequence[Fold], means: ClusterMeans
) -> Index:
    """Which map to use for each pair in each fold, shape (K, k, k); 0 is the identity.

    Trained maps look better on training rows than they are, wide maps most of all.  So a map is
    used only if its gain over the identity on training rows is larger than what the best maps of
    its kind lose, on average over pairs, on new rows: the rows of the other folds, or rows that
    were set aside.
    """
    k = means.n_clusters
    validated = ClusterMeans.of(maps, x, clusters, [f.validation for f in folds])
    judge = mean_of_others if all(fold.validates_on_test for fold in folds) else own
    chosen, best_gain = np.zeros((len(folds), k, k), np.int64), np.zeros((len(folds), k, k))
    for kind in means.kinds():
        longest, gain, lost = _best_of_kind(kind, means, validated)
        gain -= judge(lost)[:, None, None]
        better = gain > best_gain  # False where the loss is unknown (NaN)
        chosen[better], best_gain[better] = longest[better], gain[better]
    chosen = np.triu(chosen, 1)
    return chosen + chosen.swapaxes(1, 2)  # ties must not be broken differently for [j, i]


def _best_of_kind(
    kind: Index, means: ClusterMeans, validated: ClusterMeans
) -> tuple[Index, Array, Array]:
    """The map of a kind that moves each pair furthest apart, and its gain over the identity.

    Both have shape (K, k, k).  The third result, of shape (K,), is how much of that gain is lost on
    the validation rows, on average over pairs; NaN where there are none.
    """
    n_folds, k = len(means.raw), means.n_clusters
    best, gain = np.empty((n_folds, k, k), np.int64), np.empty((n_folds, k, k))
    seen, lost = validated.counts > 0, np.zeros(n_folds)
    for rows in means.parts():
        length = means.lengths(rows)
        validated_length = means.products(validated, rows) / np.maximum(length, NO_LENGTH)
        longest = kind[length[:, kind].argmax(axis=1)]
        gained, kept = (
            np.take_along_axis(part, longest[:, None], 1)[:, 0] - part[:, 0]
            for part in (length, validated_length)
        )
        lost += ((gained - kept) * (seen[:, rows, None] & seen[:, None])).sum(axis=(1, 2))
        best[:, rows], gain[:, rows] = longest, gained
    n_seen = seen.sum(axis=1)
    return best, gain, lost / np.where(n_seen > 1, n_seen * (n_seen - 1), np.nan)


@torch.no_grad()
def heldout_sums(
    maps: LipschitzMaps,
    x: Tensor,
    clusters: Index,
    folds: Sequence[Fold],
    means: ClusterMeans,
    choice: Index,
) -> tuple[Array, Array, Index]:
    """Sums over held-out rows of the functions f_ij of all pairs.

    f_ij is zero halfway between the training means, and f_ji = −f_ij.

    Of the held-out rows of cluster i: the sum of f_ij in each fold (K, k, k), the sum of its square
    over all folds (k, k), and their number (K, k).
    """
    k, fold_of = means.n_clusters, np.full(len(clusters), -1)
    for f, fold in enumerate(folds):
        fold_of[fold.test] = f
    first, second = np.zeros((len(folds), k, k)), np.zeros((k, k))
    counts = np.stack([np.bincount(clusters[f.test], minlength=k) for f in folds])
    for i in range(k):
        members = torch.from_numpy(np.flatnonzero((clusters == i) & (fold_of >= 0)))
        for part in members.split(ROWS_AT_ONCE):
            rows = x[part.to(x.device)]
            raw, mapped = (t.cpu().double().numpy() for t in (rows, maps(rows[None])))
            for f in np.unique(fold_of[part]):
                at = fold_of[part] == f
                values = _values(raw[at], mapped[f][:, at], means, choice[f, i], (int(f), i))
                first[f, i] += values.sum(axis=0)
                second[i] += np.square(values).sum(axis=0)
    return first, second, counts


def _values(
    raw: Array, mapped: Array, means: ClusterMeans, choice: Index, at: tuple[int, int]
) -> Array:
    """f_ij of some rows for all j, shape (n, k); ``at`` is the fold, whose model is used, and i."""
    f, i = at
    mine, others = means.mapped[f, choice, i], means.mapped[f, choice, np.arange(len(choice))]
    along = means.keeps[choice, None] * (means.raw[f, i] - means.raw[f])
    across = means.signs[choice] * (mine - others)
    lengths = (along * (means.raw[f, i] - means.raw[f])).sum(1) + (across * (mine - others)).sum(1)
    doubled = (along * (means.raw[f, i] + means.raw[f])).sum(1) + (across * (mine + others)).sum(1)
    values = raw @ along.T - doubled / 2
    for b in np.unique(choice[choice > 0]):
        j = np.flatnonzero(choice == b)
        values[:, j] += mapped[b - 1] @ across[j].T
    return values / np.maximum(np.sqrt(np.maximum(lengths, 0.0)), NO_LENGTH)


def combine_folds(first: Array, second: Array, counts: Index) -> tuple[Array, Array]:
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
    z = value / np.maximum(stderr, NO_LENGTH)
    stderr *= np.sqrt(1 + (CROSSFIT_VARIANCE - 1) * np.exp(-0.5 * (z / NULL_REACH) ** 2))
    stderr[~known] = np.inf
    np.fill_diagonal(stderr, 0.0)
    return value, stderr
