"""Very many small clusters end to end: train, sparse estimate, neighbours, merge.

python -m benchmarks.many_clusters [--clusters 20000] [--smallest 3] [--largest 50]
    [--observations N] [--dimensions 32] [--split random] [--learned trained] [--no-graph]
    [--both] [--near 3] [--device auto]

Gaussian groups of about ten clusters each are split at random, or into the nearest of ten points
of the group.  With ``--learned means`` nothing is trained: scores are those of class means, which
shows the cost of everything else at a million clusters.  With ``--near 3`` as well, observations
are compared with the clusters of three groups only, their own and the nearest, instead of all: so
a million clusters can be merged where there is no GPU to compare them.  With ``--both`` the same
estimate is merged with the neighbour graph, and then without it.
"""

import argparse
import logging
import resource
import sys
import time
import warnings
from dataclasses import dataclass, field

import numpy as np
import torch
from sklearn.metrics import adjusted_rand_score

import unsplit
from benchmarks.class_means import CLUSTERS_A_GROUP, SPREAD, Floats, Near, estimate_by_means
from benchmarks.common import print_table
from unsplit._typing import Index
from unsplit.data.labels import encode_labels
from unsplit.networks.training.progress import EpochRecord, Reporter
from unsplit.pairwise.api import Settings, fit
from unsplit.pairwise.result import PairwiseTVD

ROWS_AT_ONCE = 2**18
SAMPLED_PAIRS = 200_000


def peak_gib() -> float:
    """Largest resident memory of this process so far."""
    unit = 2**30 if sys.platform == "darwin" else 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


@dataclass
class Phases(Reporter):
    """Seconds and peak memory by phase."""

    rows: list[tuple[str, ...]] = field(default_factory=list)
    began: float = field(default_factory=time.perf_counter)
    cpu: float = field(default_factory=time.process_time)

    def end(self, name: str) -> None:
        """Note what took the time since the last note."""
        now, cpu = time.perf_counter(), time.process_time()
        spent = f"{now - self.began:.1f}", f"{cpu - self.cpu:.1f}"
        self.rows.append((name, *spent, f"{peak_gib():.1f}"))
        print(*self.rows[-1], flush=True)
        self.began, self.cpu = now, cpu

    def on_epoch(self, record: EpochRecord) -> None:
        """Note an epoch."""
        self.end(f"epoch {record.epoch}")
        print(f"  accuracy {record.accuracy:.4f}", flush=True)


