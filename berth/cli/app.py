"""The ``berth`` command with its subcommands, and its exit codes.

0: success. 1: failure or refusal. 2: wrong usage or invalid setting. 124: what it waited for did not come in time. 130:
Ctrl-C.
"""

import sys
from collections.abc import Sequence
from typing import Final

from cyclopts import App, CycloptsError, Group, UnusedCliTokensError

from berth.cli.commands import COMMANDS, GROUPS, Command, all_commands, missing, needs_extensions
from berth.cli.output import FAILED, WRONG_USE, complain, lost_output, progress_console, results
from berth.formats.utf8 import UTF8_TEXT, is_utf8
from berth.runtime.release import LAB, install_extra, release

_TITLES: Final = {
    name: group
    for at, (title, names) in enumerate(GROUPS.items())
    for group in (Group(title, sort_key=at),)
    for name in names
}
"""The title below which each command is listed."""


def call(tokens: list[str]) -> int:
    """Exit code of the command line ``tokens``."""
    for number, token in enumerate(tokens, start=1):
        if not is_utf8(token):  # Python decodes invalid UTF-8 on the command line into halves of surrogate pairs
            complain([f"argument {number} is {token!r}, expected {UTF8_TEXT}: is it UTF-8?"])
            return WRONG_USE
    commands = all_commands() if needs_extensions(tokens) else COMMANDS
    if lack := missing(commands, tokens):
        complain([f"berth {lack} is of the extra {LAB}, which is not installed: {install_extra(LAB)}"])
        return FAILED
    try:
        code = command_line(tokens[0] if tokens else "", commands)(
            tokens,
            exit_on_error=False,
            print_error=False,
            console=results(),
            error_console=progress_console(),
            backend="asyncio",
        )
    except UnusedCliTokensError as error:
        words = " ".join(("berth", *(error.command_chain or ()), "--help"))
        complain(
            [f"argument is {token!r}, expected no such argument; see: {words}" for token in error.unused_tokens or ()]
        )
        return WRONG_USE
    except CycloptsError as error:
        complain(str(error).splitlines())
        return WRONG_USE
    return code if isinstance(code, int) else 0


def command_line(word: str, commands: Sequence[Command]) -> App:
    """The command line of commands with the module of the command ``word`` imported, and of no other.

    The library imports the others if they are needed; their own help would then be their summary.
    """
    app = _bare()
    for command in commands:
        _add(app, command, is_called=command.name == word)
    return app


def complete_command_line() -> App:
    """The command line with the modules of all commands imported."""
    app = _bare()
    for command in all_commands():
        _add(app, command, is_called=True)
    return app


def _bare() -> App:
    return App(
        name="berth",
        help="Decide on which nodes and chips NPU jobs run, and report the reasons.",
        version=release,
        result_action="return_value",
        group_commands=Group("Options", sort_key=len(GROUPS)),
        help_format="plaintext",  # what lists commands needs no library for Markdown
    )


def _add(app: App, command: Command, *, is_called: bool) -> None:
    if not is_called:
        app.command(
            command.path, name=command.name, help=command.summary.replace("``", ""), group=_TITLES[command.name]
        )
    elif command.parts:
        group = App(name=command.name, help_format="markdown", group_commands=Group("Commands"))
        group.default(command.load())
        for part in command.parts:
            _add(group, part, is_called=True)
        app.command(group)
    else:
        app.command(command.load(), name=command.name, help_format="markdown")


def command() -> int:
    """Exit code of the command line of this process.

    Raises:
        OSError: What is not the output of the command cannot be read or written.
    """
    try:
        code = call(sys.argv[1:])
        sys.stdout.flush()
    except OSError as error:
        lost = lost_output(error)
        if lost is None:
            raise
        return lost
    return code
