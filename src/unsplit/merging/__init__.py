"""From distances to a merge tree."""

from unsplit.merging.front import LINKAGES, STRATEGIES, merge
from unsplit.merging.tree import Merge, MergeTree

__all__ = ["LINKAGES", "STRATEGIES", "Merge", "MergeTree", "merge"]
