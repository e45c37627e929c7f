"""A small table, ways to write it, and the check of a refusal."""

import numpy as np
import pandas as pd
import pytest

from tests.checks import about
from unsplit.data.readers.observations import read_observations
from unsplit.errors import InputError

X = np.array([[1.5, -2.0], [0.0, 1e-17], [3.0, 0.1]])


def write(name, content):
    with open(name, "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())
    return name


def refuses(sentence, *args):
    with pytest.raises(InputError, match=about(sentence)):
        read_observations(*args)


def table(**more):
    return pd.DataFrame({"a": X[:, 0], "b": X[:, 1]} | more)
