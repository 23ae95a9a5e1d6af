"""Score requests and offers: what the dispatcher asks of shards, and what they can give."""

from typing import ClassVar

from berth.schemas.constraints import Term, Toleration
from berth.schemas.message import Message, Part
from berth.schemas.placement import Share
from berth.schemas.refusal import ReasonCount
from berth.schemas.units import Sequence, UnixMs


class Blocks(Part, frozen=True, cache_hash=True):
    """How the pods with chips of a gang are to lie in SuperPoDs, or in groups of several levels."""

    variant: str
    """``a3``, ``850``, ``rack`` or ``levels``."""
    size: int
    """Nodes of a logical SuperPoD."""
    count: int
    """Logical SuperPoDs of the gang."""
    soft: bool = False
    """Pieces smaller than a block will do where whole ones cannot be had."""
    rack_size: int = 0
    """Racks: nodes that must be in one rack together."""
    memory: bool = False
    """Racks: the pods share memory (``huawei.com/schedule_ubmemory``)."""
    service: str = ""
    """Label ``inferserviceid``; empty without."""
    mindie: bool = False
    """A MindIE service: labels ``app`` and ``jobID``."""
    idlest: bool = False
    """MindIE: the emptiest SuperPoDs first (``sp-fit``), not the fullest."""
    near: tuple[tuple[str, str], ...] = ()
    """MindIE: labels of jobs beside which it prefers to be."""
    levels: tuple[int, ...] = ()
    """Levels: pods of a group at each level, the one nearest to the node first."""


class Shape(Part, frozen=True, cache_hash=True):
    """What scoring needs of a task of a gang. Equal shapes get equal offers."""

    form: str
    """Name of the product form; empty for pods without chips."""
    resource: str
    chips: int
    gang_pods: int
    """Pods with chips in the whole gang: more than one makes it distributed."""
    cpu_milli: int = 0
    memory_mib: int = 0
    selector: tuple[tuple[str, str], ...] = ()
    affinity: tuple[Term, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    share: Share | None = None
    sub_health: str = "ignore"
    """The job's ``subHealthyStrategy``."""
    tor_affinity: str = ""
    """The job's label ``tor-affinity``; empty where switches play no part."""
    blocks: Blocks | None = None
    """For jobs with SuperPoD affinity."""

    @property
    def is_planned(self) -> bool:
        """Whether one plan says where all pods of the gang with chips go."""
        return bool(self.tor_affinity) or self.blocks is not None

    @property
    def uses_network(self) -> bool:
        """Whether the pods of the gang talk to one another over the network for certain.

        Blocks do; inside one SuperPoD traffic stays on its bus. With racks that is decided where a block is placed. Groups
        of several levels are no SuperPoDs.

        Source: docs/reference/nodes-and-chips.md, "Product forms", "Selection of the form" and "Usable chips";
        docs/reference/superpods.md, "Filter per node of a SuperPoD".
        """
        if self.blocks is None or self.blocks.levels:
            return self.gang_pods > 1
        return self.gang_pods // self.blocks.size > 1 and not self.blocks.rack_size


class Ask(Part, frozen=True):
    """How many candidates of a shape the round may need."""

    shape: Shape
    count: int


class ScoreRequest(Message, frozen=True):
    """One request of a round: the shapes, and the sequences at which each shard answers."""

    KIND: ClassVar[str] = "score.request"

    round: int
    epoch: int
    facts_seq: Sequence
    ledger_seq: Sequence
    asks: list[Ask]
    wait_ms: int = 0
    """How long a shard may wait to reach the sequences."""


class ShapeOffer(Part, frozen=True):
    """Best nodes of a shard for a shape, in total order: score down, then name up.

    ``names`` is a front-coded table in that order; ``runs`` says how many that follow one another share a score.
    """

    names: bytes
    runs: list[tuple[int, int]]
    """(score, nodes)"""
    exhausted: bool
    """No further node of the shard fits."""
    total: int
    fit: int
    counts: list[ReasonCount] = []
    usable: bytes = b""
    """For shapes with switch affinity: one bit a place of the topology, leaf after leaf, the lowest bit first; 1 where the
    shard owns the node and it takes a pod. ceil(places / 8) bytes. For shapes with SuperPoD affinity: one bit a node of the
    shard, domain after domain and name after name, 1 where it takes a pod. Empty else."""
    error: str = ""
    """Why the shape could not be scored: an error of Berth. Then nothing else of the offer counts. Empty else."""


class Offer(Message, frozen=True):
    """A shard's answer. ``ready`` false: it could not answer at the sequences asked, and counts as missing."""

    KIND: ClassVar[str] = "score.offer"

    shard: int
    round: int
    facts_seq: Sequence
    ledger_seq: Sequence
    ready: bool
    shapes: list[ShapeOffer] = []
    leaf_states: bytes = b""
    """``<u1`` a leaf of the topology, where a shape has switch affinity: what the ledger makes of it. Bits 0 and 1
    ``isSharedTor``, 2 ``isHealthy``, 3 a cross job is on it, 4 a job that is not common, 5 a cross foundation-model job."""


class Advance(Message, frozen=True):
    """How far scorers may apply facts between requests."""

    KIND: ClassVar[str] = "score.advance"

    epoch: int
    facts_seq: Sequence
    ledger_seq: Sequence
    at_ms: UnixMs = 0
