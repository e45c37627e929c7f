"""Errors and warnings of Unsplit."""


class InputError(ValueError):
    """The input cannot be used; the message says what is wrong and what to do."""


class SmallClusterWarning(UserWarning):
    """Some clusters are too small to hold any observation out; they are marked in the result."""


class BatchWarning(UserWarning):
    """Some pairs of clusters share no batch, so they cannot be compared."""


class PartitionWarning(UserWarning):
    """Every pair of clusters is separable by construction; distances say little about merging."""


class SkippedWarning(UserWarning):
    """Some of the files or columns are not used; the message names them."""


class FeatureWarning(UserWarning):
    """A column that is used as a feature may not be a measurement."""
