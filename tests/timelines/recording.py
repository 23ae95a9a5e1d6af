"""Recorded timelines of Volcano's controllers: every change of every object, with its time and who made it.

They are no part of the tree. The README of their folder describes the format and how they were made.
"""

import gzip
import os
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

Tree: TypeAlias = dict[str, Any]
FORMAT: Final = 1
_SUFFIX: Final = ".ndjson.gz"


class Made(msgspec.Struct, frozen=True):
    """An object that was there before the first line."""

    kind: str
    name: str
    uid: str
    object: Tree


class Header(msgspec.Struct, frozen=True):
    """What was recorded; ``start`` are the objects that were there."""

    format: int
    scenario: str
    what: str
    start: list[Made] = []


class Line(msgspec.Struct, frozen=True):
    """A change of an object, or a mark of what was done from outside.

    Attributes:
        t: Milliseconds from the start.
        mark: What was done, ``user: creates Pod one``; empty for a change.
        actor: Who made the change: ``user``, ``gc``, ``kubelet``, ``scheduler/...`` or a controller.
        via: The request: ``create``, ``update status``, ``delete`` and so on.
        verb: ``added``, ``modified`` or ``deleted``.
        kind: Kind, with its group for Volcano's Job.
        name: ``namespace/name``; the name alone where there is no namespace.
        uid: Of the object, as this file numbers them.
        object: The whole object that was added.
        patch: JSON merge patch against the version before.
    """

    t: int
    mark: str = ""
    actor: str = ""
    via: str = ""
    verb: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    object: Tree = {}
    patch: Tree = {}

    @property
    def is_by_scheduler(self) -> bool:
        """Whether the scheduler made the change."""
        return self.actor.startswith("scheduler/")


class Timeline(msgspec.Struct, frozen=True):
    """A recording: its name, header and lines in the order of the API server's revisions."""

    name: str
    header: Header
    lines: list[Line]


def timelines_folder() -> Path:
    """Folder of the recordings: the variable ``BERTH_TIMELINES``, else beside the checkout."""
    named = os.environ.get("BERTH_TIMELINES")  # noqa: TID251  # a test tool; no service reads this
    shared = Path(__file__).parents[3] / "shared"
    return Path(named) if named else shared / "recordings" / "volcano-controllers"


def timeline_names() -> list[str]:
    """Names of the recordings that are there, sorted."""
    return sorted(path.name.removesuffix(_SUFFIX) for path in timelines_folder().glob(f"*{_SUFFIX}"))


def read_timeline(name: str) -> Timeline:
    """Read a recording.

    Raises:
        ValueError: It has another format.
    """
    with gzip.open(timelines_folder() / f"{name}{_SUFFIX}", "rb") as file:
        first, *rest = file.read().splitlines()
    header = msgspec.json.decode(first, type=Header)
    if header.format != FORMAT:
        raise ValueError(f"{name}: format is {header.format}, expected {FORMAT}")
    return Timeline(name, header, [msgspec.json.decode(line, type=Line) for line in rest])
