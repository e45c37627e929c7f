"""Which of your clusters are really the same?

One neural network estimates the total variation distance between all pairs of clusters at once.

``import unsplit`` loads nothing else: each name below is imported when it is first used, so that
reading and plotting saved results does not wait for torch.
"""

from importlib import import_module

TYPE_CHECKING = False  # typing takes a while to load, in which Ctrl-C would be a traceback
if TYPE_CHECKING:
    from unsplit import anndata, datasets, metrics, overclustering, plots
    from unsplit.data.readers.api import read
    from unsplit.data.saving import verify_folder
    from unsplit.errors import (
        BatchWarning,
        ConfusionWarning,
        DependenceWarning,
        FeatureWarning,
        InputError,
        KeptWarning,
        LabelsWarning,
        OutOfMemoryWarning,
        PartitionWarning,
        SkippedWarning,
        SmallClusterWarning,
    )
    from unsplit.estimator import ClusterMerger
    from unsplit.merging.api import merge
    from unsplit.merging.neighbours.graph import NeighbourGraph, neighbour_graph
    from unsplit.merging.neighbours.refine import refine
    from unsplit.merging.review import Merge
    from unsplit.merging.tree import MergeTree
    from unsplit.networks.features import features
    from unsplit.networks.training.loop import TrainConfig
    from unsplit.networks.training.progress import EpochRecord, History, Reporter, StepRecord
    from unsplit.original import paper
    from unsplit.pairwise.api import pairwise_tvd
    from unsplit.pairwise.result import PairwiseTVD
    from unsplit.pairwise.sparse.result import SparsePairwiseTVD
    from unsplit.pairwise.wasserstein.api import pairwise_wasserstein
    from unsplit.pairwise.wasserstein.result import PairwiseWasserstein
    from unsplit.selection.api import Selection, select
    from unsplit.selection.candidates import Candidate

__version__ = "0.1.0"

__all__ = [
    "BatchWarning",
    "Candidate",
    "ClusterMerger",
    "ConfusionWarning",
    "DependenceWarning",
    "EpochRecord",
    "FeatureWarning",
    "History",
    "InputError",
    "KeptWarning",
    "LabelsWarning",
    "Merge",
    "MergeTree",
    "NeighbourGraph",
    "OutOfMemoryWarning",
    "PairwiseTVD",
    "PairwiseWasserstein",
    "PartitionWarning",
    "Reporter",
    "Selection",
    "SkippedWarning",
    "SmallClusterWarning",
    "SparsePairwiseTVD",
    "StepRecord",
    "TrainConfig",
    "anndata",
    "datasets",
    "features",
    "merge",
    "metrics",
    "neighbour_graph",
    "overclustering",
    "pairwise_tvd",
    "pairwise_wasserstein",
    "paper",
    "plots",
    "read",
    "refine",
    "select",
    "verify_folder",
]

# Where each public name is defined; the imports above say the same to type checkers.
_DEFINED_IN = {
    "BatchWarning": "unsplit.errors",
    "Candidate": "unsplit.selection.candidates",
    "ClusterMerger": "unsplit.estimator",
    "ConfusionWarning": "unsplit.errors",
    "DependenceWarning": "unsplit.errors",
    "EpochRecord": "unsplit.networks.training.progress",
    "FeatureWarning": "unsplit.errors",
    "History": "unsplit.networks.training.progress",
    "InputError": "unsplit.errors",
    "KeptWarning": "unsplit.errors",
    "LabelsWarning": "unsplit.errors",
    "Merge": "unsplit.merging.review",
    "MergeTree": "unsplit.merging.tree",
    "NeighbourGraph": "unsplit.merging.neighbours.graph",
    "OutOfMemoryWarning": "unsplit.errors",
    "PairwiseTVD": "unsplit.pairwise.result",
    "PairwiseWasserstein": "unsplit.pairwise.wasserstein.result",
    "PartitionWarning": "unsplit.errors",
    "Reporter": "unsplit.networks.training.progress",
    "Selection": "unsplit.selection.api",
    "SkippedWarning": "unsplit.errors",
    "SmallClusterWarning": "unsplit.errors",
    "SparsePairwiseTVD": "unsplit.pairwise.sparse.result",
    "StepRecord": "unsplit.networks.training.progress",
    "TrainConfig": "unsplit.networks.training.loop",
    "features": "unsplit.networks.features",
    "merge": "unsplit.merging.api",
    "neighbour_graph": "unsplit.merging.neighbours.graph",
    "pairwise_tvd": "unsplit.pairwise.api",
    "pairwise_wasserstein": "unsplit.pairwise.wasserstein.api",
    "paper": "unsplit.original",
    "read": "unsplit.data.readers.api",
    "refine": "unsplit.merging.neighbours.refine",
    "select": "unsplit.selection.api",
    "verify_folder": "unsplit.data.saving",
}
_MODULES = ("anndata", "datasets", "metrics", "overclustering", "plots")


def __getattr__(name: str) -> object:
    """Import a public name when it is first used (PEP 562)."""
    if name in _MODULES:
        return import_module(f"unsplit.{name}")
    if name not in _DEFINED_IN:
        raise AttributeError(f"module 'unsplit' has no attribute {name!r}")
    value = getattr(import_module(_DEFINED_IN[name]), name)
    globals()[name] = value  # found directly from now on
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
