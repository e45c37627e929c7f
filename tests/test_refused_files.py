import gzip
import re
import sys

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from tests.checks import parsed_here
from tests.test_data_files import KINDS, X, refuses, save_csv, save_parquet, table, write
from unsplit.data.readers.observations import read_observations
from unsplit.errors import InputError, SkippedWarning


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Every test works in a folder of its own, so that sentences hold short names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("unsplit.data.readers.isolated.parse_all", parsed_here)
    return tmp_path


# What cannot be used


def test_text_among_the_features_is_left_out_by_name():
    frame = table(kind=["u", "v", "w"], when=pd.to_datetime(["2020-01-01"] * 3))
    frame.to_csv("d.csv", index=False)
    frame.to_parquet("d.parquet")
    for name in ("d.csv", "d.parquet"):
        with pytest.warns(SkippedWarning, match=f"left out of {name}: 'kind', 'when', which"):
            read = read_observations(name)
        assert read.feature_names == ["a", "b"]
        assert read.left_out == ("kind", "when")


def test_vectors_in_one_column_are_left_out():
    table(v=[[1, 2], [3, 4], [5, 6]]).to_parquet("d.parquet")
    with pytest.warns(SkippedWarning, match="left out of d.parquet: 'v', which"):
        assert read_observations("d.parquet").feature_names == ["a", "b"]


def test_text_late_in_a_column_of_numbers_is_refused():
    write("d.csv", "a,b\n" + "1,2\n" * 300_000 + "1,x\n")
    sentence = (
        "column 'b' of d.csv holds numbers, but also 'x' (row 300,001); correct such values, or "
        "leave the column out with drop=['b']."
    )
    refuses(sentence, "d.csv")


def test_a_table_of_text_only_is_refused():
    write("d.csv", "a,b\nu,v\nw,x\n")
    refuses("d.csv has no feature columns, because 'a', 'b' do not hold numbers; add …", "d.csv")


def test_missing_and_infinite_values_are_counted_by_column():
    sentence = (
        "{} has missing or infinite values (2 in column {}, 1 in column {}); "
        'remove those rows or fill in the values first, or use missing="drop" or '
        'missing="median".'
    )
    write("d.csv", "a,b,c\n1,NA,inf\n2,,1\n")
    refuses(sentence.format("d.csv", "'b'", "'c'"), "d.csv")
    write("d.csv", ",".join("abcdefghi") + "\n" + ",".join(["inf"] * 9) + "\n")
    with pytest.raises(InputError, match=r"1 in column 'e' and more in 4 other columns\)"):
        read_observations("d.csv")


def test_a_short_line_is_a_missing_value():
    write("d.csv", "a,b,c\n1,2,3\n1,2\n")
    with pytest.raises(InputError, match=r"\(1 in column 'c'\)"):
        read_observations("d.csv")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("a,b\n1,2\n1,2,3\n", "Expected 2 fields in line 3, saw 3"),
        ('a,b\n1,"2\n', "EOF inside string starting at row 1"),
    ],
)
def test_irregular_tables_are_refused(content, sentence):
    write("d.csv", content)
    refuses(
        f"d.csv is not a regular table ({sentence}); "
        "give every line as many values as the first, and close all quotes.",
        "d.csv",
    )


def test_columns_of_one_name_are_refused():
    write("d.csv", "a,b,a,b,c\n1,2,3,4,5\n")
    refuses(
        "d.csv has more than one column called 'a', 'b'; give every column a name of its own.",
        "d.csv",
    )


def test_numbers_where_names_belong_are_refused():
    np.savetxt("d.csv", X, delimiter=",", fmt="%g")
    refuses(
        "the first line of d.csv holds numbers ('1.5', '-2') instead of column names; add a line "
        "of names above it, or save the matrix as .npy.",
        "d.csv",
    )


@pytest.mark.parametrize("names", ["0,1", "1,2", "id,400.5", "x,2"])
def test_numbers_that_can_be_names_are_names(names):
    write("d.csv", f"{names}\n5,6\n7,8\n")
    assert len(read_observations("d.csv").row_ids) == 2


@pytest.mark.parametrize(("name", "first"), [("d.csv", "a;b"), ("d.csv", "a\tb"), ("d.tsv", "a,b")])
def test_lines_with_other_separators_than_the_first_are_refused(name, first):
    write(name, f"{first}\n1|2|3;4;5,6,7\t8\t9\n")
    refuses(
        f"{name} seems to have one column, {first!r}; separate values by commas, semicolons or "
        "tabs, in every line by the same.",
        name,
    )


@pytest.mark.parametrize("content", ["", "\n\n"])
@pytest.mark.parametrize("name", ["d.csv", "d.csv.gz"])
def test_empty_tables_are_refused(name, content):
    write(name, gzip.compress(content.encode()) if name.endswith("gz") else content)
    refuses(f"{name} is empty; write it again.", name)


def test_tables_without_rows_or_features_are_refused():
    write("d.csv", "a,b\n")
    refuses("d.csv has column names but no rows; add one row per observation.", "d.csv")
    write("d.csv", "id,c\n1,2\n")
    refuses("d.csv has no feature columns; add columns of numbers.", "d.csv", "c")


def test_files_without_one_matrix_are_refused():
    sentence = (
        "{} must hold one array of observations, called 'X' if there are several, but holds {}; "
        "save such an array as .npy or .npz."
    )
    np.save("d.npy", np.zeros(3))
    refuses(sentence.format("d.npy", "'array' of shape (3,)"), "d.npy")
    np.savez("d.npz", u=np.zeros((2, 2)), v=np.zeros((3, 2)))
    refuses(sentence.format("d.npz", "'u' of shape (2, 2), 'v' of shape (3, 2)"), "d.npz")
    write("d.txt", "1\n2\n")
    refuses(sentence.format("d.txt", "'labels' of shape (2,)"), "d.txt")


