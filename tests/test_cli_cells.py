"""Cells in .h5ad files on the command line."""

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import adjusted_rand_score

import unsplit
from tests.cell_cases import LABELS, QUICK, X, small
from tests.cli_cases import merge, old_results, read_csv, read_json, snapshot, succeeds
from tests.cli_cases import unsplit as run
from unsplit.cli.outputs import about_run
from unsplit.data.readers import h5ad
from unsplit.data.saving import verify_folder
from unsplit.report.collect import Kept


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write(path="cells.h5ad", **columns):
    adata = small(**columns)
    adata.write_h5ad(path)
    return adata


def merge_cells(*arguments, labels="leiden", **others):
    return merge(*arguments, data="cells.h5ad", labels=labels, **others)


def test_the_command_gives_what_two_lines_of_python_give():
    adata = write(donor=np.array(["a", "b"], object)[np.arange(160) % 2])
    shown = succeeds(merge_cells("--also", "h5ad", "--batch", "donor"))
    assert shown.startswith("Merged 4 clusters into 2.\n")
    unsplit.anndata.merge(adata, "leiden", batch_key="donor", **QUICK)
    found = anndata.read_h5ad("out/merged.h5ad")
    assert found.obs["unsplit"].tolist() == adata.obs["unsplit"].tolist()
    assert found.obs["unsplit"].cat.categories.tolist() == ["2 + 10", "3 + 4"]
    ours, theirs = (a.uns["unsplit"] for a in (found, adata))
    assert np.array_equal(ours["tvd"], theirs["tvd"])
    assert str(ours["review"].to_dict("list")) == str(theirs["review"].to_dict("list"))
    for key in ("unsplit_dendrogram", "dendrogram_unsplit"):
        assert np.array_equal(found.uns[key]["linkage"], adata.uns[key]["linkage"])
    assert theirs["params"].items() <= ours["params"].items()


def test_the_usual_files_are_written_and_named_by_cell():
    write()
    succeeds(merge_cells())
    labels = read_csv("out/labels.csv")
    assert labels["id"][:2] == ["cell 0", "cell 1"]
    assert labels["old"][0] == "10"
    result = read_json("out/result.json")
    assert result["representation"] == "X_pca"
    assert result["n_features"] == 2
    assert "merged.h5ad" not in result["files"]


def test_the_copy_has_everything_that_the_file_had():
    adata = write(types=pd.Categorical(np.where(LABELS < 2, "T", "B")))
    before = h5py.File("cells.h5ad", "r")
    succeeds(merge_cells("--also", "h5ad"))
    assert "merged.h5ad" in verify_folder("out")
    found = anndata.read_h5ad("out/merged.h5ad")
    assert (found.X != adata.X).nnz == 0
    assert (found.layers["counts"] != adata.layers["counts"]).nnz == 0
    assert found.obs_names.tolist() == adata.obs_names.tolist()
    assert found.obs.columns.tolist() == ["leiden", "types", "unsplit", "unsplit_refined"]
    labels = pd.read_csv("out/labels.csv")
    assert adjusted_rand_score(labels["refined"], found.obs["unsplit_refined"]) == 1
    assert found.obs["types"].tolist() == adata.obs["types"].tolist()
    assert "unsplit" not in before["uns"]
    before.close()
    # A second merge of the copy replaces what the first has written.
    succeeds(
        merge(
            "--also", "h5ad", "--n-clusters", 3, data="out/merged.h5ad", labels="leiden", out="two"
        )
    )
    again = anndata.read_h5ad("two/merged.h5ad")
    assert again.obs.columns.tolist() == ["leiden", "types", "unsplit", "unsplit_refined"]
    assert again.uns["unsplit"]["n_clusters"] == 3
    assert again.uns["unsplit"]["params"]["n_clusters"] == 3


def test_clusters_from_another_file_are_matched_by_cell_and_kept_in_a_column():
    write()
    order = np.random.default_rng(0).permutation(160)
    lines = [f"cell {i},{LABELS[i]}" for i in order]
    with open("labels.csv", "w", encoding="utf-8") as file:
        file.write("\n".join(["cell,label", *lines]))
    succeeds(merge_cells("--also", "h5ad", labels="labels.csv"))
    found = anndata.read_h5ad("out/merged.h5ad")
    assert found.obs["unsplit_initial"].tolist() == [str(label) for label in LABELS]
    assert set(found.obs["unsplit"]) == {"0 + 1", "2 + 3"}
    assert found.uns["unsplit_dendrogram"]["groupby"].tolist() == ["unsplit_initial"]


@pytest.mark.parametrize(
    ("how", "name", "n_features"),
    [
        (("--use-rep", "X_umap"), "X_umap", 2),
        (("--use-rep", "X"), "X", 30),
        (("--use-rep", "layers/counts"), "layers/counts", 30),
        (("--use-rep", "raw"), "raw", 30),
    ],
)
def test_other_matrices_can_be_chosen(how, name, n_features):
    adata = small()
    adata.raw = anndata.AnnData(adata.layers["counts"], adata.obs, adata.var)
    adata.write_h5ad("cells.h5ad")
    succeeds(merge_cells(*how))
    result = read_json("out/result.json")
    assert (result["representation"], result["n_features"]) == (name, n_features)
    assert f" {' '.join(how)} " in about_run(result)["command"]  # what the page says to type again


