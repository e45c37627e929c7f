"""From distances to a merge tree."""

from unsplit.merging.choices import LINKAGES, STRATEGIES
from unsplit.merging.features import neighbour_graph
from unsplit.merging.front import merge
from unsplit.merging.neighbours import NeighbourGraph
from unsplit.merging.steps import Merge
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
