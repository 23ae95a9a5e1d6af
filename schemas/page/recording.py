"""What a recording page contains: a first picture, its changes, and the stories of jobs."""

from berth.schemas.page.view import Change, View
from berth.schemas.programs.replies import Rank
from berth.schemas.programs.shape import Shape, Whole


class StoryEvent(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """An event of a job: :class:`~berth.schemas.programs.events.JobEvent` without what its story says already."""

    id: str
    phase: str
    at_ms: Whole
    attempt: Whole = 0
    step: Whole = 0
    final: bool = False
    sentence: str = ""
    code: str = ""
    ranks: list[Rank] = []
    source: str = ""
    sequence: Whole = 0
    why: list[str] = []
    """Sentences about the decision that it tells of, if that was explained."""


class Story(Shape, frozen=True, kw_only=True):
    """What happened to a job, and why it was placed or refused."""

    events: list[StoryEvent] = []


class RecordedTimeline(Shape, frozen=True, kw_only=True):
    """A recording for the page."""

    title: str = ""
    begin_ms: Whole
    end_ms: Whole
    view: View
    """The first moment."""
    changes: list[Change | View] = []
    """Ascending; a view replaces everything."""
    stories: dict[str, Story] = {}
    """By ``namespace/name/uid``."""
    notes: list[str] = []
    """What was merged or left out, one sentence each."""
