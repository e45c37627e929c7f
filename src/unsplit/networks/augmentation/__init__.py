"""Random changes to observations in training, one file for each kind of data."""

from unsplit.networks.augmentation.images import ImageAugmentation
from unsplit.networks.augmentation.points import PointAugmentation
from unsplit.networks.augmentation.sequences import SequenceAugmentation, for_sequences

__all__ = ["ImageAugmentation", "PointAugmentation", "SequenceAugmentation", "for_sequences"]
