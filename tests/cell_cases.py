"""Small cells and helpers for tests of AnnData and .h5ad files."""

import anndata
import numpy as np
import pandas as pd
import scipy.sparse

from unsplit import TrainConfig, datasets

# Two pairs of clusters that are one each.  Settings that are quick, not good.
X, LABELS = datasets.gaussians([[0, 0], [0, 0], [9, 0], [9, 0]], 40, random_state=0)
NAMES = np.array(["10", "2", "3", "4"], object)[LABELS]
QUICK = {"training": TrainConfig(epochs=3), "cv": 2, "device": "cpu"}


def small(names=NAMES, **columns):
    """160 cells in two groups of two clusters each, with counts and an embedding."""
    rng = np.random.default_rng(0)
    group = LABELS // 2
    rate = np.where((np.arange(30) < 15)[None] == (group == 0)[:, None], 4.0, 0.5)
    counts = scipy.sparse.csr_matrix(rng.poisson(rate).astype(np.float32))
    obs = pd.DataFrame(
        {"leiden": pd.Categorical(names, categories=["2", "3", "4", "10"]), **columns},
        index=[f"cell {i}" for i in range(len(X))],
    )
    var = pd.DataFrame(index=[f"gene {i}" for i in range(30)])
    found = anndata.AnnData(counts.log1p(), obs, var, obsm={"X_pca": X, "X_umap": X[:, :2]})
    found.layers["counts"] = counts
    found.raw = found
    return found
