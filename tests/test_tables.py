"""Tables as people have them: ids, text, other numbers beside the measurements."""

import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pytest
from sklearn.cluster import KMeans
from sklearn.datasets import load_wine

import unsplit as library
from tests.checks import about
from tests.cli_cases import merge, old_results, read_csv, read_json, snapshot, succeeds, unsplit
from unsplit.cli.outputs import about_run
from unsplit.errors import FeatureWarning, InputError, InputWarning, SkippedWarning

MEASURED = [name.replace("/", "_") for name in load_wine().feature_names]


@pytest.fixture(autouse=True, scope="module")
def few_remerges():
    """Merge again as often as users do."""


@pytest.fixture(scope="module")
def wines():
    """The wines of scikit-learn with a bottle number, a region, a year and a clustering."""
    X = load_wine().data
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    frame = pd.DataFrame(scaled, columns=MEASURED)
    frame.insert(0, "bottle", [f"W{i:03}" for i in range(len(X))])
    frame.insert(3, "region", np.where(np.arange(len(X)) % 2, "north", "south"))
    frame["year"] = 1990 + np.arange(len(X)) % 7
    frame["cluster"] = KMeans(8, n_init=1, random_state=0).fit_predict(scaled)
    return frame


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, wines):
    """Every test works in a folder of its own, with wines.csv in it."""
    monkeypatch.chdir(tmp_path)
    wines.to_csv("wines.csv", index=False)
    return tmp_path


def merge_wines(*options, data="wines.csv"):
    return merge(*options, data=data)


# What is used


def test_a_table_with_ids_text_and_a_year(wines):
    result = merge_wines("--id", "bottle", "--drop", "year")
    out = succeeds(result)
    assert read_csv("out/labels.csv")["id"] == wines["bottle"].tolist()
    written = read_json("out/result.json")
    assert (written["id"], written["n_features"], written["left_out"]) == ("bottle", 13, ["region"])
    assert written["features"] == MEASURED
    assert "left out of wines.csv: 'region', which do not hold" in result.stderr
    assert written["warnings"] == [result.stderr.removeprefix("warning: ").strip()]
    assert "Used 13 features: 'alcohol', 'malic_acid', " in out
    assert "…, 'proline'; left out: 'region'.\n" in out


def test_a_page_repeats_the_choice_of_columns():
    def repeated(*options):
        succeeds(merge_wines("--id", "bottle", *options))
        return about_run(read_json("out/result.json"))["again"]

    assert "--id bottle --drop year --report" in repeated("--drop", "year")
    assert "--id bottle --features hue,alcohol --report" in repeated("--features", "hue,alcohol")


def test_features_are_named_in_any_order(wines):
    succeeds(merge_wines("--id", "bottle", "--features", "hue, alcohol", "--features", "proline"))
    assert read_json("out/result.json")["features"] == ["alcohol", "hue", "proline"]
    read = library.read("wines.csv", "cluster", features=["hue", "alcohol"], id="bottle")
    np.testing.assert_allclose(read.X, wines[["alcohol", "hue"]])
    assert read.row_ids.tolist() == wines["bottle"].tolist()


def test_a_year_that_nobody_mentions_is_named_among_the_features():
    out = succeeds(merge_wines("--id", "bottle"))
    assert "Used 14 features: " in out
    assert "…, 'year'; left out" in out


def test_text_is_used_as_a_batch(wines):
    result = merge_wines("--id", "bottle", "--batch", "region", "--drop", "year")
    succeeds(result)
    assert "left out" not in result.stderr
    assert read_json("out/result.json")["batch"] == "region"
    read = library.read("wines.csv", "cluster", "region", id="bottle", drop=["year"])
    assert read.batch.tolist() == wines["region"].tolist()


