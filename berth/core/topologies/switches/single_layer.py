"""Switch affinity on a single layer: the whole job goes below one leaf switch, the one with the best fit.

Source: docs/reference/switches.md, "Single layer".
"""

from typing import Final

import msgspec

from berth.core.topologies.switches.groups import counts_of, falling, lack_of, leaf_by_leaf
from berth.core.topologies.switches.model import Demand, LeafPool, NoPlan, Plan, Policy, SwitchRules
from berth.core.topologies.switches.nslb_v1 import best_fit

POLICY: Final[Policy] = "single-layer"


def plan_single(pool: LeafPool, demand: Demand, _rules: SwitchRules) -> Plan | NoPlan:
    """Plan of a gang below the only layer of switches. All kinds of jobs are treated alike."""
    if demand.pods > pool.places:
        missed = msgspec.structs.replace(lack_of(pool, demand, POLICY, "leaf-size"), need=demand.pods)
        return NoPlan(missed, missed.rule)
    counts = counts_of(pool.usable)
    order = falling(counts)
    leaf = best_fit(counts, order, demand.replicas)
    if leaf < 0:
        return NoPlan(lack_of(pool, demand, POLICY, "one-leaf"), "one-leaf")
    groups = leaf_by_leaf(pool.usable, order[leaf : leaf + 1], demand.replicas)
    return Plan(
        cells=groups.ranked(pool.slices, demand.replicas).tolist(), rule="best-fit", states=bytes(demand.replicas)
    )
