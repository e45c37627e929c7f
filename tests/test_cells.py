"""Cells in an AnnData: unsplit.anndata.merge and what it takes and writes."""

import base64
import json
import re

import anndata
import matplotlib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from scipy.cluster.hierarchy import is_valid_linkage

import unsplit
from tests.cell_cases import LABELS, QUICK, X, small
from unsplit.data.cells import Groups, groups_in, matrix_of
from unsplit.data.labels import merged_names
from unsplit.errors import InputError

matplotlib.use("Agg")


@pytest.fixture(scope="module")
def merged():
    adata = small()
    assert unsplit.anndata.merge(adata, **QUICK) is None
    return adata


@pytest.fixture(scope="module")
def pbmc():
    """700 blood cells that scanpy carries, cut by k-means into 15."""
    import scanpy as sc
    from sklearn.cluster import KMeans

    adata = sc.datasets.pbmc68k_reduced()
    labels = KMeans(15, n_init=1, random_state=0).fit_predict(adata.obsm["X_pca"][:, :10])
    adata.obs["kmeans"] = pd.Categorical(labels.astype(str))
    unsplit.anndata.merge(adata, "kmeans", **QUICK)
    return adata


def counts(adata, key="unsplit"):
    return adata.obs[key].value_counts().to_dict()


def test_the_merged_clusters_are_named_after_their_members_in_the_order_of_the_categories(merged):
    column = merged.obs["unsplit"]
    assert column.cat.categories.tolist() == ["2 + 10", "3 + 4"]
    assert counts(merged) == {"2 + 10": 80, "3 + 4": 80}
    mapping = merged.uns["unsplit"]["mapping"]
    assert mapping["old"].tolist() == ["2", "3", "4", "10"]
    assert mapping["new"].tolist() == ["2 + 10", "3 + 4", "3 + 4", "2 + 10"]
    assert mapping["n_cells"].tolist() == [40] * 4


def test_a_merge_says_what_it_did_where_scanpy_does(capsys, monkeypatch):
    adata = small()
    unsplit.anndata.merge(adata, **QUICK)
    out, said = capsys.readouterr()
    assert out == ""
    assert said.startswith("Merged 4 clusters into 2.\n  Merging stopped because ")
    assert 'in adata.uns["unsplit"]["review"].\n' in said
    monkeypatch.setattr("builtins.__IPYTHON__", True, raising=False)
    unsplit.anndata.merge(adata, n_clusters=3, **QUICK)
    assert capsys.readouterr().out.startswith("Merged 4 clusters into 3, as requested.\n")
    unsplit.anndata.merge(adata, verbose=False, **QUICK)
    assert capsys.readouterr() == ("", "")
    with pytest.raises(InputError, match="verbose must be"):
        unsplit.anndata.merge(adata, verbose="no")


def test_the_page_of_cells_has_their_picture_and_their_genes(merged, tmp_path):
    def data(page):
        (text,) = re.findall(r'id="data">(.*?)</script>', page.html)
        return json.loads(text)

    found = data(unsplit.anndata.report(merged))
    tree = unsplit.anndata.tree(merged)
    assert found["tree"]["n_clusters"] == 2
    assert found["picture"]["method"] == "X_umap of adata"
    assert found["picture"]["n_observations"] == len(X)
    assert found["features"]["names"][0].startswith("gene ")
    assert found["labels"]["ids"][:2] == ["cell 0", "cell 1"]
    leaves = np.frombuffer(base64.b64decode(found["labels"]["cluster"]), "<i4")
    assert [tree.cluster_ids[leaf] for leaf in leaves] == merged.obs["leiden"].tolist()
    upper = np.triu_indices(4, 1)
    tvd = np.frombuffer(base64.b64decode(found["matrix"]["tvd"]), "<u2") / 65_534
    labels = merged.obs["leiden"].astype(str)
    merger = unsplit.ClusterMerger(random_state=0, **QUICK).fit(X, initial_labels=labels)
    np.testing.assert_allclose(tvd, merger.tvd_[upper], atol=1e-4)

    # The same from a file, of a part of the cells, and without genes, picture and matrix.
    merged.write_h5ad(tmp_path / "cells.h5ad")
    again = anndata.read_h5ad(tmp_path / "cells.h5ad")
    assert data(unsplit.anndata.report(again)) == found
    part = again[::2].copy()
    assert len(data(unsplit.anndata.report(part))["labels"]["ids"]) == len(X) / 2
    del part.obsm["X_umap"], part.uns["unsplit"]["tvd"]
    part.X = None
    bare = data(unsplit.anndata.report(part))
    assert bare["matrix"] is None
    assert bare["picture"]["method"] == "the two features"
    part.obs["leiden"] = "5"
    with pytest.raises(InputError, match="5"):
        unsplit.anndata.report(part)
    with pytest.raises(InputError, match=r"adata\.uns has no merge under 'other'"):
        unsplit.anndata.report(again, "other")