def test_distances_and_overcluster_take_the_same_options(wines):
    columns = ("--id", "bottle", "--drop", "year,cluster,region")
    out = succeeds(unsplit("overcluster", "wines.csv", "--out", "c.csv", "--method", "k-means",
                           "--seed", 0, *columns))  # fmt: skip
    assert "--labels c.csv --id bottle --drop year,cluster,region --out merged" in out
    assert "Used 13 features: 'alcohol'" in out
    assert read_csv("c.csv")["id"] == wines["bottle"].tolist()
    where = ("--labels", "c.csv", "--out", "out", "--epochs", 2, "--cv", 2, "--device", "cpu")
    succeeds(unsplit("distances", "wines.csv", *where, *columns))
    assert read_json("out/distances.json")["features"] == MEASURED


def test_labels_are_matched_by_the_named_id(wines):
    numbered = wines.assign(bottle=np.arange(len(wines)) + 500).drop(columns=["region", "year"])
    numbered.drop(columns="cluster").to_csv("wines.csv", index=False)
    numbered[["bottle", "cluster"]].iloc[::-1].to_csv("labels.csv", index=False)
    read = library.read("wines.csv", "labels.csv", id="bottle")
    assert read.labels.tolist() == wines["cluster"].tolist()


def test_names_with_commas_are_quoted():
    Path("d.csv").write_text('"a,b",c,k\n1,2,u\n3,5,v\n', encoding="utf-8")
    quoted = unsplit("distances", "d.csv", "--labels", "k", "--out", "out", "--features", '"a,b",d')
    assert quoted.stderr.startswith("unsplit: d.csv has no column 'd', which --features names; ")


# Numbers that may not be measurements


def test_another_clustering_and_a_counter_are_warned_of(wines):
    frame = wines.drop(columns=["bottle", "region"])
    frame["louvain"] = frame["cluster"] // 2
    frame["number"] = np.arange(len(frame)) + 1
    frame.to_csv("wines.csv", index=False)
    with pytest.warns(FeatureWarning) as told:
        library.read("wines.csv", "cluster")
    sentences = [str(warning.message) for warning in told]
    assert sentences == [
        "column 'louvain' of wines.csv has one value in each cluster and is used as a feature; if "
        "it is not a measurement, leave it out with drop=['louvain'].",
        "column 'number' of wines.csv counts the rows and is used as a feature; if it is not a "
        "measurement, leave it out with drop=['number'].",
        "column 'number' of wines.csv holds most of the variance of all 16 features, so distances "
        "between observations depend on little else; if features are in different units, scale "
        "them, by sklearn.preprocessing.StandardScaler or --scale of the command line.",
    ]
    chosen = ["number", "louvain", "hue"]  # asked for
    library.read("wines.csv", "cluster", features=chosen, scale=True)
    result = merge_wines("--drop", "number")
    succeeds(result)
    typed = sentences[0].replace("drop=['louvain']", "--drop louvain")
    assert result.stderr == f"warning: {typed}\n"


# Bad input


def refuses(result, sentence, before):
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == f"unsplit: {sentence}\n"
    assert snapshot() == before


def test_bad_choices_are_one_sentence_and_change_nothing(wines):
    before = old_results()
    wines.assign(bottle=wines["bottle"].where(wines.index != 9, "W003")).to_csv("twice.csv")
    columns = "'bottle', 'alcohol', 'malic_acid', 'region', 'ash', 'alcalinity_of_ash', "
    columns += "'magnesium', 'total_phenols' and 9 more"
    cases = {
        ("--id", "region"): "column 'region' of wines.csv should hold row ids, but 'south' occurs "
        "more than once; name a column with a different value in every row.",
        ("--id", "bottel"): "wines.csv has no column 'bottel', which --id names; close: 'bottle'; "
        f"its columns: {columns}.",
        ("--features", "alcohol,Hue,taste"): "wines.csv has no column 'Hue', 'taste', "
        f"which --features names; close: 'hue'; its columns: {columns}.",
        ("--drop", "years"): "wines.csv has no column 'years', which --drop names; close: 'year'; "
        f"its columns: {columns}.",
        ("--id", "cluster"): "column 'cluster' of wines.csv is named by --labels and --id, but a "
        "column can have only one use; name another column, or leave one of them out.",
        ("--features", "hue,cluster"): "column 'cluster' of wines.csv is named by --labels and "
        "--features, but a column can have only one use; name another column, or leave one of them "
        "out.",
        ("--features", "hue,region"): "--features names columns of wines.csv that are not numbers "
        "('region'); make columns of 0 and 1 of categories with --encode region, or leave them "
        "out.",
        ("--drop", ",".join([*MEASURED, "year", "region", "bottle"])): "wines.csv has no feature "
        "columns left; --drop names all of them.",
        ("--features", "hue", "--drop", "ash"): "--features and --drop cannot be combined; "
        "name the columns to use, or the columns to leave out, but not both.",
    }
    for options, sentence in cases.items():
        refuses(merge_wines(*options), sentence, before)
    twice = merge_wines("--id", "bottle", data="twice.csv")
    sentence = "column 'bottle' of twice.csv should hold row ids, but 'W003' occurs more than once;"
    refuses(twice, f"{sentence} name a column with a different value in every row.", before)


