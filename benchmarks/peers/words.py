"""What the generated page says around its numbers."""

MODES = {
    "automatic": "Automatic: nothing but the over-clustering is given",
    "given": "Given the true number",
    "best cut": "Best cut along the tree: an upper bound",
}

HEAD = """# Merging over-clusterings: the benchmark

Written by `python -m benchmarks.peers.page` from benchmarks/peers/results, which
`python -m benchmarks.peers` makes; do not edit. A cell is a data set over-clustered in one way into
one number of clusters. *Ours there* is the adjusted Rand index (ARI) of `unsplit` on the same cells
as the method in the row, so that rows with fewer cells can be read. *number / true* is a geometric
mean; MiB is the peak of the whole process, of which PyTorch alone takes some 300."""

ABOUT = """## What was compared

- **unsplit** is `ClusterMerger()` without a setting; *order* ranks without looking for valleys;
  other variants are named by what differs.
- **SCCAF** is a corrected re-implementation: the released package merges the wrong clusters when
  there are more than ten and plotting is off. **CHOIR** is a re-implementation in its manner (the
  original is in R).
- **confusion loop**: random forest, merge the most confused pair, stop below 0.025.
- **HDBSCAN**: its noise joins the nearest cluster, which is kinder than counting it as one.
- **FINCH**: of its partitions the one with the highest silhouette. It, Ward, k-means and HDBSCAN
  without *of clusters* start from the observations and do not see the over-clustering.
- Energy distance and exact optimal transport (at most 100 observations a cluster) with average
  linkage."""
