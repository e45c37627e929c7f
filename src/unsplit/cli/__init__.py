"""The command line: reads files, calls the library, writes files and a few words."""

from unsplit.cli.program import main

__all__ = ["main"]
