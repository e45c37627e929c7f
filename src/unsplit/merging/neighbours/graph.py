"""The neighbour graph: how it is made, and the edges between clusters in it.

The graph connects each observation to its nearest neighbours.  The share of an observation's
neighbours in another cluster is the error of a nearest-neighbour classifier that has not seen the
observation.  This is the principle of the network, with a local classifier; the only labels it uses
are the over-clustering.  Making a graph may need torch, which is imported then; using one does not.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.special import softmax
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import normalize

from unsplit._typing import Cluster, Index, Matrix
from unsplit.data.array_files import FINITE, LARGEST, Array, load_checked, save_arrays
from unsplit.data.labels import (
    EncodedLabels,
    encode_batches,
    encode_labels,
    label_array,
    refuse_other_order,
)
from unsplit.devices import available_memory, choose_device, memory_errors, require_memory
from unsplit.errors import check_choice, check_flag, check_whole
from unsplit.merging import limits
from unsplit.pairwise.groups import separate_groups
from unsplit.pairwise.result import PairwiseTVD

if TYPE_CHECKING:
    import torch

# float64 probabilities of a graph of scores (0.5 GiB).
MOST_PROBABILITIES = 2**26


# Of a batch only its share, so that the graph reaches as far as it would without batches.
# The table of necks (evidence.py), FEWEST_TO_OVERRULE and the other limits were chosen with 15.
N_NEIGHBOURS, FEWEST_NEIGHBOURS = 15, 5

# A small cluster has as many neighbours as it has other observations, or they would have to lie
# elsewhere; but at least this many, because a cluster of one has no others.
FEWEST_IN_SMALL = 3

# If more than this share of the neighbours is at distance 0, the features are numbers of a few
# values; fewer values than the second number may be the names of groups.
TIED = 0.2
FEWEST_VALUES = 5

# Number of steps along edges in which labels spread to observations outside all clusters.
SPREADING_STEPS = 60

# float32 shares of walks that are held at a time (64 MiB), whatever the number of clusters.
MOST_SHARES = 2**24

# Common neighbours are counted for this many rows at a time, in some hundred megabytes.
ROWS_AT_ONCE = 10_000


# Of more observations than the first number, the graph connects a sample: as many as the second, or
# the third for each cluster if that is more, but at most about as many as the fourth, so that time
# and memory are bounded.  docs/scale.md says what this changes.
MOST_CONNECTED = 500_000
SAMPLED = 100_000
SAMPLED_A_CLUSTER = 20
MOST_SAMPLED = 5_000_000

# A k-d tree is fast in few dimensions only; up to this many observations, comparing all with all is
# as fast as any other method.
DIMENSIONS_FOR_TREES = 8
MOST_FOR_EXACT = 30_000


# Neighbours in other groups are searched among this many times as many; exact search goes on until
# there are enough, for this many pairs at a time.
TIMES_AS_MANY, MOST_SEARCHED = 16, 2**24

# Distances of equal rows, divided by the rows' length; 1e-8 is the square root of double precision.
ROUNDING = 1e-7

# Memory that a graph takes for each observation and each of its features, measured with
# benchmarks/memory_guard.py.
BYTES_A_ROW = 5_000
BYTES_A_FEATURE = 48


# Pairs without an edge have this distance or a larger one.
UNLINKED = 0.9

# Added to edges and edges by chance before they are divided, so that small numbers count little.
A_FEW_EDGES = 3.0


# What the neighbours of a graph were found in.
OBSERVATIONS, OTHER_FEATURES, SCORES = "observations", "other features", "scores"

EUCLIDEAN, COSINE = METRICS = ("euclidean", "cosine")

# A file of a graph.  Each edge is there once, from the smaller row to the larger.
FORMAT = "unsplit.NeighbourGraph/1"
MOST_CLUSTERS = 2**24  # that a file may name; some need not occur
_GRAPH = {
    "edges": Array("i8", (2, "e"), 0),
    "inverse_dimension": Array("f8", ("n",), 0, FINITE),
    "clusters": Array("i8", ("n",), -1),
    "batches": Array("i8", ("n",), 0),
    "features": Array("f8", ("n", "d"), -FINITE, FINITE),
    "n_clusters": Array("i8", (), 1, MOST_CLUSTERS),
    "rows": Array("i8", ("n",), 0, LARGEST),
    "source": Array("U", among=(OBSERVATIONS, OTHER_FEATURES, SCORES)),
    "sampled_from": Array("i8", (), 1, LARGEST),
    "groups": Array("i8", ("n",), -1),
    "n_neighbors": Array("i8", (), 3, LARGEST),
    "metric": Array("U", among=METRICS),
}


@dataclass(frozen=True, eq=False, repr=False)
class NeighbourGraph:
    """Observations and the edges to their nearest neighbours.

    Parameters
    ----------
    adjacency : sparse matrix of shape (n, n)
        1 if either observation is among the nearest neighbours of the other; symmetric.
    inverse_dimension : ndarray of shape (n,)
        Inverse of the local dimension at each observation: the mean log ratio of the distance to
        the farthest neighbour and the distances to the others.
    clusters : ndarray of shape (n,)
        Cluster that each observation counts for: its own, unless more than half of its neighbours
        are in another one; −1 for none.
    batches : ndarray of shape (n,)
        Batch of each observation; there are no edges between batches.
    features : ndarray of shape (n, d)
        The features in which neighbours were found.
    n_clusters : int
        Number of clusters, k; some may have no observation in the graph.
    rows : ndarray of shape (n,)
        Which observation of the data each one is; they are in an order of their own.
    source : {"observations", "other features", "scores"}
        What neighbours were found in: what the network sees, features that it does not see, such
        as an embedding of images, or the network's own scores.
    sampled_from : int, optional
        The number of observations that these are a sample of; None if all are here.
    groups : ndarray of shape (n,), optional
        Group of each observation, within which there are no edges; −1 where there may be.
    n_neighbors : int
        How many neighbours each observation was to have.
    metric : {"euclidean", "cosine"}
        What they were compared by; with "cosine", ``features`` have length one.

    Examples
    --------
    >>> import unsplit
    >>> X, labels = unsplit.datasets.gaussians([[0, 0], [9, 0]], 20, random_state=0)
    >>> unsplit.neighbour_graph(X, labels).adjacency.shape
    (40, 40)
    """

    adjacency: sparse.csr_array
    inverse_dimension: NDArray[np.float64]
    clusters: Index
    batches: Index
    features: Matrix
    n_clusters: int
    rows: Index
    source: str = OBSERVATIONS
    sampled_from: int | None = None
    groups: Index | None = None
    n_neighbors: int = N_NEIGHBOURS
    metric: str = EUCLIDEAN

    def __repr__(self) -> str:
        n_edges = int(self.adjacency.sum()) // 2
        d = self.features.shape[1]
        return (
            f"NeighbourGraph: {n_edges:,} edges between {self.counted} observations in {d:,} "
            f"dimensions, {self.n_clusters:,} clusters"
        )

    @property
    def counted(self) -> str:
        """How many observations there are, and of how many if they are a sample."""
        of_all = "" if self.sampled_from is None else f" of {self.sampled_from:,}"
        return f"{len(self.rows):,}{of_all}"

    @cached_property
    def is_low_dimensional(self) -> bool:
        """Whether the local dimension is so low that gaps separate groups."""
        inverse = self.inverse_dimension[self.clusters >= 0]
        return bool(np.count_nonzero(inverse > 0) < limits.LOW_DIMENSION * inverse.sum())

    @cached_property
    def members(self) -> sparse.csr_array:
        """1 if an observation counts for a cluster, shape (n, k)."""
        return membership(self.clusters, self.n_clusters)

    @cached_property
    def weights(self) -> sparse.csr_array:
        """Weights of the edges: 1 plus the number of neighbours that both ends share.

        Many neighbours are shared inside a cluster and few across a gap (Jarvis and Patrick 1973).
        """
        # Clusters one after another, because a processor is faster with numbers that lie together.
        order = np.argsort(self.clusters, kind="stable")
        near = self.adjacency[order][:, order].astype(np.float32)  # small counts are exact
        starts = range(0, near.shape[0], ROWS_AT_ONCE)
        blocks = (near[start : start + ROWS_AT_ONCE] for start in starts)
        parts = [rows + (rows @ near).multiply(rows) for rows in blocks]
        back = np.argsort(order)
        return sparse.vstack(parts, format="csr")[back][:, back].astype(np.float64)

    def edges_between(self) -> sparse.csr_array:
        """Number of edges between clusters.

        Returns
        -------
        sparse matrix of shape (k, k)
            Edges within one cluster count twice.

        Examples
        --------
        >>> import unsplit
        >>> X, labels = unsplit.datasets.gaussians([[0, 0], [9, 0]], 20, random_state=0)
        >>> int(unsplit.neighbour_graph(X, labels).edges_between()[0, 1])
        0
        """
        return _summed(self, self.adjacency)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the graph with its features to an .npz file; an existing file is replaced.

        Parameters
        ----------
        path : str or path-like

        Examples
        --------
        >>> import tempfile, unsplit
        >>> X, labels = unsplit.datasets.gaussians([[0, 0], [9, 0]], 20, random_state=0)
        >>> graph, path = unsplit.neighbour_graph(X, labels), tempfile.mkdtemp() + "/graph.npz"
        >>> graph.save(path)
        >>> NeighbourGraph.load(path)
        NeighbourGraph: 343 edges between 40 observations in 2 dimensions, 2 clusters
        """
        found = vars(self) | {"edges": np.stack(sparse.triu(self.adjacency).nonzero())}
        save_arrays(path, FORMAT, {}, {n: found[n] for n in _GRAPH if found[n] is not None})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "NeighbourGraph":
        """Read a file that :meth:`save` wrote.

        A file that was changed, is damaged or holds impossible values is refused.

        Parameters
        ----------
        path : str or path-like

        Returns
        -------
        NeighbourGraph

        Examples
        --------
        >>> import tempfile, unsplit
        >>> X, labels = unsplit.datasets.gaussians([[0, 0], [9, 0]], 20, random_state=0)
        >>> path = tempfile.mkdtemp() + "/graph.npz"
        >>> unsplit.neighbour_graph(X, labels).save(path)
        >>> NeighbourGraph.load(path).n_clusters
        2
        """
        content, check = load_checked(path, FORMAT, _GRAPH, ("sampled_from", "groups"))
        (left, right), n = content.pop("edges"), len(content["rows"])
        known = (left < right).all() and right.max(initial=0) < max(n, 1)
        check.require(known, "edges must join two of its observations")
        adjacency = sparse.csr_array((np.ones(len(left)), (left, right)), (n, n))
        check.require(adjacency.max() <= 1 if n else True, "edges must all be different")
        known = content["clusters"].max(initial=-1) < content["n_clusters"]
        check.require(known, "clusters must be below n_clusters")
        # Numbered from 0 without gaps, so that none can be too large.
        content["batches"] = np.unique(content["batches"], return_inverse=True)[1]
        return cls(adjacency=(adjacency + adjacency.T).tocsr(), **content)


