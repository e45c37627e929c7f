"""Which classifier is closest to the true TVD, and does choosing among them invent differences?

python -m benchmarks.classifiers families     error against n, for each classifier and the best
python -m benchmarks.classifiers null         p-values and bias where the truth is zero
python -m benchmarks.classifiers figure       error against n in 2, 10 and 50 dimensions
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from scipy.stats import poisson
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier

from benchmarks import results_file
from benchmarks.common import print_table
from benchmarks.known_truth import spread_means
from unsplit import datasets, pairwise_tvd
from unsplit.networks import registry
from unsplit.pairwise import api, heldout_scores
from unsplit.pairwise.divergences import HeldoutScores, directed_means, hit
from unsplit.pairwise.heldout_scores import of_clusters
from unsplit.plots.style import COLOURS, clean

Floats = NDArray[np.float64]

K = 5
SIZES = (30, 100, 500)
PICTURE = "docs/images/error_against_n.png"
DIMENSIONS = (2, 10, 50)
RESULTS = Path(__file__).parent / "results" / "error_against_n.jsonl.gz"
PICTURE_SIZES = (10, 30, 100, 300)
# Data are drawn anew until there were so many observations of each cluster.
ENOUGH = 60
SHOWN = {"network": "mlp", "trees": "trees", "logistic regression": "logistic-regression"}


def families(size: int, seed: int) -> Iterator[tuple[str, datasets.Data, Floats]]:
    """Name, data and exact TVD of distributions of which none was used to choose a setting."""
    rng = np.random.default_rng(1000 + seed)
    for d in DIMENSIONS:
        means = spread_means(d, seed)[:K]
        yield f"Gaussians, {d} d", datasets.gaussians(means, size, seed), gaussian(means)
    few = np.zeros((K, 50))
    few[:, :2] = 2 * rng.standard_normal((K, 2))
    yield "Gaussians, 2 of 50 features", datasets.gaussians(few, size, seed), gaussian(few)
    means = rng.standard_normal((K, 5))
    X, y = datasets.gaussians(means, size, seed)
    yield "log-normal, 5 d", (np.exp(1.5 * X), y), gaussian(means)
    mixing = rng.standard_normal((10, 10))
    means = 0.5 * rng.standard_normal((K, 10))
    X, y = datasets.gaussians(means, size, seed)
    yield "correlated Gaussians, 10 d", (X @ mixing, y), gaussian(means)
    shares, scales = np.linspace(0, 1, K), np.geomspace(1, 8, K)
    mixed = datasets.mixtures(shares, 3.0, 5, size, seed)
    yield "mixtures, 5 d", mixed, datasets.mixtures_tvd(shares, 3.0)
    scaled = datasets.scaled_gaussians(scales, size, seed)
    yield "scales, 1 d", scaled, datasets.scaled_gaussians_tvd(scales)
    table = rng.dirichlet(np.ones(12), K)
    X, y = datasets.discrete(table, size, seed)
    exact = datasets.discrete_tvd(table)
    yield "12 values, one-hot", (X, y), exact
    yield "12 values, one integer column", (X.argmax(axis=1)[:, None].astype(float), y), exact
    rates = np.geomspace(1, 8, K)
    counts = rng.poisson(rates[y], len(y))[:, None].astype(float)
    pmf = poisson.pmf(np.arange(80), rates[:, None])
    yield "Poisson, one integer column", (counts, y), np.abs(pmf[:, None] - pmf).sum(axis=2) / 2
    weights = np.linspace(-1, 1, K)
    yield (
        "checkerboard, 2 d",
        checkerboard(weights, size, rng),
        np.abs(np.subtract.outer(weights, weights)) / 2,
    )


def gaussian(means: Floats) -> Floats:
    return datasets.gaussians_tvd(means)


def checkerboard(weights: Floats, size: int, rng: np.random.Generator) -> datasets.Data:
    """Points of a square whose density on the four fields is 1 ± weight."""
    y = np.repeat(np.arange(len(weights)), size)
    X = rng.uniform(-1, 1, (len(y), 2))
    same_sign = rng.random(len(y)) < (1 + weights[y]) / 2
    X[:, 1] = np.abs(X[:, 1]) * np.sign(X[:, 0]) * np.where(same_sign, 1, -1)
    return X, y


def tvd_of(scores: HeldoutScores) -> Floats:
    """The TVD that these scores give."""
    rate = directed_means(scores, hit)
    return np.asarray(np.maximum(rate + rate.T - 1, 0))


def of_all_candidates(X: Floats, y: NDArray[np.int64], seed: int) -> dict[str, Floats]:
    """TVD by each candidate of "best", and by the one that is chosen."""
    noted: list[Any] = []
    choose: Callable[..., Any] = heldout_scores.best_of

    def note(candidates: Sequence[Any], rows: Any, outputs: Any, folds: Any) -> Any:
        noted.extend((one.name, of_clusters(one.scores, outputs)) for one in candidates)
        return choose(candidates, rows, outputs, folds)

    with patch.object(api, "best_of", note):
        chosen = pairwise_tvd(X, y, backbone="best", random_state=seed, device="cpu").tvd
    found = {name: tvd_of(scores) for name, scores in noted}
    return found | {"chosen by A": chosen}


def compare_families(sizes: Sequence[int], repeats: int, only: str) -> None:
    """Mean error of TVD over all pairs, for each family and over all."""
    upper = np.triu_indices(K, 1)
    means = []
    for size in sizes:
        rows: dict[str, list[dict[str, float]]] = {}
        for seed in range(repeats):
            for name, (X, y), exact in families(size, seed):
                if only not in name:
                    continue
                found = of_all_candidates(X, y, seed)
                error = {m: float(np.abs(t - exact)[upper].mean()) for m, t in found.items()}
                rows.setdefault(name, []).append(error)
                print(size, name, {m: round(e, 3) for m, e in error.items()}, flush=True)
        methods = list(rows[name][0])
        mean = {n: [np.mean([e[m] for e in es]) for m in methods] for n, es in rows.items()}
        table = [(n, *(f"{v:.3f}" for v in values)) for n, values in mean.items()]
        print_table(f"Mean error of TVD, {size} observations a cluster", ("data", *methods), table)
        means.append((size, *(f"{v:.3f}" for v in np.mean(list(mean.values()), axis=0))))
    print_table(f"Mean error of TVD over {len(mean)} families", ("n a cluster", *methods), means)


def null(repeats: int, fast: bool) -> None:
    """Share of small p-values, and the bias of the accuracy, for parts of one distribution.

    If it has to be fast, "best" chooses among four classifiers of which none is a network.
    """
    models = {"naive Bayes": GaussianNB(), "neighbours": KNeighborsClassifier(15)}
    models |= {name: registry.CLASSIFIERS[name] for name in ("lda", "logistic-regression")}
    others = [registry._of_classifier(*named) for named in models.items()]
    with patch.object(registry, "CANDIDATES", others if fast else registry.CANDIDATES):
        _null(repeats)


def _null(repeats: int) -> None:
    rows = []
    for k, size, d in ((2, 30, 5), (4, 30, 5), (8, 30, 5)):
        p_values, bias = [], []
        for seed in range(max(1, 2 * repeats // k)):
            X, y = datasets.gaussians(np.zeros((k, d)), size, random_state=5000 + seed)
            result = pairwise_tvd(X, y, backbone="best", random_state=seed, device="cpu")
            first = np.arange(0, k, 2)  # disjoint pairs
            p_values.append(result.p_value[first, first + 1])
            rate = result.hit_rate
            bias.append((rate + rate.T - 1)[np.triu_indices(k, 1)].mean())
        p = np.concatenate(p_values)
        spread = np.std(bias) / np.sqrt(len(bias))
        shares = (f"{(p <= level).mean():.3f}" for level in (0.01, 0.05, 0.1))
        rows.append((k, size, len(p), *shares, f"{np.mean(bias):+.4f} ± {spread:.4f}"))
        print(rows[-1], flush=True)
    header = ("k", "n a cluster", "pairs", "p ≤ 0.01", "p ≤ 0.05", "p ≤ 0.1", "bias of 2·BA − 1")
    print_table(f'"Same distribution", {d} features, backbone="best"', header, rows)


def errors_against_n(d: int, backbone: str) -> list[float]:
    """Mean error of TVD for each of the sizes of the figure."""
    means = spread_means(d)[:K]
    exact, upper = gaussian(means), np.triu_indices(K, 1)
    errors = []
    for size in PICTURE_SIZES:
        found = []
        for seed in range(max(1, ENOUGH // size)):
            X, y = datasets.gaussians(means, size, random_state=seed)
            result = pairwise_tvd(X, y, backbone=backbone, random_state=seed, device="cpu")
            found.append(np.abs(result.tvd - exact)[upper].mean())
        errors.append(float(np.mean(found)))
    return errors


def measure(dimensions: Sequence[int]) -> None:
    """Add to the results what they lack: a line for each number of dimensions and classifier."""
    for d in dimensions:
        for name, backbone in SHOWN.items():
            if (d, name) not in results():
                line = {"d": d, "classifier": name, "errors": errors_against_n(d, backbone)}
                results_file.add(RESULTS, line)


def results() -> dict[tuple[int, str], list[float]]:
    """The lines of the file of results."""
    return {(x["d"], x["classifier"]): x["errors"] for x in results_file.read(RESULTS)}


def figure(path: str) -> None:
    """Draw the error against n, and print its table."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    canvas = Figure(figsize=(9, 3), layout="constrained")
    FigureCanvasAgg(canvas)
    found = results()
    for d, ax in zip(DIMENSIONS, canvas.subplots(1, 3, sharey=True), strict=True):
        for name, colour in zip(SHOWN, COLOURS, strict=False):
            ax.plot(PICTURE_SIZES, found[d, name], "o-", color=colour, markersize=3.5, label=name)
        ax.set(xscale="log", xlabel="observations a cluster", title=f"{d} dimensions")
        ax.set_xticks(PICTURE_SIZES, [str(n) for n in PICTURE_SIZES], minor=False)
        clean(ax, "left", "bottom")
    left = canvas.axes[0]
    left.set_ylim(0, 1.05 * max(map(max, found.values())))
    left.set_ylabel("mean error of TVD")
    left.legend(frameon=False)
    canvas.savefig(path, dpi=110)
    header = ("dimensions", "classifier", *(f"n = {n}" for n in PICTURE_SIZES))
    rows = [(*key, *(f"{e:.3f}" for e in errors)) for key, errors in sorted(found.items())]
    print_table("Mean error of TVD: Gaussians", header, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("families", "null", "figure"))
    parser.add_argument("--repeats", type=int, default=1, help="of families; times 40 for null")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--only", default="", help="families whose name has this in it")
    parser.add_argument("--fast", action="store_true", help="null without networks and trees")
    parser.add_argument("--dimensions", type=int, nargs="+", default=DIMENSIONS)
    parser.add_argument("--out", default=PICTURE, help="the figure")
    args = parser.parse_args()
    if args.part == "families":
        compare_families(args.sizes, args.repeats, args.only)
    elif args.part == "null":
        null(40 * args.repeats, args.fast)
    else:
        measure(args.dimensions)
        figure(args.out)


if __name__ == "__main__":
    main()
