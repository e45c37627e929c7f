import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.data_file_cases import X, refuses, table, write
from unsplit.data.labels import encode_labels
from unsplit.data.readers.observations import read_observations
from unsplit.data.readers.tables import MISSING, as_written, listing
from unsplit.errors import InputError

quick = settings(
    deadline=None,
    max_examples=60,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


# Every test works in a folder of its own.
pytestmark = pytest.mark.usefixtures("folder")


# Labels in a column


LABELS = {
    "integers": (["10", "-1", "2"], [10, -1, 2]),
    "strings": (["b", "-1", "a"], ["b", "-1", "a"]),
    "zeros in front": (["007", "12", "3"], ["007", "12", "3"]),
    "plus": (["+1", "2", "3"], ["+1", "2", "3"]),
    "underscore": (["1_0", "2", "3"], ["1_0", "2", "3"]),
    "blanks around": ([" 1 ", "2", "3 "], [1, 2, 3]),
    "missing": (["1", "", "3"], [1, None, 3]),
    "missing as R writes it": (["x", "NA", "z"], ["x", None, "z"]),
    "integers taken for floats": (["1.0", "", "-1.0"], [1, None, -1]),
    "as numpy.savetxt writes": (["1.000000e+01", "-1.000000e+00", "0.0e+00"], [10, -1, 0]),
    "both ways of writing": (["1.0", "1", "2"], ["1.0", "1", "2"]),
    "fractions": (["1.0", "1.1", "2.0"], ["1.0", "1.1", "2.0"]),
    "exponents": (["1e5", "2e3", "1e5"], ["1e5", "2e3", "1e5"]),
    "too large": (["9007199254740993", "1", "2"], ["9007199254740993", "1", "2"]),
    "booleans": (["True", "False", "True"], ["True", "False", "True"]),
}


@pytest.mark.parametrize("case", LABELS)
def test_labels_stay_as_they_are_written(case):
    texts, expected = LABELS[case]
    write("d.csv", "a,c,b\n" + "".join(f"1,{text},2\n" for text in texts))
    read = read_observations("d.csv", "c")
    assert read.labels.tolist() == expected
    assert read.feature_names == ["a", "b"]
    write("labels.txt", "\n".join(texts))
    np.save("d.npy", X)
    assert read_observations("d.npy", "labels.txt").labels.tolist() == expected


@quick
@given(st.lists(st.one_of(st.text(max_size=4), st.integers(-99, 99).map(str)), min_size=1))
def test_labels_differ_as_their_texts_do(texts):
    read = as_written(texts).tolist()
    expected = [None if text.strip() in MISSING else text.strip() for text in texts]
    assert [None if label is None else str(label) for label in read] == expected
    assert len({type(label) for label in read if label is not None}) <= 1


@quick
@given(st.lists(st.one_of(st.none(), st.integers(-(2**53) + 1, 2**53 - 1)), min_size=1))
def test_integers_come_back_however_they_were_written(numbers):
    plain = ["" if number is None else str(number) for number in numbers]
    floats = ["nan" if number is None else str(float(number)) for number in numbers]
    assert as_written(plain).tolist() == numbers
    if all(number is None or abs(number) < 1e15 for number in numbers):
        assert as_written(floats).tolist() == numbers


def test_labels_are_understood_by_the_encoder():
    write("d.csv", "a,c\n" + "".join(f"1,{c}\n" for c in ["10", "-1", "2", "", "10"]))
    encoded = encode_labels(read_observations("d.csv", "c").labels, 5)
    assert encoded.cluster_ids.tolist() == [2, 10]
    assert encoded.clusters.tolist() == [1, -1, 0, -1, 1]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pd.Categorical(["u", None, "v"]), ["u", None, "v"]),
        (pd.Categorical([3, 1, 3]), [3, 1, 3]),
        (["007", "1", None], ["007", "1", None]),
        ([3, -1, 2], [3, -1, 2]),
    ],
)
def test_labels_in_parquet(column, expected):
    table(c=column).to_parquet("d.parquet")
    read = read_observations("d.parquet", "c")
    assert read.labels.tolist() == expected
    assert read.feature_names == ["a", "b"]


