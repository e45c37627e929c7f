"""Distances from networks that are trained again after every merge, as in the paper."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from unsplit._typing import Index
from unsplit.data.labels import EncodedLabels
from unsplit.devices import current
from unsplit.networks.training.checkpoint import Checkpoint
from unsplit.pairwise.api import Settings, fit
from unsplit.pairwise.result import PairwiseTVD

# The file of a checkpoint for a training after a merge; the number of clusters is added.
RETRAINING = "retraining-"


@dataclass(frozen=True, eq=False)
class Retraining:
    """Train from scratch for every new set of clusters, as in the paper.

    The seed depends on the number of clusters left, so that an interrupted run can be resumed.

    Parameters
    ----------
    X : observations
    clusters : ndarray of shape (n,)
        Initial cluster of each observation; −1 is noise.
    settings : Settings
    seed : int
    batch, groups : array-like of shape (n,), optional
    checkpoint : Checkpoint, optional
        Keeps each training from time to time.
    """

    X: Any
    clusters: Index
    settings: Settings
    seed: int
    batch: ArrayLike | None = None
    checkpoint: Checkpoint | None = None
    groups: ArrayLike | None = None

    def __call__(self, groups: Index) -> PairwiseTVD:
        """The estimate for groups of the initial clusters, numbered from 0."""
        if current().rank == 0:
            current().share(groups)
        clusters = np.where(self.clusters < 0, -1, groups[self.clusters])
        labels = EncodedLabels(np.arange(int(groups.max()) + 1), clusters)
        rng = np.random.default_rng([self.seed, int(groups.max())])
        file = None
        if self.checkpoint is not None:
            file = self.checkpoint.training(f"{RETRAINING}{len(labels.cluster_ids)}")
        # What is left may share no batch: such clusters are only joined to complete the tree.
        given = self.X, labels, self.settings, rng, False, self.batch
        found = fit(*given, shared=False, checkpoint=file, groups=self.groups)
        assert isinstance(found.result, PairwiseTVD)
        return found.result
