"""Score requests and offers: requests of the dispatcher to the shards, and their answers."""

from typing import ClassVar, Final

import msgspec

from berth.schemas.constraints import NAME_KEYS, Term, Toleration
from berth.schemas.message import Message, Part
from berth.schemas.placement import Share
from berth.schemas.pod_constraints import PodProfile
from berth.schemas.refusal import ReasonCount
from berth.schemas.units import Sequence, UnixMs


class Demand(Part, frozen=True, cache_hash=True):
    """What the pods with chips of a gang demand of a topology, of which one plan places all of them.

    The topology says what its policies, sizes and options mean.
    """

    topology: str
    """``switches``, ``superpods``, ``racks`` or ``levels``."""
    policy: str = ""
    """Its rules for the gang: a variant of the product, or the value of a label."""
    sizes: tuple[int, ...] = ()
    """Nodes of a group at each level, the one nearest to the node first."""
    groups: int = 0
    """Groups of the gang."""
    options: tuple[tuple[str, str], ...] = ()
    """What else the gang demands, by name, sorted."""
    uses_network: bool = True
    """The pods certainly use the network."""


class Shape(Part, frozen=True, cache_hash=True):
    """Fields of a task that scoring depends on. Equal shapes get equal offers."""

    form: str
    """Name of the product form; empty for pods without chips."""
    resource: str
    chips: int
    gang_pods: int
    """Pods with chips in the whole gang. With more than one the gang is distributed."""
    cpu_milli: int = 0
    memory_mib: int = 0
    selector: tuple[tuple[str, str], ...] = ()
    affinity: tuple[Term, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    share: Share | None = None
    sub_health: str = "ignore"
    """The job's ``subHealthyStrategy``."""
    demand: Demand | None = None
    """For pods that one plan places; None: each pod has its best node."""
    profile: PodProfile | None = None
    """For pods with constraints, or on which constraints of other pods may bear; None: there are none."""
    drained_ms: UnixMs = 0
    """Nodes that are drained from this moment or an earlier one on take no pod; 0 without drains. It is the last moment
    of a drain before the expected end of the pod, so most gangs of a round have the same."""

    @property
    def is_planned(self) -> bool:
        """Whether one plan places all pods of the gang with chips."""
        return self.demand is not None

    @property
    def needs_marks(self) -> bool:
        """Whether shards answer with one mark for each node that takes a pod, instead of their best nodes."""
        return self.is_planned or self.profile is not None

    @property
    def names_nodes(self) -> bool:
        """Whether a condition on the name of the node must hold."""
        if not (self.selector or self.affinity):  # most often
            return False
        return any(name in NAME_KEYS for name, _ in self.selector) or any(
            expression.key in NAME_KEYS for term in self.affinity for expression in term.expressions
        )

    @property
    def is_constrained(self) -> bool:
        """Whether its nodes depend on more than its offers: on a profile, or on names of nodes."""
        return self.profile is not None or self.names_nodes

    @property
    def offered(self) -> "Shape":
        """Shape whose offers are those of this one, with marks instead of the best nodes if it is another one.

        What other pods demand, volumes allow and names of nodes exclude is checked where all of that is known, so
        shapes that differ in that alone are asked for once.
        """
        if self.names_nodes:
            selector = tuple((name, value) for name, value in self.selector if name not in NAME_KEYS)
            return msgspec.structs.replace(
                self, selector=selector, affinity=_without_names(self.affinity), profile=_SOME
            )
        return self if self.profile is None else msgspec.structs.replace(self, profile=_SOME)

    @property
    def uses_network(self) -> bool:
        """Whether the pods of the gang certainly use the network.

        Source: docs/reference/nodes-and-chips.md, "Product forms", "Selection of the form" and "Usable chips".
        """
        return self.gang_pods > 1 if self.demand is None else self.demand.uses_network


_SOME: Final = PodProfile("")
"""Instead of the profile of a shape: there is one."""


def _without_names(terms: tuple[Term, ...]) -> tuple[Term, ...]:
    """What terms, of which one must hold, say of a node whose name may be any."""
    left = dict.fromkeys(
        Term(tuple(expression for expression in term.expressions if expression.key not in NAME_KEYS))
        for term in terms
        if term.expressions  # a term without any never holds
    )
    return () if Term(()) in left else tuple(left) or terms


class Ask(Part, frozen=True):
    """Number of candidates of a shape that the round may need."""

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
    """Longest time that a shard waits to reach the sequences."""
    keep_ms: int = 0
    """How long after its receipt an answer is of use; after that a shard drops the request. 0: always."""


class ShapeOffer(Part, frozen=True):
    """Best nodes of a shard for a shape, in total order: score down, then name up.

    ``names`` is a front-coded table in that order; ``runs`` has the score of each run of consecutive nodes and its
    length.
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
    """For shapes whose pods are planned and shapes with a profile: one bit per node of the shard, by domain and name,
    the lowest bit first; 1 if it takes a pod. Otherwise empty."""
    error: str = ""
    """Why the shape could not be scored: an internal error, with which the offer does not count. Otherwise empty."""


class Offer(Message, frozen=True):
    """Answer of a shard; with ``ready`` false it could not answer at the requested sequences and counts as missing."""

    KIND: ClassVar[str] = "score.offer"

    shard: int
    round: int
    facts_seq: Sequence
    ledger_seq: Sequence
    ready: bool
    shapes: list[ShapeOffer] = []


class Advance(Message, frozen=True):
    """Sequences up to which scorers may apply facts and records between requests."""

    KIND: ClassVar[str] = "score.advance"

    epoch: int
    facts_seq: Sequence
    ledger_seq: Sequence
    at_ms: UnixMs = 0
