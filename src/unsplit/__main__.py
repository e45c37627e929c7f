"""``python -m unsplit``: the command line."""

from unsplit.cli import main

if __name__ == "__main__":
    main(prog_name="unsplit")
