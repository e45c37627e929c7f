"""The files that commands write, what result.json says, and which files are never replaced."""

import json
import os
import platform
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import click
import numpy as np

from unsplit import __version__
from unsplit.anndata import annotations, shown_cells
from unsplit.cli.console import Console
from unsplit.cli.options import Input
from unsplit.data.cells import groups_in
from unsplit.data.labels import all_different, as_named, named_after_origin
from unsplit.data.readers.h5ad import open_cells, write_extended
from unsplit.data.readers.observations import Observations
from unsplit.data.readers.shards import shards_of
from unsplit.data.readers.tables import require_module
from unsplit.data.saving import MANIFEST, earlier_results, write_csv, write_json
from unsplit.devices import choose_device, version_of
from unsplit.errors import InputError
from unsplit.estimator import ClusterMerger, refined_labels_of
from unsplit.merging.decision import UNCLEAR
from unsplit.merging.tree import MergeTree
from unsplit.networks.training.checkpoint import Checkpoint
from unsplit.pairwise.result import PairwiseTVD, scores_path
from unsplit.report.api import PAGE, RESULT, Content, make_page
from unsplit.report.collect import NAME as KEPT
from unsplit.report.collect import Source, collect

DISTANCES, COMPARED, CANDIDATES = "distances.npz", "distances.json", "candidates.csv"
NEIGHBOURS = "neighbours.npz"
MERGED, MATRIX = "merged.h5ad", "tvd.npy"
# The files of ``merge`` and ``distances``, and more of them by the words of ``--also``.
MERGE_FILES = (
    "labels.csv", "merges.csv", "review.csv", DISTANCES, "linkage.npy", "tree.npz", RESULT,
)  # fmt: skip
DISTANCE_FILES = (DISTANCES, "pairs.csv", COMPARED)
EXTRA_FILES = {
    "figures": ("dendrogram.png", "merge_curve.png", "distances.png"),
    "h5ad": (MERGED,),
    "matrix": (MATRIX,),
    "report": (KEPT, PAGE),
    "scores": (scores_path(DISTANCES).name, NEIGHBOURS),
}
# All files that commands write to a folder: no others of an earlier result are ever removed.
WRITTEN = frozenset(
    {*MERGE_FILES, *DISTANCE_FILES, *chain(*EXTRA_FILES.values()), CANDIDATES, "digits.csv"}
)
# The key that is added to cells, and the old clusters, if they are from another file.
KEY, INITIAL = "unsplit", "unsplit_initial"
# What people open first, and how many files the last line names.
READ_FIRST, N_NAMED = ("labels.csv", "review.csv", "pairs.csv", PAGE), 4
# The answers that the page exports.
ANSWERS = "unsplit-review.json"
# Parameters of a merge that say nothing about its result.
NO_SETTINGS = ("random_state", "progress", "checkpoint", "overclusterer")


# --- what must not be replaced --------------------------------------------------------------------


def refuse_overwriting(
    data: str, named: Iterable[str | None], out: str, names: Iterable[str]
) -> None:
    """Raise an error if a command would change what it reads, or cannot write a file.

    ``named`` are other files that are read, or names of columns, which are ignored; ``names`` are
    the files that will be written to ``out``.

    Examples
    --------
    >>> refuse_overwriting("cells.csv", ["labels.csv", None], "out", ["labels.csv"])
    """
    require_name(out)
    # Results of an earlier run are removed when new results take their place.
    results = [*names, MANIFEST, *earlier_results(out)]
    for name in results:
        if os.path.isdir(os.path.join(out, name)):
            raise InputError(
                f"cannot write {name} to {os.path.join(out, '')}: a folder has this name; remove "
                "it or choose another --out."
            )
    written = [os.path.join(out, name) for name in results]
    files = [name for name in named if name and os.path.isfile(name)]
    for path in [data, *map(str, shards_of(data)), *files]:
        refuse_replacing(path, written)


def require_name(out: str) -> None:
    """Raise an error if ``--out`` is empty, which would mean the current folder."""
    if not out.strip():
        raise InputError(f"--out must not be empty, got {out!r}; name where the results go.")


def refuse_replacing(path: str, written: Iterable[str]) -> None:
    """Raise an error if an input is one of the files to write, or a folder around one.

    Files are compared after following links, and hard links to one file count as the same.

    Examples
    --------
    >>> refuse_replacing("cells.csv", ["clusters.csv"])
    >>> refuse_replacing(".", ["out/labels.csv"])
    Traceback (most recent call last):
    ...
    unsplit.errors.InputError: --out is inside ., ...; choose a folder outside it.
    """
    for name in written:
        if os.path.isdir(path) and Path(path).resolve() in Path(name).resolve().parents:
            raise InputError(
                f"--out is inside {path}, where the next run would read the results as data; "
                "choose a folder outside it."
            )
        if os.path.isfile(path) and os.path.exists(name) and os.path.samefile(path, name):
            raise InputError(
                f"{path} is an input and would be replaced by the results; choose another --out."
            )


