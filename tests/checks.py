"""Small helpers of several test files."""

import re


def exactly(sentence):
    """A pattern for this sentence and nothing around it."""
    return "^" + re.escape(sentence) + "$"


def about(sentence):
    """A pattern for this sentence, in which … stands for any words."""
    return "^" + ".*".join(map(re.escape, re.split(r"\s*…\s*", sentence))) + "$"


def names_in(folder):
    return sorted(path.name for path in folder.rglob("*"))
