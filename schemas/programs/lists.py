"""Requests and replies that list what a cell has: jobs, how full it is, faults, and drains.

Lists come in pages. A page goes on after ``next`` of the page before, in an order that no change of the cell alters:
what is there all the time is on exactly one page. Times are milliseconds since 1970.
"""

from typing import Annotated, Final, Literal

from msgspec import Meta

from berth.schemas.fault_facts import DrainKind
from berth.schemas.programs.requests import NameOrAll
from berth.schemas.programs.shape import Reply, Request, Shape, Text, Whole

PAGE_MAX: Final = 1_000
"""Most entries of a page."""
PAGE: Final = 100
"""Most entries of a page, unless the request says otherwise."""
NAMES_MAX: Final = 100
"""Most nodes that a group of faults or a drain names."""
RANKS_MAX: Final = 1_000
"""Most ranks of such a job."""
JOBS_MAX: Final = 100
"""Most jobs that a group of faults or a drain names."""

Limit = Annotated[int, Meta(ge=1, le=PAGE_MAX)]
ListedPhase = Literal[
    "", "live", "waiting", "placed", "bound", "running", "ending", "succeeded", "failed", "cancelled", "rejected"
]
"""A phase of jobs; ``live``: all that are not over."""
FaultScope = Literal["node", "leaf", "superpod"]


class JobsRequest(Request, frozen=True, kw_only=True):
    """Ask for jobs, by namespace and name."""

    namespace: NameOrAll = "*"
    """Only jobs of this namespace; ``*``: of all that the caller may read."""
    phase: ListedPhase = ""
    """Only jobs in this phase; ``live``: those that are not over; empty: all."""
    queue: Text = ""
    """Only jobs of this queue; empty: of all."""
    limit: Limit = PAGE
    """Most jobs in the reply."""
    after: Text = ""
    """Only jobs after this one, as ``namespace/name``: ``next`` of the reply before. The job itself may be gone."""


class ListedJob(Shape, frozen=True, kw_only=True):
    """A job in a list."""

    namespace: str
    name: str
    uid: str
    phase: str
    """As of the operation ``status``; a request without a verdict is not in the list."""
    since_ms: Whole
    """Since when it waits, has its place, or is over."""
    submitted_ms: Whole = 0
    """When it was first requested."""
    attempt: int = 0
    pods: int = 0
    chips: int = 0
    """Chips of all pods."""
    queue: str = ""
    priority: int = 0
    position: int = 0
    """Its position among all jobs of the cell that wait, from 1 on; 0 if it does not wait. Jobs without chips wait in a
    queue of their own, and jobs that are held come last."""
    held: bool = False
    """It waits and is held."""
    code: str = ""
    """Code of the reason; empty without."""
    sentence: str = ""
    """Why it waits or was rejected."""
    warning: str = ""


class JobsReply(Reply, frozen=True, kw_only=True):
    """Jobs, by namespace and name. A page may have fewer jobs than ``limit``, also none, although others follow."""

    jobs: list[ListedJob]
    next: str = ""
    """There may be more: ask again with this as ``after``. Empty at the end."""
    waiting: int = 0
    """Jobs of the cell with chips that wait, also those that the caller may not read."""
    facts_seq: int = 0
    """Last fact that is in the reply."""
    ledger_seq: int = 0
    """Last record of the ledger that is in the reply. Phases may be a moment older."""


class UsageRequest(Request, frozen=True, kw_only=True):
    """Ask how full the cell is."""


class PlacesRequest(Request, frozen=True, kw_only=True):
    """Ask how full places are, by name."""

    names: list[Text] = []
    """Only these; empty: all."""
    after: Text = ""
    """Only names after this one: ``next`` of the reply before."""
    limit: Limit = PAGE_MAX
    """Most places in the reply."""


class PlaceUse(Shape, frozen=True, kw_only=True):
    """Chips of some nodes. ``chips`` is the sum of ``used``, ``free``, ``unhealthy``, ``drained`` and ``withheld``."""

    name: str = ""
    """Of the product, leaf switch or SuperPoD; empty for the whole cell, and for nodes that have none."""
    nodes: int = 0
    nodes_ready: int = 0
    """Nodes that take new work."""
    nodes_free: int = 0
    """Nodes that take new work and whose chips are all free."""
    chips: int = 0
    used: int = 0
    """Chips that pods have, or that are reserved for them."""
    free: int = 0
    """Chips that new work can get."""
    unhealthy: int = 0
    """Other chips that are unhealthy, or whose node is: not ready, or at the level ``no-new-work`` or ``evict``."""
    drained: int = 0
    """Other chips of nodes that are drained or cordoned."""
    withheld: int = 0
    """Other chips that their node does not offer."""
    waiting: int = 0
    """Chips that jobs wait for which ask for the product, in ``usage``; of other places 0."""


