"""Figures of a merge: the dendrogram, the merge curve and the distances."""

from unsplit.plots.figures import dendrogram, distances, merge_curve, save_figures

__all__ = [
    "dendrogram",
    "distances",
    "merge_curve",
    "save_figures",
]
