"""Inputs that cannot be used are refused in one sentence before any training; others are used."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from torch.utils.data import Dataset

import unsplit
from benchmarks.common import as_options
from unsplit.data.labels import encode_labels
from unsplit.data.rows.kinds import observations
from unsplit.data.rows.sequences import Ragged, RaggedRows

CPU = torch.device("cpu")
RNG = np.random.default_rng(0)
X = np.concatenate([RNG.standard_normal((12, 2)), RNG.standard_normal((12, 2)) + 4])
Y = np.repeat([0, 1], 12)
FIRST_THREE = np.arange(24) < 3
DATES = np.full((24, 2), "2020-01-01", "datetime64[D]")
FRAME = pd.DataFrame(X, columns=["a", "b"])
MASKED = np.ma.masked_array(X, mask=np.arange(48).reshape(24, 2) == 3)


def objects(*values: Any) -> np.ndarray:
    """Return the values again and again, in an object array of 24."""
    found = np.empty(24, object)
    for place in range(24):
        found[place] = values[place % len(values)]
    return found


def tvd(X: Any = X, labels: Any = Y, **settings: Any) -> unsplit.PairwiseTVD:
    return unsplit.pairwise_tvd(
        X,
        labels,
        **as_options(**{"epochs": 1, "cv": 2, "random_state": 0, **settings}),
    )


def merger(X: Any = X, **settings: Any) -> unsplit.ClusterMerger:
    return unsplit.ClusterMerger(
        training=unsplit.TrainConfig(epochs=1), random_state=0, **settings
    ).fit(X)


def tree() -> unsplit.MergeTree:
    return unsplit.merge([[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]], n_clusters=1)


def plain_merge(**options: Any) -> unsplit.MergeTree:
    return unsplit.merge([[0, 0.1], [0.1, 0]], **options)


def with_gap(frame: pd.DataFrame) -> pd.DataFrame:
    frame = frame.copy()
    frame.iloc[0, 0] = pd.NA
    return frame


def sparse_csr() -> torch.Tensor:
    return torch.tensor(X).to_sparse()


def damaged(part: str, value: int) -> scipy.sparse.csr_array:
    """A sparse matrix with a number that points outside."""
    X_sparse = scipy.sparse.csr_array(X)
    getattr(X_sparse, part)[3] = value
    return X_sparse


def as_matrix() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        return np.asmatrix(X)


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    # X
    "masked": (lambda: tvd(MASKED), "X has 1 masked values; fill"),
    "masked, estimator": (lambda: merger(MASKED), "X has 1 masked values; fill"),
    "masked, graph": (lambda: unsplit.neighbour_graph(MASKED, Y), "X has 1 masked values"),
    "masked, Wasserstein": (lambda: unsplit.pairwise_wasserstein(MASKED, Y), "masked values"),
    "masked sequences": (
        lambda: tvd(np.ma.masked_array(np.ones((24, 10, 2)), mask=True)),
        "X has 480 masked values",
    ),
    "masked list": (
        lambda: tvd([np.ma.masked_array(np.ones(4 + i % 2), mask=i == 1) for i in range(24)]),
        "sequence 1 has 5 masked values",
    ),
    "dates": (lambda: tvd(DATES), r"dates or durations of type datetime64\[D\]; turn them"),
    "durations": (lambda: tvd(DATES - DATES[0]), r"durations of type timedelta64\[D\]"),
    "dates with NaT": (lambda: tvd(np.where(X > 0, DATES, np.datetime64("NaT"))), "dates or"),
    "dates, estimator": (lambda: merger(DATES), "dates or durations"),
    "a column of dates": (
        lambda: tvd(FRAME.assign(a=pd.Timestamp("2020-01-01"))),
        "got '2020-01-01 00:00:00' in row 0, column 0",
    ),
    "categories": (
        lambda: tvd(FRAME.assign(b=pd.Categorical(["u", "v"] * 12))),
        "got 'u' in row 0, column (1|'b'); encode text",
    ),
    "categories, estimator": (
        lambda: merger(FRAME.assign(b=pd.Categorical(["u", "v"] * 12))),
        "got 'u' in row 0, column (1|'b'); encode text",
    ),
    "text": (lambda: tvd(np.full((24, 2), "a")), "X must hold numbers, got 'a'"),
    "text, estimator": (lambda: merger(np.full((24, 2), "a")), "numeric"),
    "a column of durations, estimator": (
        lambda: merger(FRAME.assign(b=pd.to_timedelta(1, "s"))),
        "got '0 days 00:00:01' in row 0, column 'b'; encode",
    ),
    "a column of dates, estimator": (
        lambda: merger(FRAME.assign(b=pd.Timestamp("2020-01-01"))),
        "got '2020-01-01 00:00:00' in row 0, column 'b'; encode",
    ),
    "names of columns of two types": (
        lambda: merger(FRAME.rename(columns={"a": 1})),
        r"your input has \['int', 'str'\] as feature name",
    ),
    "integers beyond floats": (lambda: tvd([[10**400, 1]] * 24), "X must hold numbers, got '1000"),
    "integers beyond floats, estimator": (
        lambda: merger([[10**400, 1]] * 24),
        "X must hold numbers, got '1000",
    ),
    "damaged columns of a sparse matrix": (
        lambda: tvd(damaged("indices", 9)),
        r"X is a damaged sparse matrix \(indices must be < 2\); read or build it again",
    ),
    "damaged rows of a sparse matrix": (
        lambda: merger(damaged("indptr", 10**6)),
        "X is a damaged sparse matrix .indptr",
    ),
    "nested tensor, estimator": (
        lambda: merger(torch.nested.nested_tensor([torch.ones(4, 2)] * 24, layout=torch.jagged)),
        "X is a sparse or nested torch tensor",
    ),
    "labels without a text": (
        lambda: tvd(labels=objects(Unprintable(), Unprintable())),
        r"labels of type Unprintable cannot be written as text \(RuntimeError\); pass",
    ),
    "nullable with a gap": (
        lambda: tvd(with_gap(FRAME.round().astype("Int64"))),
        "of X has values that are NaN, infinite",
    ),
    "nullable with a gap, estimator": (
        lambda: merger(with_gap(FRAME.round().astype("Int64"))),
        r"X has missing or infinite values \(1 in column 'a'\); remove those rows or fill",
    ),
    "objects with a gap": (lambda: tvd(np.where(X > 4, None, X)), "of X has values that are NaN"),
    "complex": (lambda: tvd(X + 1j), "must hold numbers, got values of type complex128"),
    "complex, sparse": (lambda: tvd(scipy.sparse.csr_array(X + 1j)), "must hold numbers"),
    "complex, torch": (lambda: tvd(torch.tensor(X) + 1j), "must hold numbers"),
    "complex, estimator": (lambda: merger(X + 1j), "X must hold real numbers"),
    "sparse tensor": (lambda: tvd(sparse_csr()), "sparse or nested torch tensor.*SciPy"),
    "sparse tensor, estimator": (lambda: merger(sparse_csr()), "sparse or nested torch tensor"),
    "meta tensor": (lambda: tvd(torch.empty(24, 2, device="meta")), "holds no values"),
    "meta tensor, estimator": (
        lambda: merger(torch.empty(24, 2, device="meta")),
        "holds no values",
    ),
    "records": (lambda: tvd(np.zeros((24, 2), "V3")), "X must hold numbers"),
    # labels
    '1 and "1"': (lambda: tvd(labels=objects(1, "1")), "look the same as text"),
    '1 and "1" in a list': (lambda: tvd(labels=[1, "1"] * 12), "look the same as text"),
    "b'a' and 'a'": (lambda: tvd(labels=objects(b"a", "a")), "look the same as text"),
    "labels of records": (lambda: tvd(labels=np.zeros(24, [("a", int)])), "of type void; join"),
    "labels of void": (lambda: tvd(labels=np.zeros(24, "V3")), "of type void; join"),
    "labels of lists": (lambda: tvd(labels=[[1], [1, 2]] * 12), "labels must be one integer or"),
    "labels of tuples": (lambda: tvd(labels=objects((1, 2), (3, 4))), r"got \(1, 2\) of type tupl"),
    "labels of arrays": (lambda: tvd(labels=objects(np.arange(2))), "of type ndarray"),
    "labels of dicts": (lambda: tvd(labels=[{"a": 1}, {"a": 2}] * 12), "of type dict; join"),
    "labels in a dict": (lambda: tvd(labels={0: 1}), "one label per observation"),
    "labels without values": (lambda: tvd(labels=torch.empty(24, device="meta")), "labels must be"),
    "masked batch": (
        lambda: tvd(batch=np.ma.masked_array(Y, mask=FIRST_THREE)),
        "batch is missing .* for 3 of 24",
    ),
    # settings
    "random_state": (lambda: tvd(random_state=-1), "random_state must be .* got -1"),
    "random_state, estimator": (
        lambda: unsplit.ClusterMerger(random_state=-1).fit(X),
        "random_state must be .* got -1",
    ),
    "cv": (lambda: tvd(cv="x"), "cv must be a number of folds of at least 2, .*, got 'x'"),
    "a share of 1": (lambda: tvd(cv=1.0), "cv must be a number of folds .*, got 1.0; 5 is usual"),
    "cvs": (lambda: tvd(cv=np.array([0.1, 0.2])), "cv must be a number of folds"),
    "cv, select": (lambda: unsplit.select(X, Y, cv="a"), "cv must be a share .*, got 'a'"),
    "folds, select": (lambda: unsplit.select(X, Y, cv=5), "cv must be a share .*, got 5"),
    "cv=1000": (lambda: tvd(cv=1000), "cv must be at most 12, the size of the largest cluster"),
    "cv=1000, tiny clusters": (
        lambda: tvd(X[::4], Y[::4], cv=1000),
        "cv must be at most 10, the size of the largest cluster or 10, got 1000",
    ),
    "cv=1000, Wasserstein": (
        lambda: unsplit.pairwise_wasserstein(X, Y, cv=1000),
        "cv must be at most 12",
    ),
    "epochs": (lambda: tvd(epochs=1.5), "epochs must be a whole number of at least 1, got 1.5"),
    "loss": (lambda: tvd(loss=["softmax"]), r"loss must be one of .* got \['softmax'\]"),
    "n_clusters": (lambda: merger(n_clusters="a"), "n_clusters must be .* got 'a'"),
    "max_tvd": (lambda: plain_merge(max_tvd="a"), "max_tvd must lie between 0 and 1, got 'a'"),
    "max_tvd, estimator": (lambda: merger(max_tvd="a"), "max_tvd must lie between 0 and 1"),
    "alpha": (lambda: plain_merge(alpha="a"), "alpha must lie between 0 and 1, got 'a'"),
    "fewest": (
        lambda: plain_merge(n_clusters=("a", None), max_tvd=0.5),
        r"n_clusters must be a whole number .*, or a pair .* got \('a', None\)",
    ),
    "must_link": (
        lambda: merger(constraints={"must_link": 3}),
        "must_link must hold pairs of cluster names, got 3; pass a list such as",
    ),
    "links": (lambda: merger(constraints={"must": [(0, 1)]}), "constraints must be a file of"),
    "n_neighbors": (lambda: merger(n_neighbors=2), "n_neighbors must be .* at least 3, got 2"),
    "metric": (lambda: merger(metric="dice"), "metric must be one of euclidean, cosine"),
    "undo 1.5": (lambda: tree().undo(1.5), "step must be .* got 1.5; choose one of 0, 1"),
    "undo 'a'": (lambda: tree().undo("a"), "step must be .* got 'a'; choose one of 0, 1"),
    "undo True": (lambda: tree().undo(True), "step must be .* got True; choose one of 0, 1"),
    "cut at 'a' clusters": (lambda: tree().cut(n_clusters="a"), 'n_clusters="a" is not possible'),
    "cut at height 'a'": (lambda: tree().cut(height="a"), "height must be a number, got 'a'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_in_one_sentence_before_training(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("training has started")

    monkeypatch.setattr("unsplit.pairwise.api.build_network", never)
    call, pattern = REFUSED[name]
    with pytest.raises(unsplit.InputError, match=pattern) as caught:
        call()
    assert "\n" not in str(caught.value)


# Each must give what the plain array gives.
USED: dict[str, Callable[[], Any]] = {
    "masked array without masked values": lambda: np.ma.masked_array(X),
    "tensor that requires grad": lambda: torch.tensor(X, requires_grad=True),
    "list of tensors that require grad": lambda: list(torch.tensor(X, requires_grad=True)),
    "objects": lambda: X.astype(object),
    "strings of numbers": lambda: X.astype(str),
    "nullable floats": lambda: FRAME.astype("Float64"),
    "matrix": as_matrix,
    "sparse columns": lambda: FRAME.astype(pd.SparseDtype(float)),
}


@pytest.mark.parametrize("name", USED)
def test_used_like_a_plain_array(name: str) -> None:
    np.testing.assert_array_equal(tvd(USED[name]()).hit_rate, tvd().hit_rate)


# Each has noise in the first three rows, and clusters that are those of Y otherwise.
WITH_NOISE: dict[str, Callable[[], Any]] = {
    "masked integers": lambda: np.ma.masked_array(Y, mask=FIRST_THREE),
    "masked unsigned": lambda: np.ma.masked_array(Y.astype(np.uint8), mask=FIRST_THREE),
    "masked floats": lambda: np.ma.masked_array(Y * 1.0, mask=FIRST_THREE),
    "masked strings": lambda: np.ma.masked_array(Y.astype(str), mask=FIRST_THREE),
    "NaN in a list of strings": lambda: [float("nan")] * 3 + ["a"] * 9 + ["b"] * 12,
    "nullable": lambda: pd.Series(Y, dtype="Int64").mask(pd.Series(FIRST_THREE)),
    "categories": lambda: pd.Categorical([None] * 3 + ["a"] * 9 + ["b"] * 12),
    "strings of any length": lambda: np.array(
        ["-1"] * 3 + ["a"] * 9 + ["b"] * 12, np.dtypes.StringDType()
    ),
    "bytes": lambda: np.array([b"-1"] * 3 + [b"a"] * 9 + [b"b"] * 12),
    "bytes as objects": lambda: np.array([None] * 3 + [b"a"] * 9 + [b"b"] * 12, object),
    "tensor that requires grad": lambda: torch.tensor(
        np.where(FIRST_THREE, -1.0, Y), requires_grad=True
    ),
}


@pytest.mark.parametrize("name", WITH_NOISE)
def test_masked_and_missing_labels_are_noise(name: str) -> None:
    encoded = encode_labels(WITH_NOISE[name](), 24)
    np.testing.assert_array_equal(encoded.clusters, np.where(FIRST_THREE, -1, Y))


def test_the_estimator_keeps_masked_labels_as_noise() -> None:
    labels = np.ma.masked_array(Y, mask=FIRST_THREE)
    fitted = unsplit.ClusterMerger(
        training=unsplit.TrainConfig(epochs=1), cv=2, random_state=0
    ).fit(X, initial_labels=labels)
    assert (fitted.labels_[:3] == -1).all()
    assert (fitted.labels_[3:] >= 0).all()
    assert fitted.initial_labels_[:3].tolist() == [None] * 3


# --- coordinates far from the origin --------------------------------------------------------------

OFFSET = np.array([4_000_000.0, 500_000.0, 2_000_000.0])


class Clouds(Dataset[Any]):
    def __init__(self, clouds: Any) -> None:
        self.clouds = clouds

    def __len__(self) -> int:
        return len(self.clouds)

    def __getitem__(self, index: int) -> Any:
        return self.clouds[index]


def cut(sequences: np.ndarray) -> list[np.ndarray]:
    """Sequences of different lengths."""
    return [sequence[: 20 + i % 3] for i, sequence in enumerate(sequences)]


FAR_AWAY: dict[str, Callable[[np.ndarray], Any]] = {
    "vectors": lambda clouds: clouds.reshape(len(clouds), -1),
    "clouds": lambda clouds: clouds,
    "sequences": lambda clouds: clouds[:, :, :2],
    "ragged": cut,
    "dataset of clouds": Clouds,
    "dataset of sequences": lambda clouds: Clouds(clouds[:, :, :2]),
    "dataset of vectors": lambda clouds: Clouds(clouds.reshape(len(clouds), -1)),
}


@pytest.mark.parametrize("name", FAR_AWAY)
def test_millimetres_survive_a_large_offset(name: str) -> None:
    clouds = np.random.default_rng(1).random((6, 24, 3))
    index = torch.arange(6)

    def differences(offset: np.ndarray) -> torch.Tensor:
        rows = observations(FAR_AWAY[name](clouds + offset), CPU)
        new = rows.another(FAR_AWAY[name](clouds + offset + 0.001))
        return new.take(index) - rows.take(index)

    near, far = differences(np.zeros(3)), differences(OFFSET)
    torch.testing.assert_close(far, near, rtol=0, atol=1e-6)


def test_data_near_the_origin_are_not_moved() -> None:
    clouds = 5 + np.random.default_rng(1).random((6, 24, 3))
    rows = observations(FAR_AWAY["ragged"](clouds), CPU)
    narrow = observations(FAR_AWAY["ragged"](clouds.astype(np.float32)), CPU)
    assert torch.equal(rows.take(torch.arange(6)), narrow.take(torch.arange(6)))


def test_the_origin_of_sequences_follows_them() -> None:
    sequences = cut(np.random.default_rng(1).random((6, 24, 3)) + OFFSET)
    one, other = Ragged.of(sequences), Ragged.of(sequences[::-1])
    np.testing.assert_array_equal(one.keys, other.keys[::-1])
    assert one.origin is not None
    rows = RaggedRows(one, CPU)
    assert torch.equal(rows.first(2).take(torch.arange(2)), rows.take(torch.arange(2)))


# --- memory ---------------------------------------------------------------------------------------


def wide(n_features: int) -> scipy.sparse.csr_array:
    """24 rows with one entry each; a tiny matrix, but a network needs weights for every feature."""
    rows = np.arange(24)
    return scipy.sparse.csr_array((np.ones(24), (rows, rows % 5)), (24, n_features))


TOO_LARGE: dict[str, tuple[Callable[[], Any], str]] = {
    "counts": (lambda: tvd(wide(10**12)), "needs more memory"),
    "vectors": (lambda: tvd(wide(10**12), backbone="mlp"), "needs more memory"),
    "batches": (lambda: tvd(wide(10**12), batch=np.arange(24) % 2), "needs more memory"),
    "your own network": (lambda: tvd(wide(10**12), backbone=torch.nn.Identity()), "needs more mem"),
    "estimator": (
        lambda: unsplit.ClusterMerger(cv=2).fit(wide(10**12), initial_labels=Y),
        "needs more memory",
    ),
    "select": (lambda: unsplit.select(wide(10**12), Y, ["auto"]), "memory"),
    "Wasserstein": (lambda: unsplit.pairwise_wasserstein(wide(10**12), Y), "needs more memory"),
    "graph": (lambda: unsplit.neighbour_graph(wide(10**12), Y), "needs more memory"),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_too_many_features_are_refused(name: str) -> None:
    call, pattern = TOO_LARGE[name]
    with pytest.raises(unsplit.InputError, match=pattern) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_the_guard_counts_the_weights_of_the_first_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    # Measured: 24 x 10**7 needed more than 9 GB before it was stopped.
    monkeypatch.setattr("unsplit.pairwise.api.free_memory", lambda device: 9 * 2**30)
    with pytest.raises(unsplit.InputError, match=r"2 networks .* 10,000,000 numbers each .* GiB"):
        tvd(wide(10**7))


@pytest.mark.parametrize(
    ("call", "pattern"),
    [
        (lambda: plain_merge(n_clusters=1), "merging 2 clusters would need"),
        (lambda: unsplit.merge(tvd()), "merging 2 clusters would need"),
        (lambda: merger(), r"merging \d+ clusters would need"),
    ],
    ids=["matrix", "scores", "estimator"],
)
def test_the_guard_counts_the_matrices_of_merging(
    call: Callable[[], Any], pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unsplit.merging.api.available_memory", lambda: 100)
    with pytest.raises(unsplit.InputError, match=pattern):
        call()


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        np._core._exceptions._ArrayMemoryError((10**6, 10**6), np.dtype(float)),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes."),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nSee the manual."),
    ],
    ids=["Python", "NumPy", "torch on the CPU", "torch on a GPU"],
)
@pytest.mark.parametrize("call", [tvd, merger], ids=["pairwise_tvd", "ClusterMerger"])
def test_errors_about_memory_become_a_sentence(
    error: Exception, call: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("unsplit.pairwise.api.build_network", fails)
    with pytest.raises(
        unsplit.InputError, match=r"needs more memory than is available .* use fewer"
    ):
        call()


def test_other_errors_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("something else")

    monkeypatch.setattr("unsplit.pairwise.api.build_network", fails)
    with pytest.raises(RuntimeError, match="something else"):
        tvd()


# --- batches --------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::unsplit.errors.BatchWarning")
def test_groups_that_share_no_batch_complete_the_tree() -> None:
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.standard_normal((30, 2)) + shift for shift in (0, 0, 5, 5)])
    batch = np.repeat(["a", "a", "b", "b"], 30)
    merger = unsplit.ClusterMerger(
        training=unsplit.TrainConfig(epochs=1), cv=2, max_tvd=0.6, random_state=0
    )
    tree = merger.fit(points, initial_labels=np.repeat(range(4), 30), batch=batch).tree_
    assert tree.mapping == {0: 0, 1: 0, 2: 1, 3: 1}
    assert tree.merges[-1].why == "beyond the cut: no batch has at least two observations of each"
    assert np.isfinite(tree.linkage).all()


# Odd surroundings and odd names


def test_errors_of_numpy_may_be_raised_where_a_page_is_made(tmp_path: Path) -> None:
    result = tvd()
    merged = unsplit.merge(result, n_clusters=2)
    wide = np.where(np.arange(X.size).reshape(X.shape) % 2, 1e-300, X)
    with np.errstate(all="raise"):
        merged.report(result, X, Y).save(tmp_path / "page.html")
        merged.report(result, wide, Y).save(tmp_path / "wide.html")
    assert (tmp_path / "wide.html").stat().st_size > 10_000


def test_labels_that_are_no_text_in_utf_8_are_kept_as_they_are(tmp_path: Path) -> None:
    named = np.array([f"caf\udce9 {label}" for label in Y])
    quick = unsplit.ClusterMerger(2, training=unsplit.TrainConfig(epochs=1), random_state=0)
    fitted = quick.fit(X, initial_labels=named)
    fitted.tree_.save(tmp_path / "tree.npz")
    assert unsplit.MergeTree.load(tmp_path / "tree.npz").mapping == fitted.tree_.mapping
    fitted.pairwise_.save(tmp_path / "distances.npz")
    loaded = unsplit.PairwiseTVD.load(tmp_path / "distances.npz")
    assert loaded.cluster_ids.tolist() == fitted.pairwise_.cluster_ids.tolist()
    fitted.tree_.report(fitted.pairwise_, X, named).save(tmp_path / "page.html")
    assert "caf" in (tmp_path / "page.html").read_text("utf-8")
