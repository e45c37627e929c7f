"""From counts to merged cell types, with the genes that tell pairs of clusters apart.

python examples/cells.py [--bladder mouse-bladder-cells.h5] [--figure docs/images/cells.png]

The first data set, 700 blood cells, is in the scanpy package.  The second, 2,100 cells of a mouse
bladder, is used if its file is named: HDF5 with counts in X and the type of each cell in Y.
"""

import argparse
import os
from collections.abc import Iterator
from typing import Any

import anndata
import h5py
import matplotlib
import numpy as np
import pandas as pd
import scanpy as sc
import scipy.sparse
from sklearn.metrics import adjusted_rand_score

import unsplit

matplotlib.use("Agg")

OVER = 3.0  # a resolution of Leiden that cuts types into pieces
USUAL = (0.5, 1.0, 2.0)
FEWEST_CELLS = 20  # a comparison of fewer cells finds hardly any genes
N_PAIRS = 4  # of each kind are shown


def blood() -> anndata.AnnData:
    """Blood cells with the components that their authors computed."""
    adata = sc.datasets.pbmc68k_reduced()
    adata.obs["annotation"] = adata.obs["bulk_labels"]
    return adata


def bladder(path: str) -> anndata.AnnData:
    """Cells of a bladder, from counts to principal components as usual."""
    with h5py.File(path) as file:
        counts = scipy.sparse.csr_matrix(file["X"][:].astype(np.float32))
        types = pd.Categorical([f"type {int(y):02}" for y in file["Y"][:]])
    adata = anndata.AnnData(counts, obs=pd.DataFrame({"annotation": types}))
    adata.var_names = [f"gene {i}" for i in range(adata.n_vars)]  # the file has no names
    adata.layers["counts"] = counts.copy()
    sc.pp.filter_genes(adata, min_cells=3)
    sc.pp.normalize_total(adata, target_sum=1e4)
    sc.pp.log1p(adata)
    adata.raw = adata  # all genes, for markers
    sc.pp.highly_variable_genes(adata, n_top_genes=2000)
    adata = adata[:, adata.var["highly_variable"]].copy()
    sc.pp.pca(adata, n_comps=50)
    sc.pp.neighbors(adata)
    sc.tl.umap(adata)
    return adata


def clusterings(adata: anndata.AnnData) -> Iterator[tuple[str, str]]:
    """Name each clustering, and the column that it is in."""
    for resolution in (*USUAL, OVER):
        key = "leiden" if resolution == OVER else f"leiden at {resolution}"
        sc.tl.leiden(adata, resolution, key_added=key, flavor="igraph", n_iterations=2)
        yield f"Leiden, resolution {resolution}", key
    unsplit.anndata.merge(adata, groupby="leiden")
    yield f"Leiden, resolution {OVER}, merged", "unsplit"
    if "counts" in adata.layers:
        unsplit.anndata.merge(
            adata, groupby="leiden", use_rep="layers/counts", key_added="by counts"
        )
        yield "the same, compared by raw counts", "by counts"


def markers(adata: anndata.AnnData, left: str, right: str) -> list[str]:
    """Genes at least twice as high on one side, significantly so; strongest first."""
    sides = dict.fromkeys(left.split(" + "), "left")
    sides |= dict.fromkeys(right.split(" + "), "right")
    part = adata[adata.obs["leiden"].isin(list(sides))].copy()
    part.obs["side"] = pd.Categorical([sides[name] for name in part.obs["leiden"]])
    sc.tl.rank_genes_groups(part, "side", groups=["left"], reference="right", method="wilcoxon")
    found = sc.get.rank_genes_groups_df(part, "left", pval_cutoff=0.05)
    strong = found[found["logfoldchanges"].abs() > 1]
    return strong.sort_values("pvals_adj")["names"].tolist()


def show_pairs(adata: anndata.AnnData, done: str) -> None:
    """Print how many genes tell apart the closest pairs that were merged, or kept apart."""
    review = adata.uns["unsplit"]["review"]
    large = review[["size_left", "size_right"]].min(axis=1) >= FEWEST_CELLS
    pairs = review[large & (review["done"] == done)].sort_values("tvd", ascending=done != "merged")
    for row in pairs.head(N_PAIRS).itertuples():
        genes = markers(adata, row.left, row.right)
        listed = ", ".join(genes[:4]) or "none"
        print(f"  {done}: ({row.left}) and ({row.right}), TVD {row.tvd:.2f}: {len(genes)} genes")
        print(f"    {listed}")


def show(title: str, adata: anndata.AnnData) -> None:
    print(f"\n{title}: {adata.n_obs:,} cells, {adata.obs['annotation'].nunique()} annotated types")
    for name, key in clusterings(adata):
        agreement = adjusted_rand_score(adata.obs["annotation"], adata.obs[key])
        print(f"  {name:34} {adata.obs[key].nunique():3} clusters, ARI {agreement:.2f}")
    print("Genes that tell pairs apart (twice as high, adjusted p < 0.05):")
    show_pairs(adata, "merged")
    show_pairs(adata, "kept apart")


def draw(rows: dict[str, anndata.AnnData], path: str) -> None:
    figure = matplotlib.figure.Figure(figsize=(15, 4.6 * len(rows)), layout="compressed")
    axes = figure.subplots(len(rows), 3, squeeze=False)
    for (title, adata), places in zip(rows.items(), axes, strict=True):
        keys = {"leiden": "over-clustered", "unsplit": "merged", "annotation": "annotation"}
        for (key, what), ax in zip(keys.items(), places, strict=True):
            look: dict[str, Any] = {"legend_fontsize": 7, "size": 12, "show": False, "ax": ax}
            beside = "on data" if key == "leiden" else "right margin"
            sc.pl.umap(adata, color=key, legend_loc=beside, title=f"{title}: {what}", **look)
    figure.savefig(path, dpi=80)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bladder", help="mouse-bladder-cells.h5")
    parser.add_argument("--figure", help="write a figure to this file")
    args = parser.parse_args()
    rows = {"blood": blood()}
    if args.bladder is None:
        print("The bladder is left out; name its file with --bladder FILE to see it.")
    elif not os.path.isfile(args.bladder):
        parser.error(f"there is no file {args.bladder}; leave --bladder out to see blood only.")
    else:
        rows["bladder"] = bladder(args.bladder)
    for title, adata in rows.items():
        show(title, adata)
    if args.figure:
        draw(rows, args.figure)


if __name__ == "__main__":
    main()
