"""The same problem on the CPU and on the GPU: same answer, repeatable, and how fast.

python -m benchmarks.gpu_check
"""

import time

import numpy as np

from benchmarks.common import print_table, split_digits
from benchmarks.known_truth import spread_means
from unsplit import pairwise_tvd
from unsplit.datasets import gaussians
from unsplit.metrics import majority_categories, quality


def main() -> None:
    X, clusters, digit = split_digits(10, 0.3, 0)
    problems = {
        "digits, k = 176, 30 % noise": (X, clusters),
        "8 Gaussians in 10-d": gaussians(spread_means(10), 2000),
    }
    table = []
    for name, (data, labels) in problems.items():
        found = {}
        for device in ("cpu", "cuda", "cuda again"):
            start = time.perf_counter()
            result = pairwise_tvd(data, labels, device=device.split()[0], random_state=0)
            p = result.p_value
            found[device] = (result, p, time.perf_counter() - start)
        gap = np.abs(found["cpu"][0].tvd - found["cuda"][0].tvd).mean()
        same = np.array_equal(found["cuda"][0].tvd, found["cuda again"][0].tvd)
        same &= np.array_equal(found["cuda"][1], found["cuda again"][1])
        accuracy = [f"{found[d][0].mean_accuracy:.4f}" for d in ("cpu", "cuda")]
        seconds = [f"{found[d][2]:.1f}" for d in ("cpu", "cuda", "cuda again")]
        table.append((name, *accuracy, f"{gap:.4f}", same, *seconds))
        if labels is clusters:
            majority = majority_categories(clusters, digit)
            q = [quality(found[d][0].divergence("overlap"), majority) for d in ("cpu", "cuda")]
            print(f"Q of overlap, CPU {q[0]:.4f}, CUDA {q[1]:.4f}")
    head = ("data", "A cpu", "A cuda", "mean |ΔTVD|", "repeatable", "s cpu", "s cuda", "s again")
    print_table("CPU against CUDA (bfloat16 training)", head, table)


if __name__ == "__main__":
    main()
