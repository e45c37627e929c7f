"""What can be typed after ``unsplit``; what does it is loaded when a command runs."""

from functools import partial, wraps
from importlib import import_module
from typing import Any

import click

from unsplit.cli import options
from unsplit.cli.program import COMMANDS
from unsplit.cli.saved import report, verify

__all__ = ["demo", "distances", "merge", "overcluster", "report", "review", "verify"]


def loaded_late(command: Any) -> Any:
    """Let the function of the same name in the module of a command do what the command says.

    It is loaded then: most need torch, and neither --help nor a typing error should wait for it.
    """
    name = command.__name__

    @wraps(command)
    def run(**typed: Any) -> None:
        getattr(import_module(f"unsplit.cli.{COMMANDS[name]}"), name)(**typed)

    return run


share = click.FloatRange(0, 1)
linked = partial(click.option, multiple=True, callback=options.pairs, metavar="A,B")


# --- merge ----------------------------------------------------------------------------------------

when_to_stop = options.under(
    "When to stop",
    click.option(
        "--n-clusters",
        metavar="N|N-M",
        callback=options.number_or_range,
        help="Stop at exactly N clusters, or keep from N to M clusters (also N- or -M).",
    ),
    click.option(
        "--max-tvd",
        type=share,
        metavar="T",
        help="Merge pairs with a total variation distance (TVD) of at most T, 0 to 1.",
    ),
    click.option(
        "--alpha",
        type=share,
        metavar="A",
        help="Merge pairs that do not differ significantly at level A, 0 to 1.",
    ),
    click.option(
        "--labels-from",
        type=click.Choice(["auto", "clustering", "elsewhere"]),
        default="auto",
        show_default=True,
        help="Whether the labels were computed from the data; if not, tests decide.",
    ),
)

knowledge = options.under(
    "Your knowledge",
    linked("--must-link", help="Always merge clusters A and B; may be repeated."),
    linked("--cannot-link", help="Never merge clusters A and B; may be repeated."),
    click.option(
        "--constraints",
        type=click.Path(),
        metavar="FILE",
        help="Answers that the page of an earlier result exported (JSON).",
    ),
)

metric = options.under(
    "Network",
    click.option(
        "--metric",
        type=click.Choice(["euclidean", "cosine"]),
        default="euclidean",
        show_default=True,
        help="How far apart neighbours are; cosine suits embeddings of texts and images.",
    ),
)

what_to_write = options.under(
    "Output",
    options.folder,
    options.report,
    options.also(
        "figures",
        "h5ad",
        "scores",
        help="More files: figures (the dendrogram, the distances and the merge curve), h5ad "
        "(merged.h5ad, a copy of an .h5ad file with the merged clusters in obs['unsplit'] and "
        "the tree in uns['unsplit']), scores (distances.scores.npz and neighbours.npz, large files "
        "that `unsplit review` and Python need to merge again).",
    ),
    click.option(
        "--picture",
        type=click.Path(),
        metavar="FILE",
        help="Where the page draws the rows of DATA: a file with two coordinates of each, as "
        "UMAP makes them.",
    ),
)


@click.command(
    cls=options.Grouped,
    epilog="\b\nExamples:\n"
    "  unsplit merge cells.csv --labels leiden --out merged --report\n"
    "  unsplit merge photos/ --out merged\n"
    "  unsplit merge cells.h5ad --labels leiden --out merged --also h5ad\n"
    "  unsplit merge photos/ --vectors embedding.npy --out merged\n",
    short_help="Merge clusters that belong together.",
)
@options.source
@when_to_stop
@knowledge
@options.network
@metric
@what_to_write
@options.as_json
@loaded_late
def merge() -> None:
    """Merge the clusters of DATA that belong together.

    DATA is a table with one row per observation (.csv, .tsv, .xlsx, .parquet, .arrow,
    .feather, .npy, .npz, also SciPy sparse), cells (.h5ad, where --labels is a column of obs), a
    folder of images, sounds, meshes or point clouds with one subfolder per cluster, or .tar files
    of images as WebDataset writes them. In a table every column of numbers is a feature, except
    those named by --labels, --batch, --id and --drop.

    The command writes labels.csv (old and new cluster of every row), review.csv (which pairs to
    check, unclear ones first), merges.csv (every merge and the reason), result.json (settings,
    versions, seed, numbers), distances.npz, tree.npz, linkage.npy and manifest.json (checksums).
    With --report it also writes report.html, the page to look at.
    """