def groups_in_clusters(
    sizes: Index, dimensions: int, split: str, seed: int = 0
) -> tuple[Floats, Index, Index]:
    """Observations of Gaussian groups, their clusters and their groups, in random order."""
    rng = np.random.default_rng(seed)
    k = len(sizes)
    group_of = rng.permutation(np.arange(k) // CLUSTERS_A_GROUP)
    n_groups = int(group_of.max()) + 1
    centres = rng.standard_normal((n_groups, dimensions), dtype=np.float32)
    clusters = rng.permutation(np.repeat(np.arange(k), sizes))
    groups = group_of[clusters]
    X = np.empty((len(clusters), dimensions), np.float32)
    for start in range(0, len(X), ROWS_AT_ONCE):
        some = slice(start, start + ROWS_AT_ONCE)
        X[some] = centres[groups[some]] + SPREAD * rng.standard_normal(
            (len(groups[some]), dimensions), dtype=np.float32
        )
    if split == "cut":
        clusters = _cut(X, groups, group_of, rng)
    return X, clusters, groups


def _cut(X: Floats, groups: Index, group_of: Index, rng: np.random.Generator) -> Index:
    """The nearest of some points of the group, one for each of its clusters."""
    order = np.argsort(group_of, kind="stable")
    clusters = np.empty(len(X), np.int64)
    by_group = np.argsort(groups, kind="stable")
    starts = np.searchsorted(groups[by_group], np.arange(int(group_of.max()) + 2))
    first = np.searchsorted(group_of[order], np.arange(int(group_of.max()) + 2))
    for group in range(len(starts) - 1):
        rows = by_group[starts[group] : starts[group + 1]]
        names = order[first[group] : first[group + 1]]
        points = X[rng.choice(rows, len(names), replace=False)]
        distances = ((X[rows][:, None] - points) ** 2).sum(axis=2)
        clusters[rows] = names[distances.argmin(axis=1)]
    return np.unique(clusters, return_inverse=True)[1].astype(np.int64)


def sampled_quality(result: PairwiseTVD, category: Index) -> float:
    """Q of a sample of pairs: how often clusters of one group are closer than of two."""
    rng, k = np.random.default_rng(0), len(category)
    order = np.argsort(category, kind="stable")
    first = rng.integers(k - 1, size=SAMPLED_PAIRS)
    alike = order[first], order[first + 1]
    others = rng.integers(k, size=(2, SAMPLED_PAIRS))
    same = category[alike[0]] == category[alike[1]]
    near = result.tvd[alike[0][same], alike[1][same]]
    far = np.sort(result.tvd[others[0], others[1]][category[others[0]] != category[others[1]]])
    above = len(far) - np.searchsorted(far, near, "right")
    ties = np.searchsorted(far, near, "right") - np.searchsorted(far, near, "left")
    return float((above + ties / 2).mean() / len(far))


def correct_merges(tree: unsplit.MergeTree, category: Index) -> int:
    """How many merges joined clusters of one group; a merged one is of that of its larger part."""
    of_node, sizes, n_correct = category.tolist(), tree.sizes.tolist(), 0
    for merge in tree.merges[: int(tree.taken.sum())]:
        left, right = of_node[merge.left], of_node[merge.right]
        n_correct += left == right
        of_node.append(left if sizes[merge.left] >= sizes[merge.right] else right)
        sizes.append(sizes[merge.left] + sizes[merge.right])
    return n_correct


def parsed() -> argparse.Namespace:
    """The options of the command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--clusters", type=int, default=20_000)
    parser.add_argument("--smallest", type=int, default=3)
    parser.add_argument("--largest", type=int, default=50)
    parser.add_argument("--observations", type=int, help="in clusters of equal size")
    parser.add_argument("--dimensions", type=int, default=32)
    parser.add_argument("--split", choices=("random", "cut"), default="random")
    parser.add_argument("--learned", choices=("trained", "means"), default="trained")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--tell", action="store_true", help="tell the number of groups")
    parser.add_argument("--no-graph", action="store_true")
    parser.add_argument("--both", action="store_true", help="merge with a graph, then without")
    parser.add_argument("--near", type=int, help="compare with the clusters of so many groups")
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    if args.near is not None and (
        (args.learned, args.folds, args.split) != ("means", 1, "random")
        or args.near < 2
        or args.clusters % CLUSTERS_A_GROUP
    ):
        parser.error(
            "--near must be at least 2, and is for --learned means --folds 1 --split random and "
            "a multiple of ten clusters"
        )
    return args


def sizes_of(args: argparse.Namespace) -> Index:
    """The sizes of the clusters."""
    if args.observations:
        return np.full(args.clusters, max(2, args.observations // args.clusters))
    return np.random.default_rng(1).integers(args.smallest, args.largest + 1, size=args.clusters)


def estimated(
    args: argparse.Namespace, X: Floats, clusters: Index, category: Index, note: Phases
) -> PairwiseTVD:
    """The estimate by a network, or by class means."""
    if args.learned == "means":
        near = None if args.near is None else Near(category, args.near)
        return estimate_by_means(X, clusters, args.folds, note.end, near)
    how = 0.3 if args.folds == 1 else args.folds
    settings = Settings(
        cv=how, device=args.device, form="sparse", training=unsplit.TrainConfig(epochs=args.epochs)
    )
    result = fit(X, encode_labels(clusters), settings, 0, note).result
    note.end("scores and confusions")
    assert result.is_sparse
    return result


def print_tree(
    tree: unsplit.MergeTree, clusters: Index, groups: Index, category: Index, title: str
) -> None:
    """Print what a merge found."""
    index = adjusted_rand_score(groups, tree.groups[clusters])
    n_taken = int(tree.taken.sum())
    found = [
        ("clusters left, groups", f"{tree.n_clusters:,}, {len(np.unique(groups)):,}"),
        ("ARI", f"{index:.4f}"),
        ("correct merges", f"{correct_merges(tree, category):,} of {n_taken:,}"),
    ]
    print_table(title, ("", ""), found)


def main() -> None:
    args = parsed()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    warnings.simplefilter("default", unsplit.errors.ConfusionWarning)
    note = Phases()
    X, clusters, groups = groups_in_clusters(sizes_of(args), args.dimensions, args.split)
    category = np.zeros(int(clusters.max()) + 1, np.int64)
    category[clusters] = groups
    note.end("data")
    start, cpu = time.perf_counter(), time.process_time()
    result = estimated(args, X, clusters, category, note)
    found = [
        ("confused pairs stored", f"{len(result.pairs):,}"),
        ("A", f"{result.mean_accuracy:.5f}"),
        ("Q of a sample of pairs", f"{sampled_quality(result, category):.4f}"),
    ]
    if torch.cuda.is_available():
        found.append(("peak of the GPU, GiB", f"{torch.cuda.max_memory_allocated() / 2**30:.1f}"))
    print_table("Estimate", ("", ""), found)
    graph = None
    if not args.no_graph:
        graph = unsplit.neighbour_graph(X, clusters, device=args.device)
        note.end("neighbour graph")
    n_clusters = len(np.unique(groups)) if args.tell else None
    for neighbours in (graph, None) if args.both and graph is not None else (graph,):
        how = "merging" if neighbours is None else "merging with the graph"
        tree = unsplit.merge(result, neighbours=neighbours, n_clusters=n_clusters)
        note.end(how)
        print(result, tree, sep="\n")
        print_tree(tree, clusters, groups, category, how)
    seconds, used = time.perf_counter() - start, time.process_time() - cpu
    note.rows.append(("end to end", f"{seconds:.1f}", f"{used:.1f}", f"{peak_gib():.1f}"))
    title = f"{len(X):,} × {args.dimensions}, k = {len(category):,}, {args.split}, {args.learned}"
    print_table(title, ("phase", "seconds", "of the processor", "peak GiB"), note.rows)


if __name__ == "__main__":
    main()
