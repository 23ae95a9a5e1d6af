"""Expected starts for programs: of jobs that wait, and of a job that is not submitted, with whom it would displace."""

from typing import Annotated, Final

from msgspec import Meta

from berth.schemas.programs.job_file import JobFile
from berth.schemas.programs.requests import NameOrAll
from berth.schemas.programs.shape import Reply, Request, Shape, Text, Whole

EXPECTED_MAX: Final = 1_000
"""Most jobs in one reply."""


class ExpectedStartsRequest(Request, frozen=True, kw_only=True):
    """Ask when jobs that wait are expected to start, by namespace and name."""

    namespace: NameOrAll = "*"
    """Only jobs of this namespace; ``*``: of all that the caller may read."""
    after: Text = ""
    """Only jobs after this one: ``next`` of the reply before."""
    limit: Annotated[int, Meta(ge=1, le=EXPECTED_MAX)] = EXPECTED_MAX
    """Most jobs in the reply."""


class AskRequest(Request, frozen=True, kw_only=True):
    """Ask when a job would be expected to start if it were submitted now. Nothing is stored."""

    job: JobFile
    """As of ``submit``."""
    queue: Text = ""
    """Its queue, whatever it names; empty: what it names."""
    victims: bool = False
    """Say which jobs would end for it, too; needs the right to read all namespaces."""


class EndingJob(Shape, frozen=True, kw_only=True):
    """A job that would end for another one, or give up pods for it."""

    job: str
    """``namespace/name``."""
    queue: str
    priority: int
    chips: int
    """Chips that it gives up."""
    is_reclaimed: bool
    """The other one is of another queue, which gets back what it is entitled to."""
    pods: int = 0
    """Pods beyond its minimum that it gives up, and runs on without; 0: it ends."""


class Victims(Shape, frozen=True, kw_only=True):
    """Which jobs would end for one that finds no room, where the cell has preemption."""

    code: str = ""
    """Why none would: ``not-needed``, ``preempt`` (no set of them makes room), ``evictions-exhausted`` (those that
    would have ended for others too often in the last hour) or ``never`` (its class ends nobody, or its queue lets
    nobody in); empty if some would. More may follow."""
    jobs: list[EndingJob] = []
    """Those that would end."""
    place: str = ""
    """Kind of the place that it would get, or of the smallest that it needs, such as ``leaf``; empty: anywhere."""
    where: str = ""
    """Name of the place that it would get; empty for several nodes without a name."""
    candidates: int = 0
    """Without jobs: how many may end, or would but for their evictions."""
    chips: int = 0
    """Chips that these hold."""
    times: int = 0
    """How often they have ended for others in the last hour, with ``evictions-exhausted``."""


class ExpectedJob(Shape, frozen=True, kw_only=True):
    """When a job is expected to start, as if every job ahead of it got its place first, and none ended for it."""

    namespace: str
    name: str
    uid: str
    """Empty for a job that is not submitted."""
    queue: str
    position: int = 0
    """Among all jobs of the cell that wait, from 1 on; those without chips have positions of their own. 0 for a job
    that is held or pauses."""
    chips_ahead: int = 0
    """Chips that the jobs before it wait for."""
    queue_position: int = 0
    """Among those of its queue."""
    queue_chips_ahead: int = 0
    """Chips that those before it in its queue wait for."""
    earliest_ms: Whole = 0
    """Its start if run times that were learned are at their 20th percentile; 0 without an answer."""
    latest_ms: Whole = 0
    """Its start if they are at their 80th percentile; 0 if nobody knows."""
    not_before_ms: Whole = 0
    """The only answer for a job behind 64 others: it starts no earlier; else 0."""
    code: str = ""
    """Why there is no answer: ``not-before``, ``no-end`` (a job whose place it needs declares no end, and none was
    learned), ``no-room``, ``queue``, ``behind``, ``too-many-tasks``, ``held`` or ``paused``; empty if there is one.
    More may follow."""
    ahead: str = ""
    """Job because of which there is no answer, or no latest start, as ``namespace/name``; empty without one."""
    held_by: list[str] = []
    """Jobs whose end gives it the place, the last one first: at most 3."""
    held_by_more: int = 0
    """How many more there are."""
    victims: Victims | None = None
    """Which jobs would end for it; only in the reply to ``ask``."""
    sentences: list[str] = []
    """The answer in words."""


class ExpectedStartsReply(Reply, frozen=True, kw_only=True):
    """Expected starts, by namespace and name."""

    jobs: list[ExpectedJob]
    next: str = ""
    """There are more: ask again with this as ``after``. Empty at the end."""
    at_ms: Whole = 0
    """Moment of the state."""
    facts_seq: int = 0
    """Last fact that is in the reply."""
    ledger_seq: int = 0
    """Last record of the ledger that is in the reply."""


class AskReply(Reply, frozen=True, kw_only=True):
    """When a job would be expected to start."""

    expected: ExpectedJob
    at_ms: Whole = 0
    """Moment of the state."""
    facts_seq: int = 0
    """Last fact that is in the reply."""
    ledger_seq: int = 0
    """Last record of the ledger that is in the reply."""
