"""Arguments and options that commands share."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from unsplit.estimation import Settings

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
    required=True,
    metavar="FILE|COLUMN",
    help="The over-clustering: a column of DATA or another file. −1 and empty mean noise.",
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
