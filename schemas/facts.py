"""Facts: the latest truth on a subject. Everything that a decision rests on comes in as one of these."""

from enum import IntEnum
from typing import ClassVar, Literal

from berth.schemas.constraints import Taint
from berth.schemas.intake import JobRequest
from berth.schemas.message import Message, Part
from berth.schemas.refusal import Refusal
from berth.schemas.units import Sequence, UnixMs


class NodeClass(Part, frozen=True):
    """What equal nodes of a domain share. Labels leave out ``kubernetes.io/hostname``: it is the node's name."""

    product: str
    """Product form of the node, for people; empty when unknown."""
    resource: str
    """Resource name of its chips; empty for a node without."""
    labels: dict[str, str] = {}
    taints: list[Taint] = []
    cordoned: bool = False
    ready: bool = True


class NodesSeen(Message, frozen=True):
    """All nodes of a domain, as columns in the order of the sorted name table. No nodes: the domain is gone.

    Columns (one row a node): ``class_index`` ``<u2`` into ``classes``; ``chips`` ``<u8`` mask of the chips that the node
    has; ``allocatable`` ``<u2`` chips that Kubernetes would give; ``cpu_milli`` ``<u4``; ``memory_mib`` ``<u4``;
    ``superpod_index`` and ``leaf_index`` ``<u4`` into ``superpods`` and ``leaves`` plus one, 0 for none; ``position``
    ``<u2`` below the leaf switch.
    """

    KIND: ClassVar[str] = "fact.node"

    domain: str
    names: bytes
    classes: list[NodeClass]
    class_index: bytes
    chips: bytes
    allocatable: bytes
    cpu_milli: bytes
    memory_mib: bytes
    superpods: list[str] = []
    superpod_index: bytes = b""
    leaves: list[str] = []
    leaf_index: bytes = b""
    position: bytes = b""
    addresses: list[str] = []
    """InternalIP of each node, or nothing at all when unknown."""
    at_ms: UnixMs = 0
    racks: list[str] = []
    """Racks inside SuperPoDs, sorted."""
    rack_index: bytes = b""
    """``<u4`` into ``racks`` plus one, 0 for none; empty when no node has one."""


class NodeHealth(IntEnum):
    """Level of a node, worst last."""

    OK = 0
    SUB_HEALTHY = 1
    NO_NEW_WORK = 2
    EVICT = 3


class HealthSeen(Message, frozen=True):
    """Health of a domain's nodes, as columns in the order of the sorted name table.

    Columns: ``unhealthy``, ``recovering`` and ``network_unhealthy`` ``<u8`` chip masks; ``level`` ``<u1`` of
    :class:`NodeHealth`; ``network_known`` ``<u1``, 0 when the list of network-unhealthy chips is missing.
    """

    KIND: ClassVar[str] = "fact.health"

    domain: str
    names: bytes
    unhealthy: bytes
    recovering: bytes
    network_unhealthy: bytes
    level: bytes
    network_known: bytes
    source: str = ""
    at_ms: UnixMs = 0
    withheld: bytes = b""
    """``<u8`` masks of chips that the node itself does not list as free; empty when no node withholds any."""
    reasons: list[str] = []
    """Distinct sentences, sorted: why a node is not well, with the source of the word."""
    reason_index: bytes = b""
    """``<u4`` into ``reasons`` plus one, 0 for none; empty when there are none."""
    updated_ms: bytes = b""
    """``<u8``: when each node's source last spoke, 0 for never; empty when unknown."""


class Leaf(Part, frozen=True):
    """A leaf switch and the places below it, in the order of its list.

    A place in the list is what logical switches are made of; the position orders ranks below one leaf.
    """

    name: str
    """Identity of the leaf; its address where it has one."""
    address: str
    nodes: list[str]
    """Node at each place; empty where no node is known."""
    positions: list[int] = []
    """Position of each place, 0 and up (``slice_id``); no list at all: the place itself."""
    addresses: list[str] = []
    """InternalIP of each place; no list at all when unknown."""


class TopologySeen(Message, frozen=True):
    """Switches of the cluster, in the order of their source, which breaks ties; no leaves: unknown."""

    KIND: ClassVar[str] = "fact.topology"

    kind: str
    leaves: list[Leaf]
    level: str = ""
    """``single_layer`` or ``double_layer``; empty means the second."""
    at_ms: UnixMs = 0
    places: int = 0
    """Most nodes below a leaf (``tor_count``); 0: as many as the longest list has."""
    reason: str = ""
    """Why the newest value of the source does not count, so that an older one holds; empty when it does."""


class PodPhase(IntEnum):
    """Life of a pod in the cluster."""

    PENDING = 0
    RUNNING = 1
    TERMINATING = 2
    SUCCEEDED = 3
    FAILED = 4
    GONE = 5