def test_the_result_is_that_of_the_estimator(pbmc):
    merger = unsplit.ClusterMerger(random_state=0, **QUICK)
    labels = np.asarray(pbmc.obs["kmeans"].astype(str))
    merger.fit(pbmc.obsm["X_pca"], initial_labels=labels)
    table = pd.crosstab(merger.labels_, pbmc.obs["unsplit"])
    assert (table > 0).sum(axis=0).tolist() == [1] * merger.n_clusters_
    assert (table > 0).sum(axis=1).tolist() == [1] * merger.n_clusters_
    assert pbmc.uns["unsplit"]["n_clusters"] == merger.n_clusters_ < 15
    order = [merger.tree_.cluster_ids.tolist().index(name) for name in _old_names(pbmc)]
    assert np.array_equal(pbmc.uns["unsplit"]["tvd"], merger.tvd_[np.ix_(order, order)])


def _old_names(adata):
    return adata.uns["unsplit"]["mapping"]["old"].tolist()


def test_an_h5ad_file_keeps_everything(pbmc, tmp_path):
    pbmc.write_h5ad(tmp_path / "cells.h5ad")
    again = anndata.read_h5ad(tmp_path / "cells.h5ad")
    assert again.obs["unsplit"].tolist() == pbmc.obs["unsplit"].tolist()
    assert isinstance(again.obs["unsplit"].dtype, pd.CategoricalDtype)
    old, new = pbmc.uns["unsplit"], again.uns["unsplit"]
    quick = {name: v if isinstance(v, (str, int)) else repr(v) for name, v in QUICK.items()}
    usual = {"groupby": "kmeans", "representation": "X_pca", "random_state": 0}
    assert new["params"] == usual | quick
    assert new["stopped"] == old["stopped"]
    for table in ("review", "mapping"):
        assert str(new[table].to_dict("list")) == str(old[table].to_dict("list"))
    for key in ("dendrogram_unsplit", "unsplit_dendrogram"):
        assert np.array_equal(again.uns[key]["linkage"], pbmc.uns[key]["linkage"])
    tree, same = unsplit.anndata.tree(pbmc), unsplit.anndata.tree(again)
    assert repr(tree) == repr(same)
    assert tree.mapping == same.mapping
    assert np.array_equal(tree.linkage, same.linkage)
    assert str(tree.review_table()) == str(same.review_table())
    same.save(tmp_path / "tree.npz")
    assert unsplit.MergeTree.load(tmp_path / "tree.npz").mapping == tree.mapping  # a valid tree


def test_the_stored_tree_can_be_cut_elsewhere(merged):
    tree = unsplit.anndata.tree(merged)
    assert tree.cut(n_clusters=3).n_clusters == 3
    with pytest.raises(InputError, match=r"adata.uns has no merge under 'other'"):
        unsplit.anndata.tree(merged, "other")


