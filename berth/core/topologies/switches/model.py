"""Types of switch affinity (NSLB): candidates, rules and demand; plan, or the reason why there is none.

Source: docs/reference/switches.md, "Jobs and policies" and "Partitions of idle nodes".
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from berth.core.parity import OWN, Differences
from berth.core.topologies.switches.occupancy.leaf_bits import NORMAL
from berth.core.topologies.switches.occupancy.leaf_states import LARGE_PODS_MIN, Bits
from berth.core.topologies.switches.occupancy.leaf_table import Cells, Grid
from berth.schemas.refusal import SwitchLack

Policy = Literal["1.0", "2.0", "single-layer"]
Kind = Literal["common", "foundation-model", "padding"]
Rule = Literal[
    "best-fit",
    "complete-leaves",
    "logical-switches",
    "drained",
    "drained-and-shared",
    "drained-and-opened",
    "fallback",
    "replacement",
]
"""Rule by which the leaves of a plan were chosen.

``best-fit``: one leaf, the fullest that can take all pods. ``complete-leaves``: whole leaves. ``logical-switches``
(1.0): rows of nodes at different positions. ``drained`` (2.0): free leaves, each used completely before the next;
``drained-and-shared``: the remaining pods on shared leaves; ``drained-and-opened``: the remaining pods on a free
leaf that becomes shared. ``fallback``: a common job that no rule can serve takes any available nodes.
``replacement``: places for lost pods next to the running ones."""


class LeafPool(NamedTuple):
    """Leaf switches (ToR) with the candidate nodes of one gang.

    Attributes:
        names: Leaves in the order of their source.
        usable: ``bool[leaves, width]``: places whose nodes can take a pod of the gang.
        slices: ``int32[leaves, width]``: position of each place.
        bits: ``uint8[leaves]``, as ``LeafOccupancy.bits`` of :mod:`.occupancy.leaf_states` has them without the gang
            itself.
        places: Number of nodes below a whole leaf.
    """

    names: Sequence[str]
    usable: Grid
    slices: Cells
    bits: Bits
    places: int


class SwitchRules(NamedTuple):
    """Rules that a plan must meet.

    Attributes:
        policy: One of the three policies.
        shared_max: 2.0: most shared leaves of a job.
        differs: Which documented decisions go Berth's way.
    """

    policy: Policy
    shared_max: int = 2
    differs: Differences = OWN


class Demand(NamedTuple):
    """Request of a gang.

    Attributes:
        replicas: Number of pods with chips to place, each on a different node.
        pods: Number of pods with chips of the whole gang.
        tor_affinity: ``normal-schema`` or ``large-model-schema``.
    """

    replicas: int
    pods: int
    tor_affinity: str

    @property
    def kind(self) -> Kind:
        """Kind of job: common, foundation-model, or padding (a foundation-model job with few pods)."""
        if self.tor_affinity == NORMAL:
            return "common"
        return "foundation-model" if self.pods >= LARGE_PODS_MIN else "padding"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Place of each rank.

    Attributes:
        cells: Cell of each rank: ``leaf * width + place``.
        rule: Rule by which the leaves were chosen.
        states: State byte of each rank, written to the annotations of its pod: ``isSharedTor`` plus 4 times
            ``isHealthy``. All 0 for a plan with one group, and if the policy has no states.
        after: Leaves (by index, ascending) whose state the plan sets, and their new state byte.
        missed: Common job: the rule that could not be met before another rule was used.
    """

    cells: list[int]
    rule: Rule
    states: bytes
    after: dict[int, int] = {}
    missed: SwitchLack | None = None


class NoPlan(msgspec.Struct, frozen=True):
    """Reason why there is no plan.

    Attributes:
        lack: What is missing, and where.
        first: Rule that failed first, if a common job tried another one after it; otherwise the rule of ``lack``.
    """

    lack: SwitchLack
    first: str
