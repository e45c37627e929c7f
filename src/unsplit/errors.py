"""What Unsplit says when something is wrong."""


class InputError(ValueError):
    """The input cannot be used; the message says what is wrong and what to do."""


class SmallClusterWarning(UserWarning):
    """Some clusters are too small to hold anything out; their pairs are flagged."""


class BatchWarning(UserWarning):
    """Some pairs of clusters have no batch in common; nothing is known about them."""


class PartitionWarning(UserWarning):
    """Every pair of clusters is separable by construction; distances say little about merging."""


class SkippedWarning(UserWarning):
    """Some of the files are not used; the message names them."""
