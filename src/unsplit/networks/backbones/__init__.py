"""Networks that turn observations into features, one file for each kind of data."""

from unsplit.networks.backbones.counts import BagOfWords, CountScaling
from unsplit.networks.backbones.images import ConvNet, ResNet18, Shrink
from unsplit.networks.backbones.points import PointNet, PointNet2, SingleLayer
from unsplit.networks.backbones.sequences import AudioNet, LogMel, ResNet1d
from unsplit.networks.network import MLP

__all__ = [
    "MLP",
    "AudioNet",
    "BagOfWords",
    "ConvNet",
    "CountScaling",
    "LogMel",
    "PointNet",
    "PointNet2",
    "ResNet1d",
    "ResNet18",
    "Shrink",
    "SingleLayer",
]
