"""``berth completion``: a script for a shell that completes commands, options and their values."""

import re
from collections.abc import Iterator
from typing import Final, Literal

from cyclopts import App

from berth.cli.app import complete_command_line
from berth.cli.commands import all_commands
from berth.cli.output import write
from berth.formats.shown import shown

_FILES: Final = frozenset({"--file", "--folder", "FILES"})
"""Arguments that are files, whatever else they may be."""
_FILE_OPTIONS: Final = frozenset({"cluster", "file"})
"""Options that take a file or something else."""
_OPTION: Final = re.compile(r"^(complete .* -[ls] (\S+)) -r (-d .*)$", re.MULTILINE)
"""Rule of an option whose value is any text."""

_BASH_RULE: Final = "complete -F _berth berth"
_BASH_RULE_WITH_FILES: Final = "complete -o default -F _berth berth"
"""Rule by which bash offers files where nothing else is known."""


def completion(shell: Literal["bash", "zsh", "fish"]) -> None:
    """Print a script that completes commands and options in bash, zsh or fish.

    Args:
        shell: The shell.
    """
    app = complete_command_line()
    script = app.generate_completion(shell=shell)
    if shell == "bash":
        script = script.replace(_BASH_RULE, _BASH_RULE_WITH_FILES)
    elif shell == "zsh":
        script = _zsh_files(app, script)
    elif shell == "fish":
        script = "\n".join(
            [_OPTION.sub(_without_files, script), "# Arguments that are no files", *_fish_rules(app), ""]
        )
    write(map(shown, script.splitlines()))


def _without_files(rule: re.Match[str]) -> str:
    """Rule of an option with which fish offers no files, if its value is none."""
    start, option, end = rule.groups()
    return rule.group() if option in _FILE_OPTIONS else f"{start} -x {end}"


def _zsh_files(app: App, script: str) -> str:
    """The script for zsh, which offers files for arguments that are files or something else."""
    for path in _paths():
        for text in _file_arguments(app, path):
            begin = re.escape(re.split("[:'`\\n]", text)[0])  # before what the script quotes
            script = re.sub(
                rf"^( +'(?:[0-9]|\*):{begin}.*)(?<!:_files)' \\$", r"\1:_files' \\", script, flags=re.MULTILINE
            )
    return script


def _paths() -> Iterator[tuple[str, ...]]:
    """Words of all commands."""
    for command in all_commands():
        yield (command.name,)
        yield from ((command.name, part.name) for part in command.parts)


def _fish_rules(app: App) -> Iterator[str]:
    """Rules by which fish offers no files as arguments of commands that take none; by default it offers them."""
    yield "complete -c berth -n __fish_use_subcommand -f"
    for path in _paths():
        if not _file_arguments(app, path):
            yield f"complete -c berth -n '__fish_berth_using_command {' '.join(path)}' -f"


def _file_arguments(app: App, path: tuple[str, ...]) -> list[str]:
    """Help texts of the arguments of a command that are files, options aside."""
    for word in path:
        app = app[word]
    arguments = app.assemble_argument_collection(parse_docstring=True)
    return [one.parameter.help or "" for one in arguments if one.index is not None and one.name in _FILES]
