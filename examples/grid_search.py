"""Search with scikit-learn's GridSearchCV and without true labels, on handwritten digits.

    python examples/grid_search.py

What is searched for is the number of principal components and the network with which clusters are
told apart best.  The score is A, the mean held-out accuracy over all pairs of clusters: it sees the
over-clustering, but no true digit.
"""

from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline

import unsplit

GRID = {"reduce__n_components": [2, 8, 32], "merge__backbone": ["single-layer", "mlp"]}


def mean_accuracy(pipeline: Pipeline, X: Any, y: Any = None) -> float:
    """A of a fitted pipeline, on observations that its networks were not trained on."""
    return pipeline["merge"].pairwise_.mean_accuracy


def search(X: Any, labels: Any, epochs: int = 30) -> GridSearchCV:
    """Try all settings of the grid on the same over-clustering."""
    merger = unsplit.ClusterMerger(training=unsplit.TrainConfig(epochs=epochs), random_state=0)
    pipeline = Pipeline([("reduce", PCA(random_state=0)), ("merge", merger)])
    # One "split" with all rows: ClusterMerger holds observations out by itself.
    everything = np.arange(len(X))
    found = GridSearchCV(pipeline, GRID, scoring=mean_accuracy, cv=[(everything, everything)])
    return found.fit(X, merge__initial_labels=labels)


def table(found: GridSearchCV) -> list[str]:
    """All settings, the best first."""
    results = found.cv_results_
    order = np.argsort(-results["mean_test_score"], kind="stable")
    rows = [
        f"{results['param_reduce__n_components'][i]:10}  "
        f"{results['param_merge__backbone'][i]:12}  {results['mean_test_score'][i]:.4f}"
        for i in order
    ]
    return ["components  backbone      A", *rows]


if __name__ == "__main__":
    digits = load_digits()
    labels = KMeans(40, n_init=10, random_state=0).fit_predict(digits.data)
    found = search(digits.data, labels)
    print("\n".join(table(found)))
    merged = found.best_estimator_["merge"]
    score = adjusted_rand_score(digits.target, merged.labels_)
    print(f"\nBest: {found.best_params_}")
    print(f"40 clusters became {merged.n_clusters_}; ARI with the true digits {score:.2f}")