def test_dendrograms_are_valid_and_match_the_groups(pbmc):
    for key, column in (("dendrogram_unsplit", "unsplit"), ("unsplit_dendrogram", "kmeans")):
        stored, names = pbmc.uns[key], pbmc.obs[column].cat.categories
        assert is_valid_linkage(stored["linkage"])
        assert stored["groupby"].tolist() == [column]
        assert sorted(stored["categories_ordered"]) == sorted(names)
        assert names[stored["categories_idx_ordered"]].tolist() == list(
            stored["categories_ordered"]
        )
        # Leaves of one branch are neighbours, so no line crosses another.
        assert np.allclose(np.sort(stored["dendrogram_info"]["icoord"], axis=1)[:, :2].min(), 5)


def test_lower_merges_join_what_was_merged(pbmc):
    # All merges of the tree below the cut are inside groups, and all others between groups.
    tree = unsplit.anndata.tree(pbmc)
    upper = pbmc.uns["dendrogram_unsplit"]["linkage"]
    assert np.array_equal(upper[:, 2], tree.linkage[~tree.taken][:, 2])
    assert upper[-1, 3] == pbmc.uns["unsplit"]["n_clusters"]


@pytest.mark.filterwarnings("ignore:The set_bad function:PendingDeprecationWarning")
def test_scanpy_draws_the_dendrograms_and_the_colours(pbmc):
    import matplotlib.pyplot as plt
    import scanpy as sc

    before = pbmc.uns["dendrogram_unsplit"]
    ax = sc.pl.dendrogram(pbmc, "unsplit", show=False)
    shown = [label.get_text() for label in ax.get_xticklabels()]
    assert shown == list(before["categories_ordered"])
    ax = sc.pl.dendrogram(pbmc, "kmeans", dendrogram_key="unsplit_dendrogram", show=False)
    assert len(ax.get_xticklabels()) == 15
    genes = pbmc.var_names[:4].tolist()
    plots = sc.pl.matrixplot(pbmc, genes, "unsplit", dendrogram=True, show=False)
    rows = [label.get_text() for label in plots["mainplot_ax"].get_yticklabels()]
    assert rows == list(before["categories_ordered"])
    sc.pl.matrixplot(pbmc, genes, "kmeans", dendrogram="unsplit_dendrogram", show=False)
    sc.pl.correlation_matrix(pbmc, "kmeans", dendrogram="unsplit_dendrogram", show=False)
    sc.pl.correlation_matrix(pbmc, "unsplit", show=False)
    ax = sc.pl.umap(pbmc, color="unsplit", show=False)
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    assert legend == pbmc.obs["unsplit"].cat.categories.tolist()
    plt.close("all")
    assert pbmc.uns["dendrogram_unsplit"] is before  # scanpy has not made one of its own


def test_the_correlation_matrices_are_mean_distances_in_the_form_of_scanpy(pbmc):
    import scanpy as sc

    scanpys = sc.tl.dendrogram(pbmc, "unsplit", inplace=False)
    ours, old = pbmc.uns["dendrogram_unsplit"], pbmc.uns["unsplit_dendrogram"]
    assert ours.keys() == scanpys.keys() == old.keys()
    assert ours["dendrogram_info"].keys() >= {"icoord", "dcoord", "ivl", "leaves"}
    stored = pbmc.uns["unsplit"]
    assert old["correlation_matrix"] == pytest.approx(1 - stored["tvd"])
    mapping, kinds = stored["mapping"], pbmc.obs["unsplit"].cat.categories
    assert ours["correlation_matrix"].shape == (len(kinds), len(kinds))
    a, b = (np.flatnonzero(mapping["new"] == kind) for kind in kinds[:2])
    weights = np.outer(*(mapping["n_cells"].to_numpy()[side] for side in (a, b)))
    mean = np.average(stored["tvd"][np.ix_(a, b)], weights=weights)
    assert ours["correlation_matrix"][0, 1] == pytest.approx(1 - mean)
    assert (np.diag(ours["correlation_matrix"]) == 1).all()


