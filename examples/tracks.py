"""Tracked objects: which tracks, from different videos, show the same kind of thing?

A tracker follows objects through videos.  Every track is a set of images of one object, so one
cluster per track is an over-clustering that costs nothing.  To discover categories, tracks of the
same kind are merged across videos, without labels.  Reiser et al. (2019) had this case in mind.

    python examples/tracks.py                      # handwritten digits, about a minute
    python examples/tracks.py --raw                # fails, because scene and light are left in
    python examples/tracks.py --images FOLDER      # photographs, FOLDER/category/*.JPEG

The tracks are simulated (see track_films.py), so the right answer is known.  The example writes
tracks.csv and tracks.png; docs/tracks.md explains the results.
"""

import argparse
import csv
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, pairwise_distances
from torch import nn
from track_films import Tracks, digit_tracks, photo_tracks

import unsplit

Array = NDArray[Any]

RED = (238, 102, 119)


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    chosen = options().parse_args(arguments)
    data = made_tracks(chosen)
    frames = data.frames if chosen.raw or chosen.images else levelled(data.frames)
    start = time.perf_counter()
    merger = unsplit.ClusterMerger(
        backbone=lambda: small_network(frames.shape[3]),  # a new network from the seed
        cv=2 if chosen.quick else 3,
        # Frames of a track look alike, so long training would memorise the still images.
        training=unsplit.TrainConfig(epochs=6 if chosen.quick else 30),
        random_state=chosen.seed,
    ).fit(frames, initial_labels=data.track, groups=blocks(data.track))
    seconds = time.perf_counter() - start
    result, tree = merger.pairwise_, merger.tree_
    print(f"{result.n_clusters} tracks, {len(frames):,} frames: {seconds:.0f} s.")
    verdict = report_distances(result, frames, data)
    verdict |= report_merges(tree, result, frames, data)
    out = Path(chosen.out)
    out.mkdir(parents=True, exist_ok=True)
    write_table(out / "tracks.csv", tree.mapping)
    draw(out / "tracks.png", data, tree.groups)
    print(f"\nWrote {out / 'tracks.csv'} and {out / 'tracks.png'}.")
    return verdict


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--images", metavar="FOLDER", help="use photographs from FOLDER/category/*.JPEG"
    )
    parser.add_argument("--raw", action="store_true", help="keep the background of the digits")
    views = "still images per track (default 5)"
    parser.add_argument("--views", type=int, choices=range(1, 6), default=5, help=views)
    parser.add_argument("--out", default="tracks-output", help="folder for the results")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="fewer videos, frames and epochs")
    return parser


def made_tracks(chosen: argparse.Namespace) -> Tracks:
    rng = np.random.default_rng(chosen.seed)
    n_videos, n_frames = (7, 12) if chosen.quick else (14, 20)
    if chosen.images:
        return photo_tracks(chosen.images, 10, n_videos, n_frames, chosen.views, rng)
    return digit_tracks(n_videos, n_frames, chosen.views, rng)


def blocks(track: Array) -> Array:
    """Cut each track into five blocks of frames, which are held out together.

    Frames that follow each other are nearly the same, so one of them must not be trained on while
    the next is held out.  A block is about as long as one drawing is seen.
    """
    numbers, lengths = np.unique(track, return_inverse=True, return_counts=True)[1:]
    place = np.concatenate([np.arange(n) // -(-n // 5) for n in lengths])  # tracks lie together
    return 5 * numbers + place


def levelled(frames: Array) -> Array:
    """Subtract a plane fitted to the border of each frame, and scale all to one contrast.

    Light and scene identify a track but not a category, so it helps to remove them.
    """
    y, x = np.mgrid[[slice(-1, 1, side * 1j) for side in frames.shape[1:3]]]
    plane = np.stack([np.ones_like(x), x, y], axis=-1)
    border = np.ones(x.shape, bool)
    border[2:-2, 2:-2] = False
    slopes = np.einsum("pb,nbc->npc", np.linalg.pinv(plane[border]), frames[:, border])
    flat = frames - np.einsum("hwp,npc->nhwc", plane, slopes)
    return (flat / (flat.std(axis=(1, 2, 3), keepdims=True) + 1e-6)).astype(np.float32)


def small_network(channels: int) -> nn.Module:
    """Make a network of three convolutions: enough for small frames, and fast on a CPU."""

    def layer(into: int, out: int, kernel: int) -> list[nn.Module]:
        convolution = nn.Conv2d(into, out, kernel, stride=2, padding=kernel // 2, bias=False)
        return [convolution, nn.BatchNorm2d(out), nn.ReLU()]

    layers = [*layer(channels, 16, 5), *layer(16, 32, 3), *layer(32, 64, 3)]
    layers += [nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(9 * 64, 64), nn.ReLU()]
    return nn.Sequential(*layers)


# ---- evaluation: only this part uses the true categories ---------------------------------------


def report_distances(result: unsplit.PairwiseTVD, frames: Array, data: Tracks) -> dict[str, float]:
    """Print the distances between tracks, and how well they separate the categories."""
    same = data.categories[:, None] == data.categories
    pairs = np.triu(np.ones_like(same), 1)
    for what, which in (("the same category", same), ("different categories", ~same)):
        tvd = result.tvd[pairs & which]
        share = np.mean(tvd == 1)
        print(f"Tracks of {what}: median TVD {np.median(tvd):.3f}; {share:.0%} have TVD 1.")
    euclidean = euclidean_distance(pixels_of(frames), data.track)
    distances = {name: result.divergence(name) for name in ("tv", "lecam", "overlap")}
    rank = {
        name: unsplit.metrics.quality(matrix, data.categories)
        for name, matrix in (distances | {"pixels": euclidean}).items()
    }
    print("Q of the distances:", ", ".join(f"{name} {value:.3f}" for name, value in rank.items()))
    return {f"Q {name}": value for name, value in rank.items()}


def report_merges(
    tree: unsplit.MergeTree, result: unsplit.PairwiseTVD, frames: Array, data: Tracks
) -> dict[str, float]:
    """Print how many merges joined tracks of one category, and how pure the groups are."""
    pixels, n = pixels_of(frames), len(np.unique(data.categories))
    trees = {
        "unsplit": tree,
        f"unsplit, given {n}": tree.cut(n_clusters=n),
        f"by overlap, given {n}": unsplit.merge(result, n_clusters=n, rank_by="overlap"),
        f"by pixels, given {n}": unsplit.merge(
            euclidean_distance(pixels, data.track), n_clusters=n
        ),
        f"by chance, given {n}": unsplit.merge(random_distances(len(tree.groups)), n_clusters=n),
    }
    print(f"\n{'':26}{'groups':>8}{'right merges':>16}{'purity':>9}{'ARI':>7}")
    for name, made in trees.items():
        print_scores(name, made.groups, data, "{} of {}".format(*right_merges(made, data)))
    means = np.stack([pixels[data.track == name].mean(axis=0) for name in tree.cluster_ids])
    k_means = KMeans(n, n_init=10, random_state=0).fit_predict(means)
    print_scores(f"k-means of means, given {n}", k_means, data)
    right, n_merges = right_merges(tree, data)
    ari = adjusted_rand_score(data.categories, tree.groups)
    return {"right": right, "merges": n_merges, "ARI": float(ari)}


def right_merges(tree: unsplit.MergeTree, data: Tracks) -> tuple[int, int]:
    """Count the merges of clusters with the same majority category, and all merges."""
    table = unsplit.metrics.category_counts(np.arange(len(data.categories)), data.categories)
    right = unsplit.metrics.correct_merges(tree.linkage[tree.taken, :2], table)
    return int(right[-1:].sum()), len(right)


def print_scores(name: str, groups: Array, data: Tracks, right: str = "") -> None:
    purity = unsplit.metrics.purity(groups, data.categories)
    ari = adjusted_rand_score(data.categories, groups)
    print(f"{name:26}{len(np.unique(groups)):8}{right:>16}{purity:9.2f}{ari:7.2f}")


def euclidean_distance(X: Array, labels: Array) -> Array:
    """Compute the mean distance between the observations of any two clusters."""
    members = (labels == np.unique(labels)[:, None]).astype(float)
    members /= members.sum(axis=1, keepdims=True)
    distances = members @ pairwise_distances(X) @ members.T
    np.fill_diagonal(distances, 0.0)
    return (distances + distances.T) / 2


def random_distances(k: int) -> Array:
    upper = np.triu(np.random.default_rng(0).uniform(size=(k, k)), 1)
    return upper + upper.T


def pixels_of(frames: Array) -> Array:
    return frames.reshape(len(frames), -1).astype(np.float32)


# ---- files -------------------------------------------------------------------------------------


def write_table(path: Path, group_of: dict[str, int]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("track", "group"), *group_of.items()])


def draw(path: Path, data: Tracks, groups: Array, per_line: int = 12) -> None:
    """Draw three frames of every track, by group; red frames mark a minority category."""
    from matplotlib.figure import Figure

    wrong = unsplit.metrics.majority_categories(groups, data.categories)[groups] != data.categories
    names = np.unique(data.track)
    strips = [strip(data.frames[data.track == n], w) for n, w in zip(names, wrong, strict=True)]
    lines: list[Array] = []
    marks: list[int] = []
    for group in np.argsort(-np.bincount(groups), kind="stable"):
        members = np.flatnonzero(groups == group)
        members = members[np.argsort(wrong[members], kind="stable")]
        marks.append(sum(len(line) for line in lines))
        for start in range(0, len(members), per_line):
            some = [strips[i] for i in members[start : start + per_line]]
            some += [np.full_like(strips[0], 255)] * (per_line - len(some))
            lines.append(np.concatenate(some, axis=1))
        lines.append(np.full((6, lines[0].shape[1], 3), 255, np.uint8))
    picture = np.concatenate(lines[:-1])
    height, width = picture.shape[:2]
    figure = Figure(figsize=((width + 30) / 100, height / 100), dpi=100)
    axes = figure.add_axes((30 / (width + 30), 0, width / (width + 30), 1))
    axes.imshow(picture, interpolation="nearest")  # at its own size
    axes.set_axis_off()
    for number, top in enumerate(marks, start=1):
        axes.text(-8, top + 14, str(number), ha="right", va="center", fontsize=10)
    figure.savefig(path)


def strip(frames: Array, wrong: bool) -> Array:
    """Put three frames of a track side by side, with a border; shape (h, w, 3)."""
    some = (
        frames[np.linspace(0, len(frames) - 1, 3).astype(int)] & 0xF0
    )  # few grey levels make small files
    row = np.concatenate(list(some), axis=1)
    row = np.repeat(row, 3, axis=2) if row.shape[2] == 1 else row
    framed = np.full((row.shape[0] + 4, row.shape[1] + 4, 3), RED if wrong else 255, np.uint8)
    framed[2:-2, 2:-2] = row
    return np.pad(framed, ((1, 1), (2, 2), (0, 0)), constant_values=255)


if __name__ == "__main__":
    main()
