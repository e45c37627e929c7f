"""The paper's method as published, in one call."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import ArrayLike
from sklearn.metrics import pairwise_distances_chunked
from torch import Tensor

from unsplit._typing import Index, Matrix
from unsplit.data.labels import encode_labels
from unsplit.data.rows.base import Rows, canonical_order
from unsplit.data.rows.kinds import numeric_matrix
from unsplit.devices import (
    check_seed,
    choose_device,
    generator_of,
    memory_errors,
    private_randomness,
)
from unsplit.errors import InputError, check_choice, check_whole, refuses_old_options, shown
from unsplit.merging.decision import Always
from unsplit.merging.loop import MergeState, agglomerate
from unsplit.merging.pairs import Linked, Pairs
from unsplit.merging.plan import MergeOptions
from unsplit.merging.tree import MergeTree
from unsplit.networks.network import (
    Network,
    PairMatrixHead,
    ScoreHead,
    balanced,
    pair_matrix_loss,
    pairwise_logistic_loss,
)
from unsplit.networks.registry import (
    BEST,
    Backbone,
    Recipe,
    build_network,
    is_users,
    recipe_for,
    recipe_of,
)
from unsplit.networks.training.group import Fold, balanced_draws, draws_in_epoch
from unsplit.networks.training.loop import TrainConfig, Training
from unsplit.pairwise.api import Settings, rows_for
from unsplit.pairwise.divergences import nothing_held_out

# Distances between the groups of the initial clusters, numbered from 0.
Estimate = Callable[[Index], Matrix]

HELD_OUT = 0.2

# Distances between observations held at once; more is slower, it leaves the processor's caches.
CHUNK_MIB = 64

# Rows scored at once.
SCORED_AT_ONCE = 256


@refuses_old_options
def paper(
    X: Any,
    labels: ArrayLike,
    *,
    n_clusters: int,
    distance: str = "scores",
    backbone: Backbone = "auto",
    training: TrainConfig | None = None,
    device: str | torch.device = "auto",
    random_state: int | np.random.Generator | np.random.RandomState | None = None,
) -> tuple[MergeTree, Matrix]:
    """Merge clusters exactly as in the paper: train, merge the closest pair, train anew.

    A fifth of every cluster is held out at random.  A network is trained on the rest by Adam and
    the paper's balanced pairwise loss, until the mean accuracy A on the held-out fifth no longer
    rises.  The pair with the lowest held-out accuracy is merged, and a new network is trained,
    until ``n_clusters`` are left.  :class:`ClusterMerger` is faster and usually better; this is for
    comparison.

    Parameters
    ----------
    X, labels
        As for :func:`unsplit.pairwise_tvd`.
    n_clusters : int
        Number of clusters to stop at.  The rest of the tree is average linkage of the last
        distances.
    distance : {"scores", "pairs", "euclidean"}
        "scores" is the held-out balanced accuracy of a network with one output for each cluster.
        "pairs" is that of a network with one output for each ordered pair, with which the paper
        begins; for up to some hundred clusters.  "euclidean" is the paper's baseline, the mean
        Euclidean distance between the vectors of two clusters; it takes no network, and the
        parameters below have no effect.
    backbone : str, torch.nn.Module or callable
        A network, as for :func:`unsplit.pairwise_tvd`.
    training : TrainConfig, optional
        Epochs, learning rate, batch size, patience, and changes to the observations, of which there
        are none unless a module is passed; the paper names none.  Weight decay is not used, nor
        averaging of weights, and the loss is the paper's.
    device, random_state
        As for :func:`unsplit.pairwise_tvd`.

    Returns
    -------
    tree : MergeTree
        The merges; ``statistic`` of each is the distance of the two clusters.
    distances : ndarray of shape (k, k)
        The paper's 𝔻 before any merge, in the order of ``tree.cluster_ids``: the held-out balanced
        accuracy of each pair; TVD is 2𝔻 − 1.  Or the mean Euclidean distances.

    Examples
    --------
    >>> import unsplit
    >>> X, labels = unsplit.datasets.gaussians([[0, 0], [0, 0], [9, 0]], 100, random_state=0)
    >>> tree, distances = unsplit.paper(X, labels, n_clusters=2, random_state=0)
    >>> tree.mapping
    {0: 0, 1: 0, 2: 1}
    >>> bool(distances[0, 2] > 0.95)
    True
    """
    check_choice("distance", distance, (*HEADS, "euclidean"))
    check_whole("n_clusters", n_clusters, 1)
    check_seed(random_state)
    if recipe_of(backbone).fitted_once or recipe_of(backbone).name == BEST:
        raise InputError(
            f"backbone {shown(backbone)} is no network, and the paper trains one; pass a network "
            'such as "mlp", or use pairwise_tvd, which takes classifiers.'
        )
    settings = Settings(backbone, device=device, training=training)
    with memory_errors("merging as in the paper", "use fewer clusters or fewer observations"):
        rows = rows_for(X, backbone, choose_device(device))
        encoded = encode_labels(labels, len(rows))
        constraints = MergeOptions(n_clusters=n_clusters).constraints(encoded.cluster_ids)
        # Numbered by content, so that neither the names of clusters nor the order of rows matter.
        order, numbers = canonical_order(rows.keys, encoded.clusters)
        clusters = numbers[order]
        _, first, sizes = np.unique(clusters, return_index=True, return_counts=True)
        if sizes.max() < 2:
            raise nothing_held_out()
        ranking: Linked
        if distance == "euclidean":
            statistic = distance
            matrix = mean_distances(numeric_matrix(X)[order].astype(np.float64), sizes)
            # Average linkage in which every pair of observations counts is the mean over all.
            ranking = Linked(matrix, statistic, np.outer(sizes, sizes))
        else:
            rng, recipe = generator_of(random_state), recipe_for(backbone, rows)
            statistic = "balanced accuracy"

            def estimate(groups: Index) -> Matrix:
                return accuracies(groups, rows, order, clusters, settings, recipe, distance, rng)

            matrix = estimate(np.arange(len(sizes)))
            ranking = Retrained(matrix, statistic, estimate, int(n_clusters))
        # Encoded names of the clusters, which the tree is numbered by, and back.
        place = encoded.clusters[order[first]]
        state = MergeState(Pairs(ranking), sizes, constraints, order=place)
        agglomerate(state, Always())  # neighbours and tests have no say
    back = np.argsort(place)
    tree = replace(state.tree(encoded.cluster_ids), strategy="paper")
    return tree, matrix[np.ix_(back, back)]


class Retrained(Linked):
    """Distances estimated anew after every merge, until ``n_clusters`` are left.

    After that average linkage of the last estimate completes the tree.
    """

    def __init__(self, matrix: Matrix, statistic: str, estimate: Estimate, n_clusters: int) -> None:
        super().__init__(matrix, statistic)
        self.estimate = estimate
        self.n_clusters = n_clusters
        self.firsts = np.arange(len(matrix))

    def merge(self, a: int, b: int) -> list[int]:
        """Merge b into a and estimate anew, unless few enough clusters are left."""
        super().merge(a, b)
        self.firsts[self.firsts == b] = a
        left, group = np.unique(self.firsts, return_inverse=True)
        if len(left) <= self.n_clusters:
            return [a]
        self.matrix[np.ix_(left, left)] = self.estimate(group)
        return left.tolist()


def mean_distances(values: Any, sizes: Index) -> Matrix:
    """Mean Euclidean distance between clusters, and within them, each row paired with itself too.

    Time grows with n², memory does not.

    Parameters
    ----------
    values : ndarray or SciPy sparse array of shape (n, d)
        Cluster after cluster.
    sizes : ndarray of shape (k,)
        Number of rows of each cluster.

    Examples
    --------
    >>> mean_distances(np.array([[0.0], [2.0], [5.0]]), np.array([2, 1]))
    array([[1., 4.],
           [4., 0.]])
    """
    starts = np.cumsum(sizes) - sizes
    clusters = np.repeat(np.arange(len(sizes)), sizes)
    if not scipy.sparse.issparse(values):
        # Inner products lose the digits that a large common offset takes up.
        values = values - np.median(values, axis=0)
    total = np.zeros((len(sizes), len(sizes)))
    done = 0
    for block in pairwise_distances_chunked(values, working_memory=CHUNK_MIB):
        sums = np.add.reduceat(block, starts, axis=1)
        np.add.at(total, clusters[done : done + len(sums)], sums)
        done += len(sums)
    return total / sizes / sizes[:, None]


HEADS: dict[str, tuple[Callable[[int, int], ScoreHead], Any]] = {
    "scores": (ScoreHead, pairwise_logistic_loss),
    "pairs": (PairMatrixHead, pair_matrix_loss),
}
"""Last layers by name, each with the paper's loss."""


