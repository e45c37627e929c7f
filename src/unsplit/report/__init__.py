"""The page of a result: one HTML file to read, to move the cut in, and to review pairs."""

from unsplit.report.api import report
from unsplit.report.page import Report

__all__ = ["Report", "report"]
