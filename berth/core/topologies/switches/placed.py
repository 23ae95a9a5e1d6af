"""Leaf switches of a placed gang, as its placement states them."""

import msgspec

from berth.core.topologies.switches.demand import SWITCHES
from berth.schemas.placement import Groups, Placement


class SwitchPlacement(msgspec.Struct, frozen=True):
    """Leaf switches of a gang with switch affinity.

    Columns have one entry per rank: ``leaf_index`` ``<u2`` into ``leaves`` plus one, 0 for a rank that was not placed
    by leaf; ``states`` as in :attr:`berth.schemas.placement.Groups.states`.
    """

    tor_affinity: str
    """Value of the label: ``normal-schema`` or ``large-model-schema``."""
    pods: int
    """Pods with chips of the whole gang."""
    policy: str = ""
    """``1.0``, ``2.0`` or ``single-layer``; empty when adopted."""
    rule: str = ""
    """Rule that chose the leaves, such as ``best-fit``."""
    leaves: list[str] = []
    """Leaves in the order of the plan."""
    leaf_index: bytes = b""
    states: bytes = b""
    annotated: bool = False
    """The states are written to the pods as annotations."""
    warning: str = ""
    """Why the policy does not support the job, in one sentence; empty when it does."""

    @property
    def groups(self) -> Groups:
        """The same as a placement has it."""
        return Groups(
            SWITCHES,
            policy=self.policy,
            label=self.tor_affinity,
            size=self.pods,
            names=self.leaves,
            name_index=self.leaf_index,
            rules=[self.rule] if self.rule else [],
            states=self.states,
            annotated=self.annotated,
            warning=self.warning,
        )


def switch_of(placement: Placement) -> SwitchPlacement | None:
    """Leaf switches of a placement; None without."""
    found = next((part for part in placement.groups if part.topology == SWITCHES), None)
    if found is None:
        return None
    return SwitchPlacement(
        found.label,
        found.size,
        found.policy,
        found.rules[0] if found.rules else "",
        found.names,
        found.name_index,
        found.states,
        found.annotated,
        found.warning,
    )
