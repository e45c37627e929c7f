"""Merge trees and matrices to draw, and what was drawn of them."""

import matplotlib
import numpy as np
import scipy.cluster.hierarchy as sch
from hypothesis import settings
from hypothesis import strategies as st

from unsplit.merging.decision import BY_RULE, CLOSEST, USERS_RULE, Ending
from unsplit.merging.review import Merge
from unsplit.merging.tree import MergeTree

# Else merely comparing rcParams would choose a backend and change them.
matplotlib.use("Agg")

quick = settings(deadline=None, max_examples=30, derandomize=True)


def tree_of(linkage, taken, *, names=None, tvd=None, statistic="lecam", sizes=None):
    """A tree from a SciPy linkage; ``taken`` a number of merges or one bool for each."""
    k = len(linkage) + 1
    tvd = linkage[:, 2] if tvd is None else np.broadcast_to(tvd, k - 1)
    initial = [10] * k if sizes is None else list(sizes)
    sizes, merges = list(initial), []
    for step, (left, right, height, _) in enumerate(linkage.tolist()):
        a, b = int(left), int(right)
        interval = max(0.0, tvd[step] - 0.1), min(1.0, tvd[step] + 0.1)
        sides = a, b, sizes[a], sizes[b]
        evidence = float(tvd[step]), *interval, 1.0, *[float("nan")] * 4
        reason = BY_RULE, CLOSEST, float("nan"), ""
        merges.append(Merge(*sides, height, height, *evidence, *reason))
        sizes.append(sizes[a] + sizes[b])
    return MergeTree(
        cluster_ids=np.arange(k) if names is None else np.array(names),
        sizes=np.array(initial),
        merges=tuple(merges),
        taken=np.arange(k - 1) < taken if np.isscalar(taken) else np.array(taken, bool),
        statistic=statistic,
        strategy="linkage",
        ending=Ending(USERS_RULE, note="in a test"),
    )


def random_linkage(k, seed=0, method="average"):
    Z = sch.linkage(np.random.default_rng(seed).random((k, 3)), method)
    Z[:, 2] /= Z[-1, 2]
    return Z


def random_tree(k, n_taken, seed=0, **more):
    return tree_of(random_linkage(k, seed), n_taken, **more)


def chain(k):
    """0 and 1 are joined, then one more at a time."""
    left = np.append(0, k + np.arange(k - 2))
    count = np.arange(1, k)
    return np.stack([left, count, count / k, count + 1.0], axis=1)


def random_matrix(k, seed=0):
    D = np.random.default_rng(seed).random((k, k))
    return np.triu(D, 1) + np.triu(D, 1).T


trees = st.builds(
    lambda k, share, seed, method: tree_of(random_linkage(k, seed, method), round(share * (k - 1))),
    st.integers(2, 30),
    st.floats(0, 1),
    st.integers(0, 99),
    st.sampled_from(["single", "average", "complete"]),
)


def dashed_lines(ax):
    return [line for line in ax.lines if line.is_dashed()]
