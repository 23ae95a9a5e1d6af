"""Facts: the latest state of a subject. All input of decisions arrives as one of these messages.

Longer than 400 lines because readers look for all facts in one place.
"""

from enum import IntEnum, IntFlag
from typing import ClassVar, Literal

import msgspec

from berth.schemas.constraints import Taint
from berth.schemas.fault_facts import BackupPod, FlappingChip
from berth.schemas.intake import Hold, JobRequest
from berth.schemas.message import Message, Part
from berth.schemas.refusal import Refusal
from berth.schemas.units import Sequence, UnixMs


class NodeClass(Part, frozen=True):
    """Fields that equal nodes of a domain share. Labels leave out ``kubernetes.io/hostname``, the name of the node."""

    product: str
    """Product of the node, for display; empty when unknown."""
    resource: str
    """Resource name of its chips; empty for a node without chips."""
    labels: dict[str, str] = {}
    taints: list[Taint] = []
    cordoned: bool = False
    ready: bool = True


class NodesSeen(Message, frozen=True):
    """All nodes of a domain, as columns in the order of the sorted name table. Without nodes: the domain is gone.

    Columns (one row per node): ``class_index`` ``<u2`` into ``classes``; ``chips`` ``<u8`` mask of the chips of the
    node; ``allocatable`` ``<u2`` chips that Kubernetes counts as allocatable; ``cpu_milli`` ``<u4``; ``memory_mib``
    ``<u4``; ``superpod_index`` and ``leaf_index`` ``<u4`` into ``superpods`` and ``leaves`` plus one, 0 for none;
    ``position`` ``<u2`` below the leaf switch.
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
    """InternalIP of each node; an empty list when unknown."""
    at_ms: UnixMs = 0
    racks: list[str] = []
    """Racks inside SuperPoDs, sorted."""
    rack_index: bytes = b""
    """``<u4`` into ``racks`` plus one, 0 for none; empty if no node has a rack."""
    cpu_others: bytes = b""
    """``<u4`` thousandths of a CPU that pods of others use besides ``cpu_milli``; empty if they use none."""
    memory_others: bytes = b""
    """``<u4`` MiB likewise, besides ``memory_mib``."""
    moving: list[str] = []
    """Nodes that have left this domain for another one, whose fact follows, sorted."""
    chips_others: bytes = b""
    """``<u2``: chips that bound pods request and that neither the ledger nor the fact of a pod names; empty if there
    are none."""
    unsettled: bytes = b""
    """``<u1``: 1 while pods of ``chips_others`` are so new that the device plug-in may still name their chips; empty if
    there are none."""


class NodeHealth(IntEnum):
    """Level of a node, worst last."""

    OK = 0
    SUB_HEALTHY = 1
    NO_NEW_WORK = 2
    EVICT = 3


class HealthSource(IntFlag):
    """Who reports something, as bits of a mask."""

    DEVICE_PLUGIN = 1
    """The ConfigMap of the device plug-in, with what it says of the switch."""
    NODED = 2
    CLUSTERD = 4
    """Everything that ClusterD relays, and the labels that it sets on pods."""
    AGENT = 8


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
    """``<u8`` masks of chips that the node itself does not list as free; empty if no node withholds chips."""
    reasons: list[str] = []
    """Distinct sentences, sorted: why a node is not healthy, and which source reports it."""
    reason_index: bytes = b""
    """``<u4`` into ``reasons`` plus one, 0 for none; empty when there are none."""
    updated_ms: bytes = b""
    """``<u8``: time of the last report of each node's source, 0 for never; empty when unknown."""
    sub_healthy: bytes = b""
    """``<u8`` masks of sub-healthy chips: those that a report names, and all of a node whose switch is sub-healthy;
    empty if there are none."""
    sources: bytes = b""
    """``<u1`` masks of :class:`HealthSource`: who reports a fault of the node or its chips; empty if nobody does."""
    flapping: list[FlappingChip] = []
    """Chips with faults in the last time, by row and chip."""
    noded_level: bytes = b""
    """``<u1`` levels of the nodes by the last valid report of NodeD; empty if it says that all are healthy."""
    switch_level: bytes = b""
    """Likewise by the last valid report on the switch of each."""


class Leaf(Part, frozen=True):
    """A leaf switch (ToR) and the places below it, in the order of its list.

    Logical switches consist of places with one index in the lists; the position orders ranks below one leaf.
    """

    name: str
    """Identity of the leaf: its address if it has one."""
    address: str
    nodes: list[str]
    """Node at each place; empty for an unknown node."""
    positions: list[int] = []
    """Position of each place, from 0 on (``slice_id``); an empty list: the place itself."""
    addresses: list[str] = []
    """InternalIP of each place; an empty list when unknown."""


