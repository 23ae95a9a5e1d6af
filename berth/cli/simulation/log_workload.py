"""Recordings as the source of simulations, with the errors of reading them."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from berth.cli.recordings.errors import complaints_of
from berth.core.simulation.recorded_timeline import timeline_of_recording
from berth.core.simulation.recorded_workload import LoggedWorkload, WorkloadReader
from berth.core.simulation.timeline import Timeline
from berth.formats.recordings.recording import MAGIC, Reading
from berth.runtime.recording import read_file

T = TypeVar("T")


def is_recording(path: Path) -> bool:
    """Whether a file starts like a recording; a file that cannot be read does not."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def workload_of(path: Path) -> LoggedWorkload:
    """Jobs and cluster of a recording.

    Raises:
        CommandError: It cannot be read.
    """
    return _read(path, lambda reading: WorkloadReader(reading.head).read(reading))


def recorded_course(path: Path, words: dict[str, str]) -> Timeline:
    """The course as it was recorded.

    Raises:
        CommandError: It cannot be read.
    """
    return _read(path, lambda reading: timeline_of_recording(reading.head, reading, words=words))


def _read(path: Path, what: Callable[[Reading], T]) -> T:
    with complaints_of(path), read_file(path) as reading:
        return what(reading)
