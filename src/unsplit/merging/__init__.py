"""Merges clusters by their distances and records every merge in a tree."""

from unsplit.merging.api import merge
from unsplit.merging.neighbours.api import neighbour_graph
from unsplit.merging.neighbours.graph import NeighbourGraph
from unsplit.merging.options import LINKAGES, STATISTICS, STRATEGIES
from unsplit.merging.review import Merge
from unsplit.merging.tree import MergeTree

__all__ = [
    "LINKAGES",
    "STATISTICS",
    "STRATEGIES",
    "Merge",
    "MergeTree",
    "NeighbourGraph",
    "merge",
    "neighbour_graph",
]
