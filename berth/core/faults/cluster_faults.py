"""Faults of a cell: those of its nodes, and what they mean for the jobs that Berth has placed."""

from collections.abc import Iterable, Mapping

import msgspec

from berth.core.faults.diagnosis import diagnose
from berth.core.faults.model import JobDiagnosis, NodeFault, NodeFaultKind, NodeView
from berth.core.faults.observation import node_view, pods_of, rules_for
from berth.core.state.cell import State
from berth.schemas.facts import NodeHealth, PodPhase
from berth.schemas.fault_facts import GroupSeen
from berth.schemas.nodes import NodeCondition

Conditions = Mapping[tuple[str, str], NodeCondition]
"""Health of nodes by domain and name, from the newest health facts."""


class FaultyJob(msgspec.Struct, frozen=True):
    """A job with faults, or with labels for faults that mean nothing."""

    namespace: str
    name: str
    uid: str
    attempt: int
    diagnosis: JobDiagnosis


class CellFaults(msgspec.Struct, frozen=True):
    """Faults of a cell: of nodes by name and kind, of jobs by namespace, name and attempt."""

    nodes: list[NodeFault]
    jobs: list[FaultyJob]


def faults_of(state: State, groups: Iterable[GroupSeen], conditions: Conditions) -> CellFaults:
    """Faults of a cell.

    Jobs of other schedulers, and those whose pods are being deleted, are left out.

    Args:
        state: State of the cell.
        groups: What PodGroups say about faults.
        conditions: Health of nodes; where a node has none, the state counts.
    """
    health = _conditions(state, conditions)
    views = {name: node_view(state, state.table.row_of[name], condition) for name, condition in health.items()}
    group_of = {(group.namespace, job): group for group in groups if not group.gone for job in group.jobs}
    held = [one for one in state.fold.holdings.values() if not one.foreign and not one.ending]
    jobs: list[FaultyJob] = []
    used: dict[str, None] = {}
    for holding in sorted(held, key=lambda one: (one.namespace, one.name, one.attempt, one.uid)):
        seen = state.pods_seen(holding)
        if seen is None:
            continue
        pods = pods_of(state, holding, seen)
        used.update(dict.fromkeys(pod.node for pod in pods if pod.phase not in {PodPhase.SUCCEEDED, PodPhase.GONE}))
        group = group_of.get((holding.namespace, holding.name))
        rules = rules_for(state, (holding.namespace, holding.name), seen, group)
        found = diagnose(pods, views, rules, size=holding.placement.pods())
        if found.faults or found.tolerated or rules.findings:
            jobs.append(FaultyJob(holding.namespace, holding.name, holding.uid, holding.attempt, found))
    nodes = [
        fault
        for name in sorted(health.keys() | used)
        for fault in node_faults(name, health.get(name), views.get(name, NodeView()))
    ]
    return CellFaults(nodes, jobs)


def _conditions(state: State, conditions: Conditions) -> dict[str, NodeCondition]:
    """Health of all nodes that are there, by name."""
    table = state.table
    found: dict[str, NodeCondition] = {}
    for row, name in enumerate(table.names):
        if table.present[row]:
            known = conditions.get((table.domains[int(table.domain[row])], name))
            found[name] = known or NodeCondition(
                name=name,
                unhealthy=int(table.unhealthy[row]),
                network_unhealthy=int(table.network[row]),
                level=NodeHealth(int(table.level[row])),
            )
    return found


def node_faults(name: str, condition: NodeCondition | None, view: NodeView) -> list[NodeFault]:
    """Faults of a node, of the whole node first.

    Args:
        name: The node.
        condition: Its health; None for a node that is gone.
        view: What is known of it besides.
    """
    if condition is None:
        return [NodeFault(name, NodeFaultKind.NODE_GONE, 0, "", 0)]
    parts = [
        (NodeFaultKind.NODE_UNHEALTHY, view.is_unhealthy, 0),
        (NodeFaultKind.NODE_NOT_READY, not view.is_ready, 0),
        (NodeFaultKind.NODE_NO_NEW_WORK, condition.level is NodeHealth.NO_NEW_WORK, 0),
        (NodeFaultKind.NODE_SUB_HEALTHY, view.is_sub_healthy, 0),
        (NodeFaultKind.CARD_UNHEALTHY, bool(condition.unhealthy), condition.unhealthy),
        (NodeFaultKind.CARD_RECOVERING, bool(condition.recovering), condition.recovering),
        (NodeFaultKind.CARD_NETWORK_UNHEALTHY, bool(condition.network_unhealthy), condition.network_unhealthy),
        (NodeFaultKind.CARD_SUB_HEALTHY, bool(view.sub_healthy) and not view.is_sub_healthy, view.sub_healthy),
    ]
    return [
        NodeFault(name, kind, chips, condition.reason, condition.updated_ms) for kind, holds, chips in parts if holds
    ]
