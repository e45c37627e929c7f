"""How well the first estimate of the time left holds.

    python -m benchmarks.time_left

Over-clusterings of scikit-learn's data sets: the range that is shown after the first steps, and the
seconds until the tree was there.
"""

import time
from typing import Any

from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine, make_moons
from sklearn.preprocessing import StandardScaler

import unsplit
from benchmarks.markdown import table
from unsplit.networks.training.progress import Reporter, StepRecord, TimeLeft

SETS: dict[str, Any] = {
    "digits": lambda: load_digits().data,
    "wine": lambda: load_wine().data,
    "breast cancer": lambda: load_breast_cancer().data,
    "iris": lambda: load_iris().data,
    "moons": lambda: make_moons(3000, noise=0.1, random_state=0)[0],
}


class FirstEstimate(Reporter):
    """Remembers the first estimate and when it was made."""

    def __init__(self) -> None:
        self.time_left = TimeLeft()
        self.range: tuple[float, float] | None = None
        self.when = 0.0

    def on_step(self, step: StepRecord) -> None:
        """Estimate until there is an estimate."""
        if self.range is None:
            self.range, self.when = self.time_left.after(step), time.perf_counter()


def main() -> None:
    rows = []
    for name, load in SETS.items():
        X = StandardScaler().fit_transform(load())
        for k in (8, 24):
            labels = KMeans(k, n_init=1, random_state=0).fit_predict(X)
            first = FirstEstimate()
            merger = unsplit.ClusterMerger(device="cpu", random_state=0, progress=first)
            merger.fit(X, initial_labels=labels)
            took = time.perf_counter() - first.when
            low, high = first.range or (float("nan"), float("nan"))
            verdict = "yes" if low <= took <= high else "no"
            row = (name, k, merger.n_iter_, f"{low:.1f} to {high:.1f}", f"{took:.1f}", verdict)
            rows.append(tuple(map(str, row)))
    print(table(["data", "k", "epochs", "estimate, s", "took, s", "within"], rows))


if __name__ == "__main__":
    main()
