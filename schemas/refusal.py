"""Refusals: a closed set of reasons, with the numbers that explain them.

The reason of a node is why it cannot take a pod of a shape. A refusal is why a gang waits or is rejected. Codes are
stored: a new one is appended with the next number.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, Literal

from berth.schemas.message import Part
from berth.schemas.units import UnixMs


class NodeReason(IntEnum):
    """Why a node cannot take a pod. The first that applies counts; the checks have this order, with two exceptions.

    A node with fewer allocatable chips than requested is short of chips (``SHORTAGE``) before its chip list is checked.
    Soft share checks its label before chips.
    """

    FITS = 0
    OTHER_RESOURCE = 1
    """The node has no chips of the requested resource."""
    NOT_READY = 2
    CORDONED = 3
    SELECTOR = 4
    """nodeSelector or required node affinity does not match."""
    TAINT = 5
    NODE_FAULT = 6
    """The node or its switch is reported unhealthy, or accepts no new work."""
    SUB_HEALTH = 7
    """Sub-healthy, and the job's label ``subHealthyStrategy`` is not ``ignore``."""
    CPU = 8
    MEMORY = 9
    UNSTABLE = 10
    """The numbers of the node contradict each other (more free chips than Kubernetes knows of)."""
    NO_CHIP_LIST = 11
    """No free chips are known on the node, or the list of network-unhealthy chips is missing."""
    TOO_MANY_CHIPS = 12
    """The node has more free chips than the product form allows: it is another product."""
    SHORTAGE = 13
    """Fewer free chips than requested."""
    TOPOLOGY = 14
    """Enough free chips, but not in the rings, pairs, meshes or cards that the form needs."""
    TOPOLOGY_HELPED = 15
    """As TOPOLOGY, in a form where freeing chips by preemption can help."""
    NODE_LABEL = 16
    """A label that the product form needs on the node is missing or wrong."""
    QUOTA = 17
    """Soft share: no room for the quota."""
    SHARD_MISSING = 18
    """The scorer that owns the node did not answer in time."""
    UNKNOWN_PRODUCT = 19
    """Berth does not know the product of the node."""
    HEALTH_UNKNOWN = 20
    """No source has reported the health of the node, and ``needs_health`` is set; checked with ``NODE_FAULT``."""
    NO_SUPERPOD = 21
    """The node is in no SuperPoD, or in no rack for a job that needs racks; checked with ``OTHER_RESOURCE``."""
    NO_LEVEL = 22
    """The node lacks labels of the levels that the job needs; checked with ``NO_SUPERPOD``."""
    PODS = 23
    """The node has as many pods as it takes. This reason and those up to ``SPREAD`` are checked last, in this order."""
    RESOURCE = 24
    """Not enough of a resource beside chips, cpu and memory."""
    PORT = 25
    """A host port is taken."""
    VOLUME = 26
    """A volume of the pod cannot be used from the node, or cannot be made for it."""
    VOLUME_LIMIT = 27
    """The node has as many volumes of a CSI driver as it takes."""
    AFFINITY = 28
    """No pod that the required pod affinity asks for is near."""
    ANTI_AFFINITY = 29
    """A pod that the required anti-affinity forbids is near."""
    REPELLED = 30
    """A pod near the node has a required anti-affinity that forbids this one."""
    SPREAD = 31
    """The pod would break a topology spread, or the node lacks its topology key."""
    DRAINED = 32
    """The node is drained, or will be before the pod is expected to end; checked before ``NODE_FAULT``."""


OF_THE_NODE: Final = frozenset(
    {
        NodeReason.OTHER_RESOURCE,
        NodeReason.NOT_READY,
        NodeReason.CORDONED,
        NodeReason.SELECTOR,
        NodeReason.TAINT,
        NodeReason.NODE_FAULT,
        NodeReason.SUB_HEALTH,
        NodeReason.NODE_LABEL,
        NodeReason.UNKNOWN_PRODUCT,
        NodeReason.HEALTH_UNKNOWN,
        NodeReason.NO_SUPERPOD,
        NodeReason.NO_LEVEL,
    }
)
"""Reasons that stay however many pods leave a node."""


QueueCode = Literal[
    "no-such-queue",
    "queue-not-valid",
    "queue-has-children",
    "queue-closed",
    "queue-not-for-namespace",
    "over-capability",
    "larger-than-capability",
    "too-many-pods",
    "behind-in-queue",
]
"""Codes that say why a queue does not let a gang in."""
Code = Literal[
    "no-room",
    "not-enough-pods",
    "invalid-request",
    "invalid-argument",
    "unsupported-policy",
    "unsupported-vnpu",
    "job-shape",
    "name-in-use",
    "larger-than-cluster",
    "larger-than-round",
    "bind-failed",
    "undecodable",
    "no-topology",
    "no-leaf",
    "no-rows",
    "no-leaves",
    "product-support",
    "no-blocks",
    "behind",
    "reserved",
    "internal",
    "no-claim",
    "no-resource",
    "late",
    "too-large",
    "too-many",
    "rule",
    QueueCode,
]
RULE: Final[Code] = "rule"
"""A rule of the queue refuses the gang, in the words of its template."""
LATE: Final[Code] = "late"
"""Scoring the gang alone took longer than a round waits: others go on without it."""
INTERNAL: Final[Code] = "internal"
"""An error of Berth set the gang aside."""


class ReasonCount(Part, frozen=True, gc=False):
    """Nodes that share a reason."""

    reason: int
    nodes: int


class ConstraintCount(Part, frozen=True):
    """Nodes that one constraint of a pod excludes, and that nothing before it excludes."""

    reason: int
    nodes: int
    names: list[str] = []
    """Topology keys, the host ports (``8080/TCP``), or the name of the resource."""
    lacking: int = 0
    """Of these nodes, those that lack a label of ``names``."""


