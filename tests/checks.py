"""Small helpers of several test files."""

import re


def exactly(sentence):
    """A pattern for this sentence and nothing around it."""
    return "^" + re.escape(sentence) + "$"


def names_in(folder):
    return sorted(path.name for path in folder.rglob("*"))