def test_the_page_shows_the_users_picture_and_genes():
    """Not the components that were compared, and not another picture."""
    write()
    succeeds(merge_cells("--report"))
    kept = Kept.load("out/report.npz", 4)
    assert kept.picture_method == "X_umap of cells.h5ad"
    scaled = (X - X.min(axis=0)) / np.ptp(X, axis=0)
    assert np.allclose(kept.picture_xy, scaled, atol=1e-6)
    assert set(kept.feature_names) == {f"gene {i}" for i in range(30)}


def test_x_is_used_where_there_is_no_x_pca():
    adata = small()
    del adata.obsm["X_pca"]
    adata.write_h5ad("cells.h5ad")
    assert "Compared 160 cells by X (30 features)." in succeeds(merge_cells())


def test_what_is_not_needed_is_not_read(monkeypatch):
    write()
    read = []

    class Watched:
        def __getattr__(self, name):
            import anndata.io

            return getattr(anndata.io, name)

        def read_elem(self, element):
            import anndata.io

            read.append(element.name)
            return anndata.io.read_elem(element)

    monkeypatch.setattr(h5ad, "_io", Watched)
    succeeds(merge_cells("--also", "h5ad"))
    assert set(read) <= {"/obs", "/obsm/X_pca", "/uns/leiden_colors"}


def test_the_other_commands_read_cells_too():
    write()
    succeeds(run("overcluster", "cells.h5ad", "--out", "clusters.csv", "--n-clusters", 4,
                 "--method", "k-means", "--seed", 0))  # fmt: skip
    assert read_csv("clusters.csv")["id"][0] == "cell 0"
    succeeds(merge_cells(labels="clusters.csv"))
    where = ("--labels", "leiden", "--out", "compared", "--epochs", 2, "--cv", 2)
    succeeds(run("distances", "cells.h5ad", *where, "--use-rep", "layers/counts"))
    assert read_json("compared/distances.json")["representation"] == "layers/counts"


def test_python_reads_such_a_file():
    write()
    found = unsplit.read("cells.h5ad", "leiden", use_rep="X_umap")
    assert found.X.shape == (160, 2)
    assert found.labels[0] == "10"
    assert unsplit.read("cells.h5ad").labels is None


BAD = {
    "column": (("--labels", "Leidn"), "obs of cells.h5ad has no column 'Leidn' (close: "
               "'leiden'; its columns: 'leiden', 'one', 'mito')."),
    "batch": (("--labels", "leiden", "--batch", "sample"), "obs of cells.h5ad has no column "
              "'sample' (its columns: 'leiden', 'one', 'mito')."),
    "representation": (("--labels", "leiden", "--use-rep", "X_pcs"), "cells.h5ad has no "
                       "representation 'X_pcs' (close: 'X_pca'; its representations: "
                       "'X_pca', 'X_umap', 'bad', 'X')."),
    "layer": (("--labels", "leiden", "--use-rep", "layers/raw"), "cells.h5ad has no layer 'raw' "
              "(its layers: 'counts')."),
    "gaps": (("--labels", "leiden", "--use-rep", "bad"), "observation 'cell 7' of cells.h5ad has "
             "values that are NaN, infinite or larger than 1e+30"),
    "not counts": (("--labels", "leiden", "--use-rep", "raw"), "raw of cells.h5ad holds values "
                   "that are not counts, such as"),
    "one": (("--labels", "one"), "labels hold only one cluster (T), so there is no pair"),
    "measurements": (("--labels", "mito"), "labels must be integers or strings, got the number"),
    "no labels": ((), "cells.h5ad needs clusters to merge; name a column of it, or another file, "
                  "with --labels, or make clusters"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_exits_with_2_and_leaves_the_results_alone(case):
    adata = small(one="T", mito=0.25)
    adata.obsm["bad"] = np.where((np.arange(160) == 7)[:, None], np.inf, adata.obsm["X_pca"])
    adata.write_h5ad("cells.h5ad")
    old_results()
    before = snapshot()
    how, sentence = BAD[case]
    result = run("merge", "cells.h5ad", "--out", "out", "--also", "h5ad", *how)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"unsplit: {sentence}")
    assert len(result.stderr.splitlines()) == 1
    assert snapshot() == before


def test_damaged_and_foreign_files_are_refused():
    write()
    with open("cells.h5ad", "rb") as file:
        start = file.read(3000)
    with open("cut.h5ad", "wb") as file:
        file.write(start)
    with h5py.File("other.h5ad", "w") as file:
        file["X"] = np.eye(3)
    sentences = {"cut": "cannot be read", "other": "not an .h5ad file, because it has no obs"}
    for name, sentence in sentences.items():
        result = run("merge", f"{name}.h5ad", "--labels", "leiden", "--out", "out")
        assert result.exit_code == 2
        assert sentence in result.stderr


def test_options_for_cells_are_refused_for_other_files():
    np.save("data.npy", np.eye(4))
    where = ("--labels", "leiden", "--out", "out")
    result = run("merge", "data.npy", *where, "--use-rep", "X_pca")
    assert "--use-rep is for .h5ad files, got data.npy" in result.stderr
    result = run("merge", "data.npy", *where, "--also", "h5ad")
    assert "--also h5ad works only with .h5ad files, got data.npy" in result.stderr
    assert result.exit_code == 2


def test_the_file_that_is_read_is_never_replaced():
    write("out.h5ad")
    result = merge("--also", "h5ad", data="out.h5ad", labels="leiden", out=".")
    assert result.exit_code == 0, result.stderr
    # What the first run wrote is the input of the second, which would write it again.
    result = merge("--also", "h5ad", data="merged.h5ad", labels="leiden", out=".")
    assert result.exit_code == 2
    assert "merged.h5ad is an input and would be replaced" in result.stderr