def membership(clusters: Index, k: int) -> sparse.csr_array:
    """1 if an observation is in a cluster, shape (n, k); −1 is no cluster."""
    inside = np.flatnonzero(clusters >= 0)
    return sparse.csr_array((np.ones(len(inside)), (inside, clusters[inside])), (len(clusters), k))


def _summed(graph: NeighbourGraph, edges: sparse.csr_array) -> sparse.csr_array:
    """Sums of values of edges, shape (n, n), between clusters, shape (k, k)."""
    # Not a transposed matrix as it is: SciPy would turn the whole graph around first.
    return graph.members.T.tocsr() @ edges @ graph.members


def renumbered(graph: NeighbourGraph, new_index: Index) -> NeighbourGraph:
    """The same graph, in which cluster c is called ``new_index[c]``."""
    return replace(graph, clusters=np.where(graph.clusters < 0, -1, new_index[graph.clusters]))


def graph_of_some(graph: NeighbourGraph, rows: Index) -> NeighbourGraph:
    """The graph between some of its observations."""
    return replace(
        graph,
        adjacency=graph.adjacency[rows][:, rows],
        inverse_dimension=graph.inverse_dimension[rows],
        clusters=graph.clusters[rows],
        batches=graph.batches[rows],
        features=graph.features[rows],
        rows=graph.rows[rows],
        groups=_at(graph.groups, rows),
    )


