"""``unsplit experiment``: one of the paper's experiments."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import click

import unsplit
from unsplit.devices import choose_device
from unsplit.errors import InputError

ROOT = Path(unsplit.__file__).parents[2]

EXAMPLE = """\b
Examples:
  unsplit experiment modelnet40 --quick
  unsplit experiment imagenet-artificial --data ../shared/data --minutes 25
"""


@click.command(epilog=EXAMPLE, short_help="Repeat an experiment of the paper.")
@click.argument("name")
@click.option("--data", type=click.Path(exists=True, path_type=Path), help="Where the data are.")
@click.option("--quick", is_flag=True, help="Small: two minutes at most on a CPU, data made up.")
@click.option(
    "--out", type=click.Path(path_type=Path), help="[default: the experiment's own results]"
)
@click.option("--device", default="auto", show_default=True)
@click.option("--minutes", type=float, default=float("inf"), help="Begin nothing that ends later.")
@click.option(
    "--jobs", type=click.IntRange(min=1), default=1, show_default=True,
    help="Parts at a time: a small network leaves most of a large GPU idle.",
)  # fmt: skip
def experiment(
    name: str,
    data: Path | None,
    quick: bool,
    out: Path | None,
    device: str,
    minutes: float,
    jobs: int,
) -> None:
    """Run experiment NAME: what has its file of numbers already is not run again.

    Every part of it is written as soon as it is there, so an interrupted run goes on where it was;
    then come the figures, and a table in `table.md`.  The quick form leaves its files in
    `quick-NAME`, if not told otherwise.
    """
    core = _module("core")
    chosen = core.load(name)
    folder = out or (Path(f"quick-{name}") if quick else core.folder_of(name) / "results")
    setting = core.Setting(data, str(choose_device(device)), quick)
    for _ in core.work_off(chosen, folder, setting, minutes, click.echo, jobs):
        pass
    results = core.results_in(folder)
    if results:
        text = _module("page").reading(chosen, results)
        (folder / "table.md").write_text(text, "utf-8")
        lines = [text, *map(str, chosen.draw(results, folder))]
        if not quick:
            lines += _module("expectations").surprises(name, results)
        click.echo("\n".join(lines))


def _module(name: str) -> Any:
    """The experiments are not part of the installed package: they come with the source."""
    if not (ROOT / "experiments").is_dir():
        raise InputError(
            "the experiments come with the source; clone the repository and install it with "
            "pip install -e ."
        )
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    return import_module(f"experiments.{name}")
