"""Which of your clusters are really the same?

One neural network estimates the total variation distance between all pairs of clusters at once.

``import unsplit`` loads nothing else: each name below is imported when it is first used, so that
reading and plotting saved results does not wait for torch.
"""

from importlib import import_module

TYPE_CHECKING = False  # typing takes a while to load, in which Ctrl-C would be a traceback
if TYPE_CHECKING:  # the table below, for type checkers
    from unsplit import anndata as anndata
    from unsplit import datasets as datasets
    from unsplit import errors as errors
    from unsplit import metrics as metrics
    from unsplit import overclustering as overclustering
    from unsplit import plots as plots
    from unsplit.data.readers.api import read as read
    from unsplit.errors import InputError as InputError
    from unsplit.estimator import ClusterMerger as ClusterMerger
    from unsplit.merging.api import merge as merge
    from unsplit.merging.neighbours.graph import neighbour_graph as neighbour_graph
    from unsplit.merging.neighbours.refine import refine as refine
    from unsplit.merging.tree import MergeTree as MergeTree
    from unsplit.networks.features import features as features
    from unsplit.networks.training.loop import TrainConfig as TrainConfig
    from unsplit.original import paper as paper
    from unsplit.pairwise.api import pairwise_tvd as pairwise_tvd
    from unsplit.pairwise.lipschitz_maps import pairwise_wasserstein as pairwise_wasserstein
    from unsplit.pairwise.result import PairwiseTVD as PairwiseTVD
    from unsplit.selection import select as select

__version__ = "0.1.0"

# Where each public name is defined; a module is a name of its own.
_MODULES = ("anndata", "datasets", "errors", "metrics", "overclustering", "plots")
_DEFINED_IN = {
    **dict.fromkeys(_MODULES, "unsplit"),
    "ClusterMerger": "unsplit.estimator",
    "InputError": "unsplit.errors",
    "MergeTree": "unsplit.merging.tree",
    "PairwiseTVD": "unsplit.pairwise.result",
    "TrainConfig": "unsplit.networks.training.loop",
    "features": "unsplit.networks.features",
    "merge": "unsplit.merging.api",
    "neighbour_graph": "unsplit.merging.neighbours.graph",
    "pairwise_tvd": "unsplit.pairwise.api",
    "pairwise_wasserstein": "unsplit.pairwise.lipschitz_maps",
    "paper": "unsplit.original",
    "read": "unsplit.data.readers.api",
    "refine": "unsplit.merging.neighbours.refine",
    "select": "unsplit.selection",
}
__all__ = sorted(_DEFINED_IN)


def __getattr__(name: str) -> object:
    """Import a public name when it is first used (PEP 562)."""
    if name not in _DEFINED_IN:
        import_module("unsplit.old_names").refuse_name(name)
        raise AttributeError(f"module 'unsplit' has no attribute {name!r}")
    module = _DEFINED_IN[name]
    if module == "unsplit":
        return import_module(f"unsplit.{name}")
    globals()[name] = getattr(import_module(module), name)  # found directly from now on
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
