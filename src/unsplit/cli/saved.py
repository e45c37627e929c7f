"""``unsplit report`` and ``unsplit verify``: what is done with a result that was saved earlier."""

import os
from dataclasses import replace
from pathlib import Path

import click

from unsplit.data.saving import added_file, verify_folder


@click.command(
    epilog="\b\nExample:\n  unsplit verify merged\n",
    short_help="Check that a result is complete and unchanged.",
)
@click.argument("folder")
def verify(folder: str) -> None:
    """Check that FOLDER holds the complete and unchanged result of one run.

    Sizes and checksums of all files are compared with manifest.json, which a run writes last.  The
    exit code is 0 if they agree, otherwise 2, with a sentence that names the files.
    """
    files = verify_folder(folder)
    click.echo(f"{folder} is complete and unchanged: {', '.join(files)}")


@click.command(
    epilog="\b\nExample:\n  unsplit report merged\n",
    short_help="Make the page of a saved result.",
)
@click.argument("folder", type=click.Path())
def report(folder: str) -> None:
    """Make the page report.html of FOLDER, the result of an earlier `unsplit merge`.

    The folder is verified first. The page has a picture of the data and exemplars if that merge was
    run with --report; otherwise it has the answer, the tree, all distances and the pairs to review.
    """
    # Imported here, because verify needs none of it.
    from unsplit.cli.console import Console
    from unsplit.cli.outputs import about_run
    from unsplit.data.readers.broken import reading
    from unsplit.report.api import PAGE, content_of_folder, files_of_result, make_page

    files_of_result(folder)  # before anything is created where no result is
    with Console(progress=False).show_warnings(), added_file(folder, PAGE) as new:
        with reading(Path(folder)):
            content, result = content_of_folder(folder)
            content = replace(content, about=about_run(result))
        make_page(content).save(new)
    if not len(content.kept.picture_xy):
        click.echo(
            "The page has no picture of the data, because the result was saved without one; run "
            "unsplit merge with --report to get it."
        )
    click.echo(f"Open {os.path.join(folder, PAGE)} in a browser.")
