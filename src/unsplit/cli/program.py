"""The ``unsplit`` program: all commands, and errors as one sentence."""

import json
import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

import click

from unsplit import __version__
from unsplit.errors import InputError, on_the_command_line
from unsplit.old_names import instead_of

LONGEST_MESSAGE = 4_000  # characters
INTERRUPTED = 130  # the exit code of shells after SIGINT

# Commands and the modules that do what they say, which are loaded only when a command runs: most
# need torch, and that takes seconds.
COMMANDS = {
    "merge": "merge",
    "report": "saved",
    "review": "review",
    "distances": "merge",
    "overcluster": "overcluster",
    "verify": "saved",
    "demo": "demo",
}

EXAMPLES = """\b
Examples:
  unsplit demo --report
  unsplit overcluster cells.csv --out clusters.csv --method k-means
  unsplit merge cells.csv --labels clusters.csv --out merged --report
  unsplit distances cells.csv --labels clusters.csv --out compared
  unsplit merge cells.csv --labels leiden --out merged --report --also scores
  unsplit review merged
  unsplit verify merged

Run `unsplit COMMAND --help` for all options of a command.
"""


class PlainErrors(click.Command):
    """A command whose errors are one sentence on standard error, never a traceback."""

    program = "unsplit"
    as_json = False

    def main(self, *args: Any, **options: Any) -> Any:
        """Run a command.

        The exit code is 0 on success, 2 for invalid input and 130 after Ctrl-C.
        """
        options["standalone_mode"] = False
        # Names of files that are not valid UTF-8 are printed as \\udc…, not as an error.
        if getattr(sys.stdout, "errors", None) == "strict" and hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(errors="backslashreplace")
        arguments = args[0] if args else options.get("args")
        typed = [str(a) for a in (sys.argv[1:] if arguments is None else arguments)]
        self.as_json = "--json" in typed
        options.setdefault("obj", typed)
        try:
            with on_the_command_line():
                super().main(*args, **options)
        except click.NoSuchOption as error:
            self._fail(instead_of(error.option_name) or error.format_message(), error.exit_code)
        except click.ClickException as error:
            self._fail(error.format_message(), error.exit_code)
        except click.Abort:
            self._fail("interrupted", INTERRUPTED)
        except (InputError, ImportError) as error:
            self._fail(str(error))
        except OSError as error:
            where = "" if error.filename is None else f"{error.filename}: "
            self._fail(where + (error.strerror or str(error)).lower())

    def _fail(self, sentence: str, code: int = 2) -> NoReturn:
        if int(os.environ.get("RANK", "0")) and int(os.environ.get("WORLD_SIZE", "1")) > 1:
            sys.exit(code)  # one of several processes says it, not each of them
        # The terminal has written ^C, and the sentence starts its own line.
        from unsplit.data.readers.tables import shortened

        start = "\n" if code == INTERRUPTED and sys.stderr.isatty() else ""
        sentence = shortened(" ".join(sentence.split()), LONGEST_MESSAGE)
        if self.as_json:
            event = {"event": "error", "message": sentence, "exit_code": code}
            click.echo(json.dumps(event), err=True)
        else:
            click.echo(f"{start}{self.program}: {sentence}", err=True)
        sys.exit(code)


class Program(PlainErrors, click.Group):
    """The commands together, with errors as one sentence."""

    def list_commands(self, context: click.Context) -> list[str]:
        """Return the names of the commands."""
        return list(COMMANDS)

    def load(self, typed: list[str]) -> None:
        """Load what the command that was typed needs, if it will run, before anything else."""
        name, *rest = typed or [""]
        if name in COMMANDS and "--help" not in rest:
            # Running the command will say in one sentence what is wrong.
            with suppress(click.ClickException, ImportError):
                _command(name).make_context(name, rest)
                import_module(f"unsplit.cli.{COMMANDS[name]}")

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Return a command, or None if there is none of this name."""
        return _command(name) if name in COMMANDS else None


def _command(name: str) -> click.Command:
    command: click.Command = getattr(import_module("unsplit.cli.commands"), name)
    return command


@click.group(
    cls=Program,
    invoke_without_command=True,
    epilog=EXAMPLES,
)
@click.version_option(__version__, message="unsplit %(version)s")
@click.pass_context
def main(context: click.Context) -> None:
    """Find out which of your clusters are really the same.

    Give Unsplit data that were cut into too many clusters; it compares all pairs of clusters with a
    neural network, merges those that belong together, and says which merges you should check.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


# Not loaded; click names the one that was meant.
main.commands = dict.fromkeys(COMMANDS)  # type: ignore[assignment]
