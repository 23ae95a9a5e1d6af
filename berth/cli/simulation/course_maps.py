"""Maps of courses over time, in the page of a cell: one timeline for each course."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from berth.cli.output import moment
from berth.cli.recordings.errors import complaints_of
from berth.cli.recordings.page import limits_for, write_page
from berth.core.overview.recorder import PageRecorder
from berth.runtime.recording import read_file
from berth.schemas.page.recording import RecordedTimeline
from berth.schemas.recording import BEGINNING

NAME: Final = "map.html"
"""File of the page, beside the report."""
_REASONS: Final = 100
"""Decisions that are explained, of all courses together."""


class CourseMaps:
    """Timelines of courses, in the order of their columns.

    Args:
        courses: How many there will be.
    """

    def __init__(self, courses: int) -> None:
        self.timelines: list[RecordedTimeline] = []
        self._limits = limits_for(courses, _REASONS // courses)

    @contextmanager
    def recording(self, title: str, cell: str) -> Iterator[PageRecorder]:
        """Recorder of a simulation, whose timeline is added when the block ends."""
        recorder = PageRecorder(BEGINNING, cell=cell, title=title, limits=self._limits, clock=moment)
        yield recorder
        self.timelines.append(recorder.finish())

    def add_recorded(self, file: Path, title: str) -> None:
        """Add a recording as it is.

        Raises:
            CommandError: It cannot be read.
        """
        with complaints_of(file), read_file(file) as reading:
            head = reading.head
            recorder = PageRecorder(head.start, cell=head.cell, title=title, limits=self._limits, clock=moment)
            for entry in reading:
                recorder.feed(entry)
            self.timelines.append(recorder.finish())

    def write(self, folder: Path) -> str:
        """Write the page into a folder, which exists; returns the name of the file.

        Raises:
            CommandError: It cannot be written.
        """
        write_page(folder / NAME, self.timelines)
        return NAME
