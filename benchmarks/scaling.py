"""What columns in different units cost: breast cancer data, scaled and as they are.

python -m benchmarks.scaling

The clusters are those of k-means with 20 clusters on the scaled features, in every row.
"""

import warnings

import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import StandardScaler

from benchmarks.common import print_table
from unsplit import ClusterMerger
from unsplit.data.rows.kinds import dominant
from unsplit.errors import FeatureWarning


def main() -> None:
    raw, y = load_breast_cancer(return_X_y=True)
    scaled = StandardScaler().fit_transform(raw)
    age = np.random.default_rng(0).integers(20, 80, len(raw))
    labels = KMeans(20, n_init=10, random_state=0).fit_predict(scaled)
    rows = []
    for name, X in {
        "scaled": scaled,
        "raw": raw,
        "scaled, and one column of random ages": np.column_stack([scaled, age]),
    }.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FeatureWarning)
            merger = ClusterMerger(random_state=0).fit(X, initial_labels=labels)
        found = (adjusted_rand_score(y, of) for of in (merger.labels_, merger.refined_labels_))
        warned = "yes" if len(dominant(X)) else "no"
        rows.append((name, str(merger.n_clusters_), *(f"{ari:.2f}" for ari in found), warned))
    print_table("Scaling", ("features", "clusters left", "ARI", "refined", "warning"), rows)


if __name__ == "__main__":
    main()