def _at(values: Index | None, rows: Index) -> Index | None:
    return None if values is None else values[rows]


def neighbour_graph(
    X: Any,
    labels: ArrayLike | EncodedLabels,
    *,
    batch: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    device: "str | torch.device" = "auto",
    everything: bool = False,
    n_neighbors: int = N_NEIGHBOURS,
    metric: str = EUCLIDEAN,
) -> NeighbourGraph:
    """Connect every observation to its nearest neighbours, for :func:`unsplit.merge`.

    More than 500,000 observations are sampled: 100,000 of them, or 20 of each cluster if that is
    more, but at most about five million.

    Parameters
    ----------
    X : array-like or SciPy sparse matrix of shape (n, d)
        Vectors, compared without scaling: scale them as for any clustering.
        Counts in a sparse matrix are normalised by their row sums, log-transformed and reduced to
        fifty components.
    labels : array-like of shape (n,)
        The over-clustering; −1 and missing values mean noise.
    batch : array-like of shape (n,), optional
        Only observations of the same batch are connected: with the share of the neighbours
        that is the batch's share of the observations, but with five at least.
    groups : array-like of shape (n,), optional
        Track, session, donor or document of each observation: its neighbours are in other groups,
        unless its cluster is a single group.
    device : str or torch.device
        Where to search if there are many observations.
    everything : bool
        Connect all observations, however many there are; :func:`unsplit.refine` needs them all.
    n_neighbors : int
        How many neighbours each observation is connected to, at least 3.  All limits by which
        clusters are merged were chosen with 15 neighbours and Euclidean distance.
    metric : {"euclidean", "cosine"}
        "cosine" divides every row by its length first; of counts, the rows of their components.

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
    from unsplit.data.rows.kinds import VectorRows, numeric_matrix

    check_flag("everything", everything)
    check_whole("n_neighbors", n_neighbors, 3)
    check_choice("metric", metric, METRICS)
    refuse_other_order(X, labels=labels, batch=batch, groups=groups)
    with memory_errors("finding neighbours", "use fewer features, such as principal components"):
        rows = X
        if not isinstance(X, VectorRows):
            rows = VectorRows(numeric_matrix(X), choose_device("cpu"))
        encoded = encode_labels(labels, len(rows))
        batches = None if batch is None else _batches(batch, encoded)
        separate = None
        if groups is not None:
            separate = separate_groups(encoded.clusters, _batches(groups, encoded, "groups"))
        order, n_used = _order_by_content(rows.keys, encoded.clusters, batches, separate), None
        if not everything:
            chosen, n_used = sample_of(encoded.clusters[order])
            order = order[chosen]
        found = connect(
            _features(rows, order, metric),
            encoded.clusters[order],
            _at(batches, order),
            choose_device(device),
            len(encoded.cluster_ids),
            _at(separate, order),
            n_neighbors,
        )
    return replace(found, rows=order[found.rows], sampled_from=n_used, metric=metric)


def _features(rows: Any, order: Index, metric: str) -> Matrix:
    """Those of some rows in which neighbours are found."""
    from unsplit.data.rows.base import gathered
    from unsplit.data.rows.kinds import COMPONENTS, components_of_counts

    _require_memory(len(order), COMPONENTS if rows.sparse else rows.n_features)
    values = gathered(rows.values, order)
    features: Matrix = components_of_counts(values) if rows.sparse else values
    return normalize(np.asarray(features, np.float64)) if metric == COSINE else features


def sample_of(clusters: Index) -> tuple[Index | slice, int | None]:
    """Choose the same share of every cluster if there are very many observations.

    Returns the chosen positions and the number they were chosen from, None if all are chosen.  The
    first of each cluster are chosen, so the order should depend on nothing but the observations.
    Noise (−1) is left out unless it is connected.
    """
    with_noise = _spreads(clusters)
    n = len(clusters) if with_noise else int((clusters >= 0).sum())
    if n <= MOST_CONNECTED:
        return slice(None), None
    sizes = np.bincount(clusters + 1)  # noise first
    k = len(sizes) - 1
    most = min(max(SAMPLED, SAMPLED_A_CLUSTER * k), MOST_SAMPLED)
    of_each = min(SAMPLED_A_CLUSTER, max(1, most // max(1, k)))
    share = np.ceil(sizes * min(1.0, most / n)).astype(np.int64)
    wanted = np.maximum(share, np.minimum(sizes, of_each))
    wanted[0] = share[0] if with_noise else 0
    order = np.argsort(clusters, kind="stable")
    rank = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    chosen = np.sort(order[rank < np.repeat(wanted, sizes)])
    return (slice(None), None) if len(chosen) == n else (chosen, n)


def _order_by_content(keys: NDArray[np.uint64], clusters: Index, *others: Index | None) -> Index:
    """The order of rows by content, so that their own order does not matter.

    Equal rows are equally near to any other row, and the first of them become its neighbours.  So
    they are ordered by cluster, batch and group, whatever these are called.
    """
    from unsplit.data.rows.base import canonical_order

    numbers = [canonical_order(keys, clusters, *others)[1]]
    for of in others:
        if of is not None:
            _, from_0 = np.unique(of, return_inverse=True)
            numbers.append(canonical_order(keys, from_0, clusters)[1])
    return np.lexsort((*numbers[::-1], keys))


def _require_memory(n: int, d: int) -> None:
    """Raise an error if the neighbours of n observations with d features would not fit."""
    available, each = available_memory(), BYTES_A_ROW + BYTES_A_FEATURE * d
    fewer = (available // n - BYTES_A_ROW) // BYTES_A_FEATURE
    number = f"{fewer:,} features" if fewer > 0 else f"{available // each:,} observations"
    advice = f"at most {number} would fit: use principal components, or a part of the data"
    what = f"finding the neighbours of {n:,} observations with {d:,} features"
    require_memory(n * each, available, what, advice)


def graph_of_scores(result: PairwiseTVD, n_neighbors: int = N_NEIGHBOURS) -> NeighbourGraph | None:
    """The neighbour graph of held-out observations by their cluster probabilities.

    For data that cannot be compared directly, such as images: neighbours are observations to which
    the networks give similar probabilities (Hellinger distance).  None if there are no held-out
    observations or the probabilities would need too much memory.
    """
    if not 0 < len(result.scores.rows) * result.n_clusters <= MOST_PROBABILITIES:
        return None
    # In an order that names do not change, so that sums are rounded alike.
    by_content = result.scores.clusters_by_content()
    scores = result.reordered(by_content).scores
    order = scores.by_content
    if scores.groups is not None:  # of equal observations
        order = np.lexsort((scores.groups, scores.features.sum(axis=1)))
    share = softmax(scores.dense()[order].astype(np.float64), axis=1)
    clusters = scores.clusters[order]
    groups = None if scores.groups is None else separate_groups(clusters, scores.groups[order])
    batches, k = _at(scores.batches, order), result.n_clusters
    found = connect(np.sqrt(share), clusters, batches, None, k, groups, n_neighbors)
    found = replace(found, rows=scores.rows[order][found.rows], source=SCORES)
    return renumbered(found, by_content)


def _batches(batch: ArrayLike, encoded: EncodedLabels, name: str = "batch") -> NDArray[np.int64]:
    """The batch or the group of every observation, noise included, numbered from 0."""
    encode_batches(batch, encoded, name)  # raises an error if they cannot be used
    named = label_array(batch, name).astype(str)
    return np.unique(named, return_inverse=True)[1].astype(np.int64)


def connect(
    features: Matrix,
    clusters: Index,
    batches: Index | None = None,
    device: "torch.device | None" = None,
    n_clusters: int | None = None,
    groups: Index | None = None,
    n_neighbors: int = N_NEIGHBOURS,
) -> NeighbourGraph:
    """Connect every observation to its nearest neighbours, fewer of them in the same batch.

    Clusters are numbered from 0; −1 is noise.  If at least half is noise, every observation counts
    for the cluster that random walks from it reach most often; otherwise noise is left out.  An
    observation with more than half of its neighbours in another cluster counts for that one.  No
    two observations of the same group are connected; −1 is no group.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> graph = connect(X, (X[:, 0] > 0).astype(np.int64))
    >>> graph.adjacency.shape, bool(graph.adjacency.sum() >= 100 * 15)
    ((100, 100), True)
    """
    features = np.asarray(features, np.float64)
    n_clusters = int(clusters.max()) + 1 if n_clusters is None else n_clusters
    spread = _spreads(clusters)
    used = np.flatnonzero(spread | (clusters >= 0))
    batches = np.zeros(len(clusters), np.int64) if batches is None else batches
    n = len(used)
    if n < len(clusters):
        features, clusters, batches = features[used], clusters[used], batches[used]
        groups = _at(groups, used)
    ends, inverse_dimension = [np.zeros((2, 0), np.int64)], np.zeros(n)
    for batch in np.unique(batches):
        rows = np.flatnonzero(batches == batch)
        if len(rows) < 2:
            continue
        share = round(n_neighbors * len(rows) / n)
        width = min(max(share, min(FEWEST_NEIGHBOURS, n_neighbors)), len(rows) - 1)
        of_batch = features if len(rows) == n else features[rows]
        apart = _at(groups, rows)
        found, distances = nearest(of_batch, width, device, apart)
        if (distances == 0).mean() > TIED:
            of_batch, features = dithered(of_batch), features.copy()
            features[rows] = of_batch
            found, distances = nearest(of_batch, width, device, apart)
        widths = _widths(clusters[rows], distances, apart)
        near = rows[found[np.arange(width) < widths[:, None]]]
        ends.append(np.stack([np.repeat(rows, widths), near]))
        inverse_dimension[rows] = _inverse_dimension(distances, widths)
    edges = np.concatenate(ends, axis=1)
    one_way = sparse.csr_array((np.ones(edges.shape[1]), tuple(edges)), (n, n))
    adjacency = one_way.maximum(one_way.T.tocsr())
    if spread:
        clusters = _spread(adjacency, clusters)
    clusters = _outvoted(adjacency, clusters, n_clusters)
    made = adjacency, inverse_dimension, clusters, batches, features, n_clusters, used
    return NeighbourGraph(*made, groups=groups, n_neighbors=n_neighbors)


def _widths(clusters: Index, distances: Matrix, groups: Index | None = None) -> Index:
    """Number of neighbours of each observation: fewer in a small cluster."""
    most = distances.shape[1]
    n_others = np.bincount(clusters + 1)[clusters + 1] - 1
    if groups is not None:
        _, part, sizes = np.unique(
            np.stack([clusters, groups]), axis=1, return_inverse=True, return_counts=True
        )
        n_others -= np.where(groups < 0, 0, sizes[part.ravel()] - 1)
    widths = np.clip(n_others, min(FEWEST_IN_SMALL, most), most)
    return np.minimum(np.where(clusters < 0, most, widths), np.isfinite(distances).sum(axis=1))


def dithered(X: Matrix) -> Matrix:
    """Spread equal numbers halfway to the next ones, as if they had not been rounded.

    Columns with as many different values as a continuous one, or fewer than
    :data:`FEWEST_VALUES`, stay as they are.

    Examples
    --------
    >>> counts = np.random.default_rng(0).poisson(3, size=(200, 1)).astype(float)
    >>> spread = dithered(counts)
    >>> len(np.unique(spread)), bool((spread.round() == counts).all())
    (200, True)
    """
    X, rng = X.copy(), np.random.default_rng(0)
    for column in X.T:
        values = np.unique(column)
        if FEWEST_VALUES <= len(values) <= len(column) // 2:
            step = float(np.median(np.diff(values)))
            column += rng.uniform(-step / 2, step / 2, len(column))
    return X


def _spreads(clusters: Index) -> bool:
    """Whether there is so much noise that it is connected as well."""
    return bool((clusters < 0).mean() >= 0.5)


def nearest(
    X: Matrix,
    n_neighbours: int,
    device: "torch.device | None" = None,
    groups: Index | None = None,
) -> tuple[Index, Matrix]:
    """The nearest neighbours of every observation, without itself, and their distances.

    Neighbours are in other groups; −1 is no group.  Neighbours that are missing, because there are
    too few in other groups, are at an infinite distance.

    Examples
    --------
    >>> rows, distances = nearest(np.array([[0.0], [1.0], [3.0]]), 1)
    >>> rows.ravel(), distances.ravel()
    (array([1, 0, 1]), array([1., 1., 2.]))
    """
    if X.shape[1] <= DIMENSIONS_FOR_TREES or len(X) <= MOST_FOR_EXACT:
        method = "kd_tree" if X.shape[1] <= DIMENSIONS_FOR_TREES else "brute"
        if method == "brute":  # from squared lengths, whose digits a common offset would use up
            X = X - X.mean(axis=0)
        model = NearestNeighbors(n_neighbors=n_neighbours, algorithm=method).fit(X)
        if groups is None:
            distances, rows = model.kneighbors()
        else:
            distances, rows = _in_other_groups(model, X, n_neighbours, groups)
        if method == "brute":  # equal rows may not be quite at 0
            distances[distances < ROUNDING * np.linalg.norm(X, axis=1, keepdims=True)] = 0.0
        return rows.astype(np.int64), distances
    from unsplit.merging.neighbours.search import by_regions

    if groups is None:
        return by_regions(X, n_neighbours, device)
    searched = min(TIMES_AS_MANY * n_neighbours, len(X) - 1)
    rows, distances = by_regions(X, searched, device)
    return _first_outside(rows, distances, np.arange(len(X)), n_neighbours, groups)


def _in_other_groups(
    model: NearestNeighbors, X: Matrix, n_neighbours: int, groups: Index
) -> tuple[Matrix, Index]:
    """Distances and rows as of the model, but of the nearest neighbours in other groups.

    More and more neighbours are searched for, until each observation has enough in other groups.
    """
    n = len(X)
    rows, distances = np.zeros((n, n_neighbours), np.int64), np.full((n, n_neighbours), np.inf)
    left, searched = np.arange(n), n_neighbours
    while len(left) and searched < n:
        searched = min(2 * searched, n)
        step = max(1, MOST_SEARCHED // searched)
        for some in np.split(left, range(step, len(left), step)):
            apart, near = model.kneighbors(X[some], searched)
            rows[some], distances[some] = _first_outside(near, apart, some, n_neighbours, groups)
        left = left[np.isinf(distances[left, -1])]
    return distances, rows


def _first_outside(
    rows: Index, distances: Matrix, of: Index, n_neighbours: int, groups: Index
) -> tuple[Index, Matrix]:
    """Of the rows near some observations, the first that are in other groups than these."""
    own = groups[of][:, None]
    inside = (rows == of[:, None]) | ((groups[rows] == own) & (own >= 0))
    first = np.argsort(inside, axis=1, kind="stable")[:, :n_neighbours]
    distances = np.where(inside, np.inf, distances)
    return np.take_along_axis(rows, first, axis=1), np.take_along_axis(distances, first, axis=1)


def _inverse_dimension(distances: Matrix, widths: Index) -> NDArray[np.float64]:
    """Levina and Bickel's (2004) estimate for each observation, from its first neighbours.

    Neighbours at distance 0 do not count; the result is 0 if fewer than three are left.
    """
    counts = (distances > 0) & (np.arange(distances.shape[1]) < widths[:, None])
    n_counted = counts.sum(axis=1)
    far = np.take_along_axis(distances, widths[:, None] - 1, axis=1)
    logs = np.log(np.divide(far, distances, out=np.ones_like(distances), where=counts))
    return np.where(n_counted >= 3, logs.sum(axis=1) / np.maximum(n_counted - 2, 1), 0.0)


def _spread(adjacency: sparse.csr_array, clusters: Index) -> Index:
    """The cluster that random walks from each observation reach most often; −1 for none."""
    step = sparse.diags_array(1 / np.maximum(adjacency.sum(axis=1), 1)).astype(np.float32)
    walk = (step @ adjacency.astype(np.float32)).tocsr()
    inside, k = np.flatnonzero(clusters >= 0), int(clusters.max()) + 1
    highest, reached = np.zeros(len(clusters), np.float32), np.full(len(clusters), -1)
    at_once = max(1, MOST_SHARES // len(clusters))
    for first in range(0, k, at_once):
        some = np.arange(first, min(first + at_once, k))
        start = (clusters[inside, None] == some).astype(np.float32)
        share = np.zeros((len(clusters), len(some)), np.float32)
        for _ in range(SPREADING_STEPS):
            share[inside] = start
            share = walk @ share
        share[inside] = start
        here = share.max(axis=1)
        reached = np.where(here > highest, first + share.argmax(axis=1), reached)
        highest = np.maximum(here, highest)
    return reached


def _outvoted(adjacency: sparse.csr_array, clusters: Index, n_clusters: int) -> Index:
    """The cluster of more than half of the neighbours, otherwise the observation's own.

    Clusters that would keep fewer than two observations keep all of them.
    """
    inside = np.flatnonzero(clusters >= 0)
    votes = (adjacency @ membership(clusters, n_clusters)).tocoo()
    rows, candidates = votes.coords
    won = (votes.data > 0.5 * votes.sum(axis=1)[rows]) & (clusters[rows] >= 0)
    voted = clusters.copy()
    voted[rows[won]] = candidates[won]
    while True:  # what one cluster gets back, another one loses
        n_left = np.bincount(voted[inside], minlength=n_clusters)
        lost = inside[(n_left[clusters[inside]] < 2) & (voted[inside] != clusters[inside])]
        if len(lost) == 0:
            return voted
        voted[lost] = clusters[lost]


class MergedRows:
    """For each cluster, its values with others; two become one when clusters are merged.

    Examples
    --------
    >>> rows = MergedRows(sparse.csr_array([[0, 0, 5.0], [0, 0, 1.0], [5.0, 1.0, 0]]), min)
    >>> rows.merge(0, 1)
    >>> rows.rows
    [{2: 1.0}, {}, {0: 1.0}]
    """

    def __init__(
        self,
        values: sparse.csr_array,
        combine: Callable[[float, float], float] = float.__add__,
    ) -> None:
        self.combine = combine
        others, data = values.indices.tolist(), values.data.tolist()
        parts = pairwise(values.indptr.tolist())
        self.rows = [dict(zip(others[i:j], data[i:j], strict=True)) for i, j in parts]
        for a, row in enumerate(self.rows):
            row.pop(a, None)

    def __getitem__(self, pair: tuple[Cluster, Cluster]) -> float:
        """The value of a pair; 0 if it has none."""
        return self.rows[pair[0]].get(pair[1], 0.0)

    def merge(self, a: Cluster, b: Cluster) -> None:
        """Merge cluster b into cluster a."""
        rows, combine = self.rows, self.combine
        mine, theirs = rows[a], rows[b]
        mine.pop(b, None)
        theirs.pop(a, None)
        for other, value in theirs.items():
            row = rows[other]
            del row[b]
            if other in mine:
                value = combine(mine[other], value)
            mine[other] = row[a] = value
        rows[b] = {}


class Connections:
    """Summed weights of the edges between clusters, which add up when clusters are merged.

    They rank pairs by their edges: the pair with the clearest connection comes first.
    """

    statistic = "edges"
    unlinked = UNLINKED

    def __init__(self, graph: NeighbourGraph) -> None:
        members, weights = graph.members, graph.weights
        self._store(_summed(graph, weights))
        batch = membership(graph.batches, int(graph.batches.max(initial=0)) + 1)
        degree = weights @ members.sum(axis=1)  # edges to observations in clusters
        self.degrees = (batch.T @ members.multiply(degree[:, None]).tocsr()).toarray()
        self.totals = np.maximum(self.degrees.sum(axis=1), 1.0)
        known = graph.inverse_dimension > 0
        self.inverse_dimensions = members.T @ graph.inverse_dimension
        self.n_known = members.T @ known.astype(float)
        self.sizes = members.sum(axis=0)
        self.usual_weight = float(weights.sum()) / max(weights.nnz, 1)
        self.is_low_dimensional = graph.is_low_dimensional

    def _store(self, edges: sparse.csr_array) -> None:
        self.edges: Any = edges.toarray()

    def weight(self, a: Cluster, b: Cluster) -> float:
        """Summed weight of the edges between two clusters."""
        return float(self.edges[a, b])

    def merge(self, a: Cluster, b: Cluster) -> Sequence[Cluster]:
        """Merge b into a and return the clusters whose distances have changed."""
        self._add_up(a, b)
        self.degrees[:, a] += self.degrees[:, b]
        self.degrees[:, b] = 0
        for sums in (self.inverse_dimensions, self.n_known, self.sizes):
            sums[a] += sums[b]
            sums[b] = 0
        return (a,)

    def row(self, a: Cluster) -> Matrix:
        """Distances between a and all clusters."""
        return self.distances(np.array([a]))[0]

    def _add_up(self, a: Cluster, b: Cluster) -> None:
        row = self.edges[a] + self.edges[b]
        row[a] += row[b]
        self.edges[a] = self.edges[:, a] = row
        self.edges[b] = self.edges[:, b] = 0

    def expected(self, rows: Index | slice) -> Matrix:
        """Expected edges in a random graph with the same degrees, summed over batches."""
        return (self.degrees[:, rows] / self.totals[:, None]).T @ self.degrees

    def distances(self, rows: Index | slice = slice(None)) -> Matrix:
        """Distances in [0, 1] from some clusters to all; 1/2 for as many edges as by chance.

        More edges than by chance bring the distance closer to 0, fewer closer to 0.9.  Pairs
        without an edge have larger distances.
        """
        found, chance = self.edges[rows], self.expected(rows)
        # First for pairs without an edge, which are the most.  The logarithm keeps trees readable.
        distances = 1 - (1 - UNLINKED) / (1 + np.log1p(chance))
        linked = found > 0
        distances[linked] = self.linked_distances(found[linked], chance[linked])
        return distances

    def linked_distances(self, found: Matrix, chance: Matrix) -> Matrix:
        """Distances of pairs with edges, given their weight and the weight expected by chance."""
        # In edges of usual weight, so that the distance of a pair does not depend on the density.
        found, chance = found / self.usual_weight, chance / self.usual_weight
        near = _share(found, chance) if self.is_low_dimensional else _doubt(found, chance)
        far = UNLINKED - (UNLINKED - 0.5) * near
        return np.where(found > chance, 0.5 * near, far)

    def times_chance(self, a: Cluster, b: Cluster) -> float:
        """Edges between two clusters divided by the edges expected by chance."""
        chance = float((self.degrees[:, a] / self.totals) @ self.degrees[:, b])
        return self.weight(a, b) / chance if chance > 0 else 0.0

    def usual_edges(self, a: Cluster, b: Cluster) -> float:
        """Number of edges of usual weight that weigh as much as those between two clusters."""
        return self.weight(a, b) / self.usual_weight if self.usual_weight > 0 else 0.0

    def dimension(self, a: Cluster, b: Cluster) -> float:
        """Local dimension of the data in two clusters."""
        inverse = float(self.inverse_dimensions[[a, b]].sum())
        return float(self.n_known[[a, b]].sum()) / inverse if inverse > 0 else 1.0


def _share(found: Matrix, chance: Matrix) -> Matrix:
    """The smaller of two numbers of edges over the larger, with a few added to both."""
    smaller, larger = np.minimum(found, chance), np.maximum(found, chance)
    return (smaller + A_FEW_EDGES) / (larger + A_FEW_EDGES)


def _doubt(found: Matrix, chance: Matrix) -> Matrix:
    """Close to 0 if the likelihood ratio shows more or fewer edges than by chance."""
    gain = np.maximum(found * np.log(found / chance) - (found - chance), 0.0)
    return 1 / (1 + np.log1p(gain))