# --- the run --------------------------------------------------------------------------------------


def checkpoint_beside(out: str) -> Checkpoint:
    """The checkpoint beside the results.

    Examples
    --------
    >>> checkpoint_beside("results/merged").folder.as_posix()
    'results/merged.checkpoint'
    """
    # In the current folder if that is where the results go.
    name = Path(out).name or Path(os.path.realpath(out)).name
    return Checkpoint(Path(out).parent / f"{name}.checkpoint")


def versions() -> dict[str, str]:
    """Return the versions of the software that results depend on."""
    own = {"unsplit": __version__, "python": platform.python_version()}
    return own | {name: version_of(name) for name in ("numpy", "torch", "scikit-learn")}


def described_estimate(
    read: Observations, distances: PairwiseTVD, settings: Mapping[str, Any], seed: int
) -> dict[str, Any]:
    """What is needed to repeat an estimate, and its numbers."""
    named = {name: value for name, value in settings.items() if name not in NO_SETTINGS}
    training = {} if named["training"] is None else named["training"].given
    more = {} if read.representation is None else {"representation": read.representation}
    return {
        "settings": named | {"training": training},
        "seed": seed,
        "device": str(choose_device(named["device"])),
        "versions": versions(),
        "typed": shlex.join(click.get_current_context().obj or []),
        **more,
        "n_observations": len(read.row_ids),
        "n_features": read.X.shape[1] if len(getattr(read.X, "shape", ())) == 2 else None,
        **described_columns(read),
        "n_initial": distances.n_clusters,
        "n_noise": distances.n_noise,
        "mean_accuracy": distances.mean_accuracy,
    }


def described_columns(read: Observations) -> dict[str, Any]:
    """The columns of a table that were used as features, and those left out."""
    if read.feature_names is None:
        return {}
    used = {"id": read.id_name, "features": read.feature_names, "left_out": list(read.left_out)}
    n_dropped = 0 if read.kept is None else int((~read.kept).sum())
    return used | ({"n_rows_left_out": n_dropped} if n_dropped else {})


def described_tree(tree: MergeTree) -> dict[str, Any]:
    """The numbers of a merge."""
    n_taken = int(tree.taken.sum())
    tvd = [merge.tvd for merge in tree.merges]
    return {
        "n_clusters": tree.n_clusters,
        "stopped": tree.stopped,
        "how_separated": tree.how_separated,
        "remerges_by_n_clusters": None if tree.stability is None else tree.stability.numbers,
        "last_merge_tvd": tvd[n_taken - 1] if n_taken else None,
        "first_refused_tvd": tvd[n_taken] if n_taken < len(tvd) else None,
        "n_unclear": sum(row.pair.verdict == UNCLEAR for row in tree.reviewed),
        "mapping": {name: tree.names[group] for name, group in tree.mapping.items()},
    }


def about_run(result: Mapping[str, Any], answers: str = ANSWERS) -> dict[str, Any]:
    """What result.json says about a run, as tables, and the commands that repeat it.

    One of them obeys the answers in the file ``answers``.

    Examples
    --------
    >>> about_run({"typed": "merge cells.csv --labels leiden --out merged", "seed": 3})["command"]
    'unsplit merge cells.csv --labels leiden --out merged --report --seed 3'
    """
    beside = ("typed", "stopped", "how_separated")  # which the page shows elsewhere
    plain = {
        n: v for n, v in result.items() if isinstance(v, str | int | float) and n not in beside
    }
    warnings = enumerate(result.get("warnings") or (), 1)
    tables = {"Result": plain} | {
        title: result.get(title.lower()) or {} for title in ("Settings", "Versions", "Seconds")
    }
    tables["Warnings"] = {str(number): text for number, text in warnings}
    shown = []
    for title, rows in tables.items():
        known = [(n, _shown(v)) for n, v in rows.items() if v not in (None, [], {}, "")]
        shown += [{"title": title, "rows": known}] if known else []
    return {"tables": shown} | _commands(result, answers)


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _commands(result: Mapping[str, Any], answers: str) -> dict[str, str]:
    """The command that repeats a run, and the one that obeys the answers given on its page."""
    words = shlex.split(result.get("typed") or "")
    if not words:
        return {}
    words += [] if "--report" in words else ["--report"]
    if not any(word.split("=")[0] == "--seed" for word in words):
        words += ["--seed", str(result["seed"])]
    command = shlex.join(["unsplit", *words])
    return {"command": command, "again": f"{command} --constraints {shlex.quote(answers)}"}


# --- the files ------------------------------------------------------------------------------------


def check_extra(extra: Sequence[str], data: str, picture: str | None) -> None:
    """Raise an error if one of these extra files cannot be made from the data."""
    if picture is not None and "report" not in extra:
        raise click.UsageError("--picture works only with --report; add it or leave --picture out.")
    if "figures" in extra:
        require_module("matplotlib", "--also figures", "figures")
    if "h5ad" in extra and not data.lower().endswith(".h5ad"):
        raise click.UsageError(
            f"--also h5ad works only with .h5ad files, got {data}; leave it out."
        )


