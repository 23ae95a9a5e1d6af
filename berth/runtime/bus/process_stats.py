"""What a process says of itself in service discovery; :mod:`berth.runtime.bus.discovery` sends and collects it."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from berth.formats.whole_numbers import Int64

_NUMBER_MAX: Final = 1 << 62
"""Largest number in statistics: whoever may answer for a process may write any number of JSON."""


class Identity(msgspec.Struct, frozen=True):
    """Identity of a process.

    Attributes:
        name: Kind of the process, such as ``berth-scorer``.
        id: Unique to this process, without dots.
        version: Release as three numbers.
        metadata: Further properties, such as the cell.
        started_ms: Start of the process, in milliseconds since 1970.
    """

    name: str
    id: str
    version: str
    metadata: dict[str, str]
    started_ms: int


class Followed(msgspec.Struct, frozen=True):
    """How far a process has received a stream.

    Attributes:
        stream: Name of the stream in the cell.
        sequence: Of the last message that it has received.
        waiting: Messages for it that it has not received, as far as it knows.
        is_filtered: Whether it follows some of the subjects only.
        foreign: Messages that came to its inbox and that its consumer did not deliver; they were dropped.
    """

    stream: str
    sequence: Int64
    waiting: Int64
    is_filtered: bool
    foreign: Int64 = 0


class OwnReport(msgspec.Struct, frozen=True):
    """What a process says of itself.

    Attributes:
        not_ready: Why it is not ready; empty if it is.
        gauges: Its gauges by name, with labels as in the text format of Prometheus.
    """

    not_ready: str
    gauges: dict[str, float]


class ProcessReport(msgspec.Struct, frozen=True):
    """What the statistics of a process contain of Berth.

    Attributes:
        not_ready: Why it is not ready; empty if it is.
        gauges: Its gauges by name, with labels as in the text format of Prometheus.
        followed: Streams that it follows.
    """

    not_ready: str = ""
    gauges: dict[str, Annotated[float, Meta(ge=-_NUMBER_MAX, le=_NUMBER_MAX)]] = {}
    followed: list[Followed] = []


class Endpoint(msgspec.Struct, frozen=True):
    """A subject on which a process answers requests."""

    subject: str


class ProcessStats(msgspec.Struct, frozen=True):
    """The statistics of a process, as far as Berth reads them.

    Attributes:
        name: Kind of the process, such as ``berth-scorer``.
        id: Unique to the process.
        version: Its release.
        metadata: Further properties, such as the cell.
        started: When it was started, as a text.
        endpoints: What it serves.
        data: What it says of itself; None if it says nothing.
    """

    name: str
    id: str
    version: str = ""
    metadata: dict[str, str] = {}
    started: str = ""
    endpoints: list[Endpoint] = []
    data: ProcessReport | None = None

    @property
    def is_ready(self) -> bool:
        """Whether it says that it is ready."""
        return self.data is not None and not self.data.not_ready


def stats_of(answer: bytes) -> ProcessStats | None:
    """The statistics in an answer to ``$SRV.STATS``; None if it is none."""
    try:
        return _STATS.decode(answer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


_STATS: Final = msgspec.json.Decoder(ProcessStats)