class PodsSeen(Message, frozen=True):
    """Pods of a gang as the cluster shows them. No ranks: none is left (tombstone).

    Columns (one row a pod): ``rank`` ``<u4``; ``node_index`` ``<u4`` into the name table ``nodes``; ``phase`` ``<u1`` of
    :class:`PodPhase`; ``chips`` ``<u8`` mask of the chips that the pod holds.
    """

    KIND: ClassVar[str] = "fact.pod"

    namespace: str
    gang: str
    uid: str
    attempt: int
    rank: bytes = b""
    nodes: bytes = b""
    node_index: bytes = b""
    phase: bytes = b""
    chips: bytes = b""
    resource: str = ""
    cpu_milli: int = 0
    memory_mib: int = 0
    foreign: bool = False
    """Placed by another scheduler: its chips are to be adopted."""
    at_ms: UnixMs = 0
    consumed: bytes = b""
    """``<u1`` a row: 1 once the device plug-in has given the pod its chips, or needs not; empty when unknown."""
    tor_affinity: str = ""
    """Value of the pods' label ``tor-affinity``; empty without."""
    leaf_states: bytes = b""
    """``<u1`` a row, of the pods' annotations: ``isSharedTor`` (0 to 2) plus 4 times ``isHealthy``; empty when all are 0."""
    service: str = ""
    """Value of the pods' label ``inferserviceid``; empty without."""
    blocks: bytes = b""
    """``<u2`` a row: the pods' annotation ``super-pod-rank`` plus one, 0 without; empty when all are 0."""


class Owner(Part, frozen=True):
    """An object of the cluster to which pods belong."""

    kind: str = ""
    name: str = ""
    uid: str = ""


class MembersSeen(Message, frozen=True):
    """Pods that stand for the ranks of a job: who is to be bound where a placement says. No ranks: there are none (tombstone).

    Lists have one entry a row, rows are sorted by rank. A rank without a pod is left out.
    """

    KIND: ClassVar[str] = "fact.member"

    namespace: str
    job: str
    """Name of the job request."""
    uid: str
    """Uid of the job request; empty while none was published."""
    rank: bytes = b""
    """``<u4``: rank in the job request."""
    pods: list[str] = []
    """Names of the pods."""
    pod_uids: list[str] = []
    rank_index: list[str] = []
    """What to write as the pod's rank in its gang, decimal; empty where the pod has it or needs none."""
    hold: str = ""
    """Why no request was published, or why it was taken back: one sentence; empty when nothing holds the gang."""
    owner: Owner = Owner()
    """Controller of the gang, as far as there is one."""
    podgroup: str = ""
    """Name of the Volcano PodGroup; empty without one."""
    distributed: bool = False
    """The gang has more than one pod with chips, pods of other requests included."""
    writes_real: bool = False
    """Pods were made by the Ascend operator: the binding scheduler also writes the chips really mounted."""
    at_ms: UnixMs = 0
    stale: list[int] = []
    """Ranks whose pods carry chips' annotations of an attempt that was rolled back; they are removed before binding."""


JobState = Literal["accepted", "rejected", "cancelled", "tombstone"]


class Rejection(Part, frozen=True):
    """A request that was rejected while another job had its name."""

    uid: str
    intake_seq: Sequence
    refusal: Refusal
    at_ms: UnixMs


class JobSeen(Message, frozen=True):
    """Verdict on a job's name: the request that has it, what became of it, and the last one rejected."""

    KIND: ClassVar[str] = "fact.job"

    namespace: str
    name: str
    uid: str
    state: JobState
    intake_seq: Sequence
    """Highest INTAKE sequence whose verdict this is."""
    accepted_seq: Sequence = 0
    """INTAKE sequence at which the job was first accepted: its place in the queue."""
    at_ms: UnixMs = 0
    request: JobRequest | None = None
    refusal: Refusal | None = None
    rejection: Rejection | None = None
    reason: str = ""
    after_seq: Sequence = 0
    """INTAKE sequence of the verdict before this one. A verdict whose forerunner is missing is void, so that none is lost."""


OutcomeState = Literal["bound", "failed", "evicted"]


class RankFailure(Part, frozen=True):
    """A pod that could not be bound."""

    rank: int
    reason: str


class OutcomeSeen(Message, frozen=True):
    """What the binder achieved for an attempt, cumulative."""

    KIND: ClassVar[str] = "fact.outcome"

    namespace: str
    name: str
    uid: str
    attempt: int
    state: OutcomeState
    bound: int = 0
    failures: list[RankFailure] = []
    ledger_seq: Sequence = 0
    at_ms: UnixMs = 0


class TimerSeen(Message, frozen=True):
    """A tick of the dispatcher's clock: what waits for time waits for this."""

    KIND: ClassVar[str] = "fact.timer"

    at_ms: UnixMs
