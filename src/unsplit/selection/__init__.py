"""Choosing a network without ground truth."""

from unsplit.selection.api import Selection, select
from unsplit.selection.candidates import Candidate
from unsplit.selection.halving import Trial

__all__ = ["Candidate", "Selection", "Trial", "select"]
