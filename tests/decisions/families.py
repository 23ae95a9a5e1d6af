"""Families of histories whose decisions are written as text, and their digests."""

import hashlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from tests.decisions import cells, seeds, vectors

SEEDS: Final = 500
CELLS: Final = 48
STORED: Final = Path(__file__).parent / "digests.txt"
"""Digests of the small form."""
Histories = Iterator[tuple[str, list[str]]]
FAMILIES: Final[dict[str, Callable[[int], Histories]]] = {
    "recordings": lambda _: cells.recordings(),
    "vectors": lambda _: vectors.histories(reference=True),
    "cells": lambda count: cells.histories(0, min(count, CELLS)),
    "seeds": lambda count: seeds.histories(0, count),
}
"""All families: histories by the number of seeds."""
SMALL: Final[dict[str, Callable[[], Histories]]] = {
    "vectors": lambda: vectors.histories(reference=False),
    "cells": lambda: cells.histories(0, 4),
    "seeds": lambda: seeds.histories(0, 12),
}
"""What a test decides again."""


class Digest(NamedTuple):
    """Digest of a family.

    Attributes:
        family: Its name.
        histories: How many it has.
        lines: Lines of all of them.
        value: SHA-256 of the text, the first 16 digits.
    """

    family: str
    histories: int
    lines: int
    value: str

    def text(self) -> str:
        """As one line."""
        return f"{self.family} {self.histories} {self.lines} {self.value}"


def written(family: str, histories: Histories, write: Callable[[str], object]) -> Digest:
    """Write the text of a family, a heading before each history; returns its digest."""
    hush()
    digest = hashlib.sha256()
    count = lines = 0
    for name, found in histories:
        text = "".join(f"{line}\n" for line in (f"== {family}: {name}", *found))
        digest.update(text.encode())
        write(text)
        count, lines = count + 1, lines + len(found)
    return Digest(family, count, lines, digest.hexdigest()[:16])


def small() -> str:
    """Digests of the small form."""
    return "".join(f"{written(name, make(), len).text()}\n" for name, make in SMALL.items())


def hush() -> None:
    """Let no log line through: shards that are not believed are said to be so each time."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
