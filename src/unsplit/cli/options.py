"""Options that commands share, as values, and how --help groups them."""

import csv
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Self

import click

from unsplit.errors import shown

TYPE_CHECKING = False  # these take seconds to load, and --help needs neither
if TYPE_CHECKING:
    from unsplit.data.readers.observations import Observations

Decorator = Callable[[Any], Any]

# Names of networks and classifiers.
BACKBONES = (
    "auto", "mlp", "bag-of-words", "resnet18", "convnet", "pointnet++", "pointnet", "resnet1d",
    "logmel", "single-layer", "trees", "lda", "logistic-regression", "best",
)  # fmt: skip

# Not a network: several are tried, and the most accurate one is used.
SELECT = "select"


@dataclass(frozen=True)
class Input:
    """What a command reads, by the names of its options; files and columns are named, not read.

    Examples
    --------
    >>> Input("cells.csv", "leiden", drop=("age",)).described()
    {'data': 'cells.csv', 'labels': 'leiden', 'drop': ('age',)}
    """

    data: str
    labels: str | None = None
    batch: str | None = None
    groups: str | None = None
    vectors: str | None = None
    id: str | None = None
    features: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    scale: bool = False
    encode: tuple[str, ...] = ()
    missing: str | None = None
    use_rep: str | None = None

    @classmethod
    def taken_from(cls, options: dict[str, Any]) -> Self:
        """Take those values out of the options of a command that are fields of this."""
        return cls(**{f.name: options.pop(f.name) for f in fields(cls) if f.name in options})

    @property
    def named(self) -> list[str | None]:
        """Files, or columns of the data, that are read as well."""
        return [self.labels, self.batch, self.groups, self.vectors]

    @property
    def clusters(self) -> str:
        """Where the clusters are from."""
        return self.labels or "subfolders"

    def read(self, progress: Callable[[int, int], None]) -> "Observations":
        """Read everything but the vectors."""
        from unsplit.data.readers.api import read

        given = {f.name: getattr(self, f.name) for f in fields(Input)[1:] if f.name != "vectors"}
        return read(self.data, **given | {"features": self.features or None}, progress=progress)

    def described(self) -> dict[str, Any]:
        """What result.json says about it: the options that were used."""
        given = {field.name: getattr(self, field.name) for field in fields(Input)}
        return {name: value for name, value in given.items() if value} | {"labels": self.clusters}


@dataclass(frozen=True)
class Run(Input):
    """What ``merge`` and ``distances`` have in common, by the names of their options."""

    out: str = ""
    backbone: str = "auto"
    cv: int | float | str = "auto"
    epochs: int | None = None
    device: str = "auto"
    seed: int | None = None
    as_json: bool = False
    progress: bool | None = None

    @property
    def selects(self) -> bool:
        """Whether several networks are tried first."""
        return self.backbone == SELECT

    @property
    def network(self) -> dict[str, Any]:
        """The options of an estimate, as in Python."""
        from unsplit.networks.training.loop import TrainConfig

        training = None if self.epochs is None else TrainConfig(epochs=self.epochs)
        backbone = "auto" if self.selects else self.backbone
        return {"backbone": backbone, "cv": self.cv, "training": training, "device": self.device}


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


# --- what is typed, as values ---------------------------------------------------------------------


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
    found = [list(names(context, parameter, (text,))) for text in given]
    for text, clusters in zip(given, found, strict=True):
        if len(clusters) < 2:
            raise click.BadParameter(
                f"must name at least two clusters with a comma between them, such as A,B, "
                f"got {text!r}."
            )
    return found


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
    number = float(click.FLOAT(given, parameter, context))
    return int(number) if number.is_integer() else number


# --- data -----------------------------------------------------------------------------------------

data = click.argument("data", type=click.Path())

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
    listed("--encode", help="Use these columns of categories, each as columns of 0 and 1."),
    click.option(
        "--missing",
        type=click.Choice(["drop", "median"]),
        help="What to do with missing values of a table: drop the rows that have any, or fill in "
        "the median of the column. By default they are an error.",
    ),
    click.option(
        "--scale",
        is_flag=True,
        help="Divide the features of a table by their standard deviations, because columns in "
        "different units cannot be compared by distances.",
    ),
)

source = under(
    "Data",
    data,
    click.option(
        "-l",
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
)


def typed_columns(source: Input) -> list[str]:
    """The options that choose columns, as they are typed.

    Examples
    --------
    >>> typed_columns(Input("cells.csv", id="cell", drop=("age", "a,b")))
    ['--id', 'cell', '--drop', 'age,"a,b"']
    """
    words = [] if source.id is None else ["--id", source.id]
    for option in ("features", "drop", "encode"):
        if given := getattr(source, option):
            quoted = [f'"{name}"' if "," in name else name for name in given]
            words += [f"--{option}", ",".join(quoted)]
    words += [] if source.missing is None else ["--missing", source.missing]
    return [*words, "--scale"] if source.scale else words


# --- network --------------------------------------------------------------------------------------


seed = click.option(
    "--seed",
    type=click.IntRange(min=0),
    metavar="N",
    help="Random seed; the same seed gives the same result. Without it, a random seed is used "
    "and reported.",
)


network = under(
    "Network",
    click.option(
        "--backbone",
        type=click.Choice([*BACKBONES, SELECT]),
        metavar="NAME",
        default="auto",
        show_default=True,
        help="The neural network, or for vectors a classifier: trees, lda, "
        "logistic-regression. auto chooses a network for the kind of data, a small one on a CPU "
        "(images: convnet, point clouds: pointnet, sound as vectors: mlp); best compares "
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
    click.option(
        "--device",
        default="auto",
        show_default=True,
        help="Where to compute: auto, cpu, cuda or mps.",
    ),
    seed,
)


# --- output ---------------------------------------------------------------------------------------

folder = click.option(
    "-o", "--out", required=True, type=click.Path(), help="Folder for the results."
)

report = click.option(
    "--report",
    is_flag=True,
    help="Also write report.html: the answer, the tree, the data, and pairs to review.",
)


def also(*known: str, help: str) -> Decorator:
    """The option that asks for more files, by these words with commas between them."""

    def check(context: Any, parameter: Any, given: tuple[str, ...]) -> tuple[str, ...]:
        word = click.Choice(known)
        typed = names(context, parameter, given)
        return tuple(word.convert(name, parameter, context) for name in typed)

    return click.option("--also", multiple=True, callback=check, metavar="A,B", help=help)


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
