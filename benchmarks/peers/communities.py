"""Leiden's communities in the graph of nearest neighbours."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.neighbors import kneighbors_graph

NEIGHBOURS = 15


def connected(X: NDArray[np.float64]) -> Any:
    """An igraph graph: an edge wherever one of the two is a nearest neighbour of the other."""
    igraph, _ = _packages()
    near = kneighbors_graph(X, NEIGHBOURS)
    upper = sparse.triu(near + near.T, format="csr")
    upper.sort_indices()
    return igraph.Graph(len(X), np.column_stack(upper.nonzero()).tolist())


def communities(graph: Any, resolution: float, seed: int) -> NDArray[np.int64]:
    """Community of every observation; the higher the resolution, the more there are."""
    _, leidenalg = _packages()
    found = leidenalg.find_partition(
        graph,
        leidenalg.RBConfigurationVertexPartition,
        resolution_parameter=resolution,
        seed=seed,
    )
    return np.asarray(found.membership, np.int64)


def _packages() -> tuple[Any, Any]:
    try:
        import igraph
        import leidenalg
    except ImportError:
        raise ImportError("Leiden needs igraph and leidenalg: pip install unsplit[peers]") from None
    return igraph, leidenalg
