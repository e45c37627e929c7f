"""What a page says about the run that made a result."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from unsplit.cli.options import as_typed
from unsplit.data.readers.columns import ColumnChoice
from unsplit.errors import typed
from unsplit.merging.options import MergeOptions
from unsplit.networks.training.loop import TrainConfig
from unsplit.pairwise.api import Settings

ANSWERS = "unsplit-review.json"
# Settings that are options with one value; they are left out where they have their default.
NAMES = (
    "n_clusters", "min_clusters", "max_clusters", "max_tvd", "alpha", "labels_from", "backbone",
    "cv", "epochs", "device",
)  # fmt: skip
DEFAULTS = {
    f.name: f.default for kind in (MergeOptions, Settings, TrainConfig) for f in fields(kind)
}


def about_run(result: Mapping[str, Any]) -> dict[str, Any]:
    """What result.json says about a run, as tables, and the commands that repeat it.

    Parameters
    ----------
    result : mapping
        The content of result.json.

    Examples
    --------
    >>> about_run({"data": "cells.csv", "labels": "leiden", "seed": 3, "settings": {}})["command"]
    'unsplit merge cells.csv --labels leiden --out merged --report --seed 3'
    """
    settings = dict(result.get("settings") or {})
    numbers = (
        "n_observations", "n_features", "n_noise", "n_connected", "mean_accuracy", "n_unclear",
        "device",
    )  # fmt: skip
    files = (
        *("data", "labels", "batch", "groups", "vectors"),
        *("representation", "picture", "constraints"),
    )
    tables = [
        ("Data", {name: result.get(name) for name in files}),
        ("Numbers", {name: result.get(name) for name in numbers}),
        ("Settings", settings),
        ("Versions", dict(result.get("versions") or {}) | {"seed": result.get("seed")}),
        ("Seconds", dict(result.get("seconds") or {})),
        ("Warnings", {str(i): text for i, text in enumerate(result.get("warnings") or (), 1)}),
    ]
    return {
        "tables": [
            {"title": title, "rows": [(name, _shown(value)) for name, value in rows.items()]}
            for title, rows in (
                (title, {n: v for n, v in rows.items() if v not in (None, [], {}, "")})
                for title, rows in tables
            )
            if rows
        ],
        "command": command_of(result),
        "again": command_of({**result, "constraints": ANSWERS}),
    }


def command_of(result: Mapping[str, Any]) -> str:
    """The command that repeats a run, from what result.json says about it."""
    settings = dict(result.get("settings") or {})
    words = ["unsplit", "merge", str(result["data"])]
    if result.get("labels") not in (None, "subfolders"):
        words += ["--labels", str(result["labels"])]
    for name in ("batch", "groups", "vectors"):
        if result.get(name) is not None:
            words += [typed(name), str(result[name])]
    words += _columns_and_cells(result)
    words += ["--out", "merged"]
    if isinstance(settings.get("n_clusters"), list | tuple):
        settings["min_clusters"], settings["max_clusters"] = settings.pop("n_clusters")
    for name in NAMES:
        if settings.get(name, DEFAULTS.get(name)) != DEFAULTS.get(name):
            words += [typed(name), str(settings[name])]
    for name in ("must_link", "cannot_link"):
        for link in settings.get(name) or ():
            words += [typed(name), ",".join(map(str, link))]
    if settings.get("augment") is False:
        words.append("--no-augment")
    words.append("--report")
    for name in ("picture", "constraints"):
        if result.get(name) is not None:
            words += [typed(name), str(result[name])]
    if result.get("seed") is not None:
        words += ["--seed", str(result["seed"])]
    return shlex.join(words)


def _columns_and_cells(result: Mapping[str, Any]) -> list[str]:
    """The options that say which columns, or which matrix of cells, were compared."""
    given = dict(result.get("reading") or {})
    only, drop = tuple(given.get("features") or ()), tuple(given.get("drop") or ())
    if not only:  # columns of text that were left out are named, so that nobody is warned again
        drop += tuple(name for name in result.get("left_out") or () if name not in drop)
    named, scale = given.get("id", result.get("id")), bool(given.get("scale"))
    words = as_typed(ColumnChoice(named, only or None, drop, scale))
    for name in ("use_rep", "layer"):
        words += [typed(name), str(given[name])] if name in given else []
    return words + (["--use-raw"] if given.get("use_raw") else [])


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
