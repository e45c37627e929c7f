"""``unsplit verify``: check that a result is complete and unchanged."""

import click

from unsplit.data.saving import verify_folder

EXAMPLE = """\b
Example:
  unsplit verify merged
"""


@click.command(epilog=EXAMPLE, short_help="Check that a result is complete and unchanged.")
@click.argument("folder")
def verify(folder: str) -> None:
    """Check that FOLDER holds the complete and unchanged result of one run.

    Sizes and checksums of all files are compared with manifest.json, which a run writes last.  The
    exit code is 0 if they agree, otherwise 2, with a sentence that names the files.
    """
    files = verify_folder(folder)
    click.echo(f"{folder} is complete and unchanged: {', '.join(files)}")
