"""Tables as people have them: ids, text, other numbers beside the measurements."""

import re
import shlex
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
from unsplit.errors import FeatureWarning, InputError, SkippedWarning

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
        "('region'); encode them as numbers, or leave them out.",
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
