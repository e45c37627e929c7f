"""Options that commands share, and how --help groups them."""

import csv
import io
import os
import re
from collections.abc import Callable
from functools import partial, wraps
from inspect import signature
from typing import Any

import click

from unsplit.cli.reading import Input
from unsplit.data.readers.shards import shards_of
from unsplit.errors import shown
from unsplit.networks.registry import RECIPES
from unsplit.networks.training.loop import TrainConfig

Decorator = Callable[[Any], Any]

# Not a network: several are tried, and the most accurate one is used.
SELECT = "select"


class Grouped(click.Command):
    """A command whose --help lists options under headings."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of each heading; those without one come last."""
        found: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if isinstance(parameter, click.Option) and record is not None:
                found.setdefault(getattr(parameter, "heading", "Help"), []).append(record)
        for heading, records in found.items():
            with formatter.section(heading):
                formatter.write_dl(records)


def under(heading: str, *options: Decorator) -> Decorator:
    """Combine options into one decorator; --help lists them in this order under a heading."""

    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
            for parameter in command.__click_params__:
                parameter.heading = getattr(parameter, "heading", heading)
        return command

    return decorate


def packed(name: str, make: Callable[..., object], options: Decorator) -> Decorator:
    """Pass the values of options to the command as one object, made by ``make``.

    Options that ``make`` does not take reach the command as usual.

    Examples
    --------
    >>> box = packed("box", lambda wide, high=3: (wide, high), click.option("--wide"))
    >>> box(lambda box, colour: f"{colour} {box}")(wide=2, colour="red")
    'red (2, 3)'
    """
    taken = list(signature(make).parameters)

    def decorate(command: Any) -> Any:
        @wraps(command)
        def with_object(**given: Any) -> Any:
            made = make(**{option: given.pop(option) for option in taken if option in given})
            return command(**{name: made}, **given)

        return options(with_object)

    return decorate


# --- what is typed, as values ---------------------------------------------------------------------


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


def names(context: Any, parameter: Any, given: tuple[str, ...]) -> tuple[str, ...]:
    """Split names at the commas, as in a .csv file; a callback for click.

    Examples
    --------
    >>> names(None, None, ("depth, area", '"a,b"'))
    ('depth', 'area', 'a,b')
    """
    try:
        found = [name.strip() for line in csv.reader(given, skipinitialspace=True) for name in line]
    except csv.Error:  # such as a line break
        found = []
    if "" in found or len(given) > len(found):
        raise click.BadParameter(
            f"must be names with commas between them, such as a,b, got {shown(given[0])}."
        )
    return tuple(found)


def pairs(context: Any, parameter: Any, given: tuple[str, ...]) -> list[list[str]]:
    """Split names of clusters at the commas; a callback for click.

    Examples
    --------
    >>> pairs(None, None, ("3,7", "B cell, T cell"))
    [['3', '7'], ['B cell', 'T cell']]
    """
    found = [[name.strip() for name in text.split(",")] for text in given]
    for text, clusters in zip(given, found, strict=True):
        if len(clusters) < 2 or "" in clusters:
            raise click.BadParameter(
                f"must name at least two clusters with a comma between them, such as A,B, "
                f"got {text!r}."
            )
    return found


def some_of(*known: str) -> Callable[[Any, Any, tuple[str, ...]], tuple[str, ...]]:
    """A callback for click that splits at the commas, and refuses other words than these."""

    def check(context: Any, parameter: Any, given: tuple[str, ...]) -> tuple[str, ...]:
        found = names(context, parameter, given)
        others = [word for word in found if word not in known]
        if others:
            raise click.BadParameter(f"{others[0]!r} is not one of {', '.join(known)}.")
        return found

    return check


def number_or_range(
    context: Any, parameter: Any, given: str | None
) -> int | tuple[int | None, int | None] | None:
    """A number, or the fewest and the most; a callback for click.

    Examples
    --------
    >>> [number_or_range(None, None, text) for text in ("12", "8-20", "8-", "-20")]
    [12, (8, 20), (8, None), (None, 20)]
    """
    if given is None:
        return None
    found = re.fullmatch(r"(\d+)|(?=.*\d)(\d*)-(\d*)", given.strip())
    if found is None:
        raise click.BadParameter(f"must be a number, or a range such as 8-20, got {given!r}.")
    if found[1]:
        return int(found[1])
    fewest, most = (int(text) if text else None for text in (found[2], found[3]))
    return fewest, most


def folds(context: Any, parameter: Any, given: str) -> int | float | str:
    """A number of folds, a share, or the word auto; a callback for click.

    Examples
    --------
    >>> [folds(None, None, text) for text in ("auto", "5", "0.2")]
    ['auto', 5, 0.2]
    """
    if given == "auto":
        return given
    try:
        return int(given) if given.isdecimal() else float(given)
    except ValueError:
        raise click.BadParameter(
            f"must be auto, a number of folds or a share to hold out, got {given!r}."
        ) from None


