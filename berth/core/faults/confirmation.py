"""Confirmation: which sources say that something is wrong with a node, so that one of them alone is distinguished.

Sources of the health service are columns of its facts. Kubernetes counts as one for a node that is gone or not ready,
failed pods of the job count as one for their node, and labels of ClusterD on pods count as ClusterD.
"""

from typing import Final

from berth.core.state.cell import State
from berth.core.state.holdings.holding import Holding
from berth.schemas.columns import unpack, unpack_names
from berth.schemas.facts import HealthSource, PodPhase
from berth.schemas.fault_facts import FAULT_TYPE

_WORDS: Final = {
    HealthSource.DEVICE_PLUGIN: "the device plug-in",
    HealthSource.NODED: "NodeD",
    HealthSource.CLUSTERD: "ClusterD",
    HealthSource.AGENT: "an agent",
}
_KUBERNETES: Final = "Kubernetes"
_PODS: Final = "a failed pod"
_RELATION: Final = frozenset({"Separate", "SubHealth"})
_INDEX_BYTES: Final = 4
CONFIRMED: Final = 2
"""Fewest sources that confirm one another."""


def sources_of(state: State, node: str, holding: Holding) -> list[str]:
    """Who says that something is wrong with a node, in words.

    Args:
        state: The cell.
        node: Its name.
        holding: The attempt on it whose pods count.
    """
    condition = state.faults.condition(node)
    mask = condition.sources if condition is not None else 0
    failed, labelled = _pods_on(state, node, holding)
    if labelled:
        mask |= HealthSource.CLUSTERD
    found = [word for source, word in _WORDS.items() if mask & source]
    if not state.faults.is_ready(node):
        found.append(_KUBERNETES)
    if failed:
        found.append(_PODS)
    return found


def _pods_on(state: State, node: str, holding: Holding) -> tuple[bool, bool]:
    """Whether a pod of an attempt on a node has failed, and whether ClusterD has labelled one."""
    seen = state.pods_seen(holding)
    if seen is None:
        return False, False
    names = unpack_names(seen.nodes)
    labels = {one.rank: one.values.get(FAULT_TYPE) for one in seen.marks}
    failed = labelled = False
    rows = zip(unpack(seen.rank, _INDEX_BYTES), unpack(seen.node_index, _INDEX_BYTES), seen.phase, strict=True)
    for rank, index, phase in rows:
        if names[index] == node:
            failed = failed or phase == PodPhase.FAILED
            labelled = labelled or labels.get(rank) in _RELATION
    return failed, labelled
