"""What people use today to compare and merge clusters, for honest comparison."""

from unsplit.baselines.confusion import ConfusionMerges, confusion_merging
from unsplit.baselines.distances import centroid, energy, euclidean

__all__ = ["ConfusionMerges", "centroid", "confusion_merging", "energy", "euclidean"]
