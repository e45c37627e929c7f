"""Over-clustering with any clusterer of scikit-learn."""

import re

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import BaseEstimator
from sklearn.cluster import DBSCAN, KMeans
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tests.overclustering_cases import blobs, gaussian
from unsplit.errors import InputError
from unsplit.overclustering import default_clusterer, overcluster


def test_the_clusterer_is_copied_and_seeded():
    X = gaussian(np.random.default_rng(12), 200, 3)
    clusterer = KMeans(8, n_init=1, init="random")
    labels = overcluster(X, clusterer, random_state=0)
    assert clusterer.random_state is None
    assert not hasattr(clusterer, "labels_")
    assert sorted(set(labels)) == list(range(8))
    np.testing.assert_array_equal(overcluster(X, clusterer, random_state=0), labels)
    others = [overcluster(X, clusterer, random_state=seed) for seed in range(1, 4)]
    assert any((other != labels).any() for other in others)


class Recorder(BaseEstimator):
    """Remembers, outside itself, the seeds it was fitted with."""

    seeds = ()

    def __init__(self, random_state=None, inner=None):
        self.random_state = random_state
        self.inner = inner

    def fit_predict(self, X):
        Recorder.seeds = (self.random_state, getattr(self.inner, "random_state", "none"))
        return np.arange(len(X)) % 2


@pytest.mark.parametrize(
    ("clusterer", "given"),
    [
        (Recorder(), [None, "none"]),
        (Recorder(7), [7, "none"]),
        (Recorder(None, Recorder(3)), [None, 3]),
        (Recorder(3, Recorder()), [3, None]),
    ],
)
def test_only_unset_seeds_are_set_at_any_depth(clusterer, given):
    overcluster(np.zeros((4, 1)), clusterer, random_state=1)
    for before, after in zip(given, Recorder.seeds, strict=True):
        assert isinstance(after, int) if before is None else after == before


def test_a_pipeline_will_do():
    X = blobs(np.random.default_rng(13), 100, 3)
    pipeline = make_pipeline(StandardScaler(), KMeans(6, n_init=1, init="random"))
    labels = overcluster(X, pipeline, random_state=0)
    np.testing.assert_array_equal(overcluster(X, pipeline, random_state=0), labels)
    assert len(set(labels)) == 6


@pytest.mark.parametrize(("eps", "found"), [(1e-9, 0), (100.0, 1)])
def test_fewer_than_two_clusters_are_refused(eps, found):
    X = gaussian(np.random.default_rng(14), 30, 2)
    sentence = rf"clusterer must find at least 2.*DBSCAN\(eps={eps}\) found {found}; change"
    with pytest.raises(InputError, match=sentence):
        overcluster(X, DBSCAN(eps=eps))


@pytest.mark.parametrize("clusterer", [40, "kmeans", KMeans, StandardScaler()])
def test_what_is_no_clusterer_is_refused(clusterer):
    sentence = rf"clusterer must .*fit_predict, got {re.escape(repr(clusterer))}; pass.*KMeans"
    with pytest.raises(InputError, match=sentence):
        overcluster(np.zeros((4, 1)), clusterer)


@pytest.mark.parametrize("X", [np.eye(50), np.eye(50).tolist(), scipy.sparse.eye_array(50).tocsr()])
def test_without_a_clusterer_the_default_is_used(X):
    labels = overcluster(X, random_state=0)
    assert labels.shape == (50,)
    assert len(set(labels)) == 5


def test_default_leaves_ten_observations_to_a_cluster():
    numbers = {n: default_clusterer(n).n_clusters for n in (2, 19, 20, 99, 100, 400, 10_000)}
    assert numbers == {2: 2, 19: 2, 20: 2, 99: 9, 100: 10, 400: 20, 10_000: 100}
    assert all(n / k >= 10 for n, k in numbers.items() if n >= 20)
