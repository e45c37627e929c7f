"""Types for annotations: arrays, and the three ways in which a cluster is called."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Index = NDArray[np.int64]
Matrix = NDArray[np.float64]

ClusterId = Any
"""The name of an initial cluster, as the user wrote it: an entry of ``cluster_ids``."""
Cluster = int
"""The position of an initial cluster in ``cluster_ids``, 0 to k − 1.  While merging it also stands
for the merged cluster of which it is the first member."""
Node = int
"""A number in the merge tree, as in SciPy: 0 to k − 1 are the initial clusters, k is the first
merge."""