@pytest.mark.filterwarnings("ignore:Writing zarr v2:UserWarning")
def test_the_tree_comes_back_from_zarr(merged, tmp_path):
    merged.write_zarr(tmp_path / "cells.zarr")
    again = anndata.read_zarr(tmp_path / "cells.zarr")
    assert str(unsplit.anndata.tree(again).merges) == str(unsplit.anndata.tree(merged).merges)


def test_the_tree_can_be_read_from_what_zarr_3_gives_back(merged):
    def as_read(value):
        array = np.asarray(value)
        return array.astype(np.dtypes.StringDType()) if array.dtype.kind in "OU" else array

    again = merged.copy()
    again.uns["unsplit"]["tree"] = {
        name: as_read(value) for name, value in merged.uns["unsplit"]["tree"].items()
    }
    assert str(unsplit.anndata.tree(again).merges) == str(unsplit.anndata.tree(merged).merges)


def test_a_view_of_a_file_is_refused_before_anything_is_computed(tmp_path):
    small().write_h5ad(tmp_path / "cells.h5ad")
    backed = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    with pytest.raises(InputError, match=r"view of a file.*to_memory\(\)"):
        unsplit.anndata.merge(backed[:100], training="never looked at")
    assert "unsplit" in unsplit.anndata.merge(backed[:100], copy=True, **QUICK).obs
    backed.file.close()


def test_markers_tell_kept_pairs_apart_the_closest_first(pbmc):
    import scanpy as sc

    found = unsplit.anndata.markers(pbmc, n_genes=3)
    assert found.columns.tolist() == unsplit.anndata.COLUMNS
    assert found["score"].min() > 0
    assert found["share"].min() >= 0.1
    assert found.groupby(["cluster", "other"]).size().max() == 3
    closest = min(
        (row.pair for row in unsplit.anndata.tree(pbmc).reviewed if row.done == "kept apart"),
        key=lambda pair: pair.statistic,
    )
    sizes = pbmc.obs["unsplit"].value_counts()
    first = found.iloc[0]
    both = {closest.size_left, closest.size_right}
    assert {sizes[first["cluster"]], sizes[first["other"]]} == both
    two = pbmc[pbmc.obs["unsplit"].isin([first["cluster"], first["other"]])].copy()
    sc.tl.rank_genes_groups(
        two, "unsplit", groups=[first["cluster"]], reference=first["other"], method="wilcoxon"
    )
    theirs = sc.get.rank_genes_groups_df(two, first["cluster"]).set_index("names")
    assert theirs.loc[first["gene"], "pvals_adj"] < 0.01
    ours = first["log2_fold_change"]
    assert ours == pytest.approx(theirs.loc[first["gene"], "logfoldchanges"], rel=1e-3)
    expressed = pbmc.raw[:, first["gene"]].X.toarray().ravel() > 0
    inside = (pbmc.obs["unsplit"] == first["cluster"]).to_numpy()
    assert first["share"] == pytest.approx(expressed[inside].mean())


def test_the_scores_of_markers_are_those_of_the_page(merged):
    from unsplit.report.collect import Source, collect

    found = unsplit.anndata.markers(merged, use_raw=False, n_genes=30)
    assert set(found[found["cluster"] == "2 + 10"]["gene"]) >= {f"gene {i}" for i in range(15)}
    codes = merged.obs["unsplit"].cat.codes.to_numpy()
    kept = collect(Source(merged.X.toarray(), codes, 2, merged.var_names.tolist()))
    scores = (kept.means[0] - kept.means[1]) / kept.spread
    page = dict(zip(kept.feature_names, scores, strict=True))
    assert [page[gene] for gene in found["gene"]] == pytest.approx(
        found["score"] * np.where(found["cluster"] == "2 + 10", 1, -1), rel=1e-4
    )


