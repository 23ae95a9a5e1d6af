"""``berth completion``: a script for a shell that completes commands, options and their values."""

import re
import sys
from collections.abc import Iterator
from typing import Final, Literal

from cyclopts import App

from berth.cli.app import complete_command_line
from berth.cli.commands import COMMANDS

_FILES: Final = frozenset({"--file", "--folder", "FILES"})
"""Arguments that are files, whatever else they may be."""
_FILE_OPTIONS: Final = frozenset({"cluster", "file"})
"""Options that take a file or something else."""
_OPTION: Final = re.compile(r"^(complete .* -[ls] (\S+)) -r (-d .*)$", re.MULTILINE)
"""Rule of an option whose value is any text."""


def completion(shell: Literal["bash", "zsh", "fish"]) -> None:
    """Print a script that completes commands and options in bash, zsh or fish.

    Args:
        shell: The shell.
    """
    app = complete_command_line()
    script = app.generate_completion(shell=shell)
    if shell == "fish":
        script = "\n".join(
            [_OPTION.sub(_without_files, script), "# Arguments that are no files", *_fish_rules(app), ""]
        )
    sys.stdout.write(script)


def _without_files(rule: re.Match[str]) -> str:
    """Rule of an option with which fish offers no files, if its value is none."""
    start, option, end = rule.groups()
    return rule.group() if option in _FILE_OPTIONS else f"{start} -x {end}"


def _fish_rules(app: App) -> Iterator[str]:
    """Rules by which fish offers no files as arguments of commands that take none; by default it offers them."""
    yield "complete -c berth -n __fish_use_subcommand -f"
    for command in COMMANDS:
        for path in ((command.name,), *((command.name, part.name) for part in command.parts)):
            if not _takes_files(app, path):
                yield f"complete -c berth -n '__fish_berth_using_command {' '.join(path)}' -f"


def _takes_files(app: App, path: tuple[str, ...]) -> bool:
    """Whether a command has a file among its arguments, options aside."""
    for word in path:
        app = app[word]
    return any(one.index is not None and one.name in _FILES for one in app.assemble_argument_collection())