def reason_counts(counts: Mapping[int, int]) -> list[ReasonCount]:
    """Nodes by reason, most frequent first, ties by code; reasons without nodes are left out."""
    return [
        ReasonCount(reason, nodes)
        for reason, nodes in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        if nodes
    ]


class SwitchLack(Part, frozen=True):
    """What a gang with switch affinity lacks, and where. Numbers are nodes unless stated otherwise."""

    policy: str
    """``1.0``, ``2.0`` or ``single-layer``."""
    rule: str
    """Rule that could not be met: one-leaf, leaf-size, logical-switches, idle-and-shared or any-leaf."""
    need: int
    """Nodes for the pods that are to be placed; for leaf-size those for all pods of the gang."""
    have: int
    """Nodes that count towards the rule at best: of the best leaf for one-leaf, otherwise of all leaves."""
    leaf: str = ""
    """Closest leaf; empty without any."""
    leaf_have: int = 0
    places: int = 0
    """Nodes below a whole leaf."""
    leaves: int = 0
    """Leaves in all."""
    full: int = 0
    """Leaves that are completely usable."""
    barred: int = 0
    """Leaves with usable nodes that this job may not use because of a cross job of others."""
    idle: int = 0
    """2.0: nodes of free leaves."""
    shared: int = 0
    """2.0: nodes of the shared leaves that the job may use together."""
    rows: int = 0
    """1.0: complete logical switches that are needed, and ..."""
    rest: int = 0
    """... nodes of one more."""
    rows_have: int = 0
    """1.0: complete logical switches that exist."""


class NearGroup(Part, frozen=True):
    """A physical SuperPoD, or another group of nodes, that comes close to the request."""

    name: str
    nodes: int
    """Nodes that a pod of the gang could use."""
    blocks: int
    """Whole blocks in these nodes."""


class BlockLack(Part, frozen=True):
    """What a gang with SuperPoD affinity lacks, and where."""

    rule: str
    """What is missing: nodes (fewer candidates than pods), blocks, incomplete (an unfinished plan), size, service,
    affinity, rack, wait, home or level."""
    need: int
    """Blocks."""
    have: int
    size: int
    """Nodes of a block."""
    nodes_need: int = 0
    nodes_have: int = 0
    near: list[NearGroup] = []
    """Closest groups, the closest first, three at most."""


class QueueRefusal(Part, frozen=True):
    """Why a queue does not let a gang in, with the numbers of its sentence. Amounts are those of queues.

    Attributes:
        code: What kind of reason.
        queue: The queue that binds: that of the gang, or one above it.
        reason: What is wrong with the queue; its closed state, and the queue that has it; its children.
        dimension: Dimension that is short.
        held: What counts against the limit, what is leaving included.
        leaving: How much of it is leaving.
        limit: The limit.
        asked: What the gang asks for.
        namespace: Namespace that may not use the queue, or whose own limit in the queue binds.
        others: Other dimensions that are short in this queue.
        is_admission: What counts are minima of gangs that stay, not what is held.
    """

    code: QueueCode
    queue: str
    reason: str = ""
    dimension: str = ""
    held: int = 0
    leaving: int = 0
    limit: int = 0
    asked: int = 0
    namespace: str = ""
    others: tuple[str, ...] = ()
    is_admission: bool = False


class Refusal(Part, frozen=True):
    """Why a gang is not placed: a code, and the numbers of its sentence."""

    code: Code
    field: str = ""
    """Wrong field of the request, for refusals of the request itself."""
    value: str = ""
    expected: str = ""
    """Valid values."""
    task: str = ""
    """Task whose pods did not fit."""
    pods_need: int = 0
    pods_have: int = 0
    chips: int = 0
    """Chips per pod in the request."""
    form: str = ""
    """Product form of the job."""
    form_because: str = ""
    """Why the job has this form."""
    nodes_total: int = 0
    nodes_fit: int = 0
    counts: list[ReasonCount] = []
    """Nodes by reason, most frequent first, ties by code."""
    missing_shards: list[int] = []
    switch: SwitchLack | None = None
    blocks: BlockLack | None = None
    ahead: str = ""
    """``behind``: job (namespace/name) that is before this one in the queue; ``reserved``: job whose reservation it
    would delay."""
    start_ms: UnixMs = 0
    """Start of the reservation: of this gang, or under ``reserved`` of the gang that is ahead; 0 without."""
    constraints: list[ConstraintCount] = []
    """Constraints of the task that exclude nodes, with what they name, in the order of checks. Their nodes are in
    ``counts`` too, unless they are excluded only after ``pods_have`` pods of the gang have got their nodes."""
    yields: bool = False
    """``fifo``: it is for ranks that a running gang lacks, and blocks no gang behind it, because no node could take one
    of its pods even if nothing else ran there."""
    retry_ms: UnixMs = 0
    """It is not tried again before this time, whatever changes, because a try takes much work; 0: it may be."""
    shapes: int = 0
    """``late``: different tasks of the gang, each of which is scored on its own."""
    rule: str = ""
    """Rule of the epoch that refuses the gang; empty if none does."""
    template: str = ""
    """Sentence of that rule, with ``{name}`` in place of each of its numbers and of ``ahead``; empty where the code
    has words of its own. So a reader of other releases tells it, too."""
    numbers: dict[str, int] = {}
    """Numbers of the template, by name; those whose name ends in ``_ms`` are times."""
    queue: QueueRefusal | None = None
    """Codes of queues: the queue, and what binds there."""
    node: str = ""
    """Node of the template."""
