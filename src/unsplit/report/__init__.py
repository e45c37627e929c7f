"""The page of a result: one HTML file to read, to move the cut in, and to review pairs."""

from unsplit.report.api import Report, report

__all__ = ["Report", "report"]
