"""Maintenance: pods on nodes that a person drains leave by the steps of a recovery, whatever labels say about faults.

A job whose labels let Berth act on faults loses the pods that these name, with their grace period. Any other job starts
anew as a whole, because nothing says that its pods can be replaced one by one; only a job with the limit ``pod`` loses
the pods on drained nodes alone. A job with a pod that no controller makes anew stays, unless the drain says otherwise.

See decision drains.
"""

from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from berth.core.faults.diagnosis import is_master
from berth.core.faults.escalation import acts
from berth.core.faults.model import JobDiagnosis, PodFault, PodFaultKind, PodView
from berth.core.requests.fault_rules import FaultRules
from berth.core.state.cell import State
from berth.schemas.facts import PodPhase
from berth.schemas.fault_facts import DrainSeen
from berth.schemas.ledger import Settings

_OVER: Final = frozenset({PodPhase.SUCCEEDED, PodPhase.FAILED, PodPhase.GONE})
_REASON: Final = "its node is drained"


def drained_since(state: State, nodes: Iterable[str], *, by_force: bool = False) -> dict[str, int]:
    """From when on nodes are drained, of those that are or will be.

    Args:
        state: The cell.
        nodes: Names of nodes.
        by_force: Only drains count by which pods leave too that have no controller.
    """
    table = state.table
    if not table.drained_ms:
        return {}
    rows = {name: table.row_of.get(name, -1) for name in nodes}
    since_ms = {name: table.drained_ms[row] for name, row in rows.items() if row in table.drained_ms}
    if not by_force:
        return since_ms
    forced = {name: [one.since_ms for one in _drains_of(state, name) if one.force] for name in since_ms}
    return {name: min(moments) for name, moments in forced.items() if moments}


def _drains_of(state: State, name: str) -> list[DrainSeen]:
    """Drains that concern a node."""
    table = state.table
    row = table.row_of[name]
    leaf, superpod = int(table.leaf[row]), int(table.superpod[row])
    place = (table.leaves[leaf] if leaf >= 0 else "", table.superpods[superpod] if superpod >= 0 else "")
    return table.drains.of(name, *place)


def diagnose_drained(pods: Iterable[PodView], drained: Collection[str], rules: FaultRules) -> JobDiagnosis:
    """Pods of a job that have to leave their nodes.

    Args:
        pods: Its pods.
        drained: Names of the nodes that are drained now.
        rules: What the job says about faults.
    """
    return JobDiagnosis(
        drain_rules(rules),
        tuple(
            PodFault(pod.rank, pod.node, PodFaultKind.DRAIN, 0, _REASON, is_master(pod))
            for pod in sorted(pods, key=lambda pod: pod.rank)
            if pod.node in drained and pod.phase not in _OVER
        ),
    )


def drain_rules(rules: FaultRules) -> FaultRules:
    """Rules by which the pods of a job leave drained nodes.

    Args:
        rules: What the job says about faults.
    """
    if acts(rules) and rules.scheduling in {"grace", "force"}:
        return msgspec.structs.replace(rules, scheduling="grace")
    return FaultRules(scheduling="grace", limit="pod" if rules.limit == "pod" else "")


def settings_of_drain(state: State, drained: Iterable[str]) -> Settings:
    """Settings with the longest grace period of the drains that concern some nodes.

    Args:
        state: The cell.
        drained: Names of the nodes.
    """
    settings = state.fold.settings
    graces = [one.grace_ms or settings.grace_over_ms for name in drained for one in _drains_of(state, name)]
    return msgspec.structs.replace(settings, grace_over_ms=max(graces)) if graces else settings
