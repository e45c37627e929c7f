"""Can a random forest tell two clusters apart better than permuted labels?  CHOIR's test.

Defaults are those of CHOIR 0.3, but for half its 100 repetitions, at most 100 observations a
cluster in training, and an early end where more repetitions would not change the answer.
Its allowance for errors that repeat is left out.
"""

import numpy as np
import sklearn
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.tree import DecisionTreeRegressor

Matrix = NDArray[np.float32]
Values = NDArray[np.float64]

N_TREES = 50
DIVISIONS = 25  # each gives two accuracies, either half being tested once
RESAMPLES = 100
MOST_TRAINED = 100
MIN_ACCURACY = 0.5
CLEAR_ACCURACY, CLEAR_SPREADS = 0.9, 3.5


def told_apart(a: Matrix, b: Matrix, level: float, rng: np.random.Generator) -> bool:
    """Whether held-out accuracy is both higher and steadier than that with permuted labels."""
    n = max(1, min(len(a), len(b), 2 * MOST_TRAINED) // 2)
    real: list[float] = []
    permuted: list[float] = []
    for division in range(DIVISIONS):
        real += _accuracies(a, b, n, False, rng)
        if (verdict := _clear(float(np.mean(real)), n, division)) is not None:
            return verdict
    for _ in range(DIVISIONS):
        permuted += _accuracies(a, b, n, True, rng)
    return _significant(np.array(real), np.array(permuted), level, rng)


def _clear(accuracy: float, n: int, division: int) -> bool | None:
    """The answer if it is obvious: permuted labels give 0.5 ± 0.5 / √(2n), whatever the data."""
    spread = 0.5 / np.sqrt(2 * n)
    if accuracy >= max(CLEAR_ACCURACY, 0.5 + CLEAR_SPREADS * spread):
        return True
    return False if division == 1 and accuracy <= 0.5 + spread else None


def _significant(real: Values, permuted: Values, level: float, rng: np.random.Generator) -> bool:
    """Mean above, and variance below, what permuted labels give."""
    draws = rng.choice(permuted, (RESAMPLES, RESAMPLES)).var(axis=1, ddof=1)
    higher = 1 - _smooth_cdf(permuted, float(real.mean())) < level
    steadier = _smooth_cdf(draws, float(real.var(ddof=1))) < level
    return bool(real.mean() >= MIN_ACCURACY and higher and steadier)


def _smooth_cdf(sample: Values, x: float) -> float:
    """Of a kernel density with R's default bandwidth."""
    quarter, three = np.quantile(sample, [0.25, 0.75])
    spread = min(sample.std(ddof=1), (three - quarter) / 1.34) or sample.std(ddof=1) or 1e-12
    return float(norm.cdf((x - sample) / (0.9 * spread * len(sample) ** -0.2)).mean())


def _accuracies(
    a: Matrix, b: Matrix, n: int, permute: bool, rng: np.random.Generator
) -> list[float]:
    """Divide both in halves; the forest of either half predicts the other."""
    # A cluster of one is trained and tested with itself.
    x = [part[rng.permutation(len(part))[: 2 * n]] for part in (a, b)]
    halves = [np.concatenate([part[:n] for part in x]), np.concatenate([part[-n:] for part in x])]
    labels = np.tile(np.repeat([0.0, 1.0], n), 2)
    if permute:
        labels = rng.permutation(labels)
    y = labels[: 2 * n], labels[2 * n :]
    return [
        float(np.mean((_votes(halves[i], y[i], halves[1 - i], rng) > 0.5) == y[1 - i]))
        for i in (0, 1)
    ]


def _votes(train: Matrix, y: Values, test: Matrix, rng: np.random.Generator) -> Values:
    """A random forest's probability of label 1.

    For two labels, the variance a regression tree reduces is half the Gini impurity.  Tree by
    tree, as a forest of scikit-learn takes six times as long to check its input.
    """
    n, d = train.shape
    tree = DecisionTreeRegressor(max_features=max(1, int(np.sqrt(d))))
    votes = np.zeros(len(test))
    with sklearn.config_context(skip_parameter_validation=True, assume_finite=True):
        for seed in rng.integers(2**31, size=N_TREES):
            drawn = rng.integers(n, size=n)
            tree.random_state = int(seed)
            votes += tree.fit(train[drawn], y[drawn], check_input=False).tree_.predict(test)[:, 0]
    return votes / N_TREES
