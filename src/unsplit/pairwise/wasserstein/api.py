"""Lower bounds on the 1-Wasserstein distance between all pairs of clusters.

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

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from unsplit._typing import Index, Matrix
from unsplit.data.labels import encode_labels
from unsplit.data.memory import memory_errors
from unsplit.data.rows.base import canonical_order
from unsplit.data.rows.kinds import VectorRows, numeric_matrix
from unsplit.devices import (
    check_seed,
    choose_device,
    generator_of,
    private_randomness,
    usual_settings,
)
from unsplit.errors import check_flag, check_whole
from unsplit.networks.network import OwnNumbers
from unsplit.networks.training.group import Fold
from unsplit.pairwise.heldout_scores import crossfit_folds, require_folds
from unsplit.pairwise.memory import LESS_DATA
from unsplit.pairwise.wasserstein.heldout import choose_maps, combine_folds, heldout_sums
from unsplit.pairwise.wasserstein.maps import LipschitzMaps
from unsplit.pairwise.wasserstein.result import PairwiseWasserstein
from unsplit.pairwise.wasserstein.training import train


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
    _check_settings(cv, epochs, n_maps)
    check_flag("progress", progress)
    check_seed(random_state)
    where = choose_device(device)
    values = numeric_matrix(X)
    with memory_errors("making X dense", LESS_DATA):
        values = values if isinstance(values, np.ndarray) else values.toarray()
    encoded = encode_labels(labels, len(values))
    require_folds(cv, encoded.clusters)
    keys = VectorRows(values, torch.device("cpu")).keys
    order, renumbered = canonical_order(keys, encoded.clusters)
    clusters, k = renumbered[order], len(encoded.cluster_ids)
    x, scale = _in_common_unit(values[order], where)
    rng = generator_of(random_state)
    folds = crossfit_folds(clusters, cv, rng)
    sums, history = _heldout(x, clusters, folds, n_maps, epochs, rng, progress)
    # Back to the order of the names.
    number = np.empty(k, np.int64)
    number[encoded.clusters[order]] = clusters
    value, stderr = (scale * part[np.ix_(number, number)] for part in combine_folds(*sums))
    return PairwiseWasserstein(
        cluster_ids=encoded.cluster_ids,
        sizes=np.bincount(encoded.clusters[encoded.clusters >= 0]),
        distance=np.maximum(value, 0.0),
        stderr=stderr,
        n_heldout=sums[2].sum(axis=0)[number],
        history=scale * history,
    )


def _heldout(
    x: Tensor,
    clusters: Index,
    folds: list[Fold],
    n_maps: int,
    epochs: int,
    rng: np.random.Generator,
    progress: bool,
) -> tuple[tuple[Matrix, Matrix, Index], NDArray[np.float64]]:
    """Train the maps; their sums over the held-out rows, and how training went."""
    seed = int(rng.integers(2**63))
    with memory_errors("comparing the clusters", LESS_DATA), private_randomness(seed):
        with OwnNumbers():
            maps = LipschitzMaps(len(folds), n_maps, x.shape[1])
        maps = maps.to(x.device)
        means, history = train(maps, x, clusters, folds, epochs, rng, progress)
        choice = choose_maps(maps, x, clusters, folds, means)
        return heldout_sums(maps, x, clusters, folds, means, choice), history


def _check_settings(cv: int, epochs: int, n_maps: int) -> None:
    check_whole("cv", cv, 2, "5 is usual")
    check_whole("epochs", epochs, 1)
    check_whole("n_maps", n_maps, 1)


def _in_common_unit(values: NDArray[Any], device: torch.device) -> tuple[Tensor, float]:
    """Rows with mean zero and mean squared length one, and the length that is now one."""
    centred = values.astype(np.float64)
    centred -= centred.mean(axis=0)
    scale = float(np.sqrt(np.einsum("ij,ij->", centred, centred) / len(centred))) or 1.0
    return torch.from_numpy((centred / scale).astype(np.float32)).to(device), scale
