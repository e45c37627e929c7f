"""Arguments and options that commands share."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from unsplit.networks.registry import RECIPES
from unsplit.pairwise.api import Settings

F = TypeVar("F", bound=Callable[..., Any])


def together(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Combine several options into one decorator; --help lists them in this order."""

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


data = click.argument("data", type=click.Path())

labels = click.option(
    "--labels",
    metavar="FILE|COLUMN",
    help="The cluster of every row: a column of DATA, or another file. Rows with -1 or an "
    "empty label are noise. Not needed for a folder, where subfolders are clusters.",
)

batch = click.option(
    "--batch",
    metavar="FILE|COLUMN",
    help="Donor, sequencing run or another source of batch effects: clusters are compared within "
    "each batch only.",
)

folder = click.option("--out", required=True, type=click.Path(), help="Folder for the results.")

seed = click.option(
    "--seed",
    type=click.IntRange(min=0),
    metavar="N",
    help="Random seed; the same seed gives the same result. Without it, a random seed is used "
    "and reported.",
)

report = click.option(
    "--report",
    is_flag=True,
    help="Also write report.html: the answer, the tree, the data, and pairs to review.",
)

as_json = click.option(
    "--json", "as_json", is_flag=True, help="Print the result as JSON instead of a summary."
)

estimation = together(
    click.option(
        "--backbone",
        type=click.Choice(["auto", *RECIPES]),
        default=Settings.backbone,
        show_default=True,
        help="The neural network; auto chooses one for the kind of data.",
    ),
    click.option(
        "--select",
        is_flag=True,
        help="Try several networks first and use the one with the highest mean held-out accuracy "
        "(within batches if --batch is given).",
    ),
    click.option("--no-augment", is_flag=True, help="Train without data augmentation."),
    click.option(
        "--cv",
        type=click.IntRange(min=2),
        metavar="N",
        default=Settings.cv,
        show_default=True,
        help="Number of cross-fitting folds.",
    ),
    click.option(
        "--epochs",
        type=click.IntRange(min=1),
        metavar="N",
        default=Settings.epochs,
        show_default=True,
        help="Maximum number of epochs; training usually stops earlier.",
    ),
    click.option(
        "--device",
        default=Settings.device,
        show_default=True,
        help="Where to compute: auto, cpu, cuda or mps.",
    ),
)
