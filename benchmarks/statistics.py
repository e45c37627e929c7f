"""Are the p-values uniform, the intervals honest, and is choosing the epoch harmless?

    python -m benchmarks.statistics [--scale 1.0] [--only dependence]

Every experiment draws fresh data, so runs are independent.
"""

import argparse
import warnings
from collections.abc import Callable

import numpy as np
import scipy.stats
import torch
from numpy.typing import NDArray

from benchmarks.common import CPU, Run, print_table, run
from unsplit import DependenceWarning, pairwise_tvd
from unsplit.datasets import gaussians
from unsplit.networks.training.group import Fold
from unsplit.pairwise import statistics as stats
from unsplit.pairwise.divergences import directed_means, hit, rank_sums
from unsplit.pairwise.heldout_scores import crossfit_folds, holdout_fold, watch_inside

SIZE = 100
Splitter = Callable[[NDArray[np.int64], np.random.Generator], list[list[Fold]]]


def other_folds(clusters: NDArray[np.int64], rng: np.random.Generator) -> list[list[Fold]]:
    """Cross-fitting in which a fold's epoch is chosen by the other folds."""
    folds = crossfit_folds(clusters, 5, rng)
    return [[Fold(np.setdiff1d(np.arange(len(clusters)), f.test), f.test, f.test) for f in folds]]


def counted_fold(clusters: NDArray[np.int64], rng: np.random.Generator) -> list[list[Fold]]:
    """Each fold alone, its epoch chosen on the rows that are then counted."""
    return [[fold] for fold in other_folds(clusters, rng)[0]]


def inner_split(clusters: NDArray[np.int64], rng: np.random.Generator) -> list[list[Fold]]:
    """Each fold's epoch chosen on a fifth of its training rows."""
    return [[watch_inside(fold, clusters, rng) for fold in other_folds(clusters, rng)[0]]]


CHOICES: dict[str, Splitter] = {
    "the counted fold": counted_fold,
    "the other folds": other_folds,
    "an inner split": inner_split,
}