class TopologySeen(Message, frozen=True):
    """Leaf switches of the cluster in the order of their source, which breaks ties. Without leaves: unknown."""

    KIND: ClassVar[str] = "fact.topology"

    kind: str
    leaves: list[Leaf]
    level: str = ""
    """``single_layer`` or ``double_layer``; empty means the second."""
    at_ms: UnixMs = 0
    places: int = 0
    """Most nodes below a leaf (``tor_count``); 0: the length of the longest list."""
    reason: str = ""
    """Why the newest value of the source is invalid, so that an older one is used; empty when it is valid."""


class PodPhase(IntEnum):
    """Phase of a pod in the cluster."""

    PENDING = 0
    RUNNING = 1
    TERMINATING = 2
    SUCCEEDED = 3
    FAILED = 4
    GONE = 5


class PodRejection(IntEnum):
    """Whether the kubelet has rejected a pod that was bound."""

    NONE = 0
    DEVICES = 1
    """It named devices or their plug-in."""
    OTHER = 2


class PodMarks(Part, frozen=True):
    """Marks of a pod for its faults, most of them from components beside the scheduler."""

    rank: int
    values: dict[str, str]
    """Labels and annotations of the pod by key, sorted: ``fault-type``, ``needVolcanoOpe``, ``needOperatorOpe``,
    ``inHotSwitchFlow``, ``podType``, ``backupNewPodName``, ``backupSourcePodName``; ``hccl/rankIndex`` where it is not
    the rank in the request; ``training.kubeflow.org/replica-type`` of the pod with rank index 0 if it is ``worker``."""


class PodsSeen(Message, frozen=True):
    """Pods of a gang as the cluster reports them. Without ranks: no pod is left (tombstone).

    Columns (one row per pod): ``rank`` ``<u4``; ``node_index`` ``<u4`` into the name table ``nodes``; ``phase`` ``<u1``
    of :class:`PodPhase`; ``chips`` ``<u8`` mask of the chips that the pod holds.
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
    """Placed by another scheduler: the dispatcher adopts its chips."""
    at_ms: UnixMs = 0
    consumed: bytes = b""
    """``<u1`` per row: 1 once the device plug-in has allocated the chips of the pod, or if it need not; empty when
    unknown."""
    tor_affinity: str = ""
    """Value of the pods' label ``tor-affinity``; empty without."""
    leaf_states: bytes = b""
    """``<u1`` per row, from the annotations of the pods: ``isSharedTor`` (0 to 2) plus 4 times ``isHealthy``; empty
    when all are 0."""
    service: str = ""
    """Value of the pods' label ``inferserviceid``; empty without."""
    blocks: bytes = b""
    """``<u2`` per row: the annotation ``super-pod-rank`` of the pod plus one, 0 without; empty when all are 0."""
    exit_codes: bytes = b""
    """``<u4`` per row: a code other than 0 with which a container of the pod last ended, 0 without; empty when all are
    0."""
    marks: list[PodMarks] = []
    """Pods with marks, ascending by rank."""
    steering: dict[str, str] = {}
    """Labels of the pods that steer faults, by key, sorted. Different values are joined with ``|``, in the order of
    ranks."""
    steps: bytes = b""
    """``<u4`` per row: step of the recovery for which the pod was bound (annotation ``berth/step``), 0 without; empty
    when all are 0. A rank has one row: that of the pod with the newest step."""
    job: str = ""
    """Of a foreign pod: name of the job of which its annotations say that it is a pod, while the verdict on that job is
    not known to the inventory; empty otherwise. Its ledger records may be lost, and the job gets no other places."""
    job_uid: str = ""
    """Uid of that job; empty without."""
    rejections: bytes = b""
    """``<u1`` per row of :class:`PodRejection`; empty when all are 0."""
    owner: str = ""
    """With ``rejections``: uid of the controller of the pods, or of a pod without one; empty otherwise."""
    queue: str = ""
    """Queue of the gang of pods that another scheduler placed."""
    checkpoint_ms: UnixMs = 0
    """When the gang last saved its work, as its PodGroup or the pod of rank 0 says, the later of both; 0 if neither
    does. A time in the future or before its start is not taken."""
    budgets: list[str] = []
    """Disruption budgets that do not allow that all these pods go at once: ``namespace/name``, sorted. A search for
    jobs that end for others prefers those that break none."""


class Owner(Part, frozen=True):
    """An object of the cluster to which pods belong."""

    kind: str = ""
    name: str = ""
    uid: str = ""


