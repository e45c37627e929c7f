"""Figures of a merge; for each, one function computes the data and another one draws them."""

from unsplit.plots.branches import Dendrogram, dendrogram, dendrogram_data
from unsplit.plots.curve import MergeCurve, merge_curve, merge_curve_data
from unsplit.plots.matrix import Distances, distances, distances_data
from unsplit.plots.saving import save_figures

__all__ = [
    "Dendrogram",
    "Distances",
    "MergeCurve",
    "dendrogram",
    "dendrogram_data",
    "distances",
    "distances_data",
    "merge_curve",
    "merge_curve_data",
    "save_figures",
]
