"""Every way to merge that is compared, by the name of the work that is done for it.

Work is a callable from a task to the outcomes of one method or more, by name.
"""

from collections.abc import Callable

from benchmarks.peers.methods import (
    choir,
    choose_number,
    confusion,
    dipdeck,
    energy,
    finch,
    gmeans,
    leiden,
    linkage,
    ours,
    sccaf,
    scratch,
    transport,
    uniforce,
)
from benchmarks.peers.task import Method, Outcome, Task

__all__ = ["FROM_SCRATCH", "METHODS", "SETTINGS", "SLOW"]


def _alone(name: str, run: Callable[[Task], Outcome]) -> Method:
    return lambda task: {name: run(task)}


_MERGING: dict[str, Callable[[Task], Outcome]] = {
    "Ward of clusters": linkage.ward_of_clusters,
    "average linkage of clusters": linkage.average_of_clusters,
    "centroid linkage of clusters": linkage.centroid_of_clusters,
    "centroid distance": linkage.average_of_means,
    "energy distance": energy.energy_linkage,
    "energy clustering": energy.energy_clustering,
    "optimal transport": transport.transport_linkage,
    "confusion loop": confusion.confusion_loop,
    "SCCAF": sccaf.sccaf,
    "CHOIR": choir.choir,
    "FINCH of clusters": finch.finch_of_clusters,
    "UniForCE": uniforce.uniforce,
    "DipDECK": dipdeck.dipdeck,
    "DipDECK from scratch": dipdeck.dipdeck_from_scratch,  # takes the number of clusters
}
# They look at the observations only.
_ANEW: dict[str, Callable[[Task], Outcome]] = {
    "Ward": linkage.from_scratch("ward"),
    "average linkage": linkage.from_scratch("average"),
    "centroid linkage": linkage.from_scratch("centroid"),
    "k-means": scratch.kmeans,
    "Genie": scratch.genie,
    "Lumbermark": scratch.lumbermark,
    "spectral clustering": scratch.spectral,
    "HDBSCAN": scratch.hdbscan,
    "HDBSCAN, hundredths": scratch.hdbscan_of_hundredths,
    "PLSCAN": scratch.plscan,
    "FINCH": finch.finch,
    "Leiden": leiden.leiden(1.0),
    "Leiden, 0.5": leiden.leiden(0.5),
    "Gaussian mixture by BIC": choose_number.mixture_by_bic,
    "k-means by silhouette": choose_number.kmeans_by_silhouette,
    "G-means": gmeans.gmeans,
}

METHODS: dict[str, Method] = {
    "unsplit": ours.unsplit_family,
    **{name: _alone(name, run) for name, run in (_MERGING | _ANEW).items()},
    **{name: _alone(name, ours.trained_otherwise(name)) for name in ours.TRAINED_OTHERWISE},
    "unsplit, merged otherwise": ours.merged_otherwise,
}

# For comparisons of settings alone, so not everywhere.
SETTINGS = frozenset((*ours.TRAINED_OTHERWISE, "unsplit, merged otherwise"))

# One run serves every over-clustering of the same observations.
FROM_SCRATCH = frozenset(_ANEW)

# Minutes each on one core for 2,000 observations in 40 clusters.
SLOW = frozenset(("confusion loop", "DipDECK", "DipDECK from scratch"))
