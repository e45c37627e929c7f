"""Merging as a scikit-learn clusterer: wiring only."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import _num_samples, check_is_fitted, validate_data
from torch.utils.data import Dataset

from unsplit._typing import Index
from unsplit.data.readers.sound import Audio
from unsplit.data.rows.base import Rows
from unsplit.data.rows.kinds import differ_in_length
from unsplit.data.rows.ragged import Ragged
from unsplit.errors import InputError
from unsplit.merging.inputs import Link
from unsplit.networks.registry import Augment, Backbone
from unsplit.networks.training.loop import TrainConfig
from unsplit.overclustering import default_clusterer, overcluster
from unsplit.pairwise.api import Settings
from unsplit.pairwise.heldout_scores import Progress
from unsplit.pipeline import MergeOptions, merge_overclustering
from unsplit.randomness import generator_of


class ClusterMerger(ClusterMixin, BaseEstimator):
    """Merge the clusters of an over-clustering that a classifier cannot tell apart.

    Parameters
    ----------
    n_clusters, max_tvd, alpha : optional
        When to stop; at most one, none means *auto*.  See :func:`unsplit.merge`.
    strategy : {"linkage", "compose", "retrain", "spectral"}
        How to merge.
    statistic, linkage : str
        What ranks pairs, and the distance between merged clusters.  See :func:`unsplit.merge`.
    must_link, cannot_link : sequences of pairs of cluster names
    min_clusters, max_clusters : int, optional
    overclusterer : scikit-learn clusterer, optional
        Makes the over-clustering when ``fit`` gets none; by default k-means into √n clusters.
    backbone, augment, training, cv, holdout, loss, epochs, device
        How distances are estimated.  See :func:`unsplit.pairwise_tvd`.
    random_state : int, Generator, RandomState or None
    progress : bool or callable

    Attributes
    ----------
    labels_ : ndarray of shape (n,)
        New cluster of every observation, from 0; −1 is noise and stays noise.
    initial_labels_ : ndarray of shape (n,)
        The over-clustering.
    n_clusters_ : int
    tree_ : MergeTree
        Every merge, why, and where it stopped.
    review_ : dict of columns
        Pairs merged and kept apart, those a person should look at first.
    linkage_ : ndarray of shape (k − 1, 4)
        The tree as SciPy knows it.
    pairwise_ : PairwiseTVD
        Distances between the initial clusters, with everything known about them.
    tvd_ : ndarray of shape (k, k)
    history_ : History
    n_iter_ : int
        Epochs of training.

    Examples
    --------
    >>> import unsplit
    >>> X, labels = unsplit.datasets.gaussians([[0, 0], [0, 0], [9, 0]], 100, random_state=0)
    >>> merger = unsplit.ClusterMerger(random_state=0).fit(X, initial_labels=labels)
    >>> merger.n_clusters_
    2
    >>> merger.predict([[0, 0], [9, 0]])
    array([0, 1])
    """

    def __init__(
        self,
        n_clusters: int | None = None,
        *,
        max_tvd: float | None = None,
        alpha: float | None = None,
        strategy: str = "linkage",
        statistic: str = "auto",
        linkage: str = "average",
        must_link: Sequence[Link] = (),
        cannot_link: Sequence[Link] = (),
        min_clusters: int | None = None,
        max_clusters: int | None = None,
        overclusterer: Any = None,
        backbone: Backbone = "auto",
        augment: Augment = "auto",
        training: TrainConfig | None = None,
        cv: int = 5,
        holdout: float | None = None,
        loss: str | None = None,
        epochs: int = TrainConfig.epochs,
        device: str | torch.device = "auto",
        random_state: Any = None,
        progress: bool | Progress = False,
    ) -> None:
        self.n_clusters = n_clusters
        self.max_tvd = max_tvd
        self.alpha = alpha
        self.strategy = strategy
        self.statistic = statistic
        self.linkage = linkage
        self.must_link = must_link
        self.cannot_link = cannot_link
        self.min_clusters = min_clusters
        self.max_clusters = max_clusters
        self.overclusterer = overclusterer
        self.backbone = backbone
        self.augment = augment
        self.training = training
        self.cv = cv
        self.holdout = holdout
        self.loss = loss
        self.epochs = epochs
        self.device = device
        self.random_state = random_state
        self.progress = progress

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        initial_labels: ArrayLike | None = None,
        batch: ArrayLike | None = None,
        features: ArrayLike | None = None,
    ) -> Self:
        """Merge an over-clustering of X.

        Parameters
        ----------
        X : array-like, SciPy sparse matrix, list of sequences, or torch Dataset
            As for :func:`unsplit.pairwise_tvd`.
        y : ignored
            True categories, where a pipeline passes them on, must not be seen.
        initial_labels : array-like of shape (n,), optional
            The over-clustering: integers or strings; −1 and missing values mean noise.
        batch : array-like of shape (n,), optional
            Compare clusters within each of these batches, as :func:`unsplit.pairwise_tvd` does.
        features : array-like of shape (n, d), optional
            Vectors in which neighbours are looked for, such as an embedding of images; by default
            X, if X holds vectors or counts.  See :func:`unsplit.neighbour_graph`.
        """
        X = self._checked(X, reset=True)
        merge_options = MergeOptions(
            **{name: getattr(self, name) for name in MergeOptions.__dataclass_fields__}
        )
        settings = Settings(
            self.backbone,
            self.cv,
            self.holdout,
            self.loss,
            epochs=self.epochs,
            device=self.device,
            augment=self.augment,
            training=self.training,
        )
        rng = generator_of(self.random_state)
        if initial_labels is None:
            if not _is_table(X):
                raise InputError(
                    "initial_labels is missing, and only vectors can be clustered here; pass the "
                    "over-clustering of your data."
                )
            # Twice as many as are asked for, or there would be nothing to merge.
            default = default_clusterer(_num_samples(X), at_least=2 * (self.n_clusters or 1))
            initial_labels = overcluster(X, self.overclusterer or default, rng)
        merged = merge_overclustering(
            X,
            initial_labels,
            merge_options,
            settings,
            rng,
            self.progress,
            batch=batch,
            features=features,
        )
        self.initial_labels_ = np.asarray(initial_labels)
        self.pairwise_ = merged.fitted.result
        self.tvd_ = self.pairwise_.tvd
        self.history_ = self.pairwise_.history
        self.n_iter_ = len(self.history_.epoch)
        self.tree_ = merged.tree
        self.review_ = self.tree_.review()
        self.linkage_ = self.tree_.linkage
        self.n_clusters_ = self.tree_.n_clusters
        self.labels_ = self.tree_.labels(self.initial_labels_)
        self._scorer = merged.fitted.scorer
        return self

    def fit_predict(
        self,
        X: Any,
        y: Any = None,
        *,
        initial_labels: ArrayLike | None = None,
        batch: ArrayLike | None = None,
        features: ArrayLike | None = None,
    ) -> Index:
        """Merge an over-clustering of X and return ``labels_``."""
        merger = self.fit(X, initial_labels=initial_labels, batch=batch, features=features)
        return merger.labels_

    def predict(self, X: Any) -> Index:
        """Cluster of new observations: the one they most probably come from.

        A cluster's probability is the sum of those of its initial clusters, weighted by size.
        On the observations of ``fit`` this may differ from ``labels_``, which follow the
        over-clustering.
        """
        check_is_fitted(self)
        X = self._checked(X, reset=False)
        sizes = self.pairwise_.sizes
        log_weight = self._scorer.log_posterior(X) + np.log(sizes / sizes.sum())
        groups = self.tree_.groups
        weight = [
            np.logaddexp.reduce(log_weight[:, groups == g], axis=1) for g in range(max(groups) + 1)
        ]
        return np.argmax(weight, axis=0)

    def _checked(self, X: Any, reset: bool) -> Any:
        """A table as scikit-learn wants it checked; anything else is checked when it is used."""
        if not _is_table(X):
            return X
        return validate_data(
            self, X, accept_sparse=True, reset=reset, ensure_min_samples=2 if reset else 1
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _is_table(X: Any) -> bool:
    """Whether X is what scikit-learn knows: not a Dataset, not sound, not of three or more axes."""
    if isinstance(X, (Dataset, Rows, Ragged, Audio)):
        return False
    if isinstance(X, (list, tuple)):
        return not differ_in_length(X)
    return len(getattr(X, "shape", (0, 0))) <= 2