class Bomb:
    def __reduce__(self):
        return open, ("ran", "w")


def test_pickles_are_refused_and_not_run(folder):
    objects = np.array([[Bomb(), 1]], object)
    np.save("d.npy", objects, allow_pickle=True)
    np.savez("d.npz", X=X, more=objects)
    for name in ("d.npy", "d.npz"):
        refuses(
            f"{name} is not a NumPy file, or holds Python objects, which are not read because they "
            "could run any code; save arrays of numbers or strings with numpy.save or numpy.savez.",
            name,
        )
    objects.dump("pickle.npy")
    refuses("pickle.npy is not a NumPy file, or holds Python objects, …", "pickle.npy")
    assert not (folder / "ran").exists()


# Files that cannot be read


def test_missing_files_folders_and_devices_are_refused(folder):
    refuses("there is no file d.csv; check its name and folder.", "d.csv")
    (folder / "d.csv").mkdir()
    refuses("d.csv is a folder, but a file with a table or an array is needed; name one.", "d.csv")
    refuses("/dev/null is not a regular file; …", "/dev/null")
    write("file", "x")
    refuses("file/d.csv cannot be opened (not a directory); check …", "file/d.csv")


def test_files_that_may_not_be_read_are_refused(monkeypatch):
    write("d.csv", "a\n1\n")

    def denied(*args, **kwargs):  # the tests may run as root, whom nothing is denied
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", denied)
    refuses("d.csv cannot be opened (permission denied); check … permissions.", "d.csv")


@pytest.mark.parametrize("name", ["d.xls", "d", "d.csv.rar"])
def test_other_kinds_of_files_are_refused(name):
    write(name, "x")
    refuses(
        f"{name} has an unsupported file type; supported are … .csv …",
        name,
    )


@pytest.mark.parametrize("content", [b"a,\xe9\n1,2\0\n", b"a,b\n\x81,2\n"])
def test_what_is_in_no_known_encoding_is_refused(content):
    write("d.csv", content)
    refuses("d.csv is not text in UTF-8; save it again as UTF-8.", "d.csv")


def test_labels_of_another_encoding_are_refused():
    np.save("d.npy", X)
    write("l.txt", "é\nb\n".encode("latin1"))
    refuses("l.txt is not text in UTF-8; save it again as UTF-8.", "d.npy", "l.txt")


def test_damage_is_told_with_its_reason():
    save_csv("d.csv.gz")
    with open("d.csv.gz", "rb") as file:
        write("d.csv.gz", file.read()[:-9])
    refuses(
        "d.csv.gz cannot be read (Compressed file ended before the end-of-stream marker was "
        "reached); it may be damaged or cut short, so write it again.",
        "d.csv.gz",
    )


def test_too_little_memory_is_told(monkeypatch):
    np.save("d.npy", X)

    def full(*args, **kwargs):
        raise MemoryError

    monkeypatch.setattr(np, "load", full)
    refuses("d.npy does not fit into memory; use fewer rows or columns.", "d.npy")


def message_of(name):
    """The sentence, or None if the file can be read; anything else raised is a defect."""
    try:
        read_observations(name)
    except InputError as error:
        return str(error)
    return None


SEALED = ["d.npy", "d.npz", "sparse.npz", "d.parquet", "d.v2.csv.gz"]


@pytest.mark.parametrize("name", SEALED)
def test_a_file_cut_short_anywhere_is_refused_in_one_sentence(name, folder):
    KINDS[name](name)
    whole = (folder / name).read_bytes()
    for length in range(0, len(whole), max(1, len(whole) // 40)):
        write(name, whole[:length])
        message = message_of(name)
        assert message is not None, length
        assert message.startswith(name)
        assert message.endswith(".")
        assert "\n" not in message


@pytest.mark.filterwarnings("ignore:.*was read as Latin-1:unsplit.errors.InputWarning")
@pytest.mark.parametrize("name", KINDS)
def test_damaged_bytes_are_refused_or_read_but_nothing_else(name, folder):
    KINDS[name](name)
    whole = (folder / name).read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(40):
        damaged = bytearray(whole)
        damaged[rng.integers(len(whole))] = rng.integers(256)
        write(name, bytes(damaged))
        refused += message_of(name) is not None
    assert refused > 0


@pytest.mark.parametrize("ending", ["npy", "npz", "csv", "tsv.gz", "parquet"])
def test_garbage_is_refused(ending):
    for seed in range(5):
        write(f"d.{ending}", np.random.default_rng(seed).bytes(3000))
        assert message_of(f"d.{ending}").startswith(f"d.{ending}")


def test_sparse_indices_out_of_range_are_refused():
    matrix = scipy.sparse.csr_array(X)
    parts = {"format": b"csr", "shape": matrix.shape, "data": matrix.data, "indptr": matrix.indptr}
    np.savez("d.npz", indices=matrix.indices + 10**6, **parts)
    assert message_of("d.npz").startswith("d.npz cannot be read (")


def test_sentences_say_what_to_install(monkeypatch):
    np.save("d.npy", X)
    save_csv("d.csv")
    save_parquet("d.parquet")
    for package, name, sentence in [
        (
            "pyarrow",
            "d.parquet",
            "reading parquet and Arrow files needs pyarrow: pip install unsplit[tables]",
        ),
        ("pandas", "d.csv", "reading tables needs pandas: pip install unsplit[tables]"),
    ]:
        monkeypatch.setitem(sys.modules, package, None)  # importing it is now an error
        with pytest.raises(ImportError, match="^" + re.escape(sentence) + "$"):
            read_observations(name)
    assert len(read_observations("d.npy").row_ids) == 3
