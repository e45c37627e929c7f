"""Ways to get more clusters than there are categories."""

from unsplit.overclustering.clusterers import artificial, default_clusterer, overcluster
from unsplit.overclustering.greedy import greedy_dense

__all__ = ["artificial", "default_clusterer", "greedy_dense", "overcluster"]
