"""Merging as a scikit-learn clusterer, and the run behind it: from observations to a merge tree."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.special import logsumexp, softmax
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
)
from sklearn.utils.validation import _num_samples, check_is_fitted, validate_data

from unsplit._typing import Index, Matrix
from unsplit.data.labels import EncodedLabels, encode_labels, label_array, refuse_other_order
from unsplit.data.readers.tables import require_module
from unsplit.data.rows.base import is_mapped, plain_array
from unsplit.data.rows.kinds import (
    VectorRows,
    feature_matrix,
    is_table,
    numeric_matrix,
    warn_of_other_uses,
    warn_of_scales,
)
from unsplit.devices import generator_of, memory_errors, usual_settings
from unsplit.errors import (
    InputError,
    LabelsWarning,
    check_choice,
    check_whole,
    refuses_old_options,
    shown,
    warn,
)
from unsplit.merging.api import MATRICES_OF_SCORES, check_memory, merge_with
from unsplit.merging.neighbours.graph import (
    EUCLIDEAN,
    METRICS,
    N_NEIGHBOURS,
    OTHER_FEATURES,
    NeighbourGraph,
    graph_of_scores,
    neighbour_graph,
)
from unsplit.merging.neighbours.refine import refine
from unsplit.merging.plan import MergeOptions, looks_like_partition
from unsplit.merging.tree import MergeTree
from unsplit.networks.registry import Backbone
from unsplit.networks.training.checkpoint import Checkpoint
from unsplit.networks.training.loop import TrainConfig
from unsplit.networks.training.progress import MERGING, NEIGHBOURS, TRAINING
from unsplit.overclustering import check_clusterer, default_clusterer, overcluster
from unsplit.pairwise.api import LESS_DATA, Progress, Settings, fit, reporting
from unsplit.pairwise.divergences import nothing_held_out
from unsplit.pairwise.heldout_scores import Fitted


class ClusterMerger(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):
    """Merge the clusters of an over-clustering that a classifier cannot tell apart.

    Parameters
    ----------
    n_clusters, max_tvd, alpha : optional
        When to stop merging; pass at most one.  Without any, the stopping point is found
        automatically.  See :func:`unsplit.merge`.
    rank_by : str
        What says which pair of clusters is closest.  See :func:`unsplit.merge`.
    constraints : path or mapping, optional
        Clusters that are known to belong together, or to be different, such as
        ``{"must_link": [("a", "b")]}``, or answers that the page of an earlier result exported.
        See :func:`unsplit.merge`.
    labels_from : {"auto", "clustering", "elsewhere"}
        Whether the clusters were computed from the features.  See :func:`unsplit.merge`.
    overclusterer : scikit-learn clusterer, optional
        Makes the over-clustering when ``fit`` is given none; by default k-means with about √n
        clusters.  See :func:`unsplit.overclustering.default_clusterer`.
    backbone, training, cv
        How distances are estimated.  See :func:`unsplit.pairwise_tvd`.
    n_neighbors, metric
        Of the neighbour graph.  See :func:`unsplit.neighbour_graph`.  Data that are not vectors are
        compared by the scores of the networks, whatever the metric is.
    device : str or torch.device
        See :func:`unsplit.pairwise_tvd`.
    random_state : int, Generator, RandomState or None
        The same seed gives the same result.
    progress : bool, callable or Reporter
        True shows a progress bar for each phase, and about how long training will take.  A
        callable receives an :class:`EpochRecord` after every epoch.  A :class:`Reporter` is told
        of every phase, step and merge.
    checkpoint : str or path, optional
        A folder in which a long run keeps from time to time what it has done.  If the program is
        killed, the same call continues from there; the folder is removed when the run is done.

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
    refined_labels_ : ndarray of shape (n,)
        ``labels_`` after observations have moved to the cluster that most of their neighbours are
        in.  In few dimensions initial clusters across a gap are cut first; unless ``n_clusters`` is
        given, there may then be more or fewer clusters.  See :func:`unsplit.refine`.  Computed when
        you ask for it.
    linkage_ : ndarray of shape (k − 1, 4)
        The tree as a SciPy linkage matrix.
    pairwise_ : PairwiseTVD
        Distances between the initial clusters, with their uncertainty; a
        A sparse one of more than 10,000 clusters.
    tvd_ : ndarray of shape (k, k)
        Total variation distances between the initial clusters; indexed by pairs, ``tvd_[i, j]``,
        if they are sparse.
    backbone_ : str
        The network or classifier; with ``backbone="best"`` the one that was chosen, or several if
        the folds chose differently.
    neighbours_ : NeighbourGraph or None
        The neighbour graph that merging used, if any.
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
    0  0 + 1     2  kept apart
    1      1     0      merged
    """

    @refuses_old_options
    def __init__(
        self,
        n_clusters: int | Sequence[int | None] | None = None,
        *,
        max_tvd: float | None = None,
        alpha: float | None = None,
        rank_by: str = "auto",
        constraints: str | os.PathLike[str] | Mapping[str, Any] | None = None,
        labels_from: str = "auto",
        overclusterer: Any = None,
        backbone: Backbone = "auto",
        training: TrainConfig | None = None,
        cv: float | str = "auto",
        n_neighbors: int = N_NEIGHBOURS,
        metric: str = EUCLIDEAN,
        device: str | torch.device = "auto",
        random_state: Any = None,
        progress: bool | Progress = False,
        checkpoint: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.max_tvd = max_tvd
        self.alpha = alpha
        self.rank_by = rank_by
        self.constraints = constraints
        self.labels_from = labels_from
        self.overclusterer = overclusterer
        self.backbone = backbone
        self.training = training
        self.cv = cv
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.device = device
        self.random_state = random_state
        self.progress = progress
        self.checkpoint = checkpoint

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        initial_labels: ArrayLike | None = None,
        batch: ArrayLike | None = None,
        groups: ArrayLike | None = None,
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
        groups : array-like of shape (n,), optional
            Track, session, donor or document of each observation.  Whole groups are held out, and
            the neighbours of an observation are in other groups.  See
            :func:`unsplit.pairwise_tvd`.
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
        refuse_other_order(
            X, initial_labels=initial_labels, batch=batch, groups=groups, features=features
        )
        if y is not None and initial_labels is None and self.overclusterer is None:
            warn(
                "y is never used, so clusters are made by k-means; pass your own clusters as "
                "initial_labels=, or an overclusterer, which makes them from X.",
                LabelsWarning,
            )
        observations, X = X, self._checked(X, reset=True)
        self._warn_of_features(X, initial_labels)
        options = self._options_of(MergeOptions).with_constraints(self.constraints)
        settings = self._options_of(Settings)
        check_whole("n_neighbors", self.n_neighbors, 3)
        check_choice("metric", self.metric, METRICS)
        if self.overclusterer is not None:
            check_clusterer("overclusterer", self.overclusterer)
        kept = self.checkpoint
        if kept is not None and not isinstance(kept, Checkpoint):
            kept = Checkpoint(kept)
        rng = generator_of(self.random_state if kept is None else kept.seeded(self.random_state))
        if initial_labels is None:
            initial_labels = self._overclustered(X, rng)
        encoded = encode_labels(initial_labels)
        how = options, settings, rng, kept, features
        fitted, graph, tree = self._merged(X, encoded, *how, batch=batch, groups=groups)
        self.initial_labels_ = label_array(initial_labels)
        self.pairwise_ = fitted.result
        self.tvd_ = self.pairwise_.tvd
        self.history_ = self.pairwise_.history
        self.n_iter_ = len(self.history_.epoch)
        self.backbone_ = fitted.trained.name
        self.neighbours_ = graph
        self.tree_ = tree
        self.linkage_ = tree.linkage
        self.n_clusters_ = tree.n_clusters
        self.labels_ = tree.labels(self.initial_labels_)
        # For new observations; of those it was trained on, one says what they are like.
        self._fitted = replace(fitted, rows=fitted.rows.first(1))
        self._observations = observations
        self._gaps = options.gaps(tree.strategy)
        # A checkpoint that was made already is removed by whoever made it, once all is written.
        if kept is not self.checkpoint:
            kept.remove()
        return self

    @memory_errors("merging the clusters", LESS_DATA)
    @usual_settings()
    def _merged(
        self,
        X: Any,
        labels: EncodedLabels,
        options: MergeOptions,
        settings: Settings,
        rng: np.random.Generator,
        checkpoint: Checkpoint | None,
        features: Any,
        **of_rows: ArrayLike | None,
    ) -> tuple[Fitted, NeighbourGraph | None, MergeTree]:
        """Estimate all distances, find neighbours, and merge."""
        # Refuse before any training what cannot be merged.
        options.constraints(labels.cluster_ids)
        if np.bincount(labels.clusters[labels.clusters >= 0]).max() < 2:
            raise nothing_held_out()
        if features is not None:
            features = feature_matrix(features, len(labels.clusters))
        k = len(labels.cluster_ids)
        if settings.is_sparse(k, any(value is not None for value in of_rows.values())):
            options.check_sparse()
        else:
            check_memory(k, MATRICES_OF_SCORES)
        seed, seed_of_merge = seeds_of(rng)
        with reporting(self.progress) as reporter:
            reporter.on_phase(TRAINING)
            fitted = fit(X, labels, settings, seed, reporter, checkpoint=checkpoint, **of_rows)
            reporter.on_phase(NEIGHBOURS)
            graph = self._neighbours(features, labels, fitted, of_rows)
            reporter.on_phase(MERGING)
            self._assigned = None if isinstance(fitted.rows, VectorRows) else fitted.assigned()
            tree = merge_with(
                fitted.result,
                options,
                graph,
                int(seed_of_merge),
                assigned=self._assigned,
                on_merge=lambda n_made: reporter.on_progress(n_made, k - 1),
            )
        return fitted, graph, tree

    def _neighbours(
        self, features: Any, labels: EncodedLabels, fitted: Fitted, of_rows: dict[str, Any]
    ) -> NeighbourGraph | None:
        """The neighbour graph of the features if there are any, otherwise of the scores."""
        if features is None:
            if not isinstance(fitted.rows, VectorRows):
                return graph_of_scores(fitted.result, self.n_neighbors)
            features = fitted.rows
        if fitted.outputs.n_batches == 1:
            of_rows = of_rows | {"batch": None}
        graph = neighbour_graph(
            features,
            labels,
            **of_rows,
            n_neighbors=self.n_neighbors,
            metric=self.metric,
            device=self.device,
        )
        same = fitted.rows.kind in ("vectors", "counts")
        return graph if same else replace(graph, source=OTHER_FEATURES)

    def fit_predict(self, X: Any, y: Any = None, **of_rows: Any) -> Index:
        """Merge an over-clustering of X and return the merged labels.

        Parameters
        ----------
        X, y, **of_rows
            As for :meth:`fit`.

        Returns
        -------
        ndarray of shape (n,)
            ``labels_``.

        Examples
        --------
        >>> import unsplit
        >>> X, labels = unsplit.datasets.gaussians([[0, 0], [0, 0], [9, 0]], 100, random_state=0)
        >>> merged = unsplit.ClusterMerger(random_state=0).fit_predict(X, initial_labels=labels)
        >>> merged[[0, 150, 250]]
        array([0, 0, 1])
        """
        return self.fit(X, y, **of_rows).labels_

    def predict(self, X: Any) -> Index:
        """Assign new observations to the merged clusters.

        Each observation gets its most probable cluster.  For the observations of ``fit`` this may
        differ from ``labels_``, which follow the over-clustering.

        Parameters
        ----------
        X : same kind of data as in fit
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
        return self.predict_proba(X).argmax(axis=1)

    def predict_proba(self, X: Any) -> Matrix:
        """Posterior probabilities of the merged clusters for new observations.

        The probability of a merged cluster is the sum of those of its initial clusters.  Clusters
        count by their size: where two have the same density, the larger one is more probable.
        An observation that resembles no cluster still gets probabilities that sum to 1.

        Parameters
        ----------
        X : same kind of data as in fit
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
        log_weight = self._fitted.log_posterior(X) + np.log(sizes / sizes.sum())
        merged = [logsumexp(log_weight[:, groups == g], axis=1) for g in range(self.n_clusters_)]
        return softmax(np.column_stack(merged), axis=1)

    def transform(self, X: Any) -> Matrix:
        """Turn observations into the probabilities of the merged clusters, for a next step.

        Parameters
        ----------
        X : same kind of data as in fit
            Observations.

        Returns
        -------
        ndarray of shape (n, n_clusters_)
            What :meth:`predict_proba` gives.  After ``set_output(transform="pandas")`` a DataFrame
            with the index of X.

        Examples
        --------
        >>> import pandas as pd
        >>> import unsplit
        >>> X, labels = unsplit.datasets.gaussians([[0, 0], [0, 0], [9, 0]], 100, random_state=0)
        >>> merger = unsplit.ClusterMerger(random_state=0).set_output(transform="pandas")
        >>> new = pd.DataFrame([[0, 0], [9, 0]], index=["a", "b"])
        >>> merger.fit(X, initial_labels=labels).transform(new).round(1)
           clustermerger0  clustermerger1
        a             1.0             0.0
        b             0.0             1.0
        """
        return self.predict_proba(X)

    def report(
        self, X: Any = None, *, image_shape: Sequence[int] | None = None, **more: Any
    ) -> Any:
        """A page about this merge: the answer, the tree, the data, and pairs to review.

        A notebook shows the page; ``save(path)`` writes it to one HTML file.

        Parameters
        ----------
        X : optional
            The observations of ``fit``.  Needed only after the merger was saved and loaded, because
            they are not saved with it; until then it refers to those that ``fit`` was given.
        image_shape : (height, width), optional
            Draw vectors of pixels as images.
        **more
            ``row_ids``, ``feature_names`` and ``picture``: see :func:`unsplit.report.report`.

        Returns
        -------
        unsplit.report.Report

        Examples
        --------
        >>> import unsplit
        >>> X, labels = unsplit.datasets.gaussians([[0, 0], [0, 0], [9, 0]], 100, random_state=0)
        >>> unsplit.ClusterMerger(random_state=0).fit(X, initial_labels=labels).report()
        Report: ... MB of HTML; write it with save(path)
        """
        check_is_fitted(self)
        X = getattr(self, "_observations", None) if X is None else X
        if X is None:
            raise InputError(
                "X is required, because observations are not saved with a merger; pass those that "
                "it was fitted to: merger.report(X)."
            )
        more.setdefault("feature_names", getattr(self, "feature_names_in_", None))
        X = self._checked(X, reset=False)
        more["image_shape"] = image_shape
        return self.tree_.report(self.pairwise_, X, self.initial_labels_, **more)

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the observations, which may be large."""
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_observations"}

    def describe(self, X: Any) -> Any:
        """Describe the merged clusters by columns of a table: quantiles, or shares of categories.

        Parameters
        ----------
        X : pandas.DataFrame or array-like of shape (n, d)
            One row for each observation of ``fit``, in the same order; columns may be others than
            those that were compared.

        Returns
        -------
        pandas.DataFrame
            A row for each merged cluster.  Columns are pairs of a feature and a statistic: the
            quartiles of numbers and dates, and of other columns the share of each of the ten most
            frequent values.  Missing values do not count; noise is in no cluster.

        Examples
        --------
        >>> import pandas as pd
        >>> import unsplit
        >>> X, labels = unsplit.datasets.gaussians([[0, 0], [0, 0], [9, 0]], 100, random_state=0)
        >>> merger = unsplit.ClusterMerger(random_state=0).fit(X, initial_labels=labels)
        >>> table = pd.DataFrame({"depth": X[:, 0], "donor": ["a"] * 50 + ["b"] * 250})
        >>> found = merger.describe(table).round(1)
        >>> found.loc[1, "depth"].to_dict(), found.loc[1, "donor"].to_dict()
        ({'25%': 8.2, '50%': 8.9, '75%': 9.8}, {'b': 1.0, 'a': 0.0})
        """
        check_is_fitted(self)
        pd = require_module("pandas", "describe", "tables")
        try:
            frame = pd.DataFrame(X)
        except (TypeError, ValueError):  # nothing that is a table
            frame = pd.DataFrame()
        if len(frame) != len(self.labels_):
            raise InputError(
                f"X must have one row for each of the {len(self.labels_)} observations of fit, got "
                f"{len(frame)}; pass the same rows in the same order."
            )
        inside = self.labels_ >= 0
        frame, clusters = frame[inside], self.labels_[inside]
        parts = {}
        for name, column in frame.items():
            if column.dtype.kind in "fiumM":
                parts[name] = column.groupby(clusters).quantile([0.25, 0.5, 0.75]).unstack()
                parts[name].columns = ["25%", "50%", "75%"]
            else:
                shares = pd.crosstab(clusters, column.to_numpy(), normalize="index")
                parts[name] = shares.reindex(columns=column.value_counts().index[:10])
        found = pd.concat(parts, axis=1, names=["feature", "statistic"])
        return found.rename_axis("cluster")

    @property
    def _n_features_out(self) -> int:
        """Number of columns of :meth:`transform`, for scikit-learn."""
        return self.n_clusters_

    @property
    def review_(self) -> Any:
        """Merged pairs and pairs kept apart as a pandas DataFrame, those to check first on top."""
        check_is_fitted(self)
        return self.tree_.review()

    @property
    def refined_labels_(self) -> Index:
        """``labels_``, refined by the neighbour graph; ``labels_`` itself if there was none."""
        check_is_fitted(self)
        return self._refined(self.labels_, self.tree_, self._gaps)

    def _refined(self, labels: Index, tree: MergeTree, gaps: str) -> Index:
        """Labels of a cut of the tree, refined as far as this merge trusts its neighbour graph.

        Labels that may know more than the features are not moved against the networks; clusters
        cut out of the features have been learned by them, so they would let none move.
        """
        if self.neighbours_ is None:
            return labels
        # They were not cut if tests decided, or if nothing was merged.
        by_tests = self.rank_by == "auto" and tree.statistic == "lecam"
        may_be_cut = not by_tests and tree.n_clusters < tree.n_initial
        cut = tree.strategy == "neighbours" or looks_like_partition(self.pairwise_)
        by_graph = may_be_cut and cut
        networks = None if self.pairwise_.is_sparse or by_graph else self.pairwise_
        return refine(labels, self.neighbours_, gaps=gaps, distances=networks)

    def _options_of(self, kind: Any) -> Any:
        """The parameters that this kind of options has, checked."""
        names = [name for name in kind.__dataclass_fields__ if hasattr(self, name)]
        return kind(**{name: getattr(self, name) for name in names})

    def _overclustered(self, X: Any, rng: np.random.Generator) -> ArrayLike:
        n = MergeOptions(n_clusters=self.n_clusters).number
        if n is not None:
            check_whole("n_clusters", n, 1)
        if not is_table(X):
            raise InputError(
                "initial_labels is required because X is not a table of vectors, and only "
                "vectors can be clustered automatically; pass the over-clustering of X."
            )
        # At least twice as many clusters as requested, so that there is something to merge.
        default = default_clusterer(_num_samples(X), at_least=2 * (n or 1))
        return overcluster(X, default if self.overclusterer is None else self.overclusterer, rng)

    def _checked(self, X: Any, reset: bool) -> Any:
        """Check a table as scikit-learn does; other data are checked when they are used."""
        X = plain_array(X)
        if not is_table(X):
            return X
        try:
            values = validate_data(
                self,
                X,
                accept_sparse=True,
                reset=reset,
                ensure_min_samples=2 if reset else 1,
            )
            is_number = values.dtype.kind in "fiub"
            return values if is_number else numeric_matrix(X if hasattr(X, "columns") else values)
        except InputError:
            raise
        except (TypeError, ValueError, OverflowError) as error:  # scikit-learn's
            if isinstance(error, TypeError) and not hasattr(X, "columns"):
                raise
            if "NaN" in str(error) or "infinity" in str(error) or not isinstance(X, np.ndarray):
                numeric_matrix(X)  # says in which row and column
            raise InputError(_in_one_sentence(str(error))) from None

    def _warn_of_features(self, X: Any, labels: ArrayLike | None) -> None:
        """Warn of columns that may not be measurements, if there is a table of numbers."""
        if not isinstance(X, np.ndarray) or X.ndim != 2:
            return
        named = getattr(self, "feature_names_in_", range(X.shape[1]))
        called = [f"column {shown(name)} of X" for name in named]
        if labels is not None and not is_mapped(X):
            warn_of_other_uses(X, called, encode_labels(labels, at_least=0).clusters)
        warn_of_scales(X, called)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def seeds_of(random_state: object) -> Index:
    """Seeds of the training and of the merge: the first and the last of four, as ever."""
    return generator_of(random_state).integers(2**63, size=4)[[0, 3]]


def refined_labels_of(merger: ClusterMerger) -> Index | None:
    """The refined cluster of every observation; None if the neighbours of some are not known."""
    graph = merger.neighbours_
    sampled = graph is not None and graph.sampled_from is not None
    return None if sampled else merger.refined_labels_


def _in_one_sentence(error: str) -> str:
    """What an error of scikit-learn says first, and what to do."""
    lines = error.splitlines()
    reason = lines[0].rstrip(".:")
    if "omplex" in reason:
        return f"{reason}: X must hold real numbers."
    return f"{reason}. {lines[-1]}" if lines[-1].startswith("Reshape") else f"{reason}."
