"""Makes the neighbour graph of observations."""

from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from sklearn.decomposition import TruncatedSVD

from unsplit.data.frames import refuse_other_order
from unsplit.data.labels import EncodedLabels, encode_labels
from unsplit.data.rows.vectors import VectorRows, numeric_matrix
from unsplit.devices import choose_device, memory_errors
from unsplit.merging.neighbours.graph import NeighbourGraph, connect
from unsplit.pairwise.batch_effects import encode_batches
from unsplit.pairwise.result import PairwiseTVD

# Number of components of counts, as is usual for single cells and texts.
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
    """Connect every observation to its fifteen nearest neighbours, for :func:`unsplit.merge`.

    Parameters
    ----------
    X : array-like or SciPy sparse matrix of shape (n, d)
        Vectors, compared by Euclidean distance without scaling: scale them as for any clustering.
        Counts in a sparse matrix are normalised by their row sums, log-transformed and reduced to
        fifty components.
    labels : array-like of shape (n,)
        The over-clustering; −1 and missing values mean noise.
    batch : array-like of shape (n,), optional
        Only observations of the same batch are connected.
    device : str or torch.device
        Where to search if there are many observations.

    Returns
    -------
    NeighbourGraph

    Examples
    --------
    >>> import unsplit
    >>> X, labels = unsplit.datasets.gaussians([[0, 0], [0, 0], [9, 0]], 100, random_state=0)
    >>> unsplit.neighbour_graph(X, labels).n_clusters
    3
    """
    refuse_other_order(X, labels=labels, batch=batch)
    with memory_errors("finding neighbours", "use fewer features, such as principal components"):
        return graph_of_vectors(X, labels, batch, device)


def graph_of_vectors(
    X: Any,
    labels: ArrayLike | EncodedLabels,
    batch: ArrayLike | None = None,
    device: str | torch.device = "auto",
) -> NeighbourGraph:
    """The graph of :func:`neighbour_graph`, also for labels that are already encoded."""
    values = numeric_matrix(X)
    encoded = encode_labels(labels, values.shape[0])
    # Sorted by content, so that the order of the rows does not matter.
    order = np.argsort(VectorRows(values, torch.device("cpu")).keys, kind="stable")
    batches = None if batch is None else _batches(batch, encoded)[order]
    values = values[order]
    features = components_of_counts(values) if scipy.sparse.issparse(values) else values
    return connect(features, encoded.clusters[order], batches, choose_device(device))


def graph_of_scores(result: PairwiseTVD) -> NeighbourGraph | None:
    """The neighbour graph of held-out observations by their cluster probabilities.

    For data that cannot be compared directly, such as images: neighbours are observations to which
    the networks give similar probabilities (Hellinger distance).  None if there are no held-out
    observations or the probabilities would need too much memory.
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
    """Normalise counts by their row sums, take logarithms, and reduce them to components.

    Values that include negative ones are not counts and are only reduced.
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
    with np.errstate(invalid="ignore", divide="ignore"):  # if all rows are equal
        return TruncatedSVD(width, random_state=0).fit_transform(counts)


def _batches(batch: ArrayLike, encoded: EncodedLabels) -> NDArray[np.int64]:
    """The batch of every observation, noise included, numbered from 0."""
    encode_batches(batch, encoded)  # raises an error if they cannot be used
    return np.unique(np.asarray(batch).astype(str), return_inverse=True)[1].astype(np.int64)
