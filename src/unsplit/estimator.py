"""Merging as a scikit-learn clusterer: wiring only."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.special import logsumexp, softmax
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import _num_samples, check_is_fitted, validate_data
from torch.utils.data import Dataset

from unsplit._typing import Index, Matrix
from unsplit.data.labels import encode_labels, label_array
from unsplit.data.rows.base import Rows, plain_array
from unsplit.data.rows.kinds import differ_in_length
from unsplit.data.rows.ragged import Ragged
from unsplit.data.rows.sequences import Audio
from unsplit.data.rows.vectors import numeric_matrix
from unsplit.devices import generator_of, memory_errors
from unsplit.errors import InputError
from unsplit.merging.inputs import Link
from unsplit.merging.rules import Rule
from unsplit.networks.registry import Augment, Backbone
from unsplit.networks.training.loop import MAX_EPOCHS, TrainConfig
from unsplit.overclustering import default_clusterer, overcluster
from unsplit.pairwise.api import LESS_DATA, Settings
from unsplit.pairwise.heldout_scores import Progress
from unsplit.pipeline import MergeOptions, merge_overclustering


class ClusterMerger(ClusterMixin, BaseEstimator):
    """Merge the clusters of an over-clustering that a classifier cannot tell apart.

    Parameters
    ----------
    n_clusters, max_tvd, alpha : optional
        When to stop merging; pass at most one.  Without any, the stopping point is found
        automatically.  See :func:`unsplit.merge`.
    strategy : {"linkage", "compose", "retrain", "spectral"}
        How to merge.  See :func:`unsplit.merge`.
    statistic, linkage : str
        The distance that ranks pairs of clusters, and the linkage.  See :func:`unsplit.merge`.
    must_link, cannot_link : sequences of pairs of cluster names
        Clusters that are known to belong together, or known to be different.
    constraints : path or mapping, optional
        Answers that the page of an earlier result exported.  See :func:`unsplit.merge`.
    min_clusters, max_clusters : int, optional
        Bounds on the number of clusters.
    rule : object with a method ``judge``, optional
        A stopping rule of your own.  See :func:`unsplit.merge`.
    overclusterer : scikit-learn clusterer, optional
        Makes the over-clustering when ``fit`` is given none; by default k-means with about √n
        clusters.  See :func:`unsplit.overclustering.default_clusterer`.
    backbone, augment, training, cv, holdout, loss, epochs, device
        How distances are estimated.  See :func:`unsplit.pairwise_tvd`.
    random_state : int, Generator, RandomState or None
        The same seed gives the same result.
    progress : bool or callable
        True shows a progress bar.  A callable receives an :class:`EpochRecord` after every epoch.

    Attributes
    ----------
    labels_ : ndarray of shape (n,)
        Merged cluster of every observation, from 0; noise keeps −1.
    initial_labels_ : ndarray of shape (n,)
        The over-clustering.
    n_clusters_ : int
        Number of merged clusters.
    tree_ : MergeTree
        Every merge with its reason, and why merging stopped.
    review_ : pandas.DataFrame
        Merged pairs and pairs kept apart, those to check first at the top.  The table is made when
        you ask for it; ``tree_.review_table()`` has the same columns and needs no pandas.
    linkage_ : ndarray of shape (k − 1, 4)
        The tree as a SciPy linkage matrix.
    pairwise_ : PairwiseTVD
        Distances between the initial clusters, with their uncertainty.
    tvd_ : ndarray of shape (k, k)
        Total variation distances between the initial clusters.
    history_ : History
        Loss and accuracy during training.
    n_iter_ : int
        Number of training epochs.

    Examples
    --------
    >>> import unsplit
    >>> X, labels = unsplit.datasets.gaussians([[0, 0], [0, 0], [9, 0]], 100, random_state=0)
    >>> merger = unsplit.ClusterMerger(random_state=0).fit(X, initial_labels=labels)
    >>> merger.n_clusters_
    2
    >>> merger.predict([[0, 0], [9, 0]])
    array([0, 1])
    >>> merger.review_[["left", "right", "done"]]
        left right        done
    0      0     1      merged
    1  0 + 1     2  kept apart
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
        constraints: str | os.PathLike[str] | Mapping[str, Any] | None = None,
        min_clusters: int | None = None,
        max_clusters: int | None = None,
        rule: Rule | None = None,
        overclusterer: Any = None,
        backbone: Backbone = "auto",
        augment: Augment = "auto",
        training: TrainConfig | None = None,
        cv: int = 5,
        holdout: float | None = None,
        loss: str | None = None,
        epochs: int = MAX_EPOCHS,
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
        self.constraints = constraints
        self.min_clusters = min_clusters
        self.max_clusters = max_clusters
        self.rule = rule
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
            Observations, as for :func:`unsplit.pairwise_tvd`.
        y : ignored
            A pipeline may pass true categories here; they are never used.
        initial_labels : array-like of shape (n,), optional
            The over-clustering: integers or strings; −1 and missing values mean noise.  Without
            it, ``overclusterer`` makes one.
        batch : array-like of shape (n,), optional
            Compare clusters within each of these batches, as :func:`unsplit.pairwise_tvd` does.
        features : array-like of shape (n, d), optional
            Vectors in which to look for neighbours, such as an embedding of images.  By default X,
            if X holds vectors or counts.  See :func:`unsplit.neighbour_graph`.

        Returns
        -------
        ClusterMerger
            The fitted estimator itself.

        Examples
        --------
        >>> import unsplit
        >>> X, labels = unsplit.datasets.gaussians([[0, 0], [0, 0], [9, 0]], 100, random_state=0)
        >>> unsplit.ClusterMerger(random_state=0).fit(X, initial_labels=labels).tree_.mapping
        {0: 0, 1: 0, 2: 1}
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
            n = self.n_clusters
            if n is not None and (not isinstance(n, (int, np.integer)) or n < 1):
                raise InputError(f"n_clusters must be a whole number of at least 1, got {n!r}.")
            if not _is_table(X):
                raise InputError(
                    "initial_labels is required because X is not a table of vectors, and only "
                    "vectors can be clustered automatically; pass the over-clustering of X."
                )
            # At least twice as many clusters as requested, so that there is something to merge.
            default = default_clusterer(_num_samples(X), at_least=2 * (self.n_clusters or 1))
            initial_labels = overcluster(X, self.overclusterer or default, rng)
        if self.constraints is not None:
            cluster_ids = encode_labels(initial_labels).cluster_ids
            merge_options = merge_options.with_answers(self.constraints, cluster_ids)
        with memory_errors("merging the clusters", LESS_DATA):
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
        self.initial_labels_ = label_array(initial_labels)
        self.pairwise_ = merged.fitted.result
        self.tvd_ = self.pairwise_.tvd
        self.history_ = self.pairwise_.history
        self.n_iter_ = len(self.history_.epoch)
        self.tree_ = merged.tree
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
        """Merge an over-clustering of X and return the merged labels.

        Parameters
        ----------
        X, y, initial_labels, batch, features
            As for :meth:`fit`.

        Returns
        -------
        ndarray of shape (n,)
            ``labels_``.

        Examples
        --------
        >>> import numpy as np
        >>> import unsplit
        >>> X, labels = unsplit.datasets.gaussians([[0, 0], [0, 0], [9, 0]], 100, random_state=0)
        >>> merged = unsplit.ClusterMerger(random_state=0).fit_predict(X, initial_labels=labels)
        >>> np.bincount(merged)
        array([200, 100])
        """
        merger = self.fit(X, initial_labels=initial_labels, batch=batch, features=features)
        return merger.labels_

    def predict(self, X: Any) -> Index:
        """Assign new observations to the merged clusters.

        Each observation gets its most probable cluster.  For the observations of ``fit`` this may
        differ from ``labels_``, which follow the over-clustering.

        Parameters
        ----------
        X : same kind of data as in :meth:`fit`
            New observations.

        Returns
        -------
        ndarray of shape (n,)
            Clusters from 0 to ``n_clusters_`` − 1; no observation is called noise.

        Examples
        --------
        >>> import unsplit
        >>> X, labels = unsplit.datasets.gaussians([[0, 0], [0, 0], [9, 0]], 100, random_state=0)
        >>> merger = unsplit.ClusterMerger(random_state=0).fit(X, initial_labels=labels)
        >>> merger.predict([[0, 0], [9, 0]])
        array([0, 1])
        """
        found: Index = self.predict_proba(X).argmax(axis=1)
        return found

    def predict_proba(self, X: Any) -> Matrix:
        """Posterior probabilities of the merged clusters for new observations.

        The probability of a merged cluster is the sum of those of its initial clusters.  Clusters
        count by their size: where two have the same density, the larger one is more probable.
        An observation that resembles no cluster still gets probabilities that sum to 1.

        Parameters
        ----------
        X : same kind of data as in :meth:`fit`
            New observations.

        Returns
        -------
        ndarray of shape (n, n_clusters_)
            Rows sum to 1.  Column c belongs to label c; :meth:`predict` returns the largest.

        Examples
        --------
        >>> import unsplit
        >>> X, labels = unsplit.datasets.gaussians([[0, 0], [0, 0], [9, 0]], 100, random_state=0)
        >>> merger = unsplit.ClusterMerger(random_state=0).fit(X, initial_labels=labels)
        >>> probability = merger.predict_proba([[0, 0], [4.5, 0], [9, 0]])
        >>> probability.shape
        (3, 2)
        >>> bool(probability[0, 0] > 0.95 and probability[2, 1] > 0.95)
        True
        """
        check_is_fitted(self)
        X = self._checked(X, reset=False)
        sizes, groups = self.pairwise_.sizes, self.tree_.groups
        log_weight = self._scorer.log_posterior(X) + np.log(sizes / sizes.sum())
        merged = [logsumexp(log_weight[:, groups == g], axis=1) for g in range(self.n_clusters_)]
        probability: Matrix = softmax(np.column_stack(merged), axis=1)
        return probability

    @property
    def review_(self) -> Any:
        """Merged pairs and pairs kept apart as a pandas DataFrame, those to check first on top."""
        check_is_fitted(self)
        return self.tree_.review()

    def _checked(self, X: Any, reset: bool) -> Any:
        """Check a table as scikit-learn does; other data are checked when they are used."""
        if not _is_table(X):
            return X
        try:
            values = validate_data(
                self,
                plain_array(X),
                accept_sparse=True,
                reset=reset,
                ensure_min_samples=2 if reset else 1,
            )
            return numeric_matrix(values) if values.dtype == object else values
        except InputError:
            raise
        except ValueError as error:  # scikit-learn's
            raise InputError(_in_one_sentence(str(error))) from None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _in_one_sentence(error: str) -> str:
    """The first line of scikit-learn's error, which says what is wrong, and what to do."""
    lines = error.splitlines()
    reason, last = lines[0], lines[-1]
    if "NaN" in reason or "infinity" in reason:
        return f"{reason.rstrip('.')}; remove those rows or fill in the values first."
    if "omplex" in reason:
        return f"{reason}: X must hold real numbers; pass real and imaginary parts as features."
    if last.startswith("Reshape"):
        return f"{reason.rstrip(':')}. {last}"
    return reason


def _is_table(X: Any) -> bool:
    """Whether X is a table as scikit-learn takes it, not a Dataset, sound, images or the like."""
    if isinstance(X, (Dataset, Rows, Ragged, Audio)):
        return False
    if isinstance(X, (list, tuple)):
        return not differ_in_length(X)
    return len(getattr(X, "shape", (0, 0))) <= 2