def test_markers_take_a_layer_and_renamed_clusters_and_say_what_is_wrong(merged):
    adata = merged.copy()
    usual = unsplit.anndata.markers(adata)
    adata.layers["logged"], adata.X = adata.X, adata.layers["counts"]
    adata.obs["unsplit"] = adata.obs["unsplit"].cat.rename_categories(["T cells", "B cells"])
    renamed = unsplit.anndata.markers(adata, layer="logged")
    assert renamed["gene"].tolist() == usual["gene"].tolist()
    assert set(renamed["cluster"]) == {"T cells", "B cells"}
    for wrong, words in {
        ("counts", None): "layer 'counts' of adata must hold log-normalised expression",
        (None, False): "X of adata must hold log-normalised expression",
        ("logged", True): "name two sources",
        ("other", None): "no layer 'other'",
    }.items():
        with pytest.raises(InputError, match=words):
            unsplit.anndata.markers(adata, layer=wrong[0], use_raw=wrong[1])
    with pytest.raises(InputError, match="no longer holds the clusters"):
        unsplit.anndata.markers(adata[adata.obs["unsplit"] == "T cells"])
    adata.obs["unsplit"] = merged.obs["unsplit"].cat.reorder_categories(["3 + 4", "2 + 10"])
    pd.testing.assert_frame_equal(unsplit.anndata.markers(adata), usual)
    del adata.raw
    with pytest.raises(InputError, match="adata has no raw"):
        unsplit.anndata.markers(adata, use_raw=True)


def test_one_cluster_that_is_left_has_no_markers_and_says_why(merged):
    from sklearn.cluster import KMeans

    X = np.random.default_rng(0).normal(size=(200, 2))
    cut = KMeans(4, n_init=1, random_state=0).fit_predict(X).astype(str)
    adata = anndata.AnnData(np.abs(X), {"leiden": cut}, obsm={"X_pca": X})
    unsplit.anndata.merge(adata, **QUICK)
    known = adata.uns["unsplit"]["how_separated"]
    assert known.startswith("The data do not look like separated groups")
    assert unsplit.anndata.markers(adata).empty
    assert "how_separated" not in merged.uns["unsplit"]


def test_a_merged_cluster_has_the_colour_of_its_largest_member():
    adata = small(names=np.where(np.arange(160) < 50, "10", small().obs["leiden"]))
    adata.uns["leiden_colors"] = ["#000002", "#000003", "#000004", "#000010"]
    unsplit.anndata.merge(
        adata, constraints={"must_link": [("2", "10"), ("3", "4")]}, n_clusters=2, **QUICK
    )
    assert adata.uns["unsplit_colors"].tolist() == ["#000010", "#000003"]


def test_colours_follow_the_categories_also_of_noise_and_without_cells():
    adata = small()
    kinds = ["-1", "2", "unused", "3", "4", "10"]
    adata.obs["leiden"] = adata.obs["leiden"].cat.set_categories(kinds)
    adata.uns["leiden_colors"] = [f"#00000{i}" for i in range(6)]
    unsplit.anndata.merge(adata, **QUICK)
    of_member = dict(zip(kinds, adata.uns["leiden_colors"], strict=True))
    for name, colour in zip(
        adata.obs["unsplit"].cat.categories, adata.uns["unsplit_colors"], strict=True
    ):
        assert colour in [of_member[member] for member in name.split(" + ")]


def test_refined_labels_and_the_review_use_the_names_of_merged_clusters():
    adata = small()
    unsplit.anndata.merge(adata, **QUICK)
    names = set(adata.obs["unsplit"].cat.categories)
    assert set(adata.obs["unsplit_refined"].cat.categories) == names
    assert (adata.obs["unsplit_refined"] == adata.obs["unsplit"]).mean() > 0.9
    review = adata.uns["unsplit"]["review"]
    assert {*review["new_left"], *review["new_right"]} == names
    merged = review[review["done"] == "merged"]
    assert (merged["new_left"] == merged["new_right"]).all()