# --- distances ------------------------------------------------------------------------------------


@click.command(
    cls=options.Grouped,
    epilog="\b\nExample:\n  unsplit distances cells.csv --labels leiden --out compared\n",
    short_help="Compare all pairs of clusters, without merging.",
)
@options.source
@options.network
@options.under(
    "Output",
    options.folder,
    options.also(
        "scores",
        "matrix",
        help="More files: scores (distances.scores.npz, a large file that Python needs to merge "
        "distances.npz), matrix (tvd.npy, the distances of all pairs as a (k, k) matrix, written "
        "block by block).",
    ),
)
@options.as_json
@loaded_late
def distances() -> None:
    """Compare all pairs of clusters in DATA, without merging any.

    The command writes pairs.csv (the total variation distance of every pair, which is at least
    "low", with its interval and p-value, closest pair first), distances.npz (read it with
    unsplit.PairwiseTVD.load), distances.json (settings, versions, seed) and manifest.json
    (checksums).
    """


# --- overcluster ----------------------------------------------------------------------------------

# Not the docstring: there \b would be two characters, and click would join the lines.
HELP = """Cut DATA into many small clusters.

\b
k-means  puts every observation into a cluster
greedy   finds the densest groups of a given size; the rest is noise
"""
EXAMPLE = """\b
Example:
  unsplit overcluster cells.csv --out clusters.csv --method greedy --n-clusters 200 --size 25
"""


@click.command(help=HELP, epilog=EXAMPLE, short_help="Cut data into many small clusters.")
@click.option(
    "-o",
    "--out",
    required=True,
    type=click.Path(),
    help="Table to write, with the id and cluster of every row (.csv).",
)
@click.option(
    "--method",
    type=click.Choice(["k-means", "greedy"]),
    help="How to make the clusters; see above.  [default: greedy with --size, otherwise k-means]",
)
@click.option(
    "--n-clusters",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of clusters; k-means uses the square root of the number of rows if left out.",
)
@click.option(
    "--size",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of observations in each cluster.",
)
@options.data
@options.columns
@options.seed
@options.as_json
@loaded_late
def overcluster() -> None:
    """Cut DATA into many small clusters."""


# --- demo -----------------------------------------------------------------------------------------


@click.command(
    epilog="\b\nExample:\n  unsplit demo --out demo-output --report\n",
    short_help="Try Unsplit on handwritten digits.",
)
@click.option(
    "--out",
    default="demo-output",
    show_default=True,
    type=click.Path(),
    help="Folder for the results.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    metavar="N",
    default=0,
    show_default=True,
    help="Random seed; the same seed gives the same result.",
)
@options.report
@loaded_late
def demo() -> None:
    """Merge 40 clusters of handwritten digits and compare the result with the true digits.

    The digits come with scikit-learn, and the demo takes about half a minute. It writes the same
    files as `unsplit merge`, and digits.csv so that you can run `unsplit merge` yourself.
    """


# --- review ---------------------------------------------------------------------------------------


@click.command(
    epilog="\b\nExample:\n"
    "  unsplit merge cells.csv --labels leiden --out merged --report --also scores\n"
    "  unsplit review merged\n",
    short_help="Review pairs on a page that merges again at once.",
)
@click.argument("folder", type=click.Path())
@click.option("--port", type=click.IntRange(0, 65_535), default=0, help="Of the address; or any.")
@click.option("--open", "opens", is_flag=True, help="Open the page in a browser.")
@loaded_late
def review() -> None:
    """Show the page of FOLDER, the result of an earlier `unsplit merge`, and merge again with every
    answer at once.

    Nothing is trained: that merge must have been run with --report --also scores. Answers are saved
    in FOLDER as unsplit-review.json; nothing else is changed. Only programs on this computer that
    know the address, which has a random part, can see the page. Ctrl-C ends the review.
    """