def test_columns_of_what_is_no_table_are_refused(wines):
    np.save("d.npy", wines[MEASURED].to_numpy())
    np.savez("d.npz", X=wines[MEASURED].to_numpy(), bottle=wines["bottle"].to_numpy(str))
    np.save("images.npy", np.zeros((4, 8, 8)))
    with pytest.raises(InputError, match=about("d.npy is not a table, so … features could …")):
        library.read("d.npy", features=["hue"])
    with pytest.raises(
        InputError,
        match=about("images.npy has no column 'bottle', which id names; it has no named columns."),
    ):
        library.read("images.npy", id="bottle")
    assert library.read("d.npz", id="bottle").row_ids.tolist() == wines["bottle"].tolist()


# Parquet and Arrow


def save_streamed(frame, name):
    if name.endswith("parquet"):
        frame.to_parquet(name, row_group_size=50)
    elif name.endswith("feather"):
        frame.to_feather(name)
    else:
        content = pa.Table.from_pandas(frame)
        with pa.ipc.new_file(name, content.schema) as writer:
            writer.write_table(content, max_chunksize=30)


@pytest.mark.parametrize("name", ["wines.parquet", "wines.feather", "wines.arrow"])
def test_binary_tables_give_the_same_as_text(name, wines):
    save_streamed(wines, name)
    with pytest.warns(SkippedWarning, match="'region', which do not hold"):
        read = library.read(name, "cluster", id="bottle", drop=["year"])
    np.testing.assert_array_equal(read.X, wines[MEASURED])
    assert (read.feature_names, read.left_out) == (MEASURED, ("region",))
    assert read.row_ids.tolist() == wines["bottle"].tolist()
    assert read.labels.tolist() == wines["cluster"].tolist()


def test_digits_that_float32_would_lose_are_kept(wines):
    stamps = 1_700_000_000.0 + np.arange(178) / 7
    wines[MEASURED].assign(time=stamps).to_parquet("d.parquet")
    with pytest.warns(FeatureWarning, match="column 'time' of d.parquet holds most of the"):
        read = library.read("d.parquet")
    assert read.X.dtype == np.float64
    np.testing.assert_array_equal(read.X[:, -1], stamps)


def test_an_index_of_a_parquet_file_can_be_named_as_the_id(wines):
    wines.set_index("bottle").drop(columns=["region"]).to_parquet("d.parquet")
    for chosen in (None, "bottle"):
        read = library.read("d.parquet", "cluster", id=chosen)
        assert read.row_ids.tolist() == wines["bottle"].tolist()
        assert "bottle" not in read.feature_names


def test_repeated_names_and_damage_are_refused(wines):
    twice = pa.table([[1.0], [2.0]], names=["a", "a"])
    pa.feather.write_feather(twice, "twice.feather")
    with pytest.raises(InputError, match=r"^twice.feather cannot be read .*duplicate"):
        library.read("twice.feather")
    wines.to_feather("wines.feather")
    Path("cut.feather").write_bytes(Path("wines.feather").read_bytes()[:-300])
    with pytest.raises(InputError, match=about("cut.feather cannot be read (…); it may be …")):
        library.read("cut.feather")