class MembersSeen(Message, frozen=True):
    """Pods of the ranks of a job, which the binder binds according to the placement.

    Without ranks: there are no pods (tombstone). Lists have one entry per row, rows are sorted by rank. A rank without
    a pod has no row.
    """

    KIND: ClassVar[str] = "fact.member"

    namespace: str
    job: str
    """Name of the job request."""
    uid: str
    """Uid of the job request; empty before a request is published."""
    rank: bytes = b""
    """``<u4``: rank in the job request."""
    pods: list[str] = []
    """Names of the pods."""
    pod_uids: list[str] = []
    rank_index: list[str] = []
    """Rank in the gang to write to the pod, decimal; empty if the pod has it or needs none."""
    hold: str = ""
    """Why no request was published, or why it was cancelled, as a sentence; empty when nothing holds the gang back."""
    owner: Owner = Owner()
    """Controller of the gang; empty fields without one."""
    podgroup: str = ""
    """Name of the Volcano PodGroup; empty without one."""
    distributed: bool = False
    """The gang has more than one pod with chips, pods of other requests included."""
    writes_real: bool = False
    """The Ascend operator created the pods: the binder also writes the chips that are mounted."""
    at_ms: UnixMs = 0
    stale: list[int] = []
    """Ranks whose pods carry chip annotations of an attempt that was rolled back; they are removed before binding."""
    podgroup_uid: str = ""
    """Uid of the Volcano PodGroup for which the request was made: one that is created later under the name is another
    owner. Empty without a PodGroup."""
    backups: list[BackupPod] = []
    """Backup pods beside those of the rows, as in :class:`~berth.schemas.fault_facts.ReplacementsSeen`."""


JobState = Literal["accepted", "rejected", "cancelled", "tombstone"]


class Rejection(Part, frozen=True):
    """A request that was rejected while another job had its name."""

    uid: str
    intake_seq: Sequence
    refusal: Refusal
    at_ms: UnixMs


class JobSeen(Message, frozen=True):
    """Verdict on the name of a job: the request that has it, its state, and the last rejected request for the name."""

    KIND: ClassVar[str] = "fact.job"

    namespace: str
    name: str
    uid: str
    state: JobState
    intake_seq: Sequence
    """Highest INTAKE sequence that this verdict covers."""
    accepted_seq: Sequence = 0
    """INTAKE sequence at which the job was first accepted: its place in the queue."""
    at_ms: UnixMs = 0
    request: JobRequest | None = None
    refusal: Refusal | None = None
    rejection: Rejection | None = None
    reason: str = ""
    after_seq: Sequence = 0
    """INTAKE sequence of the verdict before this one. A verdict whose predecessor is missing is void, so no verdict is
    lost."""
    inferred: bool = False
    """Cancelled because of what is seen of its pods: those that have a node are not deleted."""
    warnings: list[str] = []
    """Keys of the request that are probably misspelled, or have no effect, one sentence without a full stop each."""
    hold: Hold | None = None
    """Somebody holds the job; it counts while the job waits."""
    priority: int | None = None
    """Priority that somebody gave it; None: that of its request."""


OutcomeState = Literal["bound", "failed", "evicted"]


class RankFailure(Part, frozen=True):
    """A pod that could not be bound."""

    rank: int
    reason: str


class OutcomeSeen(Message, frozen=True):
    """Result of the binder for an attempt, cumulative."""

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
    step: int = 0
    """Newest step of a recovery that the binder has taken up: its pods are deleted, and facts show those that still
    end; ``failures`` are as of it. 0: none."""
    done: int = 0
    """Newest step that is carried out: all ranks with a place have bound pods, or are in ``failures``."""
    held: list[RankFailure] = []
    """Ranks whose pods are to be evicted from drained nodes and that a disruption budget holds back, and why."""
    open: list[int] = []
    """Ranks that recover, ascending: their pods are about to be deleted, or their new ones are not bound. Published
    before the first pod is deleted, so that their successors are known as such; all ranks if the whole job leaves."""
    given_back: bool = False
    """Nodes do not take pods any more that were decided for them. ``failed``: no pod was bound, and the gang is decided
    anew, as if not tried. ``bound``: ``failures`` of the first places are of such nodes, and get other places."""


class TimerSeen(Message, frozen=True):
    """A tick of the dispatcher's clock. Time-dependent rules use it instead of a clock."""

    KIND: ClassVar[str] = "fact.timer"

    at_ms: UnixMs


class Witness(Part, frozen=True):
    """A bound pod that names a record of the ledger."""

    pod: str
    """Its namespace and name, with a slash between."""
    node: str
    sequence: Sequence
    """Of the record."""


class LedgerSeen(Message, frozen=True):
    """What the bound pods of the cluster say of the ledger, after all of them are in the facts before this one."""

    KIND: ClassVar[str] = "fact.ledger"

    stream: str
    """Id of the stream in which the ledger was then: when the server made it."""
    epoch: int = 0
    """Of the newest record of that stream by which a pod was bound; 0 without one."""
    sequence: Sequence = 0
    """Of the same record."""
    at_ms: UnixMs = 0
    witnesses: list[Witness] = []
    """Of at most eight nodes the pod that names the newest record, the newest first; some may be gone by now."""


def is_repeat(published: Message | None, fact: Message) -> bool:
    """Whether a fact equals the published one apart from the time, so that it need not be published.

    Args:
        published: Fact with ``at_ms``; None if none was published.
        fact: Fact of the same kind.
    """
    return published is not None and msgspec.structs.replace(published, at_ms=0) == msgspec.structs.replace(
        fact, at_ms=0
    )
