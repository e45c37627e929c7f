"""All of it once: images by the million, tens of thousands of clusters, every distance."""

import time
from typing import Any

import numpy as np
import torch

import unsplit
from experiments.images import small_network
from experiments.scaling.config import Config
from experiments.scaling.pictures import PictureDataset, PictureRows, Pictures
from experiments.scaling.timings import Laps, at_most, wait
from unsplit.data.rows.kinds import observations
from unsplit.metrics import quality

SEED = 0

# Batches that are under way before a stream has its pace.
AHEAD = 20


def whole(loss: str, config: Config, device: torch.device, quick: bool) -> dict[str, Any]:
    """Train, score and compare all pairs within the budget; seconds and memory of each part."""
    pictures = _pictures(config)
    with at_most(config.confined, device):
        laps = Laps(device)
        result = unsplit.pairwise_tvd(
            PictureRows(pictures, device, laps),
            pictures.labels,
            backbone=small_network if quick else "resnet18",
            cv=0.2,
            training=unsplit.TrainConfig(loss=loss, epochs=config.epochs),
            device=device,
            random_state=SEED,
        )
        laps.rename_last("scoring")
        laps.end("hits of all pairs")
        tvd = result.tvd
        laps.end("distances")
    return {
        "n": len(pictures),
        "budget": config.confined,
        "measured memory": device.type == "cuda",
        "parts": _rounded(laps.parts()),
        "epochs run": len(result.history.epoch),
        "held out": int(result.n_heldout.sum()),
        "distances": int(np.count_nonzero(np.isfinite(tvd)) - len(tvd)) // 2,
        "A": float(result.mean_accuracy),
        "1-Q": {"tv": 1 - _quality_of_some(tvd, pictures, config.looked_at)},
        "clusters looked at": int((pictures.category < config.looked_at).sum()),
    }


def feeding(source: str, config: Config, device: torch.device) -> dict[str, Any]:
    """How many images a second there are for a network that takes no time."""
    pictures = _pictures(config)
    rows = (
        PictureRows(pictures, device, Laps(device))
        if source == "made on the device"
        else observations(PictureDataset(pictures), device)
    )
    order = np.random.default_rng(SEED).integers(len(pictures), size=config.fed)
    batches = torch.from_numpy(order).to(device).split(config.batch)
    n_ahead = min(AHEAD, len(batches) // 2)
    for i, _ in enumerate(rows.stream(batches)):
        if i == n_ahead - 1:
            wait(device)
            start = time.perf_counter()
    wait(device)
    seconds = time.perf_counter() - start
    n = sum(len(batch) for batch in batches[n_ahead:])
    return {"images": n, "images a second": round(n / seconds, 1)}


def _pictures(config: Config) -> Pictures:
    return Pictures(config.clusters, config.size, config.categories, config.pixels)


def _quality_of_some(tvd: Any, pictures: Pictures, n_categories: int) -> float:
    """Q among all clusters of some categories."""
    some = np.flatnonzero(pictures.category < n_categories)
    return quality(tvd[np.ix_(some, some)], pictures.category[some])


def _rounded(parts: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {name: part | {"seconds": round(part["seconds"], 6)} for name, part in parts.items()}
