"""Switch affinity (NSLB): the node of each rank of a gang, chosen so that its traffic does not collide below the spine.

A plan is made once for the whole gang, from the candidate places of the gang and the state of each leaf. Each policy
has its own module.

Source: docs/reference/switches.md, "Jobs and policies", "Partitions of idle nodes", "Policy 1.0", "Policy 2.0",
"Single layer" and "Ranks, scores and annotations".
"""

from collections.abc import Callable, Mapping
from typing import Final

from berth.core.parity import differs
from berth.core.topologies.switches.demand import TOR_AFFINITY, UNINVOLVED
from berth.core.topologies.switches.model import Demand, Kind, LeafPool, NoPlan, Plan, Policy, Rule, SwitchRules
from berth.core.topologies.switches.nslb_v1 import plan_v1
from berth.core.topologies.switches.nslb_v2 import plan_v2
from berth.core.topologies.switches.occupancy.leaf_bits import LARGE, NORMAL
from berth.core.topologies.switches.single_layer import plan_single
from berth.schemas.ledger import Settings

_PLANS: Final[Mapping[Policy, Callable[[LeafPool, Demand, SwitchRules], Plan | NoPlan]]] = {
    "1.0": plan_v1,
    "2.0": plan_v2,
    "single-layer": plan_single,
}


def plan(pool: LeafPool, demand: Demand, rules: SwitchRules) -> Plan | NoPlan:
    """Plan of a gang, or what is missing. The function is pure: equal arguments give equal plans.

    Args:
        pool: Leaves with the candidates of the gang.
        demand: Request of the gang.
        rules: Rules that the plan must meet.

    Raises:
        ValueError: ``replicas`` is below 1.
    """
    if demand.replicas < 1:
        raise ValueError(f"replicas is {demand.replicas}: expected 1 or more")
    return _PLANS[rules.policy](pool, demand, rules)


def switch_rules(settings: Settings, *, is_single_layer: bool) -> SwitchRules:
    """Rules of an epoch for a network. On a single layer the setting ``nslb_version`` is ignored.

    Source: docs/reference/switches.md, "Jobs and policies".
    """
    policy: Policy = "2.0" if settings.nslb_version == "2.0" else "1.0"
    if is_single_layer:
        policy = "single-layer"
    return SwitchRules(policy, settings.shared_tor_num, differs(settings))


def is_annotated(rules: SwitchRules) -> bool:
    """Whether the states of a plan are written to the pods.

    Policy 1.0 has no states: it only marks a leaf as free and healthy. The reference does not write even that.

    Source: docs/reference/switches.md, "Ranks, scores and annotations". See decision annotations-in-1.0.
    """
    return rules.policy == "2.0" or (rules.policy == "1.0" and rules.differs.annotations_in_1_0)


def switch_decisions(pool: LeafPool, demand: Demand, rules: SwitchRules) -> tuple[str, ...]:
    """Names of the documented decisions that may make a plan or its annotations differ from the reference."""
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
