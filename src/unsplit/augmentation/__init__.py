"""Random changes while training, one file for each kind of data."""

from unsplit.augmentation.images import ImageAugmentation
from unsplit.augmentation.points import PointAugmentation
from unsplit.augmentation.sequences import SequenceAugmentation, for_sequences

__all__ = ["ImageAugmentation", "PointAugmentation", "SequenceAugmentation", "for_sequences"]
