"""The command line: ``berth``. One module a group of commands; results go to stdout, talk goes to stderr."""

from berth.cli.app import main

__all__ = ["main"]
