"""Replies to requests of programs. Times are milliseconds since 1970; chips are physical ids on their node."""

from typing import Any, Self

from msgspec import UNSET, UnsetType

from berth.schemas.facts import Rejection
from berth.schemas.programs.shape import Reply, Shape, Whole


class ErrorReply(Reply, frozen=True, kw_only=True):
    """A request that was not carried out."""

    ok: bool = False
    error: str
    """``<field> is <value>, expected <what>``."""
    code: str
    """Kind of the error, for programs: ``invalid-request``, ``denied``, ``not-found``, ``name-in-use``,
    ``uid-in-use``, ``too-large``, ``too-many``, ``reply-too-large``, ``unavailable`` (try again), ``internal``, or a
    code of a refusal. More may follow: treat an unknown one as ``invalid-request``."""
    retry_after_ms: Whole | UnsetType = UNSET
    """After how many milliseconds the same request may be carried out; left out where nobody knows."""


class SubmitReply(Reply, frozen=True, kw_only=True):
    """The request is stored; the verdict comes as an event and as the status."""

    namespace: str
    name: str
    uid: str
    """Uid of the job; of a request without one the uid that it gets."""
    sequence: int
    """Sequence at which the request is stored."""
    duplicate: bool = False
    """The job had been submitted before with this uid and this request; nothing was stored again. ``sequence`` is
    that of the first request."""


class SubmitResult(Shape, frozen=True, kw_only=True):
    """What became of one of several jobs."""

    ok: bool
    """The job is stored; else ``error`` and ``code`` say why not, as those of an error reply."""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    sequence: int = 0
    """Sequence at which the request is stored."""
    duplicate: bool = False
    """It was stored before."""
    error: str = ""
    code: str = ""
    retry_after_ms: Whole = 0
    """After how many milliseconds the same job may be stored; 0 where nobody knows."""


class SubmitManyReply(Reply, frozen=True, kw_only=True):
    """What became of each job. Each stands for itself: those that are not stored leave the others as they are."""

    results: list[SubmitResult]
    """In the order of the request."""
    stored: int = 0
    """How many are stored now or were before."""


class CancelReply(Reply, frozen=True, kw_only=True):
    """The cancellation is stored; the job ends as soon as its pods are gone."""

    namespace: str
    name: str
    uid: str
    sequence: int
    """Sequence at which the cancellation is stored."""


class UpdateReply(Reply, frozen=True, kw_only=True):
    """The change is stored; it counts if the job still waits when it is judged."""

    namespace: str
    name: str
    uid: str
    sequence: int
    """Sequence at which the change is stored."""


class DrainReply(Reply, frozen=True, kw_only=True):
    """The drain is stored, or that it was withdrawn."""

    kind: str
    name: str
    since_ms: Whole = 0
    """From when on it counts; 0 if it was withdrawn."""
    sequence: int
    """Sequence at which the fact is stored."""


class ApproveReply(Reply, frozen=True, kw_only=True):
    """The approval is stored, or that it was withdrawn."""

    kind: str
    domain: str
    until_ms: Whole
    """Until when it counts; 0 if it was withdrawn."""
    sequence: int
    """Sequence at which the fact is stored."""


class Rank(Shape, frozen=True, kw_only=True):
    """Place of a pod."""

    rank: int
    node: str
    chips: list[int]
    """In the order in which they were chosen."""


class RefusedRequest(Shape, frozen=True, kw_only=True):
    """A later request for the name of a job that was refused."""

    uid: str
    code: str
    field: str
    value: str
    expected: str
    at_ms: Whole

    @classmethod
    def of(cls, rejection: Rejection) -> Self:
        """A rejection as programs and ``--json`` show it."""
        refusal = rejection.refusal
        return cls(
            uid=rejection.uid,
            code=refusal.code,
            field=refusal.field,
            value=refusal.value,
            expected=refusal.expected,
            at_ms=rejection.at_ms,
        )