def accuracies(
    groups: Index,
    rows: Rows,
    order: Index,
    clusters: Index,
    settings: Settings,
    recipe: Recipe,
    head: str,
    rng: np.random.Generator,
) -> Matrix:
    """Train a new network, and count how often held-out rows score higher for their own group.

    ``order`` are the rows in clusters, and ``clusters`` the cluster of each; ``groups`` are the
    groups of these clusters.
    """
    own = groups[clusters]
    held_out = split(own, rng)
    train, test = order[~held_out], order[held_out]
    fold = Fold(train, test, test)
    of_rows = np.full(len(rows), -1)
    of_rows[order] = own
    sizes = np.bincount(own[~held_out])
    k = len(sizes)
    usual = settings.config(recipe.training_for(draws_in_epoch(len(train), k)))
    config = replace(usual, weight_decay=0.0, averaging=0.0)  # plain Adam
    augment = False if usual.augment == "auto" else usual.augment
    lent_on = rows.device if is_users(settings.backbone, augment) else None
    with private_randomness(int(rng.integers(2**63)), lent_on):
        built = build_network(rows, fold, recipe, k, "pairwise", augment)
        make, loss = HEADS[head]
        last = make(built.head.in_features, k).to(rows.device)
        last.loss_function = partial(weighted, loss, torch.from_numpy(sizes).to(rows.device))
        network = Network(built.backbone, last, built.most_at_once)
        on_device = torch.from_numpy(of_rows).to(rows.device)
        # Until A no longer rises; the weights with the highest A are kept.
        Training([network], rows, on_device, [fold], config, rng, draw=every_row).run()
        rates = hit_rates(network, rows, test, of_rows[test])
    return (rates + rates.T) / 2


