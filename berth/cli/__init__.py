"""Command line ``berth``: one module per group of commands; results go to stdout, all other messages to stderr."""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line of this process; Ctrl-C ends it without a traceback also while modules are imported."""
    try:
        from berth.cli.app import command  # noqa: PLC0415  # takes the time in which Ctrl-C is likely

        code = command()
    except KeyboardInterrupt:
        code = 130  # as berth.cli.output.INTERRUPTED, which may not be imported yet
    sys.exit(code)
