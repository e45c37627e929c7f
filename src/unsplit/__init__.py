"""Which of your clusters are really the same?

One neural network estimates the total variation distance between all pairs of clusters at once.
"""

from unsplit import datasets, metrics
from unsplit.errors import InputError, SmallClusterWarning
from unsplit.estimation import pairwise_tvd
from unsplit.result import PairwiseTVD
from unsplit.training import EpochRecord, History, TrainConfig

__version__ = "0.1.0"

__all__ = [
    "EpochRecord",
    "History",
    "InputError",
    "PairwiseTVD",
    "SmallClusterWarning",
    "TrainConfig",
    "datasets",
    "metrics",
    "pairwise_tvd",
]
