import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse

import unsplit
from tests.checks import parsed_here
from tests.data_file_cases import X, refuses, table, write
from unsplit.data.readers.observations import read_observations
from unsplit.errors import InputError


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Every test works in a folder of its own, so that sentences hold short names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("unsplit.data.readers.isolated.parse_all", parsed_here)
    return tmp_path


# Every kind of file


def save_npy(name):
    np.save(name, X)


def save_npz(name):
    np.savez(name, X=X)


def save_sparse(name):
    scipy.sparse.save_npz(name, scipy.sparse.coo_array(X))


def save_csv(name):
    table().to_csv(name, index=False)


def save_tsv(name):
    table().to_csv(name, index=False, sep="\t")


def save_parquet(name):
    table().to_parquet(name)


def save_feather(name):
    table().to_feather(name)


def save_arrow(name):
    content = pa.Table.from_pandas(table())
    with pa.ipc.new_file(name, content.schema) as writer:
        writer.write_table(content, max_chunksize=2)


KINDS = {
    "d.npy": save_npy,
    "d.npz": save_npz,
    "sparse.npz": save_sparse,
    "d.csv": save_csv,
    "D.CSV": save_csv,
    "d.v2.csv.gz": save_csv,
    "d.tsv": save_tsv,
    "d.tsv.gz": save_tsv,
    "d.parquet": save_parquet,
    "d.feather": save_feather,
    "d.arrow": save_arrow,
}


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_file_gives_the_same_numbers(name):
    KINDS[name](name)
    read = read_observations(name)
    dense = read.X.toarray() if scipy.sparse.issparse(read.X) else read.X
    np.testing.assert_array_equal(dense, X)
    assert read.X.dtype == np.float64
    assert scipy.sparse.issparse(read.X) == (name == "sparse.npz")
    assert read.feature_names == (None if name.endswith(("npy", "npz")) else ["a", "b"])
    assert read.row_ids.tolist() == [0, 1, 2]
    assert read.labels is None


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "dia"])
@pytest.mark.parametrize("family", ["array", "matrix"])
def test_sparse_matrices_of_every_format_come_as_csr(kind, family):
    matrix = getattr(scipy.sparse, f"{kind}_{family}")(X)
    scipy.sparse.save_npz("s.npz", matrix)
    read = read_observations("s.npz").X
    assert read.format == "csr"
    np.testing.assert_array_equal(read.toarray(), X)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("u1", "f4"), ("i2", "f4"), ("?", "f4"), ("f2", "f4"), ("f4", "f4"),
        ("i4", "f8"), ("i8", "f8"), (">f8", "f8"),
    ],
)  # fmt: skip
def test_numbers_become_the_smallest_floats_that_hold_them(dtype, expected):
    values = np.array([[1, 0], [0, 1]], dtype)
    np.save("d.npy", values)
    read = read_observations("d.npy").X
    assert read.dtype == np.dtype(expected)
    np.testing.assert_array_equal(read, values.astype(float))


def test_the_matrix_of_an_npz_is_called_x_or_data_or_is_the_only_one():
    np.savez("a.npz", other=np.zeros((9, 9)), X=X, data=-X)
    np.savez("b.npz", other=np.zeros((9, 9)), data=X)
    np.savez("c.npz", whatever=X, names=np.array(["p", "q"]))
    for name in ("a.npz", "b.npz", "c.npz"):
        np.testing.assert_array_equal(read_observations(name).X, X)


def test_booleans_and_integers_are_features_in_tables():
    for name, save in (("d.csv", "to_csv"), ("d.parquet", "to_parquet")):
        frame = table(on=[True, False, True], n=[1, 2, 3])
        getattr(frame, save)(name, index=False)
        read = read_observations(name)
        assert read.feature_names == ["a", "b", "on", "n"]
        np.testing.assert_array_equal(read.X[:, 2:], [[1, 1], [0, 2], [1, 3]])


def test_parquet_with_nullable_numbers_is_read():
    frame = pd.DataFrame({"n": pd.array([1, 2], "Int64"), "on": pd.array([True, False], "boolean")})
    frame.to_parquet("d.parquet")
    np.testing.assert_array_equal(read_observations("d.parquet").X, [[1, 1], [2, 0]])


def test_names_are_read_past_a_mark_of_byte_order_blanks_and_quotes():
    write("d.csv", '\ufeff"a", b ,"c,d"\r\n1,2,3\r\n')
    assert read_observations("d.csv").feature_names == ["a", "b", "c,d"]


# Names of rows


@pytest.mark.parametrize("name", ["id", "row_id", "index", "ID", ""])
def test_a_column_of_ids_names_the_rows_and_is_no_feature(name):
    write("d.csv", f"{name},a\nr7,1\n007,2\n")
    read = read_observations("d.csv")
    assert read.row_ids.tolist() == ["r7", "007"]
    assert read.feature_names == ["a"]


def test_ids_are_integers_where_all_are_written_so():
    write("d.csv", "a,id\n1,30\n2,4\n")
    assert read_observations("d.csv").row_ids.tolist() == [30, 4]
    write("d.csv", "a,id\n1,30\n2,04\n")
    assert read_observations("d.csv").row_ids.tolist() == ["30", "04"]