class NamespaceUse(Shape, frozen=True, kw_only=True):
    """Jobs of a namespace that are not over. Pods that Berth did not place are in no namespace here."""

    name: str
    jobs: int = 0
    """Jobs that have a place."""
    used: int = 0
    """Their chips."""
    jobs_waiting: int = 0
    waiting: int = 0
    """Chips that they wait for."""


class UsageReply(Reply, frozen=True, kw_only=True):
    """How full the cell is."""

    total: PlaceUse
    """The whole cell."""
    products: list[PlaceUse]
    """By product, sorted; also those that jobs wait for and no node has. Without a name: what no product fits."""
    namespaces: list[NamespaceUse]
    """By name: those that the caller may read and that have jobs which are not over; of more than 1,000 those with the
    most chips."""
    jobs: int = 0
    """Jobs of the cell that have a place."""
    jobs_waiting: int = 0
    """Jobs of the cell that wait."""
    waiting: int = 0
    """Chips that they wait for."""
    leaves_free: int = 0
    """Leaf switches whose nodes are all free and take new work."""
    superpods_free: int = 0
    """SuperPoDs likewise."""
    facts_seq: int = 0
    """Last fact that is in the reply."""
    ledger_seq: int = 0
    """Last record of the ledger that is in the reply."""


class PlacesReply(Reply, frozen=True, kw_only=True):
    """Places, by name."""

    places: list[PlaceUse]
    next: str = ""
    """There are more: ask again with this name as ``after``. Empty at the end."""
    facts_seq: int = 0
    ledger_seq: int = 0


class FaultsRequest(Request, frozen=True, kw_only=True):
    """Ask for faults of nodes and chips, in groups."""

    after: Text = ""
    """Only groups after this one: ``next`` of the reply before."""
    limit: Limit = PAGE
    """Most groups in the reply."""


class JobRanks(Shape, frozen=True, kw_only=True):
    """A job, and which of its ranks are concerned."""

    namespace: str
    name: str
    uid: str
    ranks: list[int]
    """The first 1,000 of them, ascending."""
    pods: int = 0
    """All of them."""


class FaultGroup(Shape, frozen=True, kw_only=True):
    """Faults of one kind at one place.

    The place is a SuperPoD of several leaves whose nodes all have it, a leaf switch with two such nodes or more, a
    SuperPoD without leaves likewise, or else a node.
    """

    kind: str
    """``NodeUnhealthy``, ``NodeNotReady``, ``NodeNoNewWork``, ``NodeSubHealthy``, ``CardUnhealthy``,
    ``CardRecovering``, ``CardNetworkUnhealthy`` or ``CardSubHealthy``. More may follow."""
    level: str
    """``unhealthy``, ``recovering``, ``network-unhealthy``, ``sub-healthy``, ``no-new-work``, ``evict`` or
    ``not-ready``. More may follow."""
    scope: FaultScope
    name: str
    """Of the node, leaf switch or SuperPoD."""
    nodes: int
    """Nodes with the fault ..."""
    of: int
    """... of so many there."""
    names: list[str] = []
    """The first 100 of them, by name."""
    chips: int = 0
    """Chips with the fault; 0 for faults of whole nodes."""
    chip_ids: list[int] = []
    """Which ones, of a single node."""
    since_ms: Whole = 0
    """Since when the first of them has it; 0 if that was before the service knows."""
    changed_ms: Whole = 0
    """When a fault was last added or became another; 0 likewise."""
    reason: str = ""
    """What the source reports, if it is the same for all."""
    jobs: list[JobRanks] = []
    """Jobs on these nodes, by namespace and name: the first 100 that the caller may read."""
    more_jobs: int = 0
    """Other jobs there."""


class HeldRestart(Shape, frozen=True, kw_only=True):
    """A job that a fault does not restart yet."""

    namespace: str
    name: str
    kind: str
    """Kind of the faults."""
    domain: str
    """Domain of the nodes; empty for nodes that are gone."""
    reason: str
    """Why, with numbers."""
    approvable: bool
    """The operation ``approve`` lets it restart; otherwise it waits for other jobs."""


