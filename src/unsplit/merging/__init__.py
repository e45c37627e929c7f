"""From distances to a merge tree."""

from unsplit.merging.api import merge
from unsplit.merging.neighbours.api import neighbour_graph
from unsplit.merging.neighbours.graph import NeighbourGraph
from unsplit.merging.options import LINKAGES, STRATEGIES
from unsplit.merging.review import Merge
from unsplit.merging.tree import MergeTree

__all__ = [
    "LINKAGES",
    "STRATEGIES",
    "Merge",
    "MergeTree",
    "NeighbourGraph",
    "merge",
    "neighbour_graph",
]
