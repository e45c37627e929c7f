"""Which of your clusters are really the same?

One neural network estimates the total variation distance between all pairs of clusters at once.
"""

from unsplit import baselines, datasets, metrics, overclustering
from unsplit.data.sources import read
from unsplit.errors import (
    BatchWarning,
    InputError,
    PartitionWarning,
    SkippedWarning,
    SmallClusterWarning,
)
from unsplit.estimation import pairwise_tvd
from unsplit.estimator import ClusterMerger
from unsplit.merging import Merge, MergeTree, NeighbourGraph, merge, neighbour_graph
from unsplit.result import PairwiseTVD
from unsplit.selection import Candidate, Selection, select
from unsplit.training import EpochRecord, History, TrainConfig
from unsplit.wasserstein import PairwiseWasserstein, pairwise_wasserstein

__version__ = "0.1.0"

__all__ = [
    "BatchWarning",
    "Candidate",
    "ClusterMerger",
    "EpochRecord",
    "History",
    "InputError",
    "Merge",
    "MergeTree",
    "NeighbourGraph",
    "PairwiseTVD",
    "PairwiseWasserstein",
    "PartitionWarning",
    "Selection",
    "SkippedWarning",
    "SmallClusterWarning",
    "TrainConfig",
    "baselines",
    "datasets",
    "merge",
    "metrics",
    "neighbour_graph",
    "overclustering",
    "pairwise_tvd",
    "pairwise_wasserstein",
    "read",
    "select",
]
