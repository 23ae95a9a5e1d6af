"""Faults of a cell: those of its nodes, and what they mean for the jobs that Berth has placed."""

from collections.abc import Iterable, Mapping

import msgspec

from berth.core.changes import JobKey
from berth.core.faults.diagnosis import diagnose
from berth.core.faults.model import JobDiagnosis, NodeFault, NodeFaultKind, NodeView, PodView
from berth.core.faults.rules import rules_of
from berth.core.state.cell import State
from berth.core.state.ledger import Holding
from berth.schemas.columns import unpack, unpack_names
from berth.schemas.facts import NodeHealth, PodPhase, PodsSeen
from berth.schemas.fault_facts import GroupSeen, joined
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
    views = {name: _view(state, condition) for name, condition in health.items()}
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
        labels = joined([*([group.labels] if group is not None else ()), *_pod_labels(state, holding, seen, group)])
        rules = rules_of(labels, group.annotations if group is not None else {})
        found = diagnose(pods, views, rules, size=holding.placement.pods())
        if found.faults or found.tolerated or rules.findings:
            jobs.append(FaultyJob(holding.namespace, holding.name, holding.uid, holding.attempt, found))
    nodes = [fault for name in sorted(health.keys() | used) for fault in _node_faults(name, health, views)]
    return CellFaults(nodes, jobs)


def pods_of(state: State, holding: Holding, seen: PodsSeen) -> list[PodView]:
    """Bound pods of an attempt; chips that the facts do not know yet are those of its placement."""
    table, owned = unpack_names(seen.nodes), state.owned(holding.key)
    codes = unpack(seen.exit_codes, 4) or [0] * len(seen.phase)
    marks = {one.rank: one.values for one in seen.marks}
    rows = zip(unpack(seen.rank, 4), unpack(seen.node_index, 4), unpack(seen.chips, 8), seen.phase, codes, strict=True)
    return [
        PodView(
            rank,
            table[index],
            chips or (owned[rank].mask if rank < len(owned) else 0),
            PodPhase(phase),
            code,
            marks.get(rank, {}),
        )
        for rank, index, chips, phase, code in rows
    ]


def _pod_labels(state: State, holding: Holding, seen: PodsSeen, group: GroupSeen | None) -> list[Mapping[str, str]]:
    """Labels of the pods of a job, then of the other jobs of its PodGroup."""
    keys: list[JobKey] = [(holding.namespace, job) for job in group.jobs] if group is not None else []
    others = [state.pods.get(key) for key in keys if key != (holding.namespace, holding.name)]
    return [seen.steering, *(other.steering for other in others if other is not None)]


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


def _view(state: State, condition: NodeCondition) -> NodeView:
    row = state.table.row_of[condition.name]
    chips = int(state.table.chips[row])
    is_all = condition.level is NodeHealth.SUB_HEALTHY and not chips & ~condition.sub_healthy
    names_none = condition.level is NodeHealth.SUB_HEALTHY and not condition.sub_healthy
    return NodeView(
        is_unhealthy=condition.level is NodeHealth.EVICT,
        is_ready=state.table.classes[int(state.table.node_class[row])].ready,
        unhealthy=condition.unhealthy,
        sub_healthy=condition.sub_healthy,
        is_sub_healthy=is_all or names_none,
    )


def _node_faults(name: str, health: Mapping[str, NodeCondition], views: Mapping[str, NodeView]) -> list[NodeFault]:
    """Faults of a node, of the whole node first."""
    condition = health.get(name)
    if condition is None:
        return [NodeFault(name, NodeFaultKind.NODE_GONE, 0, "", 0)]
    view = views[name]
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
