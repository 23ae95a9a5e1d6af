"""Words of switch affinity: board, rules and demand; plan and why there is none.

Source: docs/reference/switches.md, "Jobs and policies" and "Partitions of idle nodes".
"""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from berth.core.switches.occupancy.leaf_states import LARGE_PODS_MIN, NORMAL, Bits
from berth.core.switches.occupancy.leaf_table import Cells, Grid
from berth.schemas.refusal import SwitchLack

TOR_AFFINITY: Final = "tor-affinity"
"""Label of a job that asks for switch affinity."""
UNINVOLVED: Final = "null"
"""Value of the label with which switches play no part."""
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
"""How leaves were chosen: one leaf, the fullest that holds all (best-fit); whole leaves (complete-leaves); 1.0: rows of
nodes at different positions (logical-switches); 2.0: free leaves emptied one after the other (drained), with the rest on
shared leaves (drained-and-shared) or on a free leaf that becomes shared (drained-and-opened); what was left, for a common
job that no rule could serve (fallback); what fits beside the pods that live (replacement)."""


class LeafPool(NamedTuple):
    """Leaves as one gang finds them.

    Attributes:
        names: Leaves in the order of their source.
        usable: (leaves, width): places whose nodes can take a pod of the gang.
        slices: (leaves, width): position of each place.
        bits: One byte a leaf, as :meth:`berth.core.switches.occupancy.leaf_states.LeafBook.bits` gives them, without the gang itself.
        places: Nodes below a whole leaf.
    """

    names: Sequence[str]
    usable: Grid
    slices: Cells
    bits: Bits
    places: int


class SwitchRules(NamedTuple):
    """What a plan must heed.

    Attributes:
        policy: Which of the three.
        shared_max: 2.0: most shared leaves of a job.
        parity: Documented decisions go the reference's way.
    """

    policy: Policy
    shared_max: int = 2
    parity: bool = False


class Demand(NamedTuple):
    """What a gang asks.

    Attributes:
        replicas: Pods with chips to be placed, each on a node of its own.
        pods: Pods with chips of the whole gang.
        tor_affinity: ``normal-schema`` or ``large-model-schema``.
    """

    replicas: int
    pods: int
    tor_affinity: str

    @property
    def kind(self) -> Kind:
        """Kind of job."""
        if self.tor_affinity == NORMAL:
            return "common"
        return "foundation-model" if self.pods >= LARGE_PODS_MIN else "padding"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Where each rank goes.

    Attributes:
        cells: Cell of each rank: ``leaf * width + place``.
        rule: How the leaves were chosen.
        states: State byte of each rank, which its annotations say: ``isSharedTor`` plus 4 times ``isHealthy``. All 0 for a
            plan of one group, and where the policy keeps no states.
        after: Leaves (by index, ascending) whose state the plan sets, and the state byte they have then.
        missed: Common job: the rule that it could not meet, so that it went by another.
    """

    cells: list[int]
    rule: Rule
    states: bytes
    after: dict[int, int] = {}
    missed: SwitchLack | None = None


class NoPlan(msgspec.Struct, frozen=True):
    """Why no place was found.

    Attributes:
        lack: What is missing, and where.
        first: Rule that failed first, where a common job tried another after it; else that of ``lack``.
    """

    lack: SwitchLack
    first: str = ""