def accuracy_of(runs: list[Run]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Directed hit rates and counts pooled over the runs of one data set."""
    counts = np.array([r.scores.counts.sum(axis=0) for r in runs])
    rates = np.array([directed_means(r.scores, hit, CPU) for r in runs])
    pooled = (rates * counts[:, :, None]).sum(axis=0) / counts.sum(axis=0)[:, None]
    return pooled, counts.sum(axis=0)


def stopping_bias(repeats: int) -> None:
    """Mean of 2·BA − 1 where the truth is zero; anything but zero is bias."""
    rows = []
    for k in (2, 3, 4, 8):
        for name, splitter in CHOICES.items():
            values, spread = [], []
            for seed in range(max(2 * repeats // k, 2)):
                X, y = gaussians(np.zeros((k, 10)), SIZE, random_state=seed)
                groups = splitter(y, np.random.default_rng(seed))
                rate, n = accuracy_of([run(X, y, folds, seed) for folds in groups])
                upper = np.triu_indices(k, 1)
                values.append((rate + rate.T - 1)[upper].mean())
                spread.append(stats.tvd_stderr(rate, n)[upper].mean())
            error = np.std(values) / np.sqrt(len(values))
            rows.append(
                (
                    k,
                    name,
                    f"{np.mean(values):+.4f} ± {error:.4f}",
                    f"{np.mean(values) / np.mean(spread):+.2f}",
                )
            )
    print_table(
        f"Bias of 2·BA − 1 by what chooses the epoch (clusters of {SIZE} from one 10-d Gaussian)",
        ("k", "epoch chosen by", "bias ± its error", "in standard errors"),
        rows,
    )


def null_p_values(
    method: str, k: int, size: int, n_features: int, repeats: int
) -> NDArray[np.float64]:
    """p-values of disjoint pairs of random pieces of one Gaussian."""
    found = []
    for seed in range(repeats):
        X, y = gaussians(np.zeros((k, n_features)), size, random_state=1000 + seed)
        rng = np.random.default_rng(seed)
        folds = [holdout_fold(y, 0.4, rng)] if method == "hold-out" else crossfit_folds(y, 5, rng)
        scores = run(X, y, folds, seed).scores
        p = stats.rank_sum_p_value(rank_sums(scores, CPU), scores.counts)
        first = np.arange(0, k - 1, 2)
        found.append(p[first, first + 1])
    return np.concatenate(found)


def uniformity(scale: float) -> None:
    rows = []
    for method in ("hold-out", "cross-fit"):
        for k, size, d in ((40, 50, 10), (40, 20, 10), (2, 100, 10), (2, 100, 1)):
            pairs = 500 if k > 2 else 80
            p = null_p_values(method, k, size, d, max(2, int(scale * pairs / (k // 2))))
            ks = scipy.stats.kstest(p, "uniform").pvalue
            rows.append(
                (
                    method,
                    k,
                    size,
                    d,
                    len(p),
                    f"{ks:.3f}",
                    *(f"{(p <= a).mean():.3f}" for a in (0.01, 0.05, 0.1, 0.5)),
                )
            )
    print_table(
        "p-values under “same distribution” (disjoint pairs)",
        (
            "method",
            "k",
            "cluster size",
            "dimensions",
            "pairs",
            "KS p",
            "≤ 0.01",
            "≤ 0.05",
            "≤ 0.1",
            "≤ 0.5",
        ),
        rows,
    )


def true_rates(result: Run, means: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """Hit rates of the trained networks on fresh data, weighted as the held-out rows were."""
    k = len(means)
    X, y = gaussians(means, 4000, random_state=10**6 + seed)
    shift = result.rows.values[np.argmin(result.rows.keys)]
    fresh = torch.from_numpy((X - shift).astype(np.float32))
    rates = []
    with torch.no_grad():
        for network in result.networks:
            margins = network.head.margins(network(fresh), torch.from_numpy(y))
            rates.append(hit(margins).double().numpy().reshape(k, -1, k).mean(axis=1))
    share = result.scores.counts / result.scores.counts.sum(axis=0)
    return np.einsum("fi,fij->ij", share, np.array(rates))


def coverage(scale: float) -> None:
    rows = []
    for method in ("hold-out", "cross-fit"):
        for size in (50, 200):
            inside: dict[float, list[bool]] = {}
            for seed in range(max(2, int(40 * scale))):
                means = np.array([[0.0, 0], [0, 0], [0.5, 0], [1, 0], [2, 0], [4, 0]])
                X, y = gaussians(means, size, random_state=seed)
                rng = np.random.default_rng(seed)
                folds = (
                    [holdout_fold(y, 0.4, rng)]
                    if method == "hold-out"
                    else crossfit_folds(y, 5, rng)
                )
                result = run(X, y, folds, seed)
                rate = directed_means(result.scores, hit, CPU)
                n = result.scores.counts.sum(axis=0)
                low, high = stats.accuracy_interval(rate, n, 0.95, len(folds))
                truth = true_rates(result, means, seed)
                truth = (truth + truth.T) / 2
                for i, j in zip(*np.triu_indices(len(means), 1), strict=True):
                    distance = float(abs(means[i, 0] - means[j, 0]))
                    inside.setdefault(distance, []).append(
                        bool(low[i, j] <= truth[i, j] <= high[i, j])
                    )
            every = [x for some in inside.values() for x in some]
            rows.append(
                (
                    method,
                    size,
                    f"{np.mean(every):.3f}",
                    *(f"{np.mean(inside[d]):.3f}" for d in (0.0, 0.5, 1.0, 2.0, 4.0)),
                )
            )
    print_table(
        "Share of 95 % intervals that hold the classifier's true accuracy",
        ("method", "cluster size", "all pairs", "δ = 0", "0.5", "1", "2", "4"),
        rows,
    )


def tracks(
    n_tracks: int, length: int, n_features: int, rho: float, seed: int
) -> NDArray[np.float64]:
    """Tracks of one stationary process (AR(1), variance 1), one after another."""
    x = np.random.default_rng(seed).standard_normal((n_tracks, length, n_features))
    for t in range(1, length):
        x[:, t] = rho * x[:, t - 1] + np.sqrt(1 - rho**2) * x[:, t]
    return x.reshape(-1, n_features)


# Tracks of a cluster, their length, and what is held out together: nothing, blocks, or tracks.
LAYOUTS = ((1, 200, None), (1, 200, 20), (1, 200, 50), (10, 20, None), (10, 20, 20))


def dependence(scale: float, k: int = 6, n_features: int = 5, step: float = 1.5) -> None:
    """Clusters of tracks, with and without groups; the last cluster is shifted."""
    rows = []
    for rho in (0.0, 0.5, 0.9):
        for per_cluster, length, together in LAYOUTS:
            p: dict[bool, list[float]] = {True: [], False: []}
            tvd, above = [], []
            for seed in range(max(2, int(4 * scale))):
                X = tracks(k * per_cluster, length, n_features, rho, seed)
                labels = np.repeat(np.arange(k), per_cluster * length)
                X[labels == k - 1, 0] += step
                groups = None if together is None else np.arange(len(X)) // together
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", DependenceWarning)
                    result = pairwise_tvd(X, labels, groups=groups, device="cpu", random_state=seed)
                low, _ = result.confidence_interval()
                for i, j in zip(*np.triu_indices(k, 1), strict=True):
                    same = bool(j < k - 1)
                    p[same].append(float(result.p_value[i, j]))
                    if same:
                        tvd.append(result.tvd[i, j])
                        above.append(low[i, j] > 0)
            rows.append(
                (
                    f"{rho:g}",
                    f"{per_cluster} of {length}",
                    "nothing" if together is None else f"{together} frames",
                    f"{np.mean(tvd):.2f}",
                    f"{np.mean(np.array(p[True]) < 0.05):.2f}",
                    f"{np.mean(above):.2f}",
                    f"{np.mean(np.array(p[False]) < 0.05):.2f}",
                )
            )
    print_table(
        f"Clusters of tracks of one process (true TVD 0, {len(tvd)} pairs), and {step} apart",
        (
            "serial correlation",
            "tracks of a cluster",
            "held out together",
            "mean TVD",
            "p < 0.05",
            "intervals above 0",
            f"p < 0.05, {step} apart",
        ),
        rows,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the repeats to run")
    parser.add_argument("--only", choices=["dependence"], help="run only this")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.only is None:
        uniformity(args.scale)
        coverage(args.scale)
        stopping_bias(max(4, int(40 * args.scale)))
    dependence(args.scale)


if __name__ == "__main__":
    main()
