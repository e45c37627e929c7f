"""Which of your clusters are really the same?

One neural network estimates the total variation distance between all pairs of clusters at once.
"""

from unsplit import datasets, metrics, overclustering
from unsplit.data.readers.api import read
from unsplit.errors import (
    BatchWarning,
    InputError,
    PartitionWarning,
    SkippedWarning,
    SmallClusterWarning,
)
from unsplit.estimator import ClusterMerger
from unsplit.merging import Merge, MergeTree, NeighbourGraph, merge, neighbour_graph
from unsplit.networks.training.loop import EpochRecord, History, TrainConfig
from unsplit.pairwise.api import pairwise_tvd
from unsplit.pairwise.result import PairwiseTVD
from unsplit.pairwise.wasserstein.api import pairwise_wasserstein
from unsplit.pairwise.wasserstein.result import PairwiseWasserstein
from unsplit.selection import Candidate, Selection, select

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
