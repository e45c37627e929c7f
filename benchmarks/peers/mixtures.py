"""Gaussian mixtures as a careful user sets them up."""

import numpy as np
from numpy.typing import NDArray
from sklearn.mixture import GaussianMixture


def mixture_of(X: NDArray[np.float64], k: int, seed: int) -> GaussianMixture:
    """Full covariances where a component has five observations a dimension, else diagonal ones."""
    kind = "full" if len(X) >= 5 * k * X.shape[1] else "diag"
    # A floor far below the spread of the data keeps a component of few from shrinking to them.
    floor = 1e-3 * float(X.var(axis=0).mean())
    return GaussianMixture(k, covariance_type=kind, reg_covar=floor, random_state=seed)