def test_all_columns_of_ids_are_removed_and_the_first_in_rank_counts():
    write("d.csv", ",index,id,a\n0,p,u,1\n1,q,v,2\n")
    read = read_observations("d.csv")
    assert read.row_ids.tolist() == ["u", "v"]
    assert read.feature_names == ["a"]


@pytest.mark.parametrize(("line", "more"), [("5,1,2\n", 1), ("c1,1,2\n", 1), ("1,2,3,4\n", 2)])
def test_more_values_than_names_are_refused(line, more):
    write("d.csv", "a,b\n" + line)
    sentence = (
        f"d.csv has {more} more values … than column names; name every column in the first line, …"
    )
    refuses(sentence, "d.csv")


def test_parquet_index_names_the_rows():
    table().set_axis(pd.Index(["p", "q", "r"], name="cell")).to_parquet("d.parquet")
    assert read_observations("d.parquet").row_ids.tolist() == ["p", "q", "r"]
    table().set_axis([7, 5, 3]).to_parquet("d.parquet")
    assert read_observations("d.parquet").row_ids.tolist() == [7, 5, 3]


@pytest.mark.parametrize("index", [[1, 1, 2], [0.5, 1.5, 2.5], [[0, 0, 1], [0, 1, 0]]])
def test_parquet_index_that_identifies_nothing_is_left_out(index):
    nested = isinstance(index[0], list)
    table().set_axis(pd.MultiIndex.from_arrays(index) if nested else index).to_parquet("d.parquet")
    read = read_observations("d.parquet")
    assert read.row_ids.tolist() == [0, 1, 2]
    assert read.feature_names == ["a", "b"]


def test_ids_beside_the_matrix_of_an_npz():
    np.savez("d.npz", X=X, id=np.array(["p", "q", "r"]))
    assert read_observations("d.npz").row_ids.tolist() == ["p", "q", "r"]
    np.savez("d.npz", X=X, id=np.array([4.0, 2.0, 7.0]))
    assert read_observations("d.npz").row_ids.tolist() == [4, 2, 7]


@pytest.mark.parametrize(
    ("ids", "wrong"),
    [
        (["5", "6", "5"], "'5' occurs more than once"),
        (["5", "", "7"], "some are missing"),
        (["1.517", "1.6", "1.7"], "1.517 is not a whole number"),
    ],
)
def test_ids_that_identify_nothing_are_refused(ids, wrong):
    write("d.csv", "index,a\n" + "".join(f"{i},1\n" for i in ids))
    sentence = (
        f"column 'index' of d.csv should hold row ids, but {wrong}; "
        "remove the column, or rename it if it is a feature."
    )
    refuses(sentence, "d.csv")


# What unsplit.read takes beyond tables


NPZ = {
    "table": ({"X": X}, (3, 2)),
    "images": ({"X": np.zeros((3, 9, 9)), "offsets": np.zeros(3)}, (3, 9, 9)),
}


@pytest.mark.parametrize("case", NPZ)
def test_an_npz_of_any_kind_is_read_once(case, monkeypatch):
    arrays, shape = NPZ[case]
    np.savez("d.npz", cluster=[4, 5, 4], **arrays)
    calls, load = [], np.load
    monkeypatch.setattr(np, "load", lambda *args, **more: calls.append(args) or load(*args, **more))
    read = unsplit.read("d.npz", "cluster")
    assert len(calls) == 1
    assert read.labels.tolist() == [4, 5, 4]
    if shape is None:
        assert (read.X.rate, read.X.lengths.tolist()) == (8000, [1, 2, 3])
    else:
        assert read.X.shape == shape


def test_labels_and_batches_of_hdf5_clouds_are_found_by_name():
    with h5py.File("d.h5", "w") as file:
        file["data"] = np.zeros((3, 20, 3))
        file["cluster"] = [[4], [5], [4]]
        file["donor"] = list("uvu")
    read = unsplit.read("d.h5", "cluster", "donor")
    assert read.X.shape == (3, 20, 3)
    assert read.labels.tolist() == [4, 5, 4]
    assert read.batch.tolist() == list("uvu")
    with h5py.File("d.h5", "a") as file:
        file["label"] = [0, 1, 1]
    assert unsplit.read("d.h5", "cluster").labels.tolist() == [4, 5, 4]
    assert unsplit.read("d.h5", "label").labels.tolist() == [0, 1, 1]


def test_arrays_and_files_that_are_not_there_are_named():
    np.savez("d.npz", points=np.zeros((3, 20, 3)), kind=[1, 2, 1])
    with pytest.raises(InputError, match=r"no column 'kinds' .* in d\.npz \(its columns: 'kind'"):
        unsplit.read("d.npz", "kinds")
    for name in ("no.npz", "no.npy", "no.h5", "no.csv"):
        with pytest.raises(InputError, match=f"there is no file {name}; check its name"):
            unsplit.read(name)
