"""Switch affinity: which nodes a gang gets, rank by rank, so that its traffic does not collide below the spine.

A plan is made once for the whole gang, from the places that are usable for it and from the state of each leaf. Each
policy has a module of its own.

Source: docs/reference/switches.md, "Jobs and policies", "Partitions of idle nodes", "Policy 1.0", "Policy 2.0",
"Single layer" and "Ranks, scores and annotations".
"""

from collections.abc import Callable, Mapping
from typing import Final

from berth.core.switches.model import (
    TOR_AFFINITY,
    UNINVOLVED,
    Board,
    Demand,
    Kind,
    NoPlan,
    Plan,
    Policy,
    Rule,
    Rules,
)
from berth.core.switches.nslb_v1 import plan_one
from berth.core.switches.nslb_v2 import plan_two
from berth.core.switches.occupancy.leaf_states import LARGE, NORMAL
from berth.core.switches.single_layer import plan_single
from berth.schemas.ledger import Settings

_PLANS: Final[Mapping[Policy, Callable[[Board, Demand, Rules], Plan | NoPlan]]] = {
    "1.0": plan_one,
    "2.0": plan_two,
    "single-layer": plan_single,
}


def plan(board: Board, demand: Demand, rules: Rules) -> Plan | NoPlan:
    """Which nodes a gang gets, or what is missing. Changes nothing; the same arguments give the same plan.

    Args:
        board: Leaves as the gang finds them.
        demand: What it asks.
        rules: What must be heeded.

    Raises:
        ValueError: Fewer than one pod is asked for.
    """
    if demand.replicas < 1:
        raise ValueError(f"replicas is {demand.replicas}: expected 1 or more")
    return _PLANS[rules.policy](board, demand, rules)


def rules_of(settings: Settings, *, is_single_layer: bool) -> Rules:
    """Rules of an epoch on a network. A single layer goes before the version.

    Source: docs/reference/switches.md, "Jobs and policies".
    """
    policy: Policy = "2.0" if settings.nslb_version == "2.0" else "1.0"
    if is_single_layer:
        policy = "single-layer"
    return Rules(policy, settings.shared_tor_num, settings.reference_parity)


def is_annotated(rules: Rules) -> bool:
    """The states of a plan are written to the pods.

    Policy 1.0 keeps no states, so all it says is that a leaf is free and healthy; the reference does not say even that.

    Source: docs/reference/switches.md, "Ranks, scores and annotations". See decision annotations-in-1.0.
    """
    return rules.policy == "2.0" or (rules.policy == "1.0" and not rules.parity)


def decisions_of(board: Board, demand: Demand, rules: Rules) -> tuple[str, ...]:
    """Documented decisions that may make a plan or its annotations differ from the reference's."""
    found = []
    if rules.policy == "1.0":
        found.append("annotations-in-1.0")
    if demand.kind == "padding" and demand.replicas >= board.places and rules.policy != "single-layer":
        found.append("fill-crosses-leaf")
    return tuple(found)


__all__ = [
    "LARGE",
    "NORMAL",
    "TOR_AFFINITY",
    "UNINVOLVED",
    "Board",
    "Demand",
    "Kind",
    "NoPlan",
    "Plan",
    "Policy",
    "Rule",
    "Rules",
    "decisions_of",
    "is_annotated",
    "plan",
    "rules_of",
]
