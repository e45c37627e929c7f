"""Are the p-values uniform, the intervals honest, and is choosing the epoch harmless?

    python -m benchmarks.statistics [--scale 1.0] [--only small]

Every experiment draws fresh data, so runs are independent.
"""

import argparse
import warnings
from collections.abc import Callable

import numpy as np
import scipy.stats
import torch
from numpy.typing import NDArray

from benchmarks.common import Run, print_table, run
from unsplit import pairwise_tvd
from unsplit.datasets import gaussians
from unsplit.errors import DependenceWarning
from unsplit.networks.training.group import Fold
from unsplit.pairwise import statistics as stats
from unsplit.pairwise.divergences import HeldoutScores, directed_means, hit, p_values, rank_sums
from unsplit.pairwise.heldout_scores import crossfit_folds, holdout_fold, validated_inside

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
    return [[validated_inside(fold, clusters, rng) for fold in other_folds(clusters, rng)[0]]]


CHOICES: dict[str, Splitter] = {
    "the counted fold": counted_fold,
    "the other folds": other_folds,
    "an inner split": inner_split,
}


def accuracy_of(runs: list[Run]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Directed hit rates and counts pooled over the runs of one data set."""
    counts = np.array([r.scores.counts.sum(axis=0) for r in runs])
    rates = np.array([directed_means(r.scores, hit) for r in runs])
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
                spread.append(stats.tvd_stderr(stats.Hits.of(rate, n))[upper].mean())
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
        p = p_values(scores)
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
                rate = directed_means(result.scores, hit)
                n = result.scores.counts.sum(axis=0)
                low, high = stats.accuracy_interval(stats.Hits.of(rate, n), 0.95, len(folds))
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


N_CLUSTERS = 10


def distance_for(tvd: float) -> float:
    """How far apart two unit Gaussians of this TVD are."""
    return 2 * float(scipy.stats.norm.ppf((1 + tvd) / 2))


def noise(family: str, shape: tuple[int, int], rng: np.random.Generator) -> NDArray[np.float64]:
    """Observations of one distribution."""
    if family == "heavy tails":
        return rng.standard_t(2, shape)
    if family == "counts":
        return rng.poisson(1.0, shape).astype(float)
    if family == "yes or no":
        return rng.integers(0, 2, shape).astype(float)
    if family == "three groups":
        centres = 5 * rng.standard_normal((3, shape[1]))
        return centres[rng.integers(0, 3, shape[0])] + rng.standard_normal(shape)
    return rng.standard_normal(shape)


def in_turn(
    family: str, tvd: float, k: int, n: int, d: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.int64], HeldoutScores]:
    """Clusters of n, of two kinds in turn, and their held-out scores in five folds.

    The second kind is moved along the first column, so that the two have this TVD if they are
    Gaussian.
    """
    rng = np.random.default_rng([seed, n, d, k])
    y = np.repeat(np.arange(k), n)
    X, other = noise(family, (len(y), d), rng), y % 2 == 1
    X[other, 0] += distance_for(tvd)
    return X, y, run(X, y, crossfit_folds(y, 5, rng), seed).scores


def within_folds(scores: HeldoutScores) -> NDArray[np.float64]:
    """p-values of the test for larger clusters, for clusters of any size."""
    # A stratum without observations changes nothing, but says that strata are not folds.
    counts = np.vstack([scores.counts, np.zeros_like(scores.counts[:1])])
    return stats.rank_sum_p_value(rank_sums(scores), counts, scores.n_folds)


N_PERMUTATIONS = 199


def energy_p_value(
    X: NDArray[np.float64], of_a: NDArray[np.bool_], rng: np.random.Generator
) -> float:
    """p-value of the permutation test of the energy distance (Székely and Rizzo 2004)."""
    distance = np.linalg.norm(X[:, None] - X, axis=2)
    weight = np.where(of_a, 1 / of_a.sum(), -1 / (~of_a).sum())
    weights = np.stack([weight, *(rng.permutation(weight) for _ in range(N_PERMUTATIONS))])
    energy = -((weights @ distance) * weights).sum(axis=1)
    return float((energy >= energy[0] - 1e-12).mean())


def three_tests(
    family: str, tvd: float, k: int, n: int, d: int, repeats: int, seed: int
) -> tuple[NDArray[np.float64], float]:
    """p-values of the three tests, shape (3, pairs), and how often any adjusted one is small.

    The pairs are those of unlike clusters, or all if the TVD is zero.
    """
    found, any_small = [], []
    for repeat in range(repeats):
        X, y, scores = in_turn(family, tvd, k, n, d, seed + repeat)
        old, new = within_folds(scores), p_values(scores)
        rng = np.random.default_rng(repeat)
        i, j = np.triu_indices(k, 1)
        kept = (i + j) % 2 == 1 if tvd else np.full(len(i), True)
        for a, b in zip(i[kept], j[kept], strict=True):
            two = (y == a) | (y == b)
            found.append((old[a, b], new[a, b], energy_p_value(X[two], y[two] == a, rng)))
        rate = directed_means(scores, hit)
        n_equal = stats.possibly_equal(int(np.triu((rate + rate.T) / 2 <= 0.5, 1).sum()), len(rate))
        any_small.append(bool(n_equal * new[i, j].min() <= 0.05))
    return np.array(found).T, float(np.mean(any_small))


def shares(p: NDArray[np.float64]) -> list[str]:
    return [f"{share:.2f}" for share in (p <= 0.05).mean(axis=1)]


SMALL_SIZES = (5, 8, 12, 19, 30, 100)
TESTS = ("within folds", "`p_value`", "energy")


def separated(scale: float) -> None:
    """The smallest p-values there are; nothing is drawn, so the scale changes nothing."""
    print_table(
        "The smallest p-value of two clusters that are perfectly separated",
        ("cluster size", "within folds", "`p_value`", "of all permutations"),
        [
            (
                n,
                f"{least_within(n):.2g}",
                f"{stats.rank_sum_survival(n, n, stats.CROSSFIT_VARIANCE)[-1]:.2g}",
                f"{stats.rank_sum_survival(n, n)[-1]:.2g}",
            )
            for n in (3, 4, 5, 6, 8, 10, 15, 19)
        ],
    )


def small_clusters(scale: float) -> None:
    """Level and power of the tests by size."""
    rows = []
    for k, repeats in ((2, 20), (N_CLUSTERS, 3)):
        for d in (2, 20):
            for n in SMALL_SIZES:
                some = max(2, int(scale * repeats))
                equal, wrong = three_tests("Gaussian", 0.0, k, n, d, some, 0)
                unlike, _ = three_tests("Gaussian", 0.5, k, n, d, some, 1000)
                rows.append((k, d, n, *shares(equal), f"{wrong:.2f}", *shares(unlike)))
    at_zero, at_half = ([f"{test}, {tvd}" for test in TESTS] for tvd in ("0", "0.5"))
    print_table(
        "Share of p ≤ 0.05 for Gaussians of TVD 0 and 0.5; of runs with any adjusted p ≤ 0.05",
        ("k", "d", "cluster size", *at_zero, "any adjusted, 0", *at_half),
        rows,
    )


def families(scale: float) -> None:
    """Level of the tests where nothing is Gaussian."""
    rows = []
    for family in ("heavy tails", "counts", "yes or no", "three groups"):
        for n in (6, 14):
            equal, wrong = three_tests(family, 0.0, N_CLUSTERS, n, 5, max(2, int(4 * scale)), 0)
            rare = f"{(equal[1] <= 0.01).mean():.3f}"
            rows.append((family, n, *shares(equal), rare, f"{wrong:.2f}"))
    print_table(
        f"Share of p ≤ 0.05 for equal clusters (k = {N_CLUSTERS}, five columns)",
        ("data", "cluster size", *TESTS, "`p_value` ≤ 0.01", "any adjusted"),
        rows,
    )


def least_within(n: int) -> float:
    """The smallest p-value of two clusters of n if their ranks are compared within five folds."""
    dealt = np.bincount(np.arange(n) % 5, minlength=5)
    counts = np.stack([*([m, m] for m in dealt), [0, 0]])
    U = float((dealt**2).sum()) * (1 - np.eye(2))
    return float(stats.rank_sum_p_value(U, counts, 5)[0, 1])


def lower_ends(scale: float) -> None:
    """How often the intervals contain the true TVD, and how often their lower end is wrong."""
    rows = []
    for d in (2, 20):
        for tvd in (0.0, 0.5, 0.9, 0.99):
            for n in (10, 30, 100):
                ends = []
                for seed in range(max(2, int(2 * scale))):
                    _, _, scores = in_turn("Gaussian", tvd, N_CLUSTERS, n, d, seed)
                    n = scores.counts.sum(axis=0)
                    hits = stats.at_least_chance(stats.Hits.of(directed_means(scores, hit), n))
                    low, high = stats.accuracy_interval(hits, 0.95, 5)
                    i, j = np.triu_indices(N_CLUSTERS, 1)
                    kept = (i + j) % 2 == 1
                    ends.append(np.stack([2 * end[i[kept], j[kept]] - 1 for end in (low, high)]))
                low, high = np.clip(np.concatenate(ends, axis=1), 0.0, 1.0)
                rows.append(
                    (d, f"{tvd:g}", n, f"{low.mean():.2f}", f"{high.mean():.2f}",
                     f"{(low <= tvd).mean():.2f}", f"{(high >= tvd).mean():.2f}",
                     f"{((low <= tvd) & (tvd <= high)).mean():.2f}")
                )  # fmt: skip
    head = ("d", "true TVD", "cluster size", "mean `low`", "mean `high`")
    print_table(
        "Share of the pairs of Gaussians with `low` ≤ true TVD, true TVD ≤ `high`, and both",
        (*head, "`low` right", "`high` right", "both"),
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


def stopping(scale: float) -> None:
    stopping_bias(max(4, int(40 * scale)))


TABLES = {
    "uniformity": uniformity,
    "coverage": coverage,
    "stopping": stopping,
    "separated": separated,
    "small": small_clusters,
    "families": families,
    "ends": lower_ends,
    "dependence": dependence,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the repeats to run")
    parser.add_argument("--only", choices=TABLES, help="one part instead of all")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name in TABLES if arguments.only is None else [arguments.only]:
        TABLES[name](arguments.scale)


if __name__ == "__main__":
    main()
