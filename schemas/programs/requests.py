"""Requests of programs: one JSON object each, sent to ``berth.<cell>.api.<verb>``."""

from typing import Annotated, Final

from msgspec import Meta

from berth.schemas.intake import Name, Priority
from berth.schemas.programs.job_file import JobFile
from berth.schemas.programs.shape import Request, Sent, Text

SUBMIT_MAX: Final = 100
"""Most jobs in one request."""
NODES_MAX: Final = 1_000
"""Most nodes in one reply."""
EVENTS_MAX: Final = 1_000
"""Most events in one reply."""
WAIT_MAX_S: Final = 30
"""Longest wait for an event."""
_POSITION_MAX: Final = (1 << 63) - 1
NameOrAll = Annotated[str, Meta(min_length=1, max_length=253, pattern=r"^(\*|[a-z0-9]([-a-z0-9.]*[a-z0-9])?)\Z")]
"""A name; ``*`` for all."""


class SubmitRequest(Request, frozen=True, kw_only=True):
    """Submit a job. Its ``metadata.uid`` is the idempotency key: a repeated request never submits twice."""

    job: JobFile
    """A job file of Berth as JSON; also a Volcano Job, an AscendJob or a Kubernetes Job with its own fields."""


class SubmitManyRequest(Request, frozen=True, kw_only=True):
    """Submit several jobs. They are stored one after another, each as ``submit`` would store it."""

    jobs: Annotated[list[JobFile], Meta(min_length=1, max_length=SUBMIT_MAX)]
    """Job files, as of ``submit``."""


class CancelRequest(Request, frozen=True, kw_only=True):
    """Cancel a job, whether it waits or runs."""

    name: Name
    namespace: Name = "default"
    uid: Text = ""
    """Only the job with this uid; empty: the job that has the name."""
    reason: Text = ""
    """It is stored with the job."""


class JobUpdate(Sent, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What is to change in a job that waits; what is left out stays as it is."""

    held: bool | None = None
    """``true``: it is not started until it is released; ``false``: release it. What an operator holds, an operator
    releases."""
    priority: Priority | None = None
    """Its priority from now on: at most the one that it has."""
    reason: Text = ""
    """It is stored with the hold."""


class UpdateRequest(Request, frozen=True, kw_only=True):
    """Hold a job that waits, release it, or lower its priority."""

    name: Name
    namespace: Name = "default"
    uid: Text = ""
    """Only the job with this uid; empty: the job that has the name."""
    change: JobUpdate


class StatusRequest(Request, frozen=True, kw_only=True):
    """Ask for the status of a job."""

    name: Name
    namespace: Name = "default"
    uid: Text = ""
    """Only the job with this uid; empty: the job that has the name."""


class ExplainRequest(Request, frozen=True, kw_only=True):
    """Ask why a job is where it is, or why it waits and what would help."""

    name: Name
    namespace: Name = "default"
    uid: Text = ""
    """Only the job with this uid; empty: the job that has the name."""
    nodes: bool = False
    """Whether the evidence of a job that waits says of each node if it could take a pod of it now (``fits``)."""


class NodesRequest(Request, frozen=True, kw_only=True):
    """Ask for nodes and their chips, by name."""

    names: list[Text] = []
    """Only these nodes; empty: all."""
    after: Text = ""
    """Only nodes whose name comes after this one: ``next`` of the reply before."""
    limit: Annotated[int, Meta(ge=1, le=NODES_MAX)] = NODES_MAX
    """Most nodes in the reply."""
    product: Text = ""
    """Only nodes of this product; empty: of any."""
    leaf: Text = ""
    """Only nodes below this leaf switch; empty: anywhere."""
    superpod: Text = ""
    """Only nodes of this SuperPoD; empty: anywhere."""
    details: bool = False
    """Whether nodes have their labels, cpu, memory, jobs and faults."""


class EventsRequest(Request, frozen=True, kw_only=True):
    """Ask for events of jobs after a position, in the order of their positions; and wait for one if there is none."""

    namespace: NameOrAll = "*"
    """Only jobs of this namespace; ``*`` for all, which needs the right to read all."""
    name: NameOrAll = "*"
    """Only jobs with this name; ``*`` for all."""
    after: Annotated[int, Meta(ge=0, le=_POSITION_MAX)] = 0
    """Position after which to begin: ``position`` of the reply before, or that of an event. 0: the oldest event."""
    mark: Text = ""
    """``mark`` of the reply before: the request is refused (``events-lost``) if the stream of events has lost what it
    had then. Empty: it is not compared."""
    limit: Annotated[int, Meta(ge=0, le=EVENTS_MAX)] = EVENTS_MAX
    """Most events in the reply; 0: only how far the stream of events goes."""
    wait_s: Annotated[float, Meta(ge=0, le=WAIT_MAX_S)] = 0
    """Seconds to wait for an event if there is none; 0: answer at once."""


class RightsRequest(Request, frozen=True, kw_only=True):
    """Ask what the caller may do."""
