"""Faults of nodes, as the page lists them."""

from collections.abc import Iterable
from typing import Final

from berth.core.chips.picking import ids_of
from berth.core.faults.cluster_faults import node_faults
from berth.core.faults.model import NodeFault, NodeFaultKind, NodeView
from berth.core.faults.observation import node_view
from berth.core.overview.conditions import Conditions
from berth.core.overview.numbers import Numbers
from berth.core.overview.owners import Owners
from berth.core.state.cell import State
from berth.core.text import numbered
from berth.schemas.facts import NodeHealth
from berth.schemas.nodes import NodeCondition
from berth.schemas.page.view import Fault

LEVELS: Final = {
    NodeFaultKind.NODE_UNHEALTHY: "evict",
    NodeFaultKind.NODE_GONE: "gone",
    NodeFaultKind.NODE_NOT_READY: "not-ready",
    NodeFaultKind.NODE_NO_NEW_WORK: "no-new-work",
    NodeFaultKind.NODE_SUB_HEALTHY: "sub-healthy",
    NodeFaultKind.CARD_UNHEALTHY: "unhealthy",
    NodeFaultKind.CARD_RECOVERING: "recovering",
    NodeFaultKind.CARD_NETWORK_UNHEALTHY: "network-unhealthy",
    NodeFaultKind.CARD_SUB_HEALTHY: "sub-healthy",
}


def faults_at(state: State, conditions: Conditions, row: int) -> list[NodeFault]:
    """Faults of a node, of the whole node first.

    Args:
        state: The cell.
        conditions: Health of nodes with its reasons.
        row: Its row of the node table.
    """
    table = state.table
    name = table.names[row]
    if not table.present[row]:
        return node_faults(name, None, NodeView(is_gone=True))
    condition = _condition(state, conditions, row)
    if condition is None and table.classes[table.node_class.item(row)].ready:
        return []
    condition = condition or NodeCondition(name=name)
    return node_faults(name, condition, node_view(state, row, condition))


def _condition(state: State, conditions: Conditions, row: int) -> NodeCondition | None:
    """Condition of a node that is there; None for a healthy one."""
    table = state.table
    known = conditions.of(table.domain_name(row), table.names[row])
    if known is not None:
        return known
    unhealthy, network, level = table.unhealthy.item(row), table.network.item(row), table.level.item(row)
    if not (unhealthy or network or level):
        return None
    return NodeCondition(name=table.names[row], unhealthy=unhealthy, network_unhealthy=network, level=NodeHealth(level))


def begun_ms(state: State, fault: NodeFault) -> int:
    """Since when a node has a fault that was there before anybody looked; 0 if nobody knows."""
    lost = state.faults.lost.get(fault.node)
    if fault.kind is NodeFaultKind.NODE_NOT_READY:
        return lost.unready_ms if lost is not None else 0
    if fault.kind is NodeFaultKind.NODE_UNHEALTHY and lost is not None and lost.evicted_ms:
        return lost.evicted_ms
    return fault.reported_ms


class FaultSource:
    """Derives the faults of a node.

    Args:
        state: The cell.
        conditions: Health of nodes with its reasons.
        owners: Owners of chips.
        numbers: Gives jobs their numbers.
    """

    def __init__(self, state: State, conditions: Conditions, owners: Owners, numbers: Numbers) -> None:
        self._state = state
        self._conditions = conditions
        self._owners = owners
        self._numbers = numbers

    def of(self, row: int, index: int, before: Iterable[Fault], at_ms: int) -> tuple[Fault, ...]:
        """Faults of a node, of the whole node first.

        Args:
            row: Its row of the node table.
            index: Its row on the page.
            before: Those that it had.
            at_ms: Since when it has others; 0: nobody looked before.
        """
        since_ms = {fault.kind: fault.since_ms for fault in before}
        return tuple(
            self._fault(fault, row, index, since_ms.get(fault.kind.value, at_ms or begun_ms(self._state, fault)))
            for fault in faults_at(self._state, self._conditions, row)
        )

    def _fault(self, fault: NodeFault, row: int, index: int, since_ms: int) -> Fault:
        chips = list(ids_of(fault.chips))
        jobs = {
            self._numbers.of(hold.job)
            for hold in self._owners.of_row(row).values()
            if not fault.chips or hold.mask & fault.chips
        }
        words = f" {numbered('chip', chips)}" if chips else ""
        return Fault(
            at_ms=fault.reported_ms,
            since_ms=since_ms,
            node=index,
            place=f"{fault.node}{words}",
            kind=fault.kind.value,
            level=LEVELS[fault.kind],
            chips=chips,
            sentence=fault.reason,
            jobs=sorted(jobs),
        )
