"""Repeat an experiment of the paper: ``python -m experiments NAME``."""

from pathlib import Path

import click

from experiments import core, expectations, page
from unsplit.cli.program import PlainErrors
from unsplit.devices import choose_device

EXAMPLE = """\b
Examples:
  python -m experiments modelnet40 --quick
  python -m experiments imagenet-artificial --data ../shared/data --minutes 25
"""


class Command(PlainErrors):
    """The program, whose errors are one sentence."""

    program = "experiments"


@click.command(cls=Command, epilog=EXAMPLE)
@click.argument("name")
@click.option("--data", type=click.Path(exists=True, path_type=Path), help="Where the data are.")
@click.option(
    "--quick", is_flag=True, help="Run a small version on simulated data: two minutes on a CPU."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder for the results.  [default: the experiment's own results]",
)
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or mps.")
@click.option(
    "--minutes",
    type=float,
    default=float("inf"),
    help="Start no part that would end after this many minutes.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Run this many parts at the same time; a small network leaves most of a GPU idle.",
)
def main(
    name: str,
    data: Path | None,
    quick: bool,
    out: Path | None,
    device: str,
    minutes: float,
    jobs: int,
) -> None:
    """Repeat experiment NAME of the paper.

    Every part of the experiment is saved as soon as it is finished, and parts that are saved are
    not run again, so an interrupted run continues where it stopped.  At the end the figures are
    drawn and a table is written to `table.md`.  With --quick the files go to `quick-NAME` unless
    --out names another folder.
    """
    chosen = core.load(name)
    folder = out or (Path(f"quick-{name}") if quick else core.folder_of(name) / "results")
    setting = core.Setting(data, str(choose_device(device)), quick)
    for _ in core.work_off(chosen, folder, setting, minutes, click.echo, jobs):
        pass
    results = core.results_in(folder)
    if results:
        text = page.reading(chosen, results)
        (folder / "table.md").write_text(text, "utf-8")
        lines = [text, *map(str, chosen.draw(results, folder))]
        if not quick:
            lines += expectations.surprises(name, results)
        click.echo("\n".join(lines))


if __name__ == "__main__":
    main(prog_name="python -m experiments")