# --- data -----------------------------------------------------------------------------------------

data = click.argument(
    "data", type=click.Path(), nargs=-1, required=True, metavar="DATA", callback=one_source
)

listed = partial(click.option, multiple=True, callback=names, metavar="A,B,…")

columns = under(
    "Data",
    click.option(
        "--id",
        metavar="COLUMN",
        help="The column of a table that names the rows: the id in labels.csv, never a feature.",
    ),
    listed("--features", help="Use only these columns of a table as features."),
    listed("--drop", help="Do not use these columns of a table as features."),
    click.option(
        "--scale",
        is_flag=True,
        help="Divide the features of a table by their standard deviations, because columns in "
        "different units cannot be compared by distances.",
    ),
)

source = packed(
    "source",
    Input,
    under(
        "Data",
        data,
        click.option(
            "--labels",
            metavar="FILE|COLUMN",
            help="The cluster of every row: a column of DATA, or another file. Rows with -1 or an "
            "empty label are noise. Not needed for a folder, where subfolders are clusters.",
        ),
        click.option(
            "--batch",
            metavar="FILE|COLUMN",
            help="Donor, sequencing run or another source of batch effects: clusters are compared "
            "within each batch only.",
        ),
        click.option(
            "--groups",
            metavar="FILE|COLUMN",
            help="Track, session, donor or document, if the rows of one resemble each other: whole "
            "groups are held out, and errors and tests count groups.",
        ),
        click.option(
            "--vectors",
            type=click.Path(),
            metavar="FILE",
            help="Compare these vectors (.npy, .npz or a table, one row per observation) instead "
            "of DATA, which then only names and shows the observations; unsplit.features makes "
            "them from images.",
        ),
        columns,
        click.option(
            "--use-rep",
            metavar="KEY",
            help="For .h5ad: compare cells by this representation in obsm, or X, or by the raw "
            "counts in raw or layers/NAME.  [default: X_pca if there is one, otherwise X]",
        ),
    ),
)


def typed_columns(source: Input) -> list[str]:
    """The options that choose columns, as they are typed.

    Examples
    --------
    >>> typed_columns(Input("cells.csv", id="cell", drop=("age", "a,b")))
    ['--id', 'cell', '--drop', 'age,"a,b"']
    """
    words = [] if source.id is None else ["--id", source.id]
    for option, given in (("--features", source.features), ("--drop", source.drop)):
        if given:
            line = io.StringIO()
            csv.writer(line, lineterminator="").writerow(given)
            words += [option, line.getvalue()]
    return [*words, "--scale"] if source.scale else words


# --- network --------------------------------------------------------------------------------------


def network_settings(
    backbone: str, cv: int | float | str, epochs: int | None, device: str
) -> dict[str, Any]:
    """The options of an estimate, as in Python."""
    training = None if epochs is None else TrainConfig(epochs=epochs)
    return {"backbone": backbone, "cv": cv, "training": training, "device": device}


seed = click.option(
    "--seed",
    type=click.IntRange(min=0),
    metavar="N",
    help="Random seed; the same seed gives the same result. Without it, a random seed is used "
    "and reported.",
)


def network(*others: Decorator) -> Decorator:
    """The options of an estimate, and others about it."""
    return packed(
        "network",
        network_settings,
        under(
            "Network",
            click.option(
                "--backbone",
                type=click.Choice(["auto", *RECIPES, SELECT]),
                metavar="NAME",
                default="auto",
                show_default=True,
                help="The neural network, or for vectors a classifier: trees, lda, "
                "logistic-regression. auto chooses a network for the kind of data; best compares "
                "several by their mean held-out accuracy (vectors only); select tries several "
                "networks and ways of training first, and uses the most accurate one.",
            ),
            click.option(
                "--cv",
                metavar="N|SHARE",
                default="auto",
                show_default=True,
                callback=folds,
                help="Number of cross-fitting folds, or a share to hold out once, such as 0.2; "
                "auto holds out large clusters once.",
            ),
            click.option(
                "--epochs",
                type=click.IntRange(min=1),
                metavar="N",
                help="Maximum number of epochs; training usually stops earlier.",
            ),
            *others,
            click.option(
                "--device",
                default="auto",
                show_default=True,
                help="Where to compute: auto, cpu, cuda or mps.",
            ),
            seed,
        ),
    )


# --- output ---------------------------------------------------------------------------------------

folder = click.option("--out", required=True, type=click.Path(), help="Folder for the results.")

report = click.option(
    "--report",
    is_flag=True,
    help="Also write report.html: the answer, the tree, the data, and pairs to review.",
)


def also(*known: str, help: str) -> Decorator:
    """The option that asks for more files, by these words."""
    return click.option("--also", multiple=True, callback=some_of(*known), metavar="A,B", help=help)


as_json = under(
    "Output",
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
