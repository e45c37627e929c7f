"""Every limit by which evidence becomes a decision or a verdict, and where it comes from.

docs/stopping.md shows this table to users; tests/test_limits.py fails if one of them moves.
Numbers that only bound time or memory are beside the code that they bound.
"""

# --- tests ----------------------------------------------------------------------------------------

# Significance level of all tests: the usual one.
LEVEL = 0.05
# p-values near the level prove nothing: between these two the verdict is "unclear".
CLEAR_P = 0.01
HINT_P = 0.2
# At these TVDs the best classifier is right in 60 % and 75 % of the cases.
SMALL_TVD = 0.2
LARGE_TVD = 0.5
# In huge clusters a significant difference may be too small to matter.
LEAST_TVD = 0.05
# With fewer held-out observations the interval of the TVD always reaches beyond LARGE_TVD.
FEWEST_TO_BE_ALIKE = 12
# Where tests decide, this many of its nearest clusters are compared with each: of many more distant
# pairs some would pass by chance.
REACH = 10
# A cluster of fewer observations comes last in the review and is grey in figures, and its distances
# do not say how the clusters were made: its TVD says little.
FEW = 10

# --- where the clusters come from -----------------------------------------------------------------

# If clusters with a twin hold this share of the observations, the others count as not split.  It
# was chosen on random splits of the data sets of the benchmark.
ALMOST_ALL = 0.8
# Labels that surely do not follow the features have this many times as many edges between clusters
# as those of k-means.  Classes of thirteen tables had 1.1 to 10 times as many, clusters computed
# from the features up to 1.2 times, of a Gaussian mixture up to 2.7 times.
FROM_ELSEWHERE = 3.0
# Share of edges between clusters that is never much: one of a hundred.
LEAST_OUTSIDE = 0.01
# If at most this share of the observations is in a cluster, the clusters are cores: what lay
# between them was left out.
CORES = 0.5

# --- neighbours -----------------------------------------------------------------------------------
# Chosen on structureless shapes and on one half of the data sets of the benchmark.

# Parts of one cluster have this strength in the neighbour graph, by the way it is measured.
MERGED_FROM = 1.0
# In fewer dimensions than this gaps separate groups: refining may cut there, and pairs are ranked
# by the ratio of edges to edges by chance; in more, by a likelihood ratio.
LOW_DIMENSION = 3.0
# Up to the first number of dimensions neck and saddle count, from the second on edges and neck.
FEW_DIMENSIONS = 2.2
MANY_DIMENSIONS = 3.7
# In few dimensions, the narrowest neck as a share of the 1 % quantile within structureless data.
NECK_SHARE = 0.8
# In many dimensions a neck is wide almost wherever two clusters meet, so it counts up to here.
WIDEST_NECK = 1.5
# The fewest edges, as a share of what data without structure have.
EDGES_SHARE = 0.7
# The deepest saddle within one cluster: a constant, and standard errors of a count; more of these
# where few observations lie at the border, because then the saddle is not the best of many places.
LEAST_DEPTH = 0.15
ERRORS = 1.0
ERRORS_OF_A_NARROW_BORDER = 2.5
# In a smaller cluster the graph cannot easily overrule a TVD that is surely large: of 15 neighbours
# most may have to be in other clusters.  It can if the strength is at least OVERRULING.
FEWEST_TO_OVERRULE = 15
OVERRULING = 1.5

# --- verdicts where neighbours decide -------------------------------------------------------------
# From how often verdicts were right on one half of the benchmark: python -m benchmarks.calibration

# Strengths near 1 prove nothing: between these two the verdict is "unclear".
WEAK = 0.8
FAIR = 1.25
# "Different" only if at most the first share of the re-merges of resampled data joins the two, and
# "probably same" only if at least the second does.
SELDOM = 0.1
ALWAYS = 0.999
# A merge this strong is not judged again in re-merges, of which 98 % would make it.
SURE = 2.5
