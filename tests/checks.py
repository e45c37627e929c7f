"""Small helpers of several test files."""

import re
import subprocess
import sys
from importlib import import_module

from unsplit.data.readers.broken import reason
from unsplit.data.readers.isolated import Broken


def exactly(sentence):
    """A pattern for this sentence and nothing around it."""
    return "^" + re.escape(sentence) + "$"


def about(sentence):
    """A pattern for this sentence, in which … stands for any words."""
    return "^" + ".*".join(map(re.escape, re.split(r"\s*…\s*", sentence))) + "$"


def containing(*parts):
    """A pattern for a text that has all of these parts, in any order."""
    return r"\A" + "".join(f"(?s:(?=.*{re.escape(str(part))}))" for part in parts)


def names_in(folder):
    return sorted(path.name for path in folder.rglob("*"))


# Not sys.modules["torch"] = None: SciPy looks there and takes what it finds for torch.
WITHOUT_TORCH = """
import sys
from importlib import import_module
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ImportError("torch cannot be imported here")
sys.meta_path.insert(0, NoTorch())
"""


def run_without_torch(program):
    """Run a program in a new process in which torch cannot be imported; what it prints."""
    command = [sys.executable, "-W", "error", "-c", WITHOUT_TORCH + program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def parsed_here(parser, requests, *limits):
    """Parse files in this process: starting another one for each of many files takes long."""
    module, name = parser.split(":")
    call = getattr(import_module(module), name)
    for i, request in enumerate(requests):
        try:
            yield i, call(request)
        except Exception as error:
            yield i, Broken(reason(error))
