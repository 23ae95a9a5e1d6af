"""Queues of files, for commands that need no cell."""

import sys
from pathlib import Path
from typing import NamedTuple

from berth.cli.output import WRONG_USE, CommandError
from berth.core.queues.tree import Tree, tree_of
from berth.formats.queues.reader import read_queues


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


def read_file(file: str) -> QueueFile:
    """Queues of a file.

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
    reading = read_queues(text)
    tree = tree_of(reading.queues)
    faults = [f"{file}: {error}" for error in reading.errors]
    faults += [
        f"queue {name} is not valid: {reason}"
        for name, reason in tree.broken.items()
        if reason != "; ".join(tree.queues[name].wrong)  # of which the reading has an error each
    ]
    return QueueFile(tree, faults, reading.skipped)
