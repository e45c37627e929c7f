"""DipDECK (Leiber et al. 2021) of ClustPy: an autoencoder, and a dip test between centres."""

import importlib.util
import io
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from benchmarks.peers.task import Outcome, Task


class Given:
    """A clustering that is already there, in the place of the k-means DipDECK begins with."""

    def __init__(self, n_clusters: int = 0, labels: NDArray[np.int64] | None = None) -> None:
        self.n_clusters = n_clusters
        self.labels = labels

    def fit(self, X: Any, y: Any = None) -> "Given":
        """Take the labels."""
        assert self.labels is not None
        self.labels_ = self.labels.astype(np.int32)
        return self


def dipdeck(task: Task) -> Outcome:
    """DipDECK as it comes, begun with the given clusters."""
    return _fitted(task, Given, {"labels": task.clusters})


def dipdeck_from_scratch(task: Task) -> Outcome:
    """DipDECK as it comes, begun with k-means in the embedding, at as many clusters."""
    return _fitted(task, KMeans, {})


def _fitted(task: Task, begin: type, params: dict[str, Any]) -> Outcome:
    model = _package()(
        n_clusters_init=task.k,
        initial_clustering_class=begin,
        initial_clustering_params=params,
        device="cpu",
        random_state=task.seed,
    )
    silence = io.StringIO()
    with redirect_stdout(silence), redirect_stderr(silence), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Outcome(automatic=model.fit(task.X.astype(np.float32)).labels_.astype(np.int64))


def _package() -> Any:
    """ClustPy imports torchvision for data it could load, none of which is needed here."""
    missing = importlib.util.find_spec("torchvision") is None
    names = ["torchvision", "torchvision.models", "torchvision.models._api"] if missing else []
    sys.modules.update({name: _Stub(name) for name in names})
    try:
        from clustpy.deep import DipDECK
    except ImportError as error:
        raise ImportError(
            f"DipDECK needs clustpy: pip install --no-deps clustpy ({error})"
        ) from None
    finally:
        for name in names:
            del sys.modules[name]
    return DipDECK


class _Stub(ModuleType):
    """Has whatever class or submodule it is asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return object if name[0].isupper() else _Stub(f"{self.__name__}.{name}")
