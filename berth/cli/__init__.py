"""Command line ``berth``: one module per group of commands; results go to stdout, all other messages to stderr."""

from berth.cli.app import main

__all__ = ["main"]
