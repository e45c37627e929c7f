"""Arguments and options that commands share."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from unsplit.networks.registry import RECIPES
from unsplit.pairwise.api import Settings

F = TypeVar("F", bound=Callable[..., Any])


def together(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Several options as one decorator, in the order in which --help lists them."""

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


data = click.argument("data", type=click.Path())

labels = click.option(
    "--labels",
    metavar="FILE|COLUMN",
    help="The over-clustering: a column of DATA or another file. −1 and empty mean noise. "
    "In a folder, subfolders are clusters.",
)

batch = click.option(
    "--batch",
    metavar="FILE|COLUMN",
    help="Donor, run or the like: compare clusters within each batch only.",
)

folder = click.option("--out", required=True, type=click.Path(), help="Folder for the results.")

seed = click.option(
    "--seed",
    type=click.IntRange(min=0),
    metavar="N",
    help="Same seed, same result. Drawn if left out.",
)

as_json = click.option(
    "--json", "as_json", is_flag=True, help="Print the result as JSON and nothing else."
)

estimation = together(
    click.option(
        "--backbone",
        type=click.Choice(["auto", *RECIPES]),
        default=Settings.backbone,
        show_default=True,
        help="The network; auto chooses by the data.",
    ),
    click.option(
        "--select",
        is_flag=True,
        help="Try several networks first and take the one with the best A, within batches if there "
        "are any.",
    ),
    click.option("--no-augment", is_flag=True, help="Train on observations as they are."),
    click.option(
        "--cv",
        type=click.IntRange(min=2),
        metavar="N",
        default=Settings.cv,
        show_default=True,
        help="Folds of cross-fitting.",
    ),
    click.option(
        "--epochs",
        type=click.IntRange(min=1),
        metavar="N",
        default=Settings.epochs,
        show_default=True,
        help="The most epochs; training ends by itself.",
    ),
    click.option(
        "--device", default=Settings.device, show_default=True, help="auto, cpu, cuda or mps."
    ),
)
