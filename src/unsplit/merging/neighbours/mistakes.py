"""Labels from elsewhere that are mistaken, found by the neighbours and the network together.

Where clusters were not cut out of the features, the features may show the groups less clearly than
the labels do: an observation at a border often has neighbours of the other group, and its label is
right all the same.  So what a label says counts as well, and by as much as labels can be trusted.
"""

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unsplit._typing import Index
from unsplit.merging import limits
from unsplit.merging.neighbours.graph import NeighbourGraph
from unsplit.pairwise.result import PairwiseTVD

# A smaller share of mistakes is not told from groups that overlap a little: of true groups split at
# random up to 4 % were counted, and 9 % or more if a fifth of the labels was drawn anew.
FEWEST_MISTAKES = 0.05

# Probabilities kept at a time, of eight bytes each.
MOST_PROBABILITIES = 2**24


def corrected(graph: NeighbourGraph, distances: PairwiseTVD, clusters: Index, k: int) -> Index:
    """Clusters of the observations of a graph, after those with a mistaken label have moved.

    Neighbours and network, neither of which has seen an observation's own label, must prefer the
    same other cluster.  Of the half that the network is surest about, the share that contradicts
    its label is taken for the share of mistakes.  An observation moves if a mistake is then more
    probable than that it lies where its own cluster is rare.

    Parameters
    ----------
    graph : NeighbourGraph
    distances : PairwiseTVD
        With held-out scores; an observation without them stays, and so does a cluster of a few.
    clusters : ndarray of shape (n,)
        Merged cluster of each observation of the graph; −1 for noise, which stays.
    k : int
        Number of merged clusters.

    Returns
    -------
    ndarray of shape (n,)
    """
    place = np.full(int(max(graph.rows.max(), distances.scores.rows.max(initial=0))) + 1, -1)
    place[distances.scores.rows] = np.arange(len(distances.scores.rows))
    # What the network has learned from a few observations overrules nothing.
    few = np.bincount(clusters[clusters >= 0], minlength=k) < limits.FEWEST_TO_OVERRULE
    known = np.flatnonzero((place[graph.rows] >= 0) & (clusters >= 0) & ~few[clusters])
    if k < 2 or len(known) == 0:
        return clusters
    own, index = clusters[known], place[graph.rows[known]]
    best, of_best, of_own = _preferred(distances, index, own, k)
    agreed = best == _of_most_neighbours(graph, clusters, k)[known]
    if not agreed.any():
        return clusters
    surest = agreed & (of_best >= np.median(of_best[agreed]))
    mistakes = float(np.mean(best[surest] != own[surest]))
    if not FEWEST_MISTAKES < mistakes < (k - 1) / k:
        return clusters
    # Mistaken labels are in what the network has learned: it gives every cluster a little.
    each = mistakes / (k - 1)
    of_best, of_own = of_best - each, np.maximum(of_own - each, 0.0)
    moves = agreed & (best != own) & ~few[best] & (of_best * mistakes > of_own * (1 - mistakes))
    after = clusters.copy()
    after[known[moves]] = best[moves]
    return np.where(np.isin(clusters, after), after, clusters)  # no cluster is lost


def _of_most_neighbours(graph: NeighbourGraph, clusters: Index, k: int) -> Index:
    """The cluster that most neighbours of each observation are in, the first of several."""
    inside = np.flatnonzero(clusters >= 0)
    members = (np.ones(len(inside)), (inside, clusters[inside]))
    votes = graph.adjacency @ sparse.csr_array(members, (len(clusters), k))
    return np.asarray(votes.argmax(axis=1)).ravel()


def _preferred(
    distances: PairwiseTVD, index: Index, own: Index, k: int
) -> tuple[Index, NDArray[np.float64], NDArray[np.float64]]:
    """The merged cluster the network prefers, its probability, and that of the own cluster."""
    scores = distances.scores
    shared = np.zeros((distances.n_clusters, k), np.int64)
    np.add.at(shared, (scores.clusters[index], own), 1)
    merged = np.where(shared.any(axis=1), shared.argmax(axis=1), -1)
    members = [np.flatnonzero(merged == cluster) for cluster in range(k)]
    counts = scores.subcluster_sizes(distances.sizes)
    sizes = np.stack([counts[:, some].sum(axis=1) for some in members], axis=1)
    best, of_best, of_own = np.zeros_like(own), np.zeros(len(own)), np.zeros(len(own))
    for some in np.array_split(np.arange(len(own)), -(-len(own) * k // MOST_PROBABILITIES)):
        z = np.full((len(some), k), -np.inf)
        for cluster, inside in enumerate(members):
            if len(inside):
                z[:, cluster] = scores.composed(index[some], inside.tolist(), distances.sizes)
        with np.errstate(divide="ignore"):  # some clusters do not occur in every batch
            z += np.log(sizes)[scores.strata[index[some]] % len(sizes)]
        share = np.exp(z - z.max(axis=1, keepdims=True))
        share /= share.sum(axis=1, keepdims=True)
        best[some], of_best[some] = share.argmax(axis=1), share.max(axis=1)
        of_own[some] = share[np.arange(len(some)), own[some]]
    return best, of_best, of_own
