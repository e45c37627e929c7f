"""``unsplit merge`` and ``unsplit distances``: the commands that train."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from unsplit.cli import outputs
from unsplit.cli.console import Console, interruptible, kept_by
from unsplit.cli.options import Run
from unsplit.data.labels import encode_labels
from unsplit.data.readers.api import read as read_file
from unsplit.data.readers.observations import Observations, with_vectors
from unsplit.data.saving import output_folder, write_csv
from unsplit.errors import FeatureWarning, InputError, name_observations
from unsplit.estimator import ClusterMerger, seeds_of
from unsplit.merging.plan import MergeOptions
from unsplit.networks.training.checkpoint import Checkpoint
from unsplit.networks.training.progress import PHASES
from unsplit.networks.training.ranks import together
from unsplit.pairwise.api import Settings, fit
from unsplit.pairwise.heldout_scores import Fitted
from unsplit.pairwise.result import write_tvd
from unsplit.report import summary
from unsplit.report.collect import Source, checked_picture
from unsplit.selection import select, usual_candidates, without_repeated_warnings


class Started(NamedTuple):
    """A run whose input has been read."""

    folder: Path
    read: Observations
    network: dict[str, Any]
    seed: int
    kept: Checkpoint
    console: Console


# --- merge ----------------------------------------------------------------------------------------


def merge(
    must_link: list[list[str]],
    cannot_link: list[list[str]],
    constraints: str | None,
    metric: str,
    also: tuple[str, ...],
    report: bool,
    picture: str | None,
    **more: Any,
) -> None:
    """Merge clusters, and write the results."""
    run, when = Run.taken_from(more), more
    extra = [*also, "report"] if report else list(also)
    outputs.check_extra(extra, run.data, picture)
    known = _known(must_link, cannot_link, constraints)
    # Refuses before anything is read what contradicts itself.
    MergeOptions(**when).with_constraints(known)

    def work(at: Started) -> Any:
        merger = ClusterMerger(**when, constraints=known, metric=metric, **at.network)
        merger.set_params(random_state=at.seed, progress=at.console, checkpoint=at.kept)
        info = merge_into(at, run, merger, extra, picture)
        requested = isinstance(when["n_clusters"], int)
        lines = summary.of_merge(merger.tree_, merger.pairwise_.n_noise, requested)
        used = [*summary.of_sample(merger.neighbours_), *summary.of_features(at.read)]
        used += [] if at.read.representation is None else [summary.of_cells(at.read)]
        return info, lines + (["", *used] if used else [])

    train(
        run,
        work,
        [*outputs.MERGE_FILES, *chain(*(outputs.EXTRA_FILES[word] for word in extra))],
        [*PHASES, "writing", *(["making the page"] if report else [])],
        seed_of_training=lambda seed: seeds_of(seed)[0],
        named=[constraints, picture],
    )


def _known(must: list[list[str]], cannot: list[list[str]], path: str | None) -> Any:
    """What the user knows about clusters: links, the answers in a file, or both."""
    links = {"must_link": must, "cannot_link": cannot}
    links = {name: pairs for name, pairs in links.items() if pairs}
    if path is None:
        return links or None
    return path if not links else links | {"answers": path}


def merge_into(
    at: Started,
    run: Run,
    merger: ClusterMerger,
    extra: Sequence[str],
    picture: str | None = None,
) -> dict[str, Any]:
    """Merge the clusters, write all files into the folder, and describe the result.

    ``demo`` does the same.
    """
    folder, read = at.folder, at.read
    clusters = encode_labels(np.asarray(read.labels), len(read.row_ids)).clusters
    xy = None if picture is None else _picture(picture, read)
    settings = merger.get_params(deep=False)
    with warnings.catch_warnings():
        # Whoever read the columns has warned of them by name.
        warnings.simplefilter("ignore", FeatureWarning)
        merger.fit(read.X, initial_labels=read.labels, batch=read.batch, groups=read.groups)
    tree, graph = merger.tree_, merger.neighbours_
    with at.console.stage("writing"):
        outputs.write_merge(folder, read, merger, extra)
        if "h5ad" in extra:
            keys = {"batch_key": run.batch, "groups_key": run.groups, "random_state": at.seed}
            outputs.write_cells(folder, run, read, merger, keys)
    info = {"command": "merge"} | run.described() | ({"picture": picture} if picture else {})
    info |= outputs.described_estimate(read, merger.pairwise_, settings, at.seed)
    if graph is None:
        info["n_connected"] = 0
    elif graph.sampled_from is not None:
        info |= {"n_connected": len(graph.rows), "n_connected_from": graph.sampled_from}
    if merger._assigned is not None and (merger._assigned >= 0).any():
        names = tree.cluster_ids.tolist()
        info["assigned"] = {names[i]: names[j] for i, j in enumerate(merger._assigned) if j >= 0}
    info |= outputs.described_tree(tree)
    if "report" in extra:
        with at.console.stage("making the page"):
            page_of = Source(read.X, clusters, tree.n_initial, read.feature_names, xy, read.shown)
            if read.representation is not None:
                page_of = outputs.with_genes(page_of, run.data)
            outputs.write_page(folder, page_of, read, merger, info | at.console.described())
    return info


def _picture(path: str, read: Observations) -> Any:
    """The coordinates of the observations that are left."""
    kept = np.ones(len(read.row_ids), bool) if read.kept is None else read.kept
    return checked_picture(read_file(path).X, len(kept))[kept]


# --- distances ------------------------------------------------------------------------------------


def distances(also: tuple[str, ...], **more: Any) -> None:
    """Compare all pairs of clusters, and write the results."""
    run = Run.taken_from(more)

    def work(at: Started) -> Any:
        with at.console.stage("training"):
            result = _estimate(at.read, at.network, at.seed, at.kept, at.console).result
        with at.console.stage("writing"):
            result.save(at.folder / outputs.DISTANCES, scores="scores" in also)
            write_csv(at.folder / "pairs.csv", result.table())
            if "matrix" in also:
                write_tvd(at.folder / outputs.MATRIX, result)
        info = {"command": "distances"} | run.described()
        info |= outputs.described_estimate(at.read, result, at.network, at.seed)
        return info, [*summary.of_distances(result), "", *summary.of_features(at.read)]

    written = [*outputs.DISTANCE_FILES, *chain(*(outputs.EXTRA_FILES[word] for word in also))]
    train(run, work, written, ["training", "writing"], seed_of_training=lambda seed: seed)


# --- both -----------------------------------------------------------------------------------------


def train(
    run: Run,
    work: Callable[[Started], Any],
    written: list[str],
    phases: list[str],
    *,
    seed_of_training: Callable[[Any], Any],
    named: Sequence[str | None] = (),
) -> None:
    """Read, train, perhaps in several processes, and write the folder of results.

    ``work`` trains, writes, and returns a description of the result and lines for the screen;
    ``written`` are its files, with a .json file for the description; ``phases`` follow reading, and
    ``named`` are other files that are read.
    """
    network = run.network
    if run.selects:
        written, phases = [*written, outputs.CANDIDATES], ["selecting", *phases]
    Settings(**network)  # refuses bad settings before anything is read
    outputs.refuse_overwriting(run.data, [*run.named, *named], run.out, written)
    kept = outputs.checkpoint_beside(run.out)
    with together(network["device"], lambda: kept_by(kept)) as ranks:
        seed: Any = ranks.share(kept.seeded(run.seed))
        if ranks.rank:  # trains as well; prints and writes nothing
            console = Console(progress=False)
            with console.show_warnings():
                read = read_clustered(run, console)
                network = ranks.share(None) if run.selects else network
                _estimate(read, network, seed_of_training(seed), kept, console)
            return
        console = Console(run.progress, run.as_json)
        console.plan(["reading", *phases])
        results = output_folder(run.out, outputs.versions(), outputs.WRITTEN)
        with interruptible(run.out, console, kept), console.show_warnings(), results as folder:
            read = read_clustered(run, console)
            name_observations(run.data, read.row_ids)
            if run.selects:
                network = ranks.share(_selected(folder, read, network, seed, console))
            info, lines = work(Started(folder, read, network, seed, kept, console))
            file = next(name for name in written if name.endswith(".json"))
            outputs.write_result(folder / file, info, console)
        kept.remove()
    outputs.print_result(Path(run.out, file), lines, console)


def read_clustered(run: Run, console: Console) -> Observations:
    """Read observations with the cluster of each, and more of each if it is named."""
    data = run.data
    with console.stage("reading"):
        observations = run.read(console.on_progress)
        if observations.labels is None:
            raise InputError(
                f"{data} needs clusters to merge; name a column of it, or another file, with "
                "--labels, or make clusters with `unsplit overcluster`."
            )
        observations = replace(observations, labels=np.asarray(observations.labels))
        if run.vectors is not None:
            observations = with_vectors(observations, run.vectors, data)
    if console.bars is not None:
        console.say("\n".join(summary.of_data(observations)))
    return observations


def _estimate(
    read: Observations, network: dict[str, Any], seed: Any, kept: Checkpoint, console: Console
) -> Fitted:
    given = read.X, np.asarray(read.labels), Settings(**network), seed, console, read.batch
    return fit(*given, checkpoint=kept, groups=read.groups)


def _selected(
    folder: Path, read: Observations, network: dict[str, Any], seed: int, console: Console
) -> dict[str, Any]:
    """The settings with the most accurate network; the scores of all go to candidates.csv."""
    assert read.labels is not None
    # The estimate that follows gives the same warnings.
    with console.stage("selecting"), without_repeated_warnings(True):
        selection = select(
            read.X,
            read.labels,
            usual_candidates(network["backbone"]),
            batch=read.batch,
            groups=read.groups,
            training=network["training"],
            device=network["device"],
            random_state=seed,
            progress=lambda _, record: console.on_epoch(record),
        )
    write_csv(folder / outputs.CANDIDATES, selection.table())
    return network | selection.settings
