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
