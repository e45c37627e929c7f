"""The command line: reads files, calls the library, writes the results and prints a summary."""

from unsplit.cli.program import main

__all__ = ["main"]