# The page about tables


PAGE = Path(__file__).parents[1] / "docs" / "tables.md"


def without_decimals(text):
    """Distances differ a little between processors."""
    return re.sub(r"\d+\.\d+|(?<=strength )\d+|(?<=data leave )[\d to]+", "#", text)


def test_the_page_shows_what_a_person_types_and_sees():
    text = PAGE.read_text(encoding="utf-8")
    exec(re.search(r"```python\n(.*?)```", text, re.DOTALL)[1], {})
    typed = re.findall(r"\$ unsplit (.*?)\n(.*?)(?=\$ unsplit|```)", text, re.DOTALL)
    assert len(typed) == 6
    for command, seen in typed:
        result = unsplit(*shlex.split(command))
        assert without_decimals(result.stderr + result.stdout) == without_decimals(seen)
        assert result.exit_code == (2 if seen.startswith("unsplit: ") else 0)
    shown = re.search(r"\n(id,old,new,refined\n.*?)```", text, re.DOTALL)[1]
    assert Path("merged/labels.csv").read_text(encoding="utf-8").startswith(shown)


# How people write tables


def same_numbers(read, wines):
    assert read.feature_names == MEASURED
    assert np.array_equal(read.X, wines[MEASURED].to_numpy())
    assert read.row_ids.tolist() == wines["bottle"].tolist()
    assert read.labels.tolist() == wines["cluster"].tolist()


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("t.csv", {"sep": ";", "decimal": ","}),
        ("t.csv.gz", {"sep": ";", "decimal": ","}),
        ("t.tsv", {"sep": "\t", "decimal": ","}),
        ("t.csv", {"sep": ";"}),
        ("t.csv", {"sep": "\t"}),
        ("t.txt", {"sep": "\t"}),
        ("t.txt", {"sep": "\t", "decimal": ",", "encoding": "utf-16"}),
        ("t.tsv", {"sep": ","}),
    ],
)
def test_separators_and_decimal_commas_give_the_same_numbers(name, how, wines):
    wines.to_csv(name, index=False, **how)
    with pytest.warns(SkippedWarning, match="left out of t"):
        found = library.read(name, "cluster", id="bottle", drop=["year"])
    same_numbers(found, wines)


def test_labels_beside_decimal_commas_stay_as_they_are_written():
    Path("t.csv").write_text("id;x;y;cluster\n1,5;1,5;-2;a,b\n2,5;,25;3,e2;c\n")
    found = library.read("t.csv", "cluster", features=["x", "y"])
    assert found.X.tolist() == [[1.5, -2], [0.25, 300]]
    assert found.labels.tolist() == ["a,b", "c"]
    assert found.row_ids.tolist() == ["1,5", "2,5"]


def test_a_mistake_among_decimal_commas_is_named():
    Path("t.csv").write_text("x;y\n1,5;1\n2,5;2\n?;3\n")
    with pytest.raises(InputError, match=r"column 'x' of t.csv holds numbers, but also '\?' "):
        library.read("t.csv")
    Path("t.csv").write_text("x;y\n1,5;1\n2,5;2\n1.234,5;3\n")
    with pytest.raises(InputError, match=r"column 'x' of t.csv holds numbers, but also '1.234,5' "):
        library.read("t.csv")


def test_latin_1_is_read_with_a_warning(wines):
    regions = np.where(wines["region"] == "north", "Württemberg", "Besançon")
    wines.assign(region=regions).to_csv("t.csv", index=False, encoding="latin1")
    result = merge("--id", "bottle", "--drop", "year", data="t.csv", labels="region")
    succeeds(result)
    assert "t.csv is not text in UTF-8 and was read as Latin-1 (Windows-1252)" in result.stderr
    assert set(read_csv("out/labels.csv")["old"]) == {"Württemberg", "Besançon"}


