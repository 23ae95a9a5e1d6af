"""Consent of a person before a command changes something."""

import asyncio
import os
import sys

from berth.cli.output import CommandError, write
from berth.formats.shown import shown


async def ask_consent(question: str, command: str, *, yes: bool) -> None:
    """Ask whether to make a change, unless the command line has agreed already.

    Args:
        question: What is asked, without an end.
        command: Command line that makes the change without a question.
        yes: Whether the command line has agreed.

    Raises:
        CommandError: The answer is no, or nobody can be asked.
    """
    if not yes and not await _agrees(question):
        raise CommandError(f"nothing was changed; make the change with: {command}")


async def _agrees(question: str) -> bool:
    if not sys.stdin.isatty():
        return False
    write([shown(f"{question}? [y/N] ")], to_stderr=True, end="")
    await _answered()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


async def _answered() -> None:
    """Wait for a line on the terminal; the connection to NATS stays alive, and Ctrl-C ends the wait."""
    loop = asyncio.get_running_loop()
    is_there = asyncio.Event()
    terminal = sys.stdin.fileno()
    is_blocking = os.get_blocking(terminal)
    loop.add_reader(terminal, is_there.set)
    try:
        await is_there.wait()
    finally:
        loop.remove_reader(terminal)
        os.set_blocking(terminal, is_blocking)  # uvloop changes it, for all who have the terminal: also for the shell
