"""What was once called otherwise, and what to write now."""

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
    "Merge": "unsplit.merging.review",
    "NeighbourGraph": "unsplit.merging.neighbours.graph",
    "PairwiseWasserstein": "unsplit.pairwise.wasserstein",
    "Reporter": _OF_TRAINING,
    "Selection": "unsplit.selection",
    "StepRecord": _OF_TRAINING,
    "verify_folder": "unsplit.data.saving",
}


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
