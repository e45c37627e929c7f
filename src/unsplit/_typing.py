"""Types of arrays, for annotations."""

import numpy as np
from numpy.typing import NDArray

Index = NDArray[np.int64]
Matrix = NDArray[np.float64]