def split(clusters: Index, rng: np.random.Generator) -> Any:
    """Hold out a fifth of every cluster, at least one row unless it is alone; True for these.

    Examples
    --------
    >>> split(np.repeat([0, 1, 2], [10, 2, 1]), np.random.default_rng(0)).sum()
    np.int64(3)
    """
    held_out = np.zeros(len(clusters), bool)
    ends = np.cumsum(np.bincount(clusters))
    for members in np.split(np.argsort(clusters, kind="stable"), ends[:-1]):
        n = min(max(1, round(HELD_OUT * len(members))), len(members) - 1)
        held_out[rng.choice(members, n, replace=False)] = True
    return held_out


def every_row(clusters: Index, n_draws: int, rng: np.random.Generator) -> Index:
    """Draw every row once, in random order, and then again: the loss has the weights."""
    return balanced_draws(np.zeros_like(clusters), n_draws, rng)


def weighted(loss: Any, sizes: Tensor, scores: Tensor, clusters: Tensor) -> Tensor:
    """The paper's total loss L, estimated from a batch; from all training rows L itself.

    Parameters
    ----------
    loss : callable
        Loss of every observation.
    sizes : Tensor of shape (k,)
        Number of training rows of each cluster.
    scores, clusters : Tensors
        The batch.
    """
    return balanced(loss(scores, clusters), clusters, sizes * (clusters.shape[-1] / sizes.sum()))


@torch.no_grad()
def hit_rates(network: Network, rows: Rows, test: Index, clusters: Index) -> Matrix:
    """Share of each cluster's held-out rows that score higher for it than for another cluster.

    Ties count one half, and a cluster without such rows as if all were ties.  Shape (k, k).
    """
    k = network.head.n_clusters
    rates, counts = np.zeros((k, k)), np.bincount(clusters, minlength=k)
    batches = torch.from_numpy(test).to(rows.device).split(SCORED_AT_ONCE)
    own = torch.from_numpy(clusters).to(rows.device).split(SCORED_AT_ONCE)
    for x, some in zip(rows.stream(batches), own, strict=True):
        margins = network.head.margins(network(x), some).cpu().numpy()
        np.add.at(rates, some.cpu().numpy(), (margins > 0) + 0.5 * (margins == 0))
    rates[counts == 0] = 0.5
    return rates / np.maximum(counts, 1)[:, None]
