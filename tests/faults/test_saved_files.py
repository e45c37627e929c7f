"""Saved files that were damaged, changed or written by hand: loaded as they were, or refused."""

import copy
import io
import json
import math
import sys
import tempfile
import time
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unsplit
from tests.faults import many
from tests.merging_cases import gaussian_estimate
from unsplit.data.array_files import checksum
from unsplit.errors import InputError
from unsplit.merging.api import merge_with
from unsplit.merging.plan import MergeOptions
from unsplit.pairwise.divergences import ScoreCounts
from unsplit.report.api import Content, make_page
from unsplit.report.collect import Kept, Source, collect

QUICK, MANY = 60, many(5_000)
DISTANCES = np.abs(np.subtract.outer(*2 * [np.array([0, 0.1, 0.4, 0.45, 0.9])]))


# The kinds of files.  Each is written, loaded, compared byte by byte and used.


@dataclass
class Npz:
    """A result with ``save`` and ``load``."""

    result: Any
    name: str = "saved.npz"
    counts: str = "sizes"  # an array of whole numbers in it

    def write(self, folder):
        self.result.save(folder / self.name)

    def load(self, folder):
        return type(self.result).load(folder / self.name)

    def content(self, loaded):
        """All that it holds; saving is deterministic."""
        with tempfile.TemporaryDirectory() as folder:
            loaded.save(Path(folder) / "again.npz")
            return (Path(folder) / "again.npz").read_bytes()

    def use(self, loaded):
        """Everything that a reader of the file may ask for."""
        repr(loaded)
        loaded.table()
        if isinstance(loaded, unsplit.MergeTree):
            assert loaded.linkage.shape == (loaded.n_initial - 1, 4)
            assert len(loaded.groups) == loaded.n_initial
            loaded.mapping, loaded.review_table(), loaded.cut(height=0.5)
        elif isinstance(loaded, unsplit.PairwiseTVD):
            loaded.confidence_interval(), loaded.mean_accuracy, loaded.n_batches
            loaded.tvd_error[0, 1], loaded.nearest(np.ones(loaded.n_clusters, bool))
        else:
            unsplit.merge(loaded, n_clusters=2)

    def open(self, folder):
        """The plain values and the arrays."""
        with np.load(folder / self.name) as file:
            arrays = dict(file)
        return json.loads(str(arrays.pop("meta"))), arrays

    def replace(self, folder, meta, arrays, signed):
        """Write other content, with its right checksum if it is signed."""
        if signed and isinstance(meta, dict):
            meta["sha256"] = checksum(meta, arrays)
        np.savez(folder / self.name, meta=np.array(json.dumps(meta)), **arrays)


@dataclass
class KeptFile(Npz):
    """What a page keeps of the observations, which is loaded for a number of clusters."""

    counts: str = "tile_clusters"

    def load(self, folder):
        return Kept.load(folder / self.name, 3)

    def use(self, loaded):
        tree = unsplit.merge(DISTANCES[:3, :3], n_clusters=2)
        assert len(make_page(Content(tree, kept=loaded)).html) > 10_000


@dataclass
class Scores(Npz):
    """The held-out scores beside the distances."""

    name: str = "saved.scores.npz"
    counts: str = "rows"

    def write(self, folder):
        self.result.save(folder / "saved.npz", scores=True)

    def load(self, folder):
        return type(self.result).load(folder / "saved.npz")

    def content(self, loaded):
        if isinstance(loaded.scores, ScoreCounts):
            return None
        with tempfile.TemporaryDirectory() as folder:
            loaded.save(Path(folder) / "again.npz", scores=True)
            return (Path(folder) / "again.scores.npz").read_bytes()

    def use(self, loaded):
        super().use(loaded)
        loaded.divergence("js")


@dataclass
class Graph(Npz):
    """A neighbour graph, which merging again uses."""

    counts: str = "clusters"

    def use(self, loaded):
        repr(loaded)
        loaded.edges_between(), loaded.weights, loaded.is_low_dimensional
        merge_with(estimate(), MergeOptions(), loaded, 0)


def batched_estimate():
    X, labels = unsplit.datasets.gaussians([[0, 0], [1, 0], [9, 0]], 30, random_state=0)
    batch = np.arange(len(X)) % 2 * (labels < 2)
    return unsplit.pairwise_tvd(
        X, labels, batch=batch, cv=2, training=unsplit.TrainConfig(epochs=1), random_state=0
    )


