"""Arguments and options that commands share."""

import csv
import io
import os
from collections.abc import Callable
from functools import partial, wraps
from inspect import signature
from typing import Any, TypeVar

import click

from unsplit.cli.reading import Input
from unsplit.data.readers.columns import ColumnChoice
from unsplit.data.readers.shards import shards_of
from unsplit.networks.registry import RECIPES
from unsplit.networks.training.loop import TrainConfig
from unsplit.pairwise.api import Settings

F = TypeVar("F", bound=Callable[..., Any])


def together(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Combine several options into one decorator; --help lists them in this order."""

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def packed(name: str, make: Callable[..., object], *options: Callable[[F], F]) -> Callable[[F], F]:
    """Combine several options, and pass their values to the command as one object.

    Parameters
    ----------
    name : str
        The parameter of the command that receives the object.
    make : callable
        Makes the object from the values of the options; its parameters are named as they are.
    *options
        The options; those that ``make`` does not take reach the command as usual.

    Examples
    --------
    >>> box = packed("box", lambda wide, high: (wide, high), click.option("--wide"))
    >>> box(lambda box, colour: f"{colour} {box}")(wide=2, high=1, colour="red")
    'red (2, 1)'
    """
    taken = list(signature(make).parameters)

    def decorate(command: F) -> F:
        @wraps(command)
        def with_object(**given: Any) -> Any:
            made = make(**{option: given.pop(option) for option in taken})
            return command(**{name: made}, **given)

        return together(*options)(with_object)  # type: ignore[arg-type]

    return decorate


def one_source(context: Any, parameter: Any, given: tuple[str, ...]) -> str:
    """Take one file or folder, or several .tar files as one; a callback for click.

    Examples
    --------
    >>> one_source(None, None, ("cells.csv",)), one_source(None, None, ("a.tar", "b.tar"))
    ('cells.csv', '{a.tar,b.tar}')
    """
    if len(given) == 1:
        return given[0]
    if not all(name.lower().endswith(".tar") and "," not in name for name in given):
        raise click.UsageError(
            f"got {len(given)} files; pass one file or folder, or only .tar files of images."
        )
    folder = os.path.dirname(given[0])
    if folder and sorted(given) == [str(shard) for shard in shards_of(folder)]:
        return folder
    return f"{{{','.join(given)}}}"


data = click.argument(
    "data", type=click.Path(), nargs=-1, required=True, metavar="DATA", callback=one_source
)

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

groups = click.option(
    "--groups",
    metavar="FILE|COLUMN",
    help="Track, session, donor or document, if the rows of one resemble each other: whole groups "
    "are held out, and errors and tests count groups.",
)

vectors = click.option(
    "--vectors",
    type=click.Path(),
    metavar="FILE",
    help="Compare these vectors (.npy, .npz or a table, one row per observation) instead of DATA, "
    "which then only names and shows the observations; unsplit.features makes them from images.",
)


def names(context: Any, parameter: Any, given: tuple[str, ...]) -> tuple[str, ...]:
    """Split names of columns at the commas, as in a .csv file; a callback for click.

    Examples
    --------
    >>> names(None, None, ("depth, area", '"a,b"'))
    ('depth', 'area', 'a,b')
    """
    found = [name.strip() for line in csv.reader(given, skipinitialspace=True) for name in line]
    if "" in found or len(given) > len(found):
        raise click.BadParameter(
            f"must be names of columns with commas between them, such as a,b, got {given[0]!r}."
        )
    return tuple(found)


listed = partial(click.option, multiple=True, callback=names)


def column_choice(
    id: str | None, features: tuple[str, ...], drop: tuple[str, ...], scale: bool
) -> ColumnChoice:
    """The columns that were named; no features mean all columns of numbers."""
    return ColumnChoice(id, features or None, drop, scale)


columns = packed(
    "columns",
    column_choice,
    click.option(
        "--id",
        metavar="COLUMN",
        help="The column of a table that names the rows: the id in labels.csv, never a feature.",
    ),
    listed("--features", metavar="A,B,…", help="Use only these columns of a table as features."),
    listed("--drop", metavar="A,B,…", help="Do not use these columns of a table as features."),
    click.option(
        "--scale",
        is_flag=True,
        help="Divide the features of a table by their standard deviations, because columns in "
        "different units cannot be compared by distances.",
    ),
)


def as_typed(choice: ColumnChoice) -> list[str]:
    """Write a choice of columns as options.

    Examples
    --------
    >>> as_typed(ColumnChoice("cell", drop=("age", "a,b")))
    ['--id', 'cell', '--drop', 'age,"a,b"']
    """
    typed = [] if choice.id is None else ["--id", choice.id]
    for option, given in (("--features", choice.features), ("--drop", choice.drop)):
        if given:
            line = io.StringIO()
            csv.writer(line, lineterminator="").writerow(given)
            typed += [option, line.getvalue()]
    return [*typed, "--scale"] if choice.scale else typed


cells = together(
    click.option(
        "--use-rep",
        metavar="KEY",
        help="For .h5ad: compare cells by this representation in obsm, or X.  [default: X_pca if "
        "there is one, otherwise X]",
    ),
    click.option(
        "--layer", metavar="NAME", help="For .h5ad: compare cells by the raw counts in this layer."
    ),
    click.option(
        "--use-raw", is_flag=True, help="For .h5ad: compare cells by the raw counts in raw."
    ),
)

source = packed("source", Input, data, labels, batch, groups, vectors, columns, cells)

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

as_json = together(
    click.option(
        "--json",
        "as_json",
        is_flag=True,
        help="Print the result as JSON instead of a summary, and what happens until then as one "
        "JSON object per line on standard error.",
    ),
    click.option(
        "--progress/--no-progress",
        default=None,
        help="Show progress, or do not.  [default: only in a terminal]",
    ),
)

checkpoint = click.option(
    "--checkpoint",
    type=click.Path(),
    metavar="FOLDER",
    help="Where a run of more than half a minute keeps what it has done; if it is interrupted, the "
    "same command continues from there.  [default: OUT.checkpoint, beside --out]",
)

keep_scores = click.option(
    "--keep-scores",
    is_flag=True,
    help="Also write distances.scores.npz, a large file with the scores of all held-out "
    "observations. Python needs it to merge distances.npz again with other options.",
)


class Folds(click.IntRange):
    """A number of folds, or the word auto."""

    def __init__(self) -> None:
        super().__init__(min=2)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Leave the word as it is."""
        return value if value == "auto" else super().convert(value, param, ctx)


def settings_from(
    backbone: str, no_augment: bool, cv: int | str, epochs: int, device: str
) -> Settings:
    """The settings of an estimate."""
    augment = False if no_augment else "auto"
    return Settings(backbone, cv, device, TrainConfig(epochs=epochs, augment=augment))


estimation = packed(
    "settings",
    settings_from,
    click.option(
        "--backbone",
        type=click.Choice(["auto", *RECIPES]),
        default=Settings.backbone,
        show_default=True,
        help="The neural network, or for vectors a classifier: trees, lda, logistic-regression. "
        "auto chooses a network for the kind of data; best compares several by their mean held-out "
        "accuracy (vectors only).",
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
        type=Folds(),
        metavar="N",
        default=Settings.cv,
        show_default=True,
        help="Number of cross-fitting folds; auto holds out large clusters once.",
    ),
    click.option(
        "--epochs",
        type=click.IntRange(min=1),
        metavar="N",
        default=TrainConfig.epochs,
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