class Approval(Shape, frozen=True, kw_only=True):
    """A person's consent that jobs restart although one source reports the faults alone."""

    kind: str
    domain: str
    until_ms: Whole
    by: str = ""
    """Who gave it; only for those who may read all namespaces."""
    reason: str = ""


class FaultsReply(Reply, frozen=True, kw_only=True):
    """Faults in groups, by kind, scope and name."""

    groups: list[FaultGroup]
    next: str = ""
    """There are more: ask again with this as ``after``. Empty at the end."""
    total: int = 0
    """All groups."""
    nodes: int = 0
    """Nodes that have a fault."""
    facts_seq: int = 0
    ledger_seq: int = 0
    held: list[HeldRestart] = []
    """Jobs that a fault does not restart yet, by namespace and name: the first 100 that the caller may read."""
    more_held: int = 0
    """Other such jobs."""
    approvals: list[Approval] = []
    """Approvals that count, by kind and domain."""


class DrainsRequest(Request, frozen=True, kw_only=True):
    """Ask what is drained, or will be."""

    after: Text = ""
    """Only drains after this one: ``next`` of the reply before."""
    limit: Limit = PAGE
    """Most drains in the reply."""


class Drain(Shape, frozen=True, kw_only=True):
    """A person's wish that nodes run no jobs."""

    kind: DrainKind
    name: str
    """Of the node, leaf switch or SuperPoD."""
    since_ms: Whole
    """From when on it counts; it may be in the future."""
    grace_ms: int = 0
    """How long pods may take to end; 0 for the default."""
    by: str = ""
    """Who asked for it; only for those who may read all namespaces."""
    reason: str = ""
    asked_ms: Whole = 0
    force: bool = False
    """Jobs leave too with pods that have no controller."""
    nodes: int = 0
    """Known nodes that it concerns."""
    names: list[str] = []
    """The first 100 of them, by name."""
    jobs: list[JobRanks] = []
    """Jobs on these nodes, by namespace and name: the first 100 of those that the caller may read."""
    more_jobs: int = 0
    """Other jobs there."""


class DrainsReply(Reply, frozen=True, kw_only=True):
    """Drains, by kind and name."""

    drains: list[Drain]
    next: str = ""
    """There are more: ask again with this as ``after``. Empty at the end."""
    facts_seq: int = 0
    ledger_seq: int = 0


class QueuesRequest(Request, frozen=True, kw_only=True):
    """Ask for the queues of the cell."""

    after: Text = ""
    """Only queues after this one: ``next`` of the reply before."""
    limit: Limit = PAGE
    """Most queues in the reply."""


class QueueAmount(Shape, frozen=True, kw_only=True):
    """What a queue has of one resource, with those below it: chips, CPUs of ``cpu``, or MiB of ``memory``."""

    resource: str
    held: float
    """What its jobs hold, without those that are leaving."""
    entitled: float
    """What it may get back from others."""
    limit: float | None = None
    """Most that it may hold; null without a limit."""


class QueueEntry(Shape, frozen=True, kw_only=True):
    """A queue."""

    name: str
    parent: str = ""
    """The queue above; empty for ``root``."""
    state: str
    """``Open``, ``Closing`` or ``Closed``: the most closed one on its path."""
    is_valid: bool
    reason: str = ""
    """Why it is not valid."""
    priority: int = 0
    weight: int = 1
    namespaces: list[str] | None = None
    """Namespaces whose jobs may use it, as far as the caller may read them; null: all."""
    amounts: list[QueueAmount] = []
    """By resource; none where queues do nothing, and for a queue that is not valid."""
    waiting: int = 0
    """Jobs that name it and wait."""
    oldest_ms: Whole = 0
    """Since when the oldest of these waits; 0 without."""
    is_declared: bool = True
    """Somebody declared it; ``root`` and ``default`` are there also without that."""


class QueuesReply(Reply, frozen=True, kw_only=True):
    """Queues, by name."""

    queues: list[QueueEntry]
    are_applied: bool = False
    """They do something: by ``decisions.queues`` of the dispatcher, and with an amount or a further queue."""
    next: str = ""
    """There are more: ask again with this as ``after``. Empty at the end."""
    facts_seq: int = 0
    ledger_seq: int = 0
