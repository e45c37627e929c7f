"""Small helpers of several test files."""

import re


def exactly(sentence):
    """A pattern for this sentence and nothing around it."""
    return "^" + re.escape(sentence) + "$"


def containing(*parts):
    """A pattern for a text that has all of these parts, in any order."""
    return r"\A" + "".join(f"(?s:(?=.*{re.escape(str(part))}))" for part in parts)


def names_in(folder):
    return sorted(path.name for path in folder.rglob("*"))