def test_a_spreadsheet_needs_a_package_that_is_named(monkeypatch):
    Path("t.xlsx").write_bytes(b"PK")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    result = merge(data="t.xlsx")
    assert "reading .xlsx files needs openpyxl" in result.stderr
    assert "unsplit[tables]" in result.stderr
    assert result.exit_code == 2


def test_the_first_sheet_of_a_spreadsheet_is_a_table(wines):
    with pd.ExcelWriter("t.xlsx") as book:
        wines.to_excel(book, index=False, sheet_name="wines")
        wines[:3].to_excel(book, index=False, sheet_name="another")
    with pytest.warns(SkippedWarning, match="left out of t"):
        found = library.read("t.xlsx", "cluster", id="bottle", drop=["year"])
    # A spreadsheet keeps 16 digits of a number.
    np.testing.assert_allclose(found.X, wines[found.feature_names].to_numpy(), rtol=1e-14)
    assert found.row_ids.tolist() == wines["bottle"].tolist()


# Missing values, categories and dates


@pytest.fixture
def with_gaps(wines):
    """Two wines without hue, one of them without ash too."""
    frame = wines.drop(columns=["region", "year"])
    frame.loc[[3, 7], "hue"] = np.nan
    frame.loc[7, "ash"] = np.nan
    frame.to_csv("gaps.csv", index=False)
    return frame


def test_missing_values_are_an_error_that_names_the_option(with_gaps):
    result = merge("--id", "bottle", data="gaps.csv")
    assert result.exit_code == 2
    assert result.stderr == (
        "unsplit: gaps.csv has missing or infinite values (1 in column 'ash', 2 in column 'hue'); "
        "remove those rows or fill in the values first, or use --missing drop or --missing "
        "median.\n"
    )


def test_rows_with_missing_values_are_left_out_and_listed_as_noise(with_gaps):
    result = merge("--id", "bottle", "--missing", "drop", "--report", data="gaps.csv")
    succeeds(result)
    said = (
        "2 of 178 rows of gaps.csv have missing values (1 in 'ash', 2 in 'hue') and are left out; "
        "results list them as noise (-1)."
    )
    assert f"warning: {said}\n" in result.stderr
    written, labels = read_json("out/result.json"), read_csv("out/labels.csv")
    assert (written["missing"], written["n_rows_left_out"]) == ("drop", 2)
    assert written["n_observations"] == 176
    assert any(said in warning for warning in written["warnings"])
    assert labels["id"] == with_gaps["bottle"].tolist()
    for name in ("old", "new", "refined"):
        assert [labels[name][row] for row in (3, 7)] == ["-1", "-1"]
    others = with_gaps["cluster"].drop([3, 7]).astype(str).tolist()
    assert [old for row, old in enumerate(labels["old"]) if row not in (3, 7)] == others
    succeeds(unsplit("report", "out"))


def test_what_is_left_is_merged_as_if_the_others_had_never_been_there(with_gaps):
    merge("--id", "bottle", "--missing", "drop", data="gaps.csv")
    with_gaps.drop([3, 7]).to_csv("whole.csv", index=False)
    succeeds(merge("--id", "bottle", data="whole.csv", out="whole"))
    left, whole = read_csv("out/labels.csv"), read_csv("whole/labels.csv")
    left = {i: row for i, *row in zip(*left.values(), strict=True)}
    assert {i: left[i] for i in whole["id"]} == {
        i: row for i, *row in zip(*whole.values(), strict=True)
    }


def test_missing_values_are_filled_in_by_the_median(with_gaps):
    with pytest.warns(InputWarning, match=r"missing .* \(1 in 'ash', 2 in 'hue'\) are filled in"):
        found = library.read("gaps.csv", "cluster", id="bottle", missing="median")
    assert np.array_equal(found.X, with_gaps[MEASURED].fillna(with_gaps[MEASURED].median()))
    assert found.kept.all()