def test_nullable_integer_labels_in_parquet_keep_what_is_missing():
    table(c=pd.array([3, None, 2], "Int64")).to_parquet("d.parquet")
    np.testing.assert_array_equal(read_observations("d.parquet", "c").labels, [3, np.nan, 2])


def test_labels_in_an_npz():
    np.savez("d.npz", X=X, y=np.array(["u", "v", "u"]))
    assert read_observations("d.npz", "y").labels.tolist() == ["u", "v", "u"]
    np.savez("d.npz", X=X, y=np.arange(4))
    refuses("'y' in d.npz has 4 labels but d.npz has 3 rows; give one label per row.", "d.npz", "y")


def test_a_column_goes_before_a_file_of_the_same_name():
    write("d.csv", "a,c.txt\n1,5\n2,6\n")
    write("c.txt", "x\ny\n")
    assert read_observations("d.csv", "c.txt").labels.tolist() == [5, 6]
    read = read_observations("d.csv", "./c.txt")
    assert read.labels.tolist() == ["x", "y"]
    assert read.feature_names == ["a", "c.txt"]


# Labels in a file of their own


def label_frame(values, **more):
    return pd.DataFrame(more | {"cluster": values})


LABEL_FILES = {
    "l.npy": lambda: np.save("l.npy", [3, 1, 3]),
    "l.npz": lambda: np.savez("l.npz", what=[3, 1, 3]),
    "m.npz": lambda: np.savez("m.npz", other=np.zeros(8), labels=[3, 1, 3]),
    "l.txt": lambda: write("l.txt", "\ufeff3\r\n1\r\n3"),
    "l.csv": lambda: write("l.csv", "whatever\n3\n1\n3\n"),
    "id.csv": lambda: write("id.csv", "id\n3\n1\n3\n"),
    "count.csv": lambda: write("count.csv", ",0\n0,3\n1,1\n2,3\n"),
    "more.csv": lambda: write("more.csv", "size,Cluster,z\n9,3,u\n9,1,v\n9,3,w\n"),
    "l.tsv.gz": lambda: label_frame([3, 1, 3]).to_csv("l.tsv.gz", sep="\t", index=False),
    "l.parquet": lambda: label_frame([3, 1, 3]).to_parquet("l.parquet"),
}


@pytest.mark.parametrize("name", LABEL_FILES)
def test_every_kind_of_label_file(name):
    np.save("d.npy", X)
    LABEL_FILES[name]()
    assert read_observations("d.npy", name).labels.tolist() == [3, 1, 3]


IDS = ["p", "q", "r"]
SHUFFLED = {
    "id.csv": "id,cluster\nr,3\np,1\nq,2\n",
    "unnamed.csv": ",cluster\nr,3\np,1\nq,2\n",
    "counted.csv": ",id,cluster\n0,r,3\n1,p,1\n2,q,2\n",
    "other.csv": "cell,cluster\nr,3\np,1\nq,2\n",
    "nothing_called_so.csv": "cell,leiden\nr,3\np,1\nq,2\n",
}


@pytest.mark.parametrize("name", SHUFFLED)
def test_labels_find_their_rows_by_id(name):
    table(id=IDS).to_csv("d.csv", index=False)
    write(name, SHUFFLED[name])
    read = read_observations("d.csv", name)
    assert read.row_ids.tolist() == IDS
    assert read.labels.tolist() == [1, 2, 3]


def test_labels_find_their_rows_by_the_index_of_parquet():
    table().set_axis(IDS).to_parquet("d.parquet")
    label_frame([3, 1, 2]).set_axis(["r", "p", "q"]).to_parquet("l.parquet")
    assert read_observations("d.parquet", "l.parquet").labels.tolist() == [1, 2, 3]


@quick
@given(st.permutations(range(5)), st.booleans())
def test_order_of_the_labels_does_not_matter_where_ids_do(order, spelled):
    ids = [f"c{i}" if spelled else i + 10 for i in range(5)]
    pd.DataFrame({"id": ids, "a": range(5)}).to_csv("d.csv", index=False)
    frame = label_frame([f"of {i}" for i in ids], id=ids)
    frame.iloc[list(order)].to_csv("l.csv", index=False)
    assert read_observations("d.csv", "l.csv").labels.tolist() == [f"of {i}" for i in ids]


