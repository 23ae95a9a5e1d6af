"""Observation: nodes and pods as the newest facts show them, in the terms of the diagnosis."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from berth.core.changes import JobKey
from berth.core.faults.model import NodeView, PodView
from berth.core.requests.fault_rules import FaultRules, rules_of
from berth.core.requests.gangs import is_unowned
from berth.core.state.cell import State
from berth.core.state.ledger import Holding
from berth.schemas.columns import unpack, unpack_names
from berth.schemas.facts import NodeHealth, PodPhase, PodsSeen
from berth.schemas.fault_facts import GroupSeen, joined
from berth.schemas.nodes import NodeCondition

_PHASES: Final = {int(phase): phase for phase in PodPhase}
"""A look up is much faster than a call of the enumeration."""


def node_view(state: State, row: int, condition: NodeCondition | None) -> NodeView:
    """A node that is there.

    Args:
        state: The cell.
        row: The node.
        condition: Its health; None for a healthy one.
    """
    ready = state.table.classes[int(state.table.node_class[row])].ready
    if condition is None:
        return NodeView(is_ready=ready)
    chips = int(state.table.chips[row])
    is_all = condition.level is NodeHealth.SUB_HEALTHY and not chips & ~condition.sub_healthy
    names_none = condition.level is NodeHealth.SUB_HEALTHY and not condition.sub_healthy
    return NodeView(
        is_unhealthy=condition.level is NodeHealth.EVICT,
        is_ready=ready,
        unhealthy=condition.unhealthy,
        sub_healthy=condition.sub_healthy,
        is_sub_healthy=is_all or names_none,
    )


def pods_of(state: State, holding: Holding, seen: PodsSeen) -> list[PodView]:
    """Bound pods of an attempt; chips that the facts do not know yet are those of its placement."""
    table, owned = unpack_names(seen.nodes), state.owned(holding.key)
    codes = unpack(seen.exit_codes, 4) or [0] * len(seen.phase)
    marks = marks_of(seen)
    rows = zip(unpack(seen.rank, 4), unpack(seen.node_index, 4), unpack(seen.chips, 8), seen.phase, codes, strict=True)
    return [
        PodView(
            rank,
            table[index],
            chips or (owned[rank].mask if rank < len(owned) else 0),
            _PHASES[phase],
            code,
            marks.get(rank, {}),
        )
        for rank, index, chips, phase, code in rows
    ]


def marks_of(seen: PodsSeen) -> dict[int, Mapping[str, str]]:
    """Marks of pods by rank."""
    return {one.rank: one.values for one in seen.marks}


def rules_for(state: State, key: JobKey, seen: PodsSeen | None, group: GroupSeen | None) -> FaultRules:
    """What a job says about faults.

    Only faulty pods leave a job with a pod that has no controller: nobody would make its healthy pods anew.

    Args:
        state: The cell.
        key: The job.
        seen: Its pods.
        group: Its PodGroup.
    """
    labels = [
        *([group.labels] if group is not None else ()),
        *([seen.steering] if seen is not None else ()),
        *_labels_beside(state, key, group),
    ]
    rules = rules_of(joined(labels), group.annotations if group is not None else {})
    job = state.jobs.get(key)
    stays = job is not None and job.request is not None and is_unowned(job.request)
    return msgspec.structs.replace(rules, limit="pod") if stays else rules


def _labels_beside(state: State, key: JobKey, group: GroupSeen | None) -> Iterable[Mapping[str, str]]:
    """Labels of the pods of the other jobs of a PodGroup."""
    keys: list[JobKey] = [(key[0], job) for job in group.jobs] if group is not None else []
    others = [state.pods.get(other) for other in keys if other != key]
    return [other.steering for other in others if other is not None]
