"""Why not: a closed set of reasons with numbers.

A node's reason says why one node cannot take one pod of a shape; a refusal says why a gang waits or is rejected.
Codes are permanent: a new one is appended with the next number.
"""

from enum import IntEnum
from typing import Literal

from berth.schemas.message import Part
from berth.schemas.units import UnixMs


class NodeReason(IntEnum):
    """Why a node cannot take a pod. The first that applies counts; the checks have this order, with two exceptions.

    A node of which Kubernetes would give fewer chips than asked is short of chips (``SHORTAGE``) before its list of chips
    is looked at; soft share asks for its label before it looks at chips.
    """

    FITS = 0
    OTHER_RESOURCE = 1
    """The node has no chips of the resource asked for."""
    NOT_READY = 2
    CORDONED = 3
    SELECTOR = 4
    """nodeSelector or required node affinity does not match."""
    TAINT = 5
    NODE_FAULT = 6
    """The node or its switch is reported unhealthy, or takes no new work."""
    SUB_HEALTH = 7
    """Sub-healthy, and the job's label ``subHealthyStrategy`` is not ``ignore``."""
    CPU = 8
    MEMORY = 9
    UNSTABLE = 10
    """The node's numbers contradict one another (more free chips than Kubernetes knows of)."""
    NO_CHIP_LIST = 11
    """No free chips are known on the node, or the list of network-unhealthy chips is missing."""
    TOO_MANY_CHIPS = 12
    """The node has more free chips than the product form can have: it is another product."""
    SHORTAGE = 13
    """Fewer free chips than asked."""
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
    """The node's product is not one that Berth knows."""
    HEALTH_UNKNOWN = 20
    """Nobody has said how healthy the node is, and the setting ``needs_health`` wants to know; looked at with ``NODE_FAULT``."""
    NO_SUPERPOD = 21
    """The node is in no SuperPoD, or for a job that needs racks in no rack; looked at with ``OTHER_RESOURCE``."""
    NO_LEVEL = 22
    """The node lacks labels of the levels that the job needs; looked at with ``NO_SUPERPOD``."""


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
]


class ReasonCount(Part, frozen=True, gc=False):
    """Nodes that share a reason."""

    reason: int
    nodes: int


class SwitchLack(Part, frozen=True):
    """What a gang with switch affinity lacks, and where. Numbers are nodes unless they say otherwise."""

    policy: str
    """``1.0``, ``2.0`` or ``single-layer``."""
    rule: str
    """Rule that could not be met: one-leaf, leaf-size, logical-switches, idle-and-shared or any-leaf."""
    need: int
    have: int
    """Nodes that count towards the rule at best: of the best leaf for one-leaf, of all leaves else."""
    leaf: str = ""
    """Leaf that comes closest; empty without any."""
    leaf_have: int = 0
    places: int = 0
    """Nodes below a whole leaf."""
    leaves: int = 0
    """Leaves in all."""
    full: int = 0
    """Leaves that are wholly usable."""
    barred: int = 0
    """Leaves with usable nodes that a cross job of others keeps from this one."""
    idle: int = 0
    """2.0: nodes of free leaves."""
    shared: int = 0
    """2.0: nodes of the shared leaves that the job may use at once."""
    rows: int = 0
    """1.0: complete logical switches that are needed, beside ..."""
    rest: int = 0
    """... so many nodes of one more."""
    rows_have: int = 0
    """1.0: complete logical switches that there are."""


class NearGroup(Part, frozen=True):
    """A physical SuperPoD, or another group of nodes, that comes close."""

    name: str
    nodes: int
    """Nodes that a pod of the gang could use."""
    blocks: int
    """Whole blocks that they make."""


class BlockLack(Part, frozen=True):
    """What a gang with SuperPoD affinity lacks, and where."""

    rule: str
    """What is missing: nodes (fewer candidates than pods), blocks, incomplete (a plan that broke off), size, service, affinity,
    rack, wait, home or level."""
    need: int
    """Blocks."""
    have: int
    size: int
    """Nodes of a block."""
    nodes_need: int = 0
    nodes_have: int = 0
    near: list[NearGroup] = []
    """Groups that come closest, the closest first, three at most."""


class Refusal(Part, frozen=True):
    """Why a gang is not placed: the class of reason and the numbers behind its sentence."""

    code: Code
    field: str = ""
    """Field of the request that is wrong, for refusals of the request itself."""
    value: str = ""
    expected: str = ""
    """What would be right."""
    task: str = ""
    """Task whose pods found no room."""
    pods_need: int = 0
    pods_have: int = 0
    chips: int = 0
    """Chips a pod asked for."""
    form: str = ""
    """Product form that was assumed, and ..."""
    form_because: str = ""
    """... what it follows from."""
    nodes_total: int = 0
    nodes_fit: int = 0
    counts: list[ReasonCount] = []
    """Nodes by reason, most frequent first, ties by code."""
    missing_shards: list[int] = []
    switch: SwitchLack | None = None
    blocks: BlockLack | None = None
    ahead: str = ""
    """``behind``: job (namespace/name) that waits before this one; ``reserved``: job whose reservation it would delay."""
    start_ms: UnixMs = 0
    """Moment from which on room is reserved: for this gang, or under ``reserved`` for the one that is ahead; 0 without."""