def test_rows_without_ids_are_taken_in_order_unless_the_labels_count_them():
    np.save("d.npy", X)
    write("l.csv", "id,label\nr,3\np,1\nq,2\n")
    assert read_observations("d.npy", "l.csv").labels.tolist() == [3, 1, 2]
    write("l.csv", "id,label\n2,3\n0,1\n1,2\n")
    assert read_observations("d.npy", "l.csv").labels.tolist() == [1, 2, 3]


def test_a_column_that_happens_to_count_is_no_id():
    np.save("d.npy", X)
    write("l.csv", "rank,label\n2,3\n0,1\n1,2\n")
    assert read_observations("d.npy", "l.csv").labels.tolist() == [3, 1, 2]


def test_labels_without_ids_are_taken_in_order():
    table(id=IDS).to_csv("d.csv", index=False)
    label_frame([3, 1, 2]).to_csv("l.csv")  # pandas counts the rows in a column without a name
    assert read_observations("d.csv", "l.csv").labels.tolist() == [3, 1, 2]


def test_other_ids_are_refused():
    table(id=IDS).to_csv("d.csv", index=False)
    write("l.csv", "id,label\np,1\nq,2\ns,3\n")
    sentence = "l.csv has no label for row 'r' of d.csv; use the same ids … or remove the ids …"
    refuses(sentence, "d.csv", "l.csv")


@pytest.mark.parametrize(
    ("name", "content", "where"),
    [("l.txt", "1\n2\n", "l.txt"), ("l.csv", "0\n1\n2\n", "column '0' of l.csv")],
)
def test_another_number_of_labels_is_refused_with_both(name, content, where):
    np.save("d.npy", X)
    write(name, content)
    refuses(f"{where} has 2 labels but d.npy has 3 rows; give one label per row.", "d.npy", name)


@pytest.mark.parametrize(
    ("first", "candidates"),
    [("u,v,w", "'u', 'v', 'w'"), ("label,cluster,w", "'label', 'cluster'")],
)
def test_several_columns_that_could_be_labels_are_refused(first, candidates):
    np.save("d.npy", X)
    write("l.csv", f"{first}\n1,2,3\n1,2,3\n1,2,3\n")
    sentence = (
        f"l.csv has several columns that could be the labels ({candidates}); "
        "keep one of them, or call only one of them 'label'."
    )
    refuses(sentence, "d.npy", "l.csv")


def test_labels_of_two_dimensions_are_refused():
    np.save("d.npy", X)
    refuses(
        "d.npy must hold one label per row, but holds an array of shape (3, 2); …",
        "d.npy",
        "./d.npy",
    )
    np.savez("d.npz", X=X, y=np.zeros((3, 1)))
    refuses(
        "'y' in d.npz has labels of shape (3, 1) but d.npz has 3 rows; give one label per row.",
        "d.npz", "y",
    )  # fmt: skip


def test_label_that_is_neither_column_nor_file():
    write("d.csv", "id,a,b\n1,2,3\n")
    refuses(
        "there is no column 'foo' in d.csv (its columns: 'id', 'a', 'b') and no file of that …",
        "d.csv", "foo",
    )  # fmt: skip
    np.save("d.npy", X)
    refuses("there is no column 'xxx…xx… in d.npy (it has no named columns) …", "d.npy", "x" * 5000)
    for name in ("l.csv", "", "."):
        refuses(
            f"there is no column {name!r} in d.npy (it has no named columns) "
            "and no file of that name; check the name.",
            "d.npy", name,
        )  # fmt: skip


def test_long_lists_of_columns_are_cut():
    assert listing([str(i) for i in range(1010)], 3) == "'0', '1', '2' and 1,007 more"
    assert listing(["a", "b"], 2) == "'a', 'b'"


def test_rows_that_are_only_counted_contradict_no_ids_but_ids_that_count_do():
    write("l.csv", "id,label\nr,3\np,1\nq,2\n")
    table().to_parquet("d.parquet")
    table().to_csv("d.csv")
    for name in ("d.parquet", "d.csv"):
        assert read_observations(name, "l.csv").labels.tolist() == [3, 1, 2]
    table(id=[0, 1, 2]).to_csv("d.csv", index=False)
    with pytest.raises(InputError, match=r"^l\.csv has no label for row '0' of d\.csv"):
        read_observations("d.csv", "l.csv")
