"""Choosing a network without ground truth."""

from unsplit.selection.api import Selection, Trial, select
from unsplit.selection.candidates import Candidate

__all__ = ["Candidate", "Selection", "Trial", "select"]
