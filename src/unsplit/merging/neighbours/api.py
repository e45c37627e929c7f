"""From observations to the graph of their neighbours."""

from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from sklearn.decomposition import TruncatedSVD

from unsplit.data.labels import EncodedLabels, encode_labels
from unsplit.data.rows.vectors import VectorRows, numeric_matrix
from unsplit.devices import choose_device
from unsplit.merging.neighbours.graph import NeighbourGraph, connect
from unsplit.pairwise.batch_effects import encode_batches
from unsplit.pairwise.result import PairwiseTVD

# Counts are compared in so many dimensions, as is usual for cells and texts.
COMPONENTS = 50

# Of eight bytes each: half a gibibyte.
MOST_PROBABILITIES = 2**26


def neighbour_graph(
    X: Any,
    labels: ArrayLike,
    *,
    batch: ArrayLike | None = None,
    device: str | torch.device = "auto",
) -> NeighbourGraph:
    """Connect every observation with its fifteen nearest neighbours, for :func:`unsplit.merge`.

    Parameters
    ----------
    X : array-like or SciPy sparse matrix of shape (n, d)
        Vectors, compared by Euclidean distance as they are: scale them as for any clustering.
        Counts in a sparse matrix are first divided by their sums, taken as logarithms and reduced
        to fifty components.
    labels : array-like of shape (n,)
        The over-clustering; −1 and missing values mean noise.
    batch : array-like of shape (n,), optional
        Neighbours are looked for within each batch only.
    device : str or torch.device
        Where to search if there are many observations.

    Examples
    --------
    >>> import unsplit
    >>> X, labels = unsplit.datasets.gaussians([[0, 0], [0, 0], [9, 0]], 100, random_state=0)
    >>> unsplit.neighbour_graph(X, labels).n_clusters
    3
    """
    values = numeric_matrix(X)
    encoded = encode_labels(labels, values.shape[0])
    # In an order that depends on content alone, so that it does not matter how rows are sorted.
    order = np.argsort(VectorRows(values, torch.device("cpu")).keys, kind="stable")
    batches = None if batch is None else _batches(batch, encoded)[order]
    values = values[order]
    features = components_of_counts(values) if scipy.sparse.issparse(values) else values
    return connect(features, encoded.clusters[order], batches, choose_device(device))


def graph_of_scores(result: PairwiseTVD) -> NeighbourGraph | None:
    """The graph of held-out observations that the networks take for members of the same clusters.

    For data without distances of their own: neighbours are observations with alike probabilities
    of all clusters, by Hellinger distance.  None where these would take too much memory.
    """
    scores = result.scores
    if len(scores.rows) * result.n_clusters > MOST_PROBABILITIES or not len(scores.rows):
        return None
    order = np.argsort(scores.features[:, 0], kind="stable")  # by content, not by row or name
    share = softmax(scores.dense()[order].astype(np.float64), axis=1)
    batches = None if scores.batches is None else scores.batches[order]
    clusters = scores.clusters[order]
    return connect(np.sqrt(share), clusters, batches, n_clusters=result.n_clusters)


def components_of_counts(counts: scipy.sparse.csr_array) -> NDArray[np.float64]:
    """Counts as most people compare them: shares, logarithms, principal directions.

    Values of which some are negative are no counts, and are only reduced.
    """
    if not (counts.data < 0).any():
        totals = np.asarray(counts.sum(axis=1)).ravel()
        usual = float(np.median(totals[totals > 0])) if (totals > 0).any() else 1.0
        shares = scipy.sparse.diags_array(usual / np.maximum(totals, 1e-300)) @ counts
        counts = scipy.sparse.csr_array(shares)
        counts.data = np.log1p(counts.data)
    width = min(COMPONENTS, min(counts.shape) - 1)
    if width < 1:
        return counts.toarray()
    with np.errstate(invalid="ignore", divide="ignore"):  # where nothing varies
        return TruncatedSVD(width, random_state=0).fit_transform(counts)


def _batches(batch: ArrayLike, encoded: EncodedLabels) -> NDArray[np.int64]:
    """Batches numbered from 0, those of noise included."""
    encode_batches(batch, encoded)  # says what is wrong with them
    return np.unique(np.asarray(batch).astype(str), return_inverse=True)[1].astype(np.int64)
