"""DeepCluster: features learned without labels (Caron et al., 2018).

Images are clustered by the network's own features, and the network learns to tell these clusters
apart; then again with the better features.  As published: gradients of grey images go in, features
are reduced by PCA, whitened and scaled to unit length before k-means, empty clusters are split off
others, every pseudo-label is drawn equally often, and the classifier starts anew in every round.
Other than published: a ResNet-18, small images, and several passes over them in a round.
"""

import time
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import normalized_mutual_info_score
from torch import Tensor, nn
from torch.nn import functional as F

from experiments.imagenet_realistic.config import Plan
from experiments.imagenet_realistic.pseudo_labels import balanced, k_means, whitened
from unsplit.networks.augmentation import ImageAugmentation
from unsplit.networks.backbones import ConvNet, ResNet18

NETWORKS: dict[str, type[ResNet18 | ConvNet]] = {"resnet18": ResNet18, "convnet": ConvNet}

BATCH = 256
LEARNING_RATE = 0.05
WEIGHT_DECAY = 1e-5

# Of ImageNet's pixels, from 0 to 1.
MEAN, SCALE = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Learned(NamedTuple):
    """Features (n, components), and of every round the loss and how far pseudo-labels stayed.

    ``stability`` is the normalised mutual information with the round before; 0 for the first.
    """

    features: NDArray[np.float32]
    loss: list[float]
    stability: list[float]
    seconds: float


class Sobel(nn.Module):
    """Colour images (b, 3, H, W) to the gradients (b, 2, H, W) of their grey.

    Examples
    --------
    >>> x = torch.zeros(1, 3, 3, 3)
    >>> x[..., 2] = 1.0  # bright on the right
    >>> Sobel()(x)[0, :, 1, 1]
    tensor([-4.,  0.])
    """

    def __init__(self) -> None:
        super().__init__()
        across = torch.tensor([[1.0, 0.0, -1.0], [2.0, 0.0, -2.0], [1.0, 0.0, -1.0]])
        self.register_buffer("kernels", torch.stack([across, across.T])[:, None])

    def forward(self, x: Tensor) -> Tensor:
        """Gradients of x."""
        grey = x.mean(dim=1, keepdim=True)
        return F.conv2d(grey, self.get_buffer("kernels").to(grey), padding=1)


def learn(images: NDArray[np.uint8], plan: Plan, device: str, random_state: int) -> Learned:
    """Train on images (n, H, W, 3)."""
    start = time.monotonic()
    where = torch.device(device)
    with torch.random.fork_rng(devices=[where] if where.type == "cuda" else []):
        torch.manual_seed(random_state)
        learner = Learner(torch.from_numpy(images).to(where), plan)
        rounds = [learner.round() for _ in range(plan.rounds)]
        features = learner.whitened_features().cpu().numpy()
    loss, stability = (list(column) for column in zip(*rounds, strict=True))
    return Learned(features, loss, stability, time.monotonic() - start)


class Learner:
    """A network that makes its own labels; ``images`` are bytes (n, H, W, 3) on the device."""

    def __init__(self, images: Tensor, plan: Plan) -> None:
        self.images, self.plan = images, plan
        self.device = images.device
        self.augmentation = ImageAugmentation(crop=0.125, zoom=0.5, flip=True)
        backbone = NETWORKS[plan.network](2, min(images.shape[1:3]))
        self.width = backbone.out_features
        network = nn.Sequential(Sobel(), backbone)
        self.network = network.to(self.device)
        self.optimizer = _sgd(network, momentum=0.9)
        self.labels = torch.zeros(len(images), dtype=torch.long, device=self.device)

    def round(self) -> tuple[float, float]:
        """Cluster and learn; the mean loss, and how much of the old pseudo-labels is left."""
        old, points = self.labels, self.whitened_features()
        self.labels = k_means(points, min(self.plan.clusters, len(points)))
        head = nn.Linear(self.width, int(self.labels.max()) + 1).to(self.device)
        nn.init.normal_(head.weight, 0.0, 0.01)
        nn.init.zeros_(head.bias)
        loss = self._learn_labels(head)
        same = normalized_mutual_info_score(old.cpu().numpy(), self.labels.cpu().numpy())
        return loss, float(same)

    def _learn_labels(self, head: nn.Linear) -> float:
        self.network.train()
        optimizer = _sgd(head)
        draws = balanced(self.labels, self.plan.epochs * len(self.labels)).split(BATCH)
        # Batch normalisation cannot do with one image.
        draws = [some for some in draws if len(some) > 1]
        total = torch.zeros((), device=self.device)
        for some in draws:
            with self._mixed_precision():
                scores = head(self.network(self.augmentation(self._pixels(some))))
            loss = F.cross_entropy(scores.float(), self.labels[some])
            self.optimizer.zero_grad()
            optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            optimizer.step()
            total += loss.detach()
        return float(total) / len(draws)

    @torch.no_grad()
    def whitened_features(self) -> Tensor:
        """Of all images as they are: (n, components), of unit length."""
        self.network.eval()
        parts = []
        for some in torch.arange(len(self.images), device=self.device).split(2 * BATCH):
            with self._mixed_precision():
                parts.append(self.network(self._pixels(some)).float())
        return whitened(torch.cat(parts), self.plan.components)

    def _pixels(self, index: Tensor) -> Tensor:
        return standardized(self.images[index])

    def _mixed_precision(self) -> torch.autocast:
        on_gpu = self.device.type == "cuda"
        return torch.autocast(self.device.type, torch.bfloat16, enabled=on_gpu)


def standardized(images: Tensor) -> Tensor:
    """Bytes (b, H, W, 3) as (b, 3, H, W) on the scale that networks for ImageNet know."""
    mean, scale = (torch.tensor(values, device=images.device) for values in (MEAN, SCALE))
    return ((images / 255 - mean) / scale).movedim(-1, 1)


def _sgd(module: nn.Module, momentum: float = 0.0) -> torch.optim.Optimizer:
    return torch.optim.SGD(
        module.parameters(), lr=LEARNING_RATE, momentum=momentum, weight_decay=WEIGHT_DECAY
    )
