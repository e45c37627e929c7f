"""What very large heads save: fewer moments in the optimizer and the loss over blocks of clusters.

python -m benchmarks.large_head [--clusters 500 1000] [--seeds 3] [--write large_head.jsonl.gz]

Gaussians whose means overlap are split at random into five clusters each, so that it is known
which clusters are parts of one.  They are compared and merged with AdamW and with what is used
where copies of the head count; the data, the folds and the batches are the same.
"""

import argparse
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score

import unsplit
from benchmarks import results_file
from benchmarks.common import print_table
from unsplit.networks.training import group as group_module
from unsplit.networks.training.group import Group

PARTS, MEMBERS, DIMENSIONS, SPREAD = 5, 20, 20, 0.5
USUAL, LARGE = "AdamW", "fewer moments, blocks"


def split_gaussians(
    k: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """Draw k clusters of twenty; every five of them are of one Gaussian."""
    rng = np.random.default_rng(seed)
    gaussian = np.repeat(np.arange(k // PARTS), PARTS * MEMBERS)
    means = SPREAD * rng.standard_normal((k // PARTS, DIMENSIONS))
    X = means[gaussian] + rng.standard_normal((len(gaussian), DIMENSIONS))
    return X, np.arange(len(gaussian)) // MEMBERS, gaussian


@contextmanager
def as_if(large: bool) -> Iterator[list[Group]]:
    """Treat any head as a very large one; the groups that are trained inside."""
    groups, made = list[Group](), Group.__init__

    def remember(self: Group, *args: Any, **settings: Any) -> None:
        made(self, *args, **settings)
        groups.append(self)

    limits = {"LARGE_HEAD": 0, "MANY_CLUSTERS": 0, "free_memory": lambda device: 0}
    with (
        mock.patch.object(Group, "__init__", remember),
        mock.patch.dict(vars(group_module), limits if large else {}),
    ):
        yield groups


def compare(k: int, seed: int, device: str) -> Iterator[dict[str, Any]]:
    """Quality with both ways to train."""
    X, clusters, gaussian = split_gaussians(k, seed)
    majorities = gaussian[::MEMBERS]
    for name in (USUAL, LARGE):
        start = time.perf_counter()
        with as_if(name == LARGE) as groups:
            found = unsplit.pairwise_tvd(
                X,
                clusters,
                cv=0.2,
                device=device,
                random_state=seed,
                training=unsplit.TrainConfig(batch_folds=False, batch_size=256),
            )
        tree = unsplit.merge(found, n_clusters=k // PARTS, rank_by="overlap")
        merged = np.array([tree.mapping[c] for c in range(k)])
        yield {
            "clusters": k,
            "seed": seed,
            "trained": name,
            "A": found.mean_accuracy,
            "Q": unsplit.metrics.quality(found.divergence("overlap"), majorities),
            "ARI": float(adjusted_rand_score(majorities, merged)),
            "epochs": len(found.history.epoch),
            "bytes per weight": bytes_per_weight(groups[0]),
            "seconds": time.perf_counter() - start,
        }


def bytes_per_weight(group: Group) -> float:
    """Bytes that the optimizer keeps for each weight of the head."""
    weight = group.head.weight
    state = [v for v in group.optimizer.state[weight].values() if isinstance(v, torch.Tensor)]
    return sum(v.numel() * v.element_size() for v in state) / weight.numel()


def summary(records: list[dict[str, Any]]) -> Iterator[tuple[Any, ...]]:
    """Mean and standard deviation over seeds."""
    for k in sorted({record["clusters"] for record in records}):
        for name in (USUAL, LARGE):
            of_name = [r for r in records if (r["clusters"], r["trained"]) == (k, name)]
            values = {
                key: np.array([r[key] for r in of_name])
                for key in ("A", "Q", "ARI", "epochs", "bytes per weight")
            }
            spread = [f"{values[key].mean():.4f} ± {values[key].std():.4f}" for key in ("A", "Q")]
            ari = f"{values['ARI'].mean():.3f} ± {values['ARI'].std():.3f}"
            held = f"{values['bytes per weight'].mean():.2f}"
            yield (f"{k:,}", name, *spread, ari, f"{values['epochs'].mean():.0f}", held)


HEADER = ("k", "head", "A", "Q of overlap", "ARI of merges", "epochs", "moments, bytes a weight")


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--clusters", type=int, nargs="+", default=[500, 1000])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args(arguments)
    records = []
    for k in given.clusters:
        for seed in range(given.seeds):
            for record in compare(k, seed, given.device):
                print(json.dumps(record), flush=True)
                records.append(record)
    if given.write:
        results_file.write(given.write, records)
    title = f"Heads as usual and as if they were very large, {given.seeds} seeds"
    print_table(title, HEADER, list(summary(records)))
    return records


if __name__ == "__main__":
    main()
