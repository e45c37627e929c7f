"""What people use today to compare and merge clusters, for honest comparison."""

from benchmarks.baselines.confusion import ConfusionMerges, confusion_merging
from benchmarks.baselines.distances import centroid, energy, euclidean

__all__ = ["ConfusionMerges", "centroid", "confusion_merging", "energy", "euclidean"]