def test_names_of_merged_clusters_do_not_depend_on_the_order_of_the_categories():
    adata = small()
    unsplit.anndata.merge(adata, **QUICK)
    expected = adata.obs["unsplit"].astype(str)
    adata.obs["leiden"] = adata.obs["leiden"].astype(str).astype("category")  # sorted as text
    unsplit.anndata.merge(adata, **QUICK)
    assert (adata.obs["unsplit"].astype(str) == expected).all()


def test_without_colours_scanpy_chooses_them_and_those_of_an_earlier_merge_are_gone():
    adata = small()
    adata.uns["unsplit_colors"] = ["#000001"]
    unsplit.anndata.merge(adata, **QUICK)
    assert "unsplit_colors" not in adata.uns


def test_copy_leaves_the_original_alone():
    adata = small()
    changed = unsplit.anndata.merge(adata, copy=True, key_added="types", **QUICK)
    assert "types" in changed.obs
    assert "types" not in adata.obs
    assert not adata.uns


def test_a_view_becomes_an_object_of_its_own():
    adata = small()
    view = adata[adata.obs["leiden"] != "4"]
    with pytest.warns(anndata.ImplicitModificationWarning, match="view"):
        unsplit.anndata.merge(view, **QUICK)
    assert counts(view) == {"2 + 10": 80, "3": 40}
    assert "unsplit" not in adata.obs


def test_cells_without_a_cluster_stay_without_and_unused_categories_do_no_harm():
    adata = small(names=np.where(np.arange(160) < 5, None, small().obs["leiden"].astype(object)))
    adata.obs["leiden"] = adata.obs["leiden"].cat.add_categories(["unused", "-1"])
    adata.obs.iloc[5:7, 0] = "-1"
    unsplit.anndata.merge(adata, **QUICK)
    assert adata.obs["unsplit"].isna().sum() == 7
    assert adata.obs["unsplit"].iloc[:7].isna().all()
    assert counts(adata) == {"3 + 4": 80, "2 + 10": 73}
    assert _old_names(adata) == ["2", "3", "4", "10"]


def test_whole_numbers_and_text_are_clusters_too():
    adata = small(numbers=LABELS, gaps=np.where(LABELS == 3, np.nan, LABELS))
    unsplit.anndata.merge(adata, "numbers", **QUICK)
    assert counts(adata) == {"0 + 1": 80, "2 + 3": 80}
    unsplit.anndata.merge(adata, "gaps", **QUICK)
    assert counts(adata) == {"0 + 1": 80, "2": 40}


@pytest.mark.parametrize(
    ("how", "name"),
    [
        ({"use_rep": "layers/counts"}, "layers/counts"),
        ({"use_rep": "raw"}, "raw"),
        ({"use_rep": "X"}, "X"),
        ({"use_rep": "X_umap"}, "X_umap"),
        ({"use_rep": None}, "X_pca"),
    ],
)
def test_each_matrix_can_be_compared_by(how, name):
    adata = small()
    if how == {"use_rep": "raw"}:
        adata.raw = anndata.AnnData(adata.layers["counts"], adata.obs, adata.var)
    unsplit.anndata.merge(adata, **how, **QUICK | {"training": unsplit.TrainConfig(epochs=10)})
    assert adata.uns["unsplit"]["params"]["representation"] == name
    assert counts(adata) == {"2 + 10": 80, "3 + 4": 80}


def test_counts_are_read_by_the_network_for_counts():
    values, name = matrix_of(small(), "layers/counts", "adata")
    assert name == "layers/counts"
    assert scipy.sparse.issparse(values)
    dense = small()
    dense.layers["counts"] = dense.layers["counts"].toarray()
    same, _ = matrix_of(dense, "layers/counts", "adata")
    assert (same != values).nnz == 0


def test_without_x_pca_none_means_x():
    adata = small()
    del adata.obsm["X_pca"]
    assert matrix_of(adata, None, "adata")[1] == "X"


