"""Random and noisy splits: do `auto` and `alpha` stop at the right number?

python -m benchmarks.splits [--seeds 3]
"""

import argparse

from sklearn.metrics import adjusted_rand_score

import unsplit
from benchmarks.common import print_table, split_digits
from unsplit.metrics import purity


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    seeds = range(parser.parse_args().seeds)
    rows = []
    for size in (20, 10):
        for noise in (0.0, 0.1, 0.3):
            found, scores, pure = [], [], []
            for seed in seeds:
                X, labels, digit = split_digits(size, noise, seed)
                result = unsplit.pairwise_tvd(X, labels, random_state=seed)
                auto, alpha = unsplit.merge(result), unsplit.merge(result, alpha=0.05)
                found.append(f"{auto.n_clusters}/{alpha.n_clusters}")
                scores.append(f"{adjusted_rand_score(digit, auto.labels(labels)):.3f}")
                best = unsplit.merge(result, n_clusters=10).labels(labels)
                pure.append(f"{purity(best, digit):.3f}")
            k = result.n_clusters
            row = (size, k, f"{noise:.0%}", ", ".join(found), ", ".join(scores), ", ".join(pure))
            rows.append(row)
            print(*row, flush=True)
    header = ("size", "k", "noise", "auto/alpha found", "index of auto", "purity at ten")
    print_table("Digits split at random within each digit: ten is right", header, rows)


if __name__ == "__main__":
    main()