def estimate():
    names = ["a", "b", "新", "d"]
    result, _ = gaussian_estimate([[0], [0.2], [3], [8]], [30, 20, 25, 1], names=names)
    return result


def sparse_estimate():
    X, labels = unsplit.datasets.gaussians([[0, 0], [1, 0], [9, 0]], 30, random_state=0)
    return unsplit.pairwise_tvd(
        X, labels, form="sparse", cv=2, training=unsplit.TrainConfig(epochs=1), random_state=0
    )


def wasserstein():
    X, labels = unsplit.datasets.gaussians([[0, 0], [0, 0], [9, 0]], 30, random_state=0)
    return unsplit.pairwise_wasserstein(X, labels, epochs=2, random_state=0)


def graph():
    means = [[0, 0], [1, 0], [9, 0], [9, 9]]
    X, labels = unsplit.datasets.gaussians(means, 20, random_state=0)
    groups = np.arange(len(labels)) // 2
    return unsplit.neighbour_graph(X, labels, batch=labels // 2, groups=groups)


def kept():
    X, labels = unsplit.datasets.gaussians([[0, 0, 0, 0], [1, 0, 0, 0], [2, 0, 0, 0]], 12)
    names = [f"p_{i}_{j}" for i in (0, 1) for j in (0, 1)]
    found = collect(Source(X, labels, 3, names, picture=X[:, :2]))
    features = collect(Source(X[:, :2], labels, 3))
    parts = ("feature_names", "means", "spread")
    return Kept(**vars(found) | {part: getattr(features, part) for part in parts})


MAKERS = {
    "PairwiseTVD": lambda: Npz(estimate()),
    "PairwiseTVD with batches": lambda: Npz(batched_estimate()),
    "sparse PairwiseTVD": lambda: Npz(sparse_estimate()),
    "scores": lambda: Scores(estimate()),
    "scores with batches": lambda: Scores(batched_estimate()),
    "PairwiseWasserstein": lambda: Npz(wasserstein()),
    "MergeTree": lambda: Npz(unsplit.merge(estimate(), n_clusters=2)),
    "NeighbourGraph": lambda: Graph(graph()),
    "report.npz": lambda: KeptFile(kept()),
}


@pytest.fixture(scope="module", params=MAKERS)
def kind(request):
    return MAKERS[request.param]()


@pytest.fixture(scope="module")
def saved(kind, tmp_path_factory):
    """A folder with the file, and its bytes."""
    folder = tmp_path_factory.mktemp("saved")
    kind.write(folder)
    return folder, (folder / kind.name).read_bytes()


def outcome(kind, folder, case):
    """What is loaded, or None if it is refused in one sentence; nothing else may happen."""
    start = time.monotonic()
    try:
        return kind.load(folder)
    except InputError as error:
        sentence = str(error)
        assert kind.name in sentence, case
        assert sentence.endswith("."), case
        assert "\n" not in sentence, case
        assert len(sentence) < 600, case
        assert "again" in sentence, case
        return None
    except Exception as error:
        raise AssertionError(f"case {case} raised {error!r}") from error
    finally:
        assert time.monotonic() - start < 10, case


def test_what_is_saved_is_loaded(kind, saved):
    folder, whole = saved
    (folder / kind.name).write_bytes(whole)
    loaded = kind.load(folder)
    assert kind.content(loaded) == kind.content(kind.result)
    kind.use(loaded)


# Damage: whatever is changed is noticed, unless nothing that is read has changed.


def cut_short(rng, whole):
    return whole[: rng.integers(len(whole))]


def flipped(rng, whole):
    """Up to eight bytes are others."""
    damaged = bytearray(whole)
    for place in rng.integers(len(whole), size=rng.integers(1, 9)):
        damaged[place] ^= rng.integers(1, 256)
    return bytes(damaged)


def zeroed(rng, whole):
    """A block was never written, as after a power cut."""
    start, stop = sorted(rng.integers(len(whole) + 1, size=2))
    return whole[:start] + bytes(stop - start) + whole[stop:]


def repeated(rng, whole):
    """A part is there twice, or something is added at the end."""
    start, stop = sorted(rng.integers(len(whole) + 1, size=2))
    return whole[:stop] + whole[start:]


def other_members(rng, whole):
    """Members are missing, twice there, renamed, exchanged or cut short."""
    with zipfile.ZipFile(io.BytesIO(whole)) as file:
        members = [(info.filename, file.read(info)) for info in file.infolist()]
    i, j = rng.integers(len(members), size=2)
    match rng.integers(6):
        case 0:
            del members[i]
        case 1:
            members.append(members[i])
        case 2:
            members.append((members[i][0], members[j][1]))
        case 3:
            members[i] = ("other.npy", members[i][1])
        case 4:
            members[i] = (members[i][0], members[j][1])
        case 5:
            members[i] = (members[i][0], members[i][1][: rng.integers(len(members[i][1]))])
    made = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(made, "w") as file:
        warnings.simplefilter("ignore")  # about names that are there twice
        for name, content in members:
            file.writestr(name, content)
    return made.getvalue()


DAMAGES = (cut_short, flipped, zeroed, repeated, other_members)


def damage(kind, saved, damages, n_cases):
    folder, whole = saved
    (folder / kind.name).write_bytes(whole)
    expected = kind.content(kind.load(folder))
    refused = 0
    for seed in range(n_cases):
        rng = np.random.default_rng(seed)
        damaged = damages[seed % len(damages)](rng, whole)
        (folder / kind.name).write_bytes(damaged)
        loaded = outcome(kind, folder, seed)
        assert loaded is None or kind.content(loaded) == expected, seed
        refused += loaded is None
    assert refused > n_cases // 2


def test_damage_is_refused(kind, saved):
    damage(kind, saved, DAMAGES, QUICK)


@pytest.mark.slow
def test_much_damage_is_refused(kind, saved):
    damage(kind, saved, DAMAGES, MANY)


# Edits: values are changed.  Without a new checksum the file is refused; with one it is refused or
# what is loaded can be used.


def edited_arrays(rng, arrays):
    """The same arrays with one removed, or with another type, shape or value."""
    name = sorted(arrays)[rng.integers(len(arrays))]
    array = arrays[name].copy()
    dtype = rng.choice(["f4", "f8", "i8", "i1", "u8", "?", ">f4", ">i8", "U3", "c16", "S2"])
    match rng.integers(7):
        case 0:
            return {key: value for key, value in arrays.items() if key != name}
        case 1 if array.dtype.kind in "iufb":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about casts that lose something
                array = array.astype(dtype)
        case 2 if array.ndim:
            array = array[: rng.integers(len(array) + 1)]
        case 3:
            array = [array[None], array.T, np.zeros((), array.dtype)][rng.integers(3)]
        case 4 if array.ndim:
            array = np.concatenate([array, array[-1:]])
        case _ if array.size and array.dtype.kind in "iub":
            values = [-1, 0, 1, 2, 5, 2**40, 2**62, -(2**63), array.flat[0]]
            value = values[rng.integers(len(values))]
            array.flat[rng.integers(array.size)] = value if array.dtype.kind == "i" else value > 0
        case _ if array.size and array.dtype.kind == "f":
            values = [-1, 0, 0.5, 1, 1.1, 3e38, np.nan, np.inf, -np.inf]
            array.flat[rng.integers(array.size)] = values[rng.integers(len(values))]
        case _ if array.size:
            array.flat[rng.integers(array.size)] = array.flat[rng.integers(array.size)]
    return arrays | {name: array}


def edit(kind, saved, n_cases, signed):
    folder, whole = saved
    (folder / kind.name).write_bytes(whole)
    expected = kind.content(kind.load(folder))
    meta, arrays = kind.open(folder)
    for seed in range(n_cases):
        rng = np.random.default_rng(seed)
        kind.replace(folder, copy.deepcopy(meta), edited_arrays(rng, arrays), signed)
        loaded = outcome(kind, folder, seed)
        if loaded is None:
            continue
        if not signed:
            assert kind.content(loaded) == expected, seed
        elif "PairwiseTVD" in type(kind.result).__name__:
            continue  # its entries are possible one by one, and may contradict each other
        try:
            kind.use(loaded)
        except InputError:
            pass
        except Exception as error:
            raise AssertionError(f"case {seed} raised {error!r} when it was used") from error


@pytest.mark.parametrize("signed", [False, True])
def test_edits_are_refused_or_harmless(kind, saved, signed):
    edit(kind, saved, QUICK, signed)


@pytest.mark.slow
@pytest.mark.parametrize("signed", [False, True])
def test_many_edits_are_refused_or_harmless(kind, saved, signed):
    edit(kind, saved, MANY, signed)


# Files written by hand, each with its right checksum: what cannot be true is refused.


def changed(**values):
    """An edit of single values."""
    new = {name: np.array(value) for name, value in values.items()}
    return lambda meta, arrays: arrays.update(new)


def without(name):
    return lambda meta, arrays: arrays.pop(name)


def put(name, index, value):
    """An edit of one entry of an array."""

    def edit(meta, arrays):
        arrays[name] = arrays[name].copy()
        arrays[name][index] = value

    return edit


def cast(name, dtype):
    return lambda meta, arrays: arrays.update({name: arrays[name].astype(dtype)})


def shorter(name):
    return lambda meta, arrays: arrays.update({name: arrays[name][:-1]})


def in_merge(step, **values):
    """An edit of one merge of a tree or of a record."""

    def edit(meta, arrays):
        for name, value in values.items():
            arrays[f"merges.{name}"][step] = value

    return edit


IMPOSSIBLE = {
    "PairwiseTVD": [
        (put("hit_rate", (0, 1), 1.01), "hit_rate must be from 0 to 1"),
        (put("hit_rate", (0, 1), -0.01), "hit_rate must be from 0 to 1"),
        (put("hit_rate", (0, 1), np.nan), "hit_rate must be from 0 to 1"),
        (put("p_value", (0, 1), 2), "p_value must be from 0 to 1"),
        (put("cluster_ids", 0, "b"), "cluster_ids must be unique"),
        (shorter("cluster_ids"), "sizes must have shape (3), got (4,)"),
        (shorter("hit_rate"), "hit_rate must have shape (4, 4), got (3, 4)"),
        (put("sizes", 0, 0), "sizes must be from 1 to"),
        (put("counts", (0, 0), -1), "counts must be from 0"),
        (changed(n_folds=0), "n_folds must be from 1"),
        (cast("sizes", np.float64), "sizes must have dtype i8, got float64"),
        (without("p_value"), "p_value is missing"),
        (without("temperature"), "temperature is missing"),
        (changed(temperature=math.nan), "temperature must be finite"),
        (changed(temperature="1"), "temperature must have dtype f8"),
        (changed(n_noise=-1), "n_noise must be at least 0"),
        (changed(n_noise=True), "n_noise must have dtype i8, got bool"),
        (changed(extra=1), "it has an unknown entry 'extra'"),
    ],
    "PairwiseTVD with batches": [
        (put("subclusters", (0, 0), -1), "subclusters must be from 0"),
    ],
    "scores": [
        (put("features", (0, 0), np.inf), "features must be from -1e+15 to 1e+15"),
        (cast("weights", np.float64), "must have dtype f4, got float64"),
        (shorter("rows"), "rows must have shape"),
        (put("clusters", 0, -1), "clusters must be from 0"),
        (shorter("bias"), "bias must have shape"),
        (without("bias"), "bias is missing"),
        (changed(extra=1), "it has an unknown entry 'extra'"),
        (without("distances"), "distances is missing"),
    ],
    "PairwiseWasserstein": [
        (put("distance", (0, 1), -0.1), "distance must be finite and at least 0"),
        (put("distance", (0, 1), np.inf), "distance must be finite and at least 0"),
        (put("stderr", (0, 1), np.nan), "stderr must be at least 0"),
        (put("sizes", 0, -3), "sizes must be from 1"),
        (put("cluster_ids", 0, 1), "cluster_ids must be unique"),
        (without("history"), "history is missing"),
        (shorter("n_heldout"), "n_heldout must have shape (3), got (2,)"),
    ],
    "MergeTree": [
        (in_merge(1, left=0), "each cluster but the last is merged once"),
        (in_merge(0, left=4), "each cluster but the last is merged once"),
        (in_merge(0, left=1), "each cluster but the last is merged once"),
        (in_merge(0, left=-1), "left must be at least 0"),
        (in_merge(0, size_left=0), "size_left must be at least 1"),
        (in_merge(0, tvd=1.1), "tvd must be from 0 to 1, or NaN"),
        (in_merge(0, height=math.nan), "height must be at least 0"),
        (in_merge(0, reason="fate"), "reason must be one of alike, significance, "),
        (shorter("merges.left"), "merges.left must have shape (3), got (2,)"),
        (without("ending.kind"), "ending.kind is missing"),
        (changed(answers="no"), "answers must be a list in JSON"),
        (put("taken", slice(None), [False, False, True]), "but not those below it"),
        (cast("taken", np.int64), "taken must have dtype ?, got int64"),
        (shorter("taken"), "merges.left must have shape (2), got (3,)"),
        (put("sizes", 0, 0), "sizes must be from 1"),
        (put("cluster_ids", 0, "b"), "cluster_ids must be unique"),
    ],
}
IMPOSSIBLE["report.npz"] = [
    (without("tiles"), "tiles is missing"),
    (changed(n_observations=-1), "n_observations must be"),
    (changed(picture_method=3), "picture_method must have dtype U"),
    (put("picture_clusters", 0, 3), "picture_clusters must be from 0 to 2"),
    (put("picture_xy", (0, 0), np.nan), "picture_xy must be finite"),
    (put("tile_clusters", 0, -1), "tile_clusters must be from 0 to 2"),
    (put("means", (0, 0), np.inf), "means must be finite"),
    (shorter("spread"), "spread must have shape (2)"),
    (shorter("tiles"), "tile_clusters must have shape"),
]
CASES = [(name, *case) for name, cases in IMPOSSIBLE.items() for case in cases]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """All kinds of files: the kind, its folder and its content."""
    found = {}
    for name, make in MAKERS.items():
        kind, folder = make(), tmp_path_factory.mktemp("written")
        kind.write(folder)
        found[name] = kind, folder, kind.open(folder)
    return found


@pytest.mark.parametrize(("name", "change", "part"), CASES)
def test_what_cannot_be_true_is_refused(written, name, change, part):
    kind, folder, content = written[name]
    meta, arrays = copy.deepcopy(content)
    change(meta, arrays)
    kind.replace(folder, meta, arrays, signed=True)
    with pytest.raises(InputError) as caught:
        kind.load(folder)
    assert part in str(caught.value)
    assert str(folder / kind.name) in str(caught.value)


def test_a_changed_value_does_not_match_the_checksum(written):
    for kind, folder, content in written.values():
        meta, arrays = copy.deepcopy(content)
        arrays[kind.counts][0] += 1
        kind.replace(folder, meta, arrays, signed=False)
        with pytest.raises(InputError, match=r"has been changed since .* checksum .* again"):
            kind.load(folder)


def test_files_of_the_version_before_are_told_by_their_version(written):
    for kind, folder, (meta, arrays) in written.values():
        name, number = meta["format"].split("/")
        old = {key: value for key, value in meta.items() if key != "sha256"}
        kind.replace(folder, old | {"format": f"{name}/{int(number) - 1}"}, arrays, signed=False)
        with pytest.raises(InputError, match=r"format.*this version reads.*version of unsplit"):
            kind.load(folder)


def test_an_undone_tree_is_loaded(tmp_path):
    tree = unsplit.merge(DISTANCES, n_clusters=1).undo(0)
    assert np.flatnonzero(~tree.taken)[0] < np.flatnonzero(tree.taken)[-1]
    tree.save(tmp_path / "tree.npz")
    assert unsplit.MergeTree.load(tmp_path / "tree.npz").groups.tolist() == tree.groups.tolist()


# Memory and code: headers may claim anything, and nothing is ever unpickled.


def npy(shape, descr="'<f8'", content=b"12345678"):
    """An .npy file that claims to have a shape and a type."""
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"
    header = header.ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + content


HEADERS = [
    npy("(10**12,)"),
    npy("(1000000000000,)"),
    npy("(-1,)"),
    npy("(-4, -4)"),
    npy("(0, 999999999999999999999999)"),
    npy("(1000000000, 1000000000, 1000000000)"),
    npy("(4294967296, 4294967296)"),
    npy("(True,)"),
    npy("(1.0,)"),
    npy("(1,) * 10**9"),
    npy("4"),
    npy("(" + "1, " * 70 + ")"),
    npy("(4,)", "'|O'"),
    npy("(4,)", "'<U999999999'"),
    npy("(1,)", "[('a', '<f8')]"),
    npy("(1,)", "'|V8'"),
    npy("(99999999,)", "'<U0'", b""),
    b"\x93NUMPY\x02\x00\xff\xff\xff\xff{",
    b"\x93NUMPY\x09\x00",
    b"",
]


def largest_memory(anew=False):
    """The most memory in bytes that this process has had, or has had since it was asked anew."""
    if sys.platform != "linux":
        pytest.skip("only Linux can forget the largest memory of a process")
    if anew:
        Path("/proc/self/clear_refs").write_text("5")
    (line,) = (x for x in Path("/proc/self/status").read_text().split("\n") if "VmHWM" in x)
    return int(line.split()[1]) * 1024


@pytest.mark.parametrize("name", MAKERS)
def test_headers_that_lie_take_no_memory(written, name):
    kind, folder, _ = written[name]
    kind.write(folder)
    with zipfile.ZipFile(folder / kind.name) as file:
        members = {info.filename: file.read(info) for info in file.infolist()}
    for target in {f"{kind.counts}.npy", "meta.npy"} & members.keys():
        for header in HEADERS:
            with zipfile.ZipFile(folder / kind.name, "w", zipfile.ZIP_DEFLATED) as file:
                for member, content in (members | {target: header}).items():
                    file.writestr(member, content)
            before = largest_memory(anew=True)
            assert outcome(kind, folder, header) is None
            assert largest_memory() - before < 20e6, header


def test_a_size_in_the_zip_that_lies_takes_no_memory(written):
    kind, folder, _ = written["MergeTree"]
    kind.write(folder)
    whole = bytearray((folder / kind.name).read_bytes())
    place = whole.index(b"PK\x01\x02")
    whole[place + 24 : place + 28] = (2**31).to_bytes(4, "little")
    (folder / kind.name).write_bytes(whole)
    before = largest_memory(anew=True)
    loaded = outcome(kind, folder, "size")
    assert largest_memory() - before < 20e6
    assert loaded is None or kind.content(loaded) == kind.content(kind.result)


class Runs:
    """Unpickling this would write a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (Path(self.path).write_text, ("ran",))


def test_nothing_is_unpickled(written, tmp_path):
    for kind, folder, (meta, arrays) in written.values():
        bad = np.array([Runs(tmp_path / "ran")], object)
        np.savez(
            folder / kind.name,
            allow_pickle=True,
            meta=np.array(json.dumps(meta)),
            **arrays | {"cluster_ids": bad},
        )
        assert outcome(kind, folder, "pickle") is None
        assert not (tmp_path / "ran").exists()


def test_other_files_and_folders_are_refused(written, tmp_path):
    for number, (kind, _, _) in enumerate(written.values()):
        folder = tmp_path / str(number)
        folder.mkdir()
        kind.write(folder)
        (folder / kind.name).unlink()
        (folder / kind.name).mkdir()
        assert outcome(kind, folder, "a folder") is None
    nested = '{"format": ' + "[" * 100_000
    for content in ("", "{", "[]", "null", "1", nested, "PK\x03\x04", "\x93NUMPY"):
        for kind, folder, _ in written.values():
            (folder / kind.name).write_text(content, "utf-8")
            assert outcome(kind, folder, content[:20]) is None


@pytest.mark.parametrize(
    ("error", "part"),
    [
        (MemoryError(), "does not fit into memory"),
        (PermissionError(13, "Permission denied"), "cannot be opened (permission denied)"),
    ],
)
def test_too_little_memory_and_denied_permission_are_told(written, monkeypatch, error, part):
    kind, folder, _ = written["MergeTree"]
    kind.write(folder)

    def fails(*_, **__):  # the tests may run as root, whom nothing is denied
        raise error

    monkeypatch.setattr("unsplit.data.array_files._read", fails)
    with pytest.raises(InputError) as caught:
        kind.load(folder)
    assert part in str(caught.value)
    assert str(folder / kind.name) in str(caught.value)
