"""Vectors of which half are in no cluster: which statistic ranks their cores best?

python -m benchmarks.cores [--data ../shared/data] [--only digits moons] [--factors 2 4 8]

The densest clusters of each data set (the paper's Algorithm 1) are compared and merged by edges, by
overlap, and by both; adjusted Rand index over the observations in clusters, told the number and
by *auto*.  The graph connects the same vectors that the network sees.
"""

import argparse
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from sklearn.metrics import adjusted_rand_score

import unsplit
from benchmarks.common import print_table
from benchmarks.peers.grid import FACTORS, initial_number
from benchmarks.peers.overclusterings import greedy
from benchmarks.peers.problems import PROBLEMS
from benchmarks.peers.problems.families import family_of
from benchmarks.peers.task import Problem

STATISTICS = ("edges", "overlap and edges", "overlap")


def compared(problem: Problem, factor: float, epochs: int) -> dict[str, float]:
    """ARI of every statistic, told the number and not."""
    k = initial_number(problem.n_true, factor, len(problem.X))
    labels = greedy(problem, k, 0)
    result = unsplit.pairwise_tvd(
        problem.X, labels, training=unsplit.TrainConfig(epochs=epochs), device="cpu", random_state=0
    )
    graph = unsplit.neighbour_graph(problem.X, labels)
    scored = (labels >= 0) & (problem.y >= 0)
    found = {}
    for statistic in STATISTICS:
        for told in (min(problem.n_true, k), None):
            tree = unsplit.merge(
                result, neighbours=graph, rank_by=statistic, n_clusters=told, random_state=0
            )
            new = [tree.mapping[label] for label in labels[scored]]
            name = f"{statistic}, {'auto' if told is None else 'told'}"
            found[name] = float(adjusted_rand_score(problem.y[scored], new))
    return found


def rows(names: Sequence[str], args: argparse.Namespace) -> Iterator[dict[str, float]]:
    """The mean over the numbers of clusters, for each data set."""
    for name in names:
        problem = PROBLEMS[name](args.data, 0)
        some = [compared(problem, factor, args.epochs) for factor in args.factors]
        yield {key: float(np.mean([one[key] for one in some])) for key in some[0]}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--only", nargs="+", choices=list(PROBLEMS))
    parser.add_argument("--factors", type=float, nargs="+", default=FACTORS)
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args(arguments)
    names = args.only or [n for n in PROBLEMS if family_of(n) != "battery" and "uniform" not in n]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        found = list(rows(names, args))
    keys = list(found[0])
    table = [(name, *row.values()) for name, row in zip(names, found, strict=True)]
    table.append(("mean", *(float(np.mean([row[key] for row in found])) for key in keys)))
    print_table("Cores of vectors: adjusted Rand index", ("data", *keys), table)


if __name__ == "__main__":
    main()