def write_result(path: Path, content: dict[str, Any], console: Console) -> None:
    """Write ``content`` to ``path``, with the warnings, times and files of the run."""
    files = sorted(file.name for file in path.parent.iterdir())
    written = {"files": [*files, path.name, MANIFEST]}
    write_json(path, content | console.described() | written)


def print_result(path: Path, lines: list[str], console: Console) -> None:
    """Print the file that :func:`write_result` wrote, or a summary and where the files are."""
    text = path.read_text(encoding="utf-8")
    console.event("result", file=str(path))
    if console.as_json:
        return click.echo(text, nl=False)
    files = json.loads(text)["files"]
    if PAGE in files:
        lines = [*lines, "", f"Open {path.parent / PAGE} in a browser."]
    first = sorted(files, key=lambda name: name not in READ_FIRST)[:N_NAMED]
    more = f" and {len(files) - N_NAMED} more" if len(files) > N_NAMED else ""
    lines = [*lines, "", f"Files in {path.parent}/: {', '.join(first)}{more}."]
    if sys.stdout is not None and sys.stdout.isatty():  # it may be closed
        lines = [click.style(_folded(lines[0]), bold=True), *map(_folded, lines[1:])]
    return click.echo("\n".join(lines))


def _folded(line: str) -> str:
    """Break a long line between words, not inside one, and go on where it begins."""
    begin = " " * (len(line) - len(line.lstrip()))
    width = shutil.get_terminal_size().columns
    return textwrap.fill(
        line, width, subsequent_indent=begin, break_long_words=False, break_on_hyphens=False
    )


def write_merge(
    folder: Path, read: Observations, merger: ClusterMerger, extra: Sequence[str]
) -> None:
    """Write all files of a merge except those of cells, the page and result.json."""
    tree, distances = merger.tree_, merger.pairwise_
    assert read.labels is not None
    columns = {"old": as_named(read.labels), "new": np.array([*tree.names, "-1"])[merger.labels_]}
    refined = refined_labels_of(merger)
    if refined is not None:
        moved, origins = named_after_origin(refined, merger.labels_)
        called = all_different([tree.names[origin] for origin in origins])
        columns["refined"] = np.array([*called, "-1"])[moved]
    write_csv(folder / "labels.csv", read.of_all_rows(columns))
    write_csv(folder / "merges.csv", tree.table())
    write_csv(folder / "review.csv", tree.review_table())
    distances.save(folder / DISTANCES, scores="scores" in extra)
    if "scores" in extra and merger.neighbours_ is not None:
        merger.neighbours_.save(folder / NEIGHBOURS)
    np.save(folder / "linkage.npy", tree.linkage)
    tree.save(folder / "tree.npz")
    if "figures" in extra:
        from unsplit.plots import save_figures

        # A picture of all pairs of very many clusters would show nothing.
        save_figures(folder, tree, None if distances.is_sparse else distances)


def write_page(
    folder: Path, source: Source, read: Observations, merger: ClusterMerger, info: dict[str, Any]
) -> None:
    """Write the page, and the file that keeps what it shows of the observations."""
    tree, result = merger.tree_, merger.pairwise_
    distances = None if result.is_sparse else result
    kept = collect(source, distances)
    kept.save(folder / KEPT)
    content = Content(tree, distances, kept, source.clusters, read.row_ids, about_run(info))
    make_page(content).save(folder / PAGE)


# --- cells ----------------------------------------------------------------------------------------


def write_cells(
    folder: Path, source: Input, read: Observations, merger: ClusterMerger, params: Any
) -> None:
    """Write a copy of an .h5ad file with what :func:`unsplit.anndata.merge` adds.

    ``params`` says how the merge was made.
    """
    import pandas as pd

    data, labels = source.data, source.clusters
    colours = f"{labels}_colors"
    with open_cells(Path(data)) as cells:
        known = labels in cells.obs
        column = cells.obs[labels] if known else read.labels
        groups = groups_in(column)
        uns = {colours: cells.uns.get(colours)}
    settings = merger.get_params(deep=False)
    params |= {name: value for name, value in settings.items() if name not in NO_SETTINGS}
    old = labels if known else INITIAL
    params |= {"groupby": old, "representation": read.representation}
    columns, uns = annotations(merger, groups, KEY, old, params, uns)
    if not known:
        names = pd.Index(groups.names, dtype=object)
        columns[INITIAL] = pd.Categorical.from_codes(groups.codes, categories=names)
    write_extended(Path(data), folder / MERGED, columns, uns)


def with_genes(source: Source, data: str) -> Source:
    """Add what the page of cells can show, read from the .h5ad file ``data``."""
    with open_cells(Path(data)) as cells:
        return shown_cells(source, cells, data)
