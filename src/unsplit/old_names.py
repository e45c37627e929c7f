"""Former names, and what to write now; asked only about a name that does not exist."""

from collections.abc import Iterable

from unsplit import errors

_OF_TRAINING = "unsplit.networks.training.progress"
# Names of ``unsplit`` that moved, and their modules.
MOVED = {
    **dict.fromkeys((name for name in errors.__all__ if name != "InputError"), "unsplit.errors"),
    **dict.fromkeys(("Candidate", "Selection"), "unsplit.selection"),
    **dict.fromkeys(("EpochRecord", "History", "Reporter", "StepRecord"), _OF_TRAINING),
    "Merge": "unsplit.merging.decision",
    "NeighbourGraph": "unsplit.merging.neighbours.graph",
    "PairwiseWasserstein": "unsplit.pairwise.wasserstein",
    "verify_folder": "unsplit.data.saving",
}

_RANKING = 'write rank_by="tv", "edges" or another ranking; linkage is always average'
_CONSTRAINTS = 'write constraints={"must_link": [(3, 7)], "cannot_link": [(1, 2)]}'
_BOUNDS = "write n_clusters=(fewest, most), where one may be None"
_LABELS = "write unsplit.ClusterMerger().fit(X, initial_labels=labels)"
_TRAINING = "write training=unsplit.TrainConfig({}=...)"
# What is not an option in Python, or no longer, and what to do.
PYTHON_OPTIONS = {
    **dict.fromkeys(("labels", "initial_labels"), _LABELS),
    **dict.fromkeys(("strategy", "statistic", "linkage"), _RANKING),
    **dict.fromkeys(("must_link", "cannot_link"), _CONSTRAINTS),
    **dict.fromkeys(("min_clusters", "max_clusters"), _BOUNDS),
    **{name: _TRAINING.format(name) for name in ("epochs", "loss", "augment")},
    "rule": "pass it to unsplit.merge, with distances of unsplit.pairwise_tvd",
    "holdout": "write cv=0.2 for a share to hold out",
    "layer": 'write use_rep="layers/NAME"',
    "use_raw": 'write use_rep="raw"',
}

_NUMBER = "type --n-clusters 8-20, --n-clusters 8- or --n-clusters -20"
_RANK_BY = "leave it out, or in Python pass rank_by to unsplit.ClusterMerger"
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
    "--statistic": _RANK_BY,
    "--strategy": _RANK_BY,
    "--use-raw": "type --use-rep raw",
}


def refuse_name(name: str) -> None:
    """Raise an error that says where a former name of ``unsplit`` is now.

    It is an ImportError, because ``from unsplit import …`` would hide an AttributeError.
    """
    if name in MOVED:
        raise ImportError(f"unsplit.{name} has moved; write from {MOVED[name]} import {name}.")


def refuse_options(names: Iterable[str]) -> None:
    """Raise an error if it is known what people mean by one of these options in Python."""
    for name in names:
        if name in PYTHON_OPTIONS:
            raise errors.InputError(f"{name} is no option here; {PYTHON_OPTIONS[name]}.")


def instead_of(option: str) -> str | None:
    """The sentence about an option of the command line that is gone; None about others.

    Examples
    --------
    >>> instead_of("--use-raw")
    '--use-raw is gone; type --use-rep raw.'
    """
    return f"{option} is gone; {OPTIONS[option]}." if option in OPTIONS else None
