"""Networks that turn observations into features, one file for each kind of data."""

from unsplit.backbones.counts import BagOfWords, CountScaling
from unsplit.backbones.images import ResNet18
from unsplit.backbones.points import PointNet2
from unsplit.backbones.scaling import Blur, Standardize, StandardizeSequences
from unsplit.backbones.sequences import ResNet1d
from unsplit.backbones.single_layer import SingleLayer
from unsplit.backbones.spectrogram import AudioNet, LogMel
from unsplit.backbones.vectors import MLP

__all__ = [
    "MLP",
    "AudioNet",
    "BagOfWords",
    "Blur",
    "CountScaling",
    "LogMel",
    "PointNet2",
    "ResNet1d",
    "ResNet18",
    "SingleLayer",
    "Standardize",
    "StandardizeSequences",
]
