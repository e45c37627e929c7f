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
mean. Seconds and MiB are medians where there are four initial clusters for every true one, one
core each; MiB is the peak of the whole process, of which PyTorch alone takes some 300. *Of the
loss* is a row's share of all that lies between our automatic cuts and the best ones."""

TRIED = """The aim was to lose at most 5 %. Where it is lost, and what was tried against it:

- **greedy** keeps the densest half of the data, so there are gaps between any two of its clusters,
  and a valley is found where there is none: one Gaussian, uniform noise and moons fall to pieces.
  Showing the rule the half that was left out mends these three, but on the real data that half
  lies in the true valleys and hides them.
- **overlapping gaussians**: the groups have clear valleys between them once they are whole, but a
  small cluster astride a border goes with either side and then bridges it. Asking about whole
  branches of the tree from the top finds them, and takes single Gaussians apart: a branch is
  compared with another while what lies between the two is in a third. Letting the clusters between
  wait, remembering valleys seen before, and testing every way to divide a union did not tell the
  two apart.
- **imagenet**: in these features there is no valley between categories, only a slope.
- **moons, rings** cut into few pieces: a piece then holds parts of both.
- Levels from 0.02 to 0.1, wider and narrower windows, and the mean of three blurred networks
  lowered the mean, or changed it by less than 0.005."""

SETTINGS = """Every other value of a setting of `ClusterMerger` that vectors can have: how much
better it is than the default, mean and standard error over the cells where it was run (other
trainings: four initial clusters for every true one). *Epochs* is an upper limit: training ends
when A stops improving. `overclusterer` only matters where no clusters are given; the table above,
by over-clustering, is about that."""

ABOUT = """## What was compared

- **unsplit** is `ClusterMerger()` without a setting; *without view* looks for valleys with the one
  network there is, *order* merges the closest first and looks for none, *order of compose* likewise
  with composed scores, *spectral* is `strategy="spectral"`.
- **SCCAF** is a corrected re-implementation: the released package merges the wrong clusters when
  there are more than ten and plotting is off. **CHOIR** is a re-implementation in its manner (the
  original is in R).
- **confusion loop**: random forest, merge the most confused pair, stop below 0.025.
- **DipDECK** is ClustPy's, begun with the given clusters. It and the confusion loop take a minute
  or more, so they were run on k-means alone; so were `strategy="warm"` and `"retrain"`, on at most
  20 clusters.
- **HDBSCAN**: its noise joins the nearest cluster, which is kinder than counting it as one.
- **FINCH**: of its partitions the one with the highest silhouette. It, Ward, k-means and HDBSCAN
  without *of clusters* start from the observations and do not see the over-clustering.
- Energy distance and exact optimal transport (at most 100 observations a cluster) with average
  linkage."""
