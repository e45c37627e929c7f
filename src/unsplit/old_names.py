"""What was once called otherwise, and what to write now."""

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import ParamSpec, TypeVar

from unsplit.errors import InputError

_OF_TRAINING = "unsplit.networks.training.progress"

# Names of ``unsplit`` that moved, and their modules.
MOVED = {
    **dict.fromkeys(
        (
            "BatchWarning",
            "ConfusionWarning",
            "DependenceWarning",
            "FeatureWarning",
            "KeptWarning",
            "LabelsWarning",
            "OutOfMemoryWarning",
            "PartitionWarning",
            "SkippedWarning",
            "SmallClusterWarning",
        ),
        "unsplit.errors",
    ),
    "Candidate": "unsplit.selection",
    "EpochRecord": _OF_TRAINING,
    "History": _OF_TRAINING,
    "Merge": "unsplit.merging.decision",
    "NeighbourGraph": "unsplit.merging.neighbours.graph",
    "PairwiseWasserstein": "unsplit.pairwise.wasserstein",
    "Reporter": _OF_TRAINING,
    "Selection": "unsplit.selection",
    "StepRecord": _OF_TRAINING,
    "verify_folder": "unsplit.data.saving",
}

_RANK_BY = 'write rank_by="tv", "edges" or another ranking; linkage is always average'
_CONSTRAINTS = 'write constraints={"must_link": [(3, 7)], "cannot_link": [(1, 2)]}'
_BOUNDS = "write n_clusters=(fewest, most), where one may be None"
_TRAINING = "write training=unsplit.TrainConfig({}=...)"
# Options in Python that are gone, and what to do now.
PYTHON_OPTIONS = {
    "strategy": _RANK_BY,
    "statistic": _RANK_BY,
    "linkage": _RANK_BY,
    "must_link": _CONSTRAINTS,
    "cannot_link": _CONSTRAINTS,
    "min_clusters": _BOUNDS,
    "max_clusters": _BOUNDS,
    "rule": "pass it to unsplit.merge, with distances of unsplit.pairwise_tvd",
    "holdout": "write cv=0.2 for a share to hold out",
    "layer": 'write use_rep="layers/NAME"',
    "use_raw": 'write use_rep="raw"',
    **{name: _TRAINING.format(name) for name in ("epochs", "loss", "augment")},
}

P = ParamSpec("P")
R = TypeVar("R")


def refuses_old_options(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function say what to write instead of options that it once had."""
    known = signature(function).parameters

    @wraps(function)
    def checked(*args: P.args, **options: P.kwargs) -> R:
        for name in options.keys() & PYTHON_OPTIONS.keys() - known.keys():
            raise InputError(f"{name} is gone; {PYTHON_OPTIONS[name]}.")
        return function(*args, **options)

    return checked


def refuse_name(name: str) -> None:
    """Raise an error that says where a former name of ``unsplit`` is now.

    It is an ImportError, because ``from unsplit import …`` would hide an AttributeError.
    """
    if name in MOVED:
        raise ImportError(f"unsplit.{name} has moved; write from {MOVED[name]} import {name}.")
    if name == "SparsePairwiseTVD":
        raise ImportError("unsplit.SparsePairwiseTVD is PairwiseTVD now; ask result.is_sparse.")


_NUMBER = "type --n-clusters 8-20, --n-clusters 8- or --n-clusters -20"
# Options of the command line that are gone, and what to do now.
OPTIONS = {
    "--cache": "set the variable TMPDIR to the folder for temporary files",
    "--checkpoint": "the checkpoint is always OUT.checkpoint, beside --out",
    "--figures": "type --also figures",
    "--h5ad": "type --also h5ad",
    "--keep-scores": "type --also scores",
    "--layer": "type --use-rep layers/NAME",
    "--linkage": "linkage is always average, so leave it out",
    "--matrix": "type --also matrix",
    "--max-clusters": _NUMBER,
    "--min-clusters": _NUMBER,
    "--no-augment": "in Python, pass training=unsplit.TrainConfig(augment=False)",
    "--select": "type --backbone select",
    "--statistic": "leave it out, or in Python pass rank_by to unsplit.ClusterMerger",
    "--strategy": "leave it out, or in Python pass rank_by to unsplit.ClusterMerger",
    "--use-raw": "type --use-rep raw",
}


def instead_of(option: str) -> str | None:
    """The sentence about an option of the command line that is gone; None about others.

    Examples
    --------
    >>> instead_of("--use-raw")
    '--use-raw is gone; type --use-rep raw.'
    """
    return f"{option} is gone; {OPTIONS[option]}." if option in OPTIONS else None
