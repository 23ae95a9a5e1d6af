"""What changed in a cell within the last hour. Times are milliseconds since 1970."""

from msgspec import Struct

from berth.schemas.programs.shape import Shape, Whole


class HourPoint(Struct, frozen=True, array_like=True, gc=False):
    """How full the cell is from a moment on, until the next point."""

    at_ms: int
    used: int
    """Chips in use."""
    waiting: int
    """Jobs that wait."""


class HourEvent(Shape, frozen=True, kw_only=True):
    """Something that happened to a job, or to nodes."""

    at_ms: Whole
    what: str
    """Of a job ``waiting``, ``placed``, ``succeeded``, ``failed``, ``cancelled`` or ``rejected``; of nodes ``fault``,
    ``repaired``, ``came``, ``left``, ``drained`` or ``undrained``. More may follow."""
    namespace: str = ""
    name: str = ""
    """Of the job."""
    place: str = ""
    """The node, its leaf switch or SuperPoD if there are several nodes."""
    nodes: int = 0
    """How many."""
    level: str = ""
    """Of a fault, as in the picture."""
    sentence: str = ""
    """Why, as far as that is known."""


class Hour(Shape, frozen=True, kw_only=True):
    """The last hour of a cell, as far as it is known."""

    begin_ms: Whole
    """Since when the points and counts are whole."""
    at_ms: Whole
    chips: int
    """Chips that the nodes have now."""
    points: list[HourPoint]
    """Ascending; the first one is at ``begin_ms``. At most one in 10 s."""
    counts: dict[str, int]
    """How often each thing happened to jobs and nodes of the cell, by ``what``."""
    events: list[HourEvent]
    """The newest 200 about jobs that wait, start, succeed or are cancelled, and the newest 200 others; the newest
    first. Those about jobs that the reader may not see are left out."""
