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
    Demand,
    Kind,
    LeafPool,
    NoPlan,
    Plan,
    Policy,
    Rule,
    SwitchRules,
)
from berth.core.switches.nslb_v1 import plan_v1
from berth.core.switches.nslb_v2 import plan_v2
from berth.core.switches.occupancy.leaf_states import LARGE, NORMAL
from berth.core.switches.single_layer import plan_single
from berth.schemas.ledger import Settings

_PLANS: Final[Mapping[Policy, Callable[[LeafPool, Demand, SwitchRules], Plan | NoPlan]]] = {
    "1.0": plan_v1,
    "2.0": plan_v2,
    "single-layer": plan_single,
}


def plan(pool: LeafPool, demand: Demand, rules: SwitchRules) -> Plan | NoPlan:
    """Which nodes a gang gets, or what is missing. Changes nothing; the same arguments give the same plan.

    Args:
        pool: Leaves as the gang finds them.
        demand: What it asks.
        rules: What must be heeded.

    Raises:
        ValueError: Fewer than one pod is asked for.
    """
    if demand.replicas < 1:
        raise ValueError(f"replicas is {demand.replicas}: expected 1 or more")
    return _PLANS[rules.policy](pool, demand, rules)


def switch_rules(settings: Settings, *, is_single_layer: bool) -> SwitchRules:
    """Rules of an epoch on a network. A single layer goes before the version.

    Source: docs/reference/switches.md, "Jobs and policies".
    """
    policy: Policy = "2.0" if settings.nslb_version == "2.0" else "1.0"
    if is_single_layer:
        policy = "single-layer"
    return SwitchRules(policy, settings.shared_tor_num, settings.reference_parity)


def is_annotated(rules: SwitchRules) -> bool:
    """The states of a plan are written to the pods.

    Policy 1.0 keeps no states, so all it says is that a leaf is free and healthy; the reference does not say even that.

    Source: docs/reference/switches.md, "Ranks, scores and annotations". See decision annotations-in-1.0.
    """
    return rules.policy == "2.0" or (rules.policy == "1.0" and not rules.parity)


def switch_decisions(pool: LeafPool, demand: Demand, rules: SwitchRules) -> tuple[str, ...]:
    """Documented decisions that may make a plan or its annotations differ from the reference's."""
    found = []
    if rules.policy == "1.0":
        found.append("annotations-in-1.0")
    if demand.kind == "padding" and demand.replicas >= pool.places and rules.policy != "single-layer":
        found.append("fill-crosses-leaf")
    return tuple(found)


__all__ = [
    "LARGE",
    "NORMAL",
    "TOR_AFFINITY",
    "UNINVOLVED",
    "Demand",
    "Kind",
    "LeafPool",
    "NoPlan",
    "Plan",
    "Policy",
    "Rule",
    "SwitchRules",
    "is_annotated",
    "plan",
    "switch_decisions",
    "switch_rules",
]