def test_batches_are_those_of_the_estimator():
    donor = np.array(["a", "b"], object)[np.arange(160) % 2]
    adata = small(donor=donor)
    unsplit.anndata.merge(adata, batch_key="donor", **QUICK)
    merger = unsplit.ClusterMerger(random_state=0, **QUICK)
    merger.fit(X, initial_labels=np.asarray(adata.obs["leiden"]), batch=donor)
    order = [merger.tree_.cluster_ids.tolist().index(name) for name in _old_names(adata)]
    assert np.array_equal(adata.uns["unsplit"]["tvd"], merger.tvd_[np.ix_(order, order)])
    assert adata.uns["unsplit"]["params"]["batch_key"] == "donor"


def test_a_backed_file_is_read_as_needed(tmp_path):
    small().write_h5ad(tmp_path / "cells.h5ad")
    backed = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    unsplit.anndata.merge(
        backed, use_rep="X", **QUICK | {"training": unsplit.TrainConfig(epochs=10)}
    )
    assert backed.isbacked
    assert counts(backed) == {"2 + 10": 80, "3 + 4": 80}
    changed = unsplit.anndata.merge(backed, copy=True, key_added="types", **QUICK)
    assert not changed.isbacked
    assert "types" in changed.obs
    backed.file.close()


def test_one_group_has_no_dendrogram_and_removes_that_of_an_earlier_merge():
    adata = small()
    unsplit.anndata.merge(adata, **QUICK)
    assert "dendrogram_unsplit" in adata.uns
    unsplit.anndata.merge(adata, n_clusters=1, **QUICK)
    assert "dendrogram_unsplit" not in adata.uns
    assert counts(adata) == {"2 + 3 + 4 + 10": 160}


def test_names_of_many_members_are_short_and_names_that_clash_differ():
    names = ["a", "b", "c", "d", "e", "a + b"]
    assert merged_names(names, np.array([0, 0, 1, 1, 1, 2])) == ["a + b", "c + d + e", "a + b'"]
    assert merged_names(names[:5], np.zeros(5, int)) == ["a + b + c + 2 more"]


def test_a_merge_can_be_merged_again(merged):
    again = unsplit.anndata.merge(merged, "unsplit", key_added="more", copy=True, **QUICK)
    assert set(counts(again, "more")) == {"2 + 10", "3 + 4"}


BAD = [
    ({"groupby": "leidn"}, "adata.obs has no column 'leidn' (close: 'leiden'; its columns: "
     "'leiden', 'mito', 'one', 'gone')."),
    ({"batch_key": "donor"}, "adata.obs has no column 'donor' (its columns: 'leiden', 'mito', "
     "'one', 'gone')."),
    ({"groupby": "mito"}, "labels must be integers or strings, got the number 0.5; convert "),
    ({"groupby": "one"}, "labels hold only one cluster (T), so there is no pair to compare; "),
    ({"groupby": "gone"}, "every label is noise (-1 or missing), so there is nothing to compare; "),
    ({"use_rep": "X_PCA"}, "adata has no representation 'X_PCA' (close: 'X_pca'; its "
     "representations: 'X_pca', 'X_umap', 'bad', 'X')."),
    ({"use_rep": "layers/count"}, "adata has no layer 'count' (close: 'counts'; its layers: "
     "'counts')."),
    ({"use_rep": "bad"}, "observation 3 of X has values that are NaN, infinite or larger"),
    ({"use_rep": "raw"}, "raw of adata holds values that are not counts, such as 1."),
    ({"key_added": "leiden"}, "key_added must differ from groupby, got 'leiden' for both"),
]  # fmt: skip


@pytest.mark.parametrize(("how", "sentence"), BAD)
def test_bad_input_is_refused_in_a_sentence_and_changes_nothing(how, sentence):
    adata = small(mito=0.5, one="T", gone=None)
    adata.obsm["bad"] = np.where(np.isin(np.arange(160), [3, 9])[:, None], np.nan, X)
    with pytest.raises(InputError) as error:
        unsplit.anndata.merge(adata, **how, **QUICK)
    assert str(error.value).startswith(sentence)
    assert "unsplit" not in adata.obs
    assert not adata.uns


