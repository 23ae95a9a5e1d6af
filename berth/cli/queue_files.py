"""Queues of files."""

import sys
from pathlib import Path
from typing import NamedTuple

from berth.cli.output import WRONG_USE, CommandError
from berth.core.queues.tree import Tree, tree_of
from berth.formats.queues.reader import QueueReading, read_queues


class QueueFile(NamedTuple):
    """Queues of a file.

    Attributes:
        tree: Their tree, wrong ones included.
        faults: What is wrong with the file and its queues, a line each with field, value and what is right.
        skipped: Objects that are no queues.
    """

    tree: Tree
    faults: list[str]
    skipped: list[str]


def reading_of(file: str) -> QueueReading:
    """What a file declares, and all that is wrong with it.

    Args:
        file: A path, or - for stdin.

    Raises:
        CommandError: It cannot be read.
    """
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
    except OSError as error:
        raise CommandError(f"{file} cannot be read: {error.strerror or error}", code=WRONG_USE) from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{file} is no text in UTF-8: byte {error.start} is wrong", code=WRONG_USE) from error
    return read_queues(text)


def read_file(file: str) -> QueueFile:
    """Queues of a file as a tree.

    Args:
        file: A path, or - for stdin.

    Raises:
        CommandError: It cannot be read.
    """
    reading = reading_of(file)
    tree = tree_of(reading.queues)
    faults = [f"{file}: {error}" for error in reading.errors]
    return QueueFile(tree, faults + invalid_lines(tree), reading.skipped)


def invalid_lines(tree: Tree) -> list[str]:
    """Which queues are not valid, a sentence each; not those with wrong fields, which a reading tells one by one."""
    return [
        f"queue {name} is not valid: {reason}"
        for name, reason in tree.broken.items()
        if reason != "; ".join(tree.queues[name].wrong)
    ]
