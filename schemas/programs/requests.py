"""Requests of programs: one JSON object each, sent to ``berth.<cell>.api.<verb>``."""

from typing import Annotated, Final

from msgspec import Meta

from berth.schemas.fault_facts import DrainKind
from berth.schemas.intake import Name, Priority
from berth.schemas.programs.job_file import JobFile
from berth.schemas.programs.shape import Request, Sent, Text, Whole

SUBMIT_MAX: Final = 100
"""Most jobs in one request."""
NODES_MAX: Final = 1_000
"""Most nodes in one reply."""
EVENTS_MAX: Final = 1_000
"""Most events in one reply."""
WAIT_MAX_S: Final = 30
"""Longest wait for an event."""
_POSITION_MAX: Final = (1 << 63) - 1
_LASTS_MAX_MS: Final = 366 * 86_400_000
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


class DrainRequest(Request, frozen=True, kw_only=True):
    """Take a node, or all nodes of a leaf switch or SuperPoD, out of service: they accept no new work."""

    kind: DrainKind
    """What ``name`` is."""
    name: Annotated[str, Meta(min_length=1, max_length=1_000)]
    """Of the node, leaf switch or SuperPoD."""
    since_ms: Whole = 0
    """From when on: a moment to come; 0 for now."""
    grace_ms: Annotated[int, Meta(ge=0, le=_LASTS_MAX_MS)] = 0
    """How long pods may take to end from then on; 0 for the default."""
    reason: Text = ""
    """It is stored with the drain."""
    force: bool = False
    """Whether pods leave too that no controller makes anew."""


class UndrainRequest(Request, frozen=True, kw_only=True):
    """Return what was drained to service."""

    kind: DrainKind
    """What ``name`` is."""
    name: Annotated[str, Meta(min_length=1, max_length=1_000)]
    """Of the node, leaf switch or SuperPoD."""


class ApproveRequest(Request, frozen=True, kw_only=True):
    """Let jobs restart for faults that only one source reports, although they are many; or withdraw that."""

    kind: Text
    """Kind of the faults, as of ``held`` in the operation ``faults``."""
    domain: Text = ""
    """Domain of the nodes; empty for nodes that are gone."""
    lasts_ms: Annotated[int, Meta(ge=0, le=_LASTS_MAX_MS)] = 600_000
    """How long new faults of this kind are approved too; 0 withdraws the approval."""
    reason: Text = ""
    """It is stored with the approval."""


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