def test_batches_and_labels_of_another_file_follow_the_rows_that_are_left(with_gaps):
    pd.DataFrame({"id": with_gaps["bottle"][::-1], "label": range(178)}).to_csv("l.csv")
    with pytest.warns(InputWarning, match="2 of 178 rows"):
        found = library.read("gaps.csv", "l.csv", "cluster", id="bottle", missing="drop")
    kept = [row for row in range(178) if row not in (3, 7)]
    assert found.labels.tolist() == [177 - row for row in kept]
    assert found.batch.tolist() == with_gaps["cluster"][kept].tolist()
    assert np.flatnonzero(~found.kept).tolist() == [3, 7]


def test_a_column_without_values_cannot_be_repaired(with_gaps):
    with_gaps.assign(empty=np.nan).to_csv("gaps.csv", index=False)
    for how in ("drop", "median"):
        result = merge("--id", "bottle", "--missing", how, data="gaps.csv")
        assert result.stderr == (
            f"unsplit: gaps.csv has too many missing values for --missing {how}, most of them in "
            "column 'empty'; leave it out with --drop empty.\n"
        )


def test_overcluster_keeps_every_row_and_merge_reads_them(with_gaps):
    chosen = ("--id", "bottle", "--missing", "drop", "--drop", "cluster")
    out = succeeds(unsplit("overcluster", "gaps.csv", *chosen, "-o", "c.csv", "--seed", 0))
    assert "--id bottle --drop cluster --missing drop --out merged" in out
    assert [read_csv("c.csv")["label"][row] for row in (3, 7)] == ["-1", "-1"]
    succeeds(merge(*chosen, data="gaps.csv", labels="c.csv"))
    assert len(read_csv("out/labels.csv")["id"]) == 178


def test_categories_become_columns_of_zero_and_one(wines):
    result = merge_wines("--id", "bottle", "--encode", "region,year")
    succeeds(result)
    years = ", ".join(f"'year={year}'" for year in range(1990, 1996))
    added = f"'region=north', 'region=south', {years} and 1 more"
    assert f"categories of wines.csv became columns of 0 and 1: {added}." in result.stderr
    assert "left out" not in result.stderr
    chosen = {"id": "bottle", "features": ["hue"], "encode": ["region"]}
    with pytest.warns(InputWarning, match="categories of wines.csv became columns of 0 and 1"):
        found = library.read("wines.csv", "cluster", **chosen)
    assert found.feature_names == ["hue", "region=north", "region=south"]
    assert np.array_equal(found.X[:, 1], wines["region"] == "north")
    assert (found.X[:, 1] + found.X[:, 2] == 1).all()


@pytest.mark.filterwarnings("ignore::unsplit.errors.InputWarning")
@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_a_missing_category_is_zero_in_all_of_its_columns(name, wines):
    frame = wines.assign(region=wines["region"].where(wines.index != 5))
    frame.to_csv(name, index=False) if name.endswith("csv") else frame.to_parquet(name)
    found = library.read(name, "cluster", id="bottle", features=["hue"], encode=["region"])
    assert found.X[[4, 5, 6], 1:].tolist() == [[0, 1], [0, 0], [0, 1]]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--encode", "bottle"), "column 'bottle' of wines.csv has 178 different values, but --en"),
        (("--encode", "hue,Region"), "wines.csv has no column 'Region', which --encode names; clo"),
        (("--encode", "cluster"), "column 'cluster' of wines.csv is named by --labels and --encod"),
        (
            ("--encode", "year", "--drop", "year"),
            "column 'year' of wines.csv is named by --encode ",
        ),
    ],
)
def test_what_cannot_be_encoded_is_refused(options, sentence):
    result = merge_wines(*options)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"unsplit: {sentence}")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_dates_are_left_out_and_named(name, wines):
    frame = wines.assign(bottled=pd.date_range("2001-02-03", periods=178)).drop(columns="region")
    frame.to_csv(name, index=False) if name.endswith("csv") else frame.to_parquet(name)
    with pytest.warns(SkippedWarning) as warned:
        library.read(name, "cluster", id="bottle")
    assert str(warned[0].message) == (
        f"left out of {name}: 'bottled', which do not hold numbers; if they are measurements or "
        "dates, write numbers instead, such as days."
    )
