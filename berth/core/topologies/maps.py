"""What is drawn of a topology, as data: leaf switches or SuperPoDs with the nodes below them, and the jobs there."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from berth.core.cluster.node_table import NodeTable
from berth.core.topologies.layouts import JobPods, LeafUser, SuperpodUser
from berth.schemas.facts import NodeHealth, TopologySeen
from berth.schemas.ledger import Settings

PlaceKind = Literal["free", "part", "used", "unusable", "none"]
"""All chips free, some, none; takes no new work; no node known."""
NodeKind = Literal["free", "reserved", "part", "used", "unusable"]
"""As above; ``reserved``: all chips free, in reserve."""


class PlaceRow(msgspec.Struct, frozen=True):
    """A place below a leaf, in the order of its list."""

    node: str
    """Empty if no node is known."""
    position: int
    kind: PlaceKind


class LeafRow(msgspec.Struct, frozen=True):
    """A leaf switch as ``--json`` prints it."""

    name: str
    free: int
    """Nodes that accept new work and whose chips are all free."""
    nodes: int
    """Known nodes."""
    state: str
    """2.0: ``free``, ``shared`` or ``exclusive``; empty if the policy has no states."""
    healthy: bool
    cross: bool
    """A job is on this leaf and on another one."""
    only_common: bool
    """All jobs on this leaf are common jobs."""
    words: str
    """State of the leaf for the policy, as text."""
    jobs: list[LeafUser]
    places: list[PlaceRow]


class SwitchesShown(msgspec.Struct, frozen=True):
    """Result of ``berth switches --json``."""

    policy: str = ""
    """``1.0``, ``2.0`` or ``single-layer``."""
    shared_max: int = 0
    """2.0: maximum number of shared leaves of a job; otherwise 0."""
    places: int = 0
    """Nodes below a whole leaf."""
    total: int = 0
    """Known leaves, whether shown or not."""
    reason: str = ""
    """Why the newest topology is not in force; empty if it is."""
    leaves: list[LeafRow] = []


class NodeRow(msgspec.Struct, frozen=True):
    """A node of a SuperPoD."""

    node: str
    rack: str
    """Empty if it is unknown."""
    kind: NodeKind
    job: str = ""
    """Job with SuperPoD affinity on this node, as ``namespace/name``; empty if there is none."""
    block: int = -1
    """Its block; -1 if there is none."""


class SuperpodRow(msgspec.Struct, frozen=True):
    """A physical SuperPoD as ``--json`` prints it."""

    id: str
    free: int
    """Nodes that accept new work and whose chips are all free."""
    nodes: int
    """Known nodes."""
    above: int
    """Free nodes above the reserve."""
    used: int
    """Nodes with chips in use."""
    warning: str
    """Why its numbers are unreliable; empty if they are reliable."""
    jobs: list[SuperpodUser]
    places: list[NodeRow]
    """Its nodes by rack, leaf, position and name; in a rack, sub-healthy ones last."""


class SuperpodsShown(msgspec.Struct, frozen=True):
    """Result of ``berth superpods --json``."""

    super_pod_size: int = 0
    reserve_nodes: int = 0
    total: int = 0
    """Known SuperPoDs, whether shown or not."""
    superpods: list[SuperpodRow] = []


class Maps(NamedTuple):
    """What is drawn of a topology, in one of the forms that commands draw.

    Attributes:
        switches: Leaf switches.
        superpods: SuperPoDs.
    """

    switches: SwitchesShown | None = None
    superpods: SuperpodsShown | None = None


class DrawnCell(NamedTuple):
    """What a topology sees of a cell of which it draws a map.

    Attributes:
        table: The nodes.
        settings: Settings of the epoch.
        facts: Newest facts about topologies, by kind.
        jobs: Placed jobs, by name.
    """

    table: NodeTable
    settings: Settings
    facts: Mapping[str, TopologySeen]
    jobs: Sequence[JobPods]


def place_kind(table: NodeTable, node: str) -> PlaceKind:
    """State of a node; the name is empty where no node is known."""
    row = table.row_of.get(node, -1) if node else -1
    if row < 0 or not table.present[row]:
        return "none"
    key = table.classes[int(table.node_class[row])]
    if not key.ready or key.cordoned or table.level[row] >= NodeHealth.NO_NEW_WORK:
        return "unusable"
    free = int(table.free[row])
    if not free:
        return "used"
    return "free" if free == int(table.chips[row]) else "part"
