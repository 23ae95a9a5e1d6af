"""What a gang demands of leaf switches, as the demand in its shapes states it."""

from typing import Final

from berth.schemas.offers import Demand

SWITCHES: Final = "switches"
TOR_AFFINITY: Final = "tor-affinity"
"""Label of a job that requests switch affinity."""
UNINVOLVED: Final = "null"
"""Value of the label that turns switch affinity off."""


def leaf_demand(label: str, *, gang_pods: int) -> Demand:
    """Demand of a gang with switch affinity.

    Args:
        label: Value of its label ``tor-affinity``.
        gang_pods: Pods with chips of the whole gang.
    """
    return Demand(SWITCHES, policy=label, uses_network=gang_pods > 1)


def label_of(demand: Demand | None) -> str:
    """Value of the label ``tor-affinity`` of a gang; empty without switch affinity."""
    return demand.policy if demand is not None and demand.topology == SWITCHES else ""