class JobState(Shape, frozen=True, kw_only=True):
    """A job as it is now."""

    namespace: str
    name: str
    uid: str
    phase: str
    """``waiting``, ``placed``, ``bound``, ``running``, ``ending``, ``succeeded``, ``failed``, ``cancelled`` or
    ``rejected``. More may follow."""
    since_ms: Whole
    attempt: int = 0
    """Attempt that is placed, or the next one while it waits; 0 before the first decision."""
    step: int = 0
    """Newest step of a recovery in this attempt; 0 for none."""
    pods: int = 0
    chips: int = 0
    """Chips of all pods."""
    queue: str = ""
    priority: int = 0
    held: bool = False
    """It waits and is held; ``sentence`` says by whom."""
    sentence: str = ""
    """Why it waits or was rejected."""
    code: str = ""
    """Code of the refusal; empty without."""
    ranks: list[Rank] = []
    """Place of each pod; of a job that is over the last ones, as long as its events are kept. Empty without."""
    open_ranks: list[int] = []
    """Ranks that recover and are not at their new places yet."""
    warning: str = ""
    restart_held: str = ""
    """Why a fault does not restart it yet."""
    refused: RefusedRequest | None = None
    """The last refused request for the name."""
    sequence: int = 0
    """Sequence at which its request is stored."""
    ledger_seq: int = 0
    """Record of the ledger with the decision in force."""
    trace_id: str = ""
    """Id of the trace of the job, in 32 hexadecimal digits."""


class StatusReply(Reply, frozen=True, kw_only=True):
    """Status of a job."""

    job: JobState


class ExplainReply(Reply, frozen=True, kw_only=True):
    """Explanation of a job."""

    namespace: str
    name: str
    uid: str
    phase: str
    since_ms: Whole
    attempt: int
    sentences: list[str]
    """The answer in words."""
    explanation: dict[str, Any] | None = None
    """The evidence, as ``berth explain --json`` prints it; null before a decision, or if it is no longer stored."""


class JobOnNode(Shape, frozen=True, kw_only=True):
    """A job on a node."""

    namespace: str
    name: str
    uid: str
    ranks: list[int]
    """Ascending."""
    chips: list[int]
    """Chips that they have there, or that are reserved for them."""


class FaultOfNode(Shape, frozen=True, kw_only=True):
    """A fault of a node or of its chips."""

    kind: str
    """As in the operation ``faults``."""
    level: str
    """Likewise."""
    chips: list[int] = []
    """Empty for the whole node."""
    since_ms: Whole = 0
    """0 if that was before the service knows."""
    changed_ms: Whole = 0
    reason: str = ""
    """What its source reports."""


class NodeDetails(Shape, frozen=True, kw_only=True):
    """What else is known of a node."""

    rack: str = ""
    labels: dict[str, str] = {}
    cpu_milli: int = 0
    cpu_free_milli: int = 0
    memory_mib: int = 0
    memory_free_mib: int = 0
    unnamed: int = 0
    """Chips that pods of others have and nobody has named: as many of ``free`` are given to nobody."""
    jobs: list[JobOnNode] = []
    """Jobs that Berth has placed there, by namespace and name, as far as the caller may read them."""
    more_jobs: int = 0
    """Other jobs there that Berth has placed."""
    faults: list[FaultOfNode] = []
    """Of the whole node first."""


class NodeState(Shape, frozen=True, kw_only=True):
    """A node. Lists contain chip ids."""

    name: str
    product: str
    resource: str
    domain: str
    leaf: str
    """Leaf switch; empty without."""
    superpod: str
    """SuperPoD; empty without."""
    level: str
    """Health: ``ok``, ``sub-healthy``, ``no-new-work`` or ``evict``. More may follow."""
    ready: bool
    cordoned: bool
    chips: list[int]
    free: list[int]
    used: list[int]
    shared: list[int]
    """Chips of which jobs hold quotas."""
    releasing: list[int]
    """Chips whose pods are ending."""
    unhealthy: list[int]
    network_unhealthy: list[int]
    withheld: list[int]
    """Chips that the node itself does not offer."""
    drained_ms: Whole = 0
    """From when on it is drained; 0 if it is not."""
    details: NodeDetails | UnsetType = UNSET
    """Only if the request asks for them."""


class NodesReply(Reply, frozen=True, kw_only=True):
    """Nodes, by name."""

    nodes: list[NodeState]
    next: str = ""
    """There are more: ask again with this name as ``after``. Empty at the end."""
    facts_seq: int = 0
    """Last fact that is in the reply."""
    ledger_seq: int = 0
    """Last record of the ledger that is in the reply."""


class RightsReply(Reply, frozen=True, kw_only=True):
    """What the caller may do. ``*`` in a list stands for all namespaces."""

    identity: str
    """The caller; empty if it has no identity."""
    read: list[str]
    """Namespaces whose jobs it may see; with any of them it may also see nodes. Sorted."""
    submit: list[str]
    """Namespaces in which it may submit and cancel jobs. Sorted."""
    operate: bool = False
    """Whether it may drain nodes and approve restarts."""
