"""``unsplit report``: the page of a result that was saved earlier."""

import os
from dataclasses import replace

import click

from unsplit.cli.about import about_run
from unsplit.cli.outputs import refuse_replacing, require_name
from unsplit.cli.progress import Console
from unsplit.data.saving import added_file, earlier_results
from unsplit.report.api import PAGE, Content, content_of_folder, files_of_result, make_page

EXAMPLE = """\b
Example:
  unsplit report merged
"""


@click.command(epilog=EXAMPLE, short_help="Make the page of a saved result.")
@click.argument("folder", type=click.Path())
@click.option(
    "--out",
    type=click.Path(),
    metavar="FILE",
    help="Where to write the page.  [default: report.html in FOLDER]",
)
def report(folder: str, out: str | None) -> None:
    """Make the page of FOLDER, the result of an earlier `unsplit merge`.

    The folder is verified first. The page has a picture of the data and exemplars if that merge was
    run with --report; otherwise it has the answer, the tree, all distances and the pairs to review.
    """
    if out is not None:
        require_name(out)
        own = [os.path.join(folder, name) for name in earlier_results(folder) if name != PAGE]
        for name in own:
            refuse_replacing(name, [out])
    files_of_result(folder)  # before anything is created where no result is
    if out is None:
        out = os.path.join(folder, PAGE)
        with Console(progress=False).show_warnings(), added_file(folder, PAGE) as new:
            content = _write_page(folder, new)
    else:
        content = _write_page(folder, out)
    if not len(content.kept.picture_xy):
        click.echo(
            "The page has no picture of the data, because the result was saved without one; run "
            "unsplit merge with --report to get it."
        )
    click.echo(f"Open {out} in a browser.")


def _write_page(folder: str, path: str | os.PathLike[str]) -> Content:
    """Write the page of a result, and return what it shows."""
    content, result = content_of_folder(folder)
    make_page(replace(content, about=about_run(result))).save(path)
    return content