def test_counts_below_zero_seem_to_be_scaled():
    adata = small()
    adata.layers["scaled"] = adata.layers["counts"].toarray() - 1.0
    with pytest.raises(InputError, match="such as -1; name the layer"):
        unsplit.anndata.merge(adata, use_rep="layers/scaled", **QUICK)


def test_a_missing_raw_names_the_layers():
    adata = small()
    adata.raw = None
    with pytest.raises(InputError, match=r"has no raw; name a .*its layers: 'counts'"):
        unsplit.anndata.merge(adata, use_rep="raw")


def test_what_is_no_anndata_is_refused():
    with pytest.raises(InputError, match="adata must be an AnnData, got ndarray"):
        unsplit.anndata.merge(X)


def test_groups_without_categories_are_in_natural_order():
    found = groups_in(np.array(["c10", "c9", "c10", ""], object))
    assert isinstance(found, Groups)
    assert found.names == ["c9", "c10"]
    assert found.labels.tolist() == ["c10", "c9", "c10", None]


# ---- AnnData where an array is needed ----


class Container:
    """What numpy would read cell by cell."""

    shape = (160, 30)

    def __len__(self):
        raise AssertionError("it was read")

    __getitem__ = __array__ = __iter__ = __len__


def container(package, name):
    return type(name, (Container,), {"__module__": f"{package}._core"})()


TAKES_X = {
    "pairwise_tvd": lambda X: unsplit.pairwise_tvd(X, LABELS),
    "pairwise_wasserstein": lambda X: unsplit.pairwise_wasserstein(X, LABELS),
    "merge": lambda X: unsplit.merge(X),
    "fit": lambda X: unsplit.ClusterMerger().fit(X, initial_labels=LABELS),
    "fit without labels": lambda X: unsplit.ClusterMerger().fit(X),
    "features": lambda X: unsplit.ClusterMerger(**QUICK).fit(
        small().obsm["X_pca"], initial_labels=LABELS, features=X
    ),
    "select": lambda X: unsplit.select(X, LABELS),
    "neighbour_graph": lambda X: unsplit.neighbour_graph(X, LABELS),
    "overcluster": lambda X: unsplit.overclustering.overcluster(X),
    "greedy_dense": lambda X: unsplit.overclustering.greedy_dense(X, 2, 3),
}


@pytest.mark.parametrize("function", TAKES_X)
def test_an_anndata_as_x_is_refused_at_once_with_the_line_to_write(function):
    line = r"is an AnnData, not an array; write unsplit.anndata.merge\(adata, groupby='leiden'\)"
    with pytest.raises(InputError, match=line):
        TAKES_X[function](container("anndata", "AnnData"))


def test_a_real_anndata_and_its_relatives_are_refused(tmp_path):
    adata = small()
    with pytest.raises(InputError, match="X is an AnnData"):
        unsplit.pairwise_tvd(adata, LABELS)
    with pytest.raises(InputError, match=r"X is a Raw, not an array; write"):
        unsplit.pairwise_tvd(adata.raw, LABELS)
    adata.write_h5ad(tmp_path / "cells.h5ad")
    backed = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    with pytest.raises(InputError, match=r"X is a CSRDataset, .* in memory"):
        unsplit.pairwise_tvd(backed.X, LABELS)
    backed.file.close()


@pytest.mark.parametrize(
    ("package", "name"), [("mudata", "MuData"), ("spatialdata", "SpatialData")]
)
def test_other_containers_are_refused_too(package, name):
    with pytest.raises(InputError, match=f"X is a {name}, not an array; write"):
        unsplit.pairwise_tvd(container(package, name), LABELS)


def test_arrays_of_a_view_are_arrays():
    part = small()[:120]
    assert type(part.obsm["X_pca"]).__module__.startswith("anndata")
    result = unsplit.pairwise_tvd(part.obsm["X_pca"], LABELS[:120], **QUICK)
    assert result.n_clusters == 3
