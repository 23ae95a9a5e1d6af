"""What histories had of constraints: what pods asked, what was placed with it, and what facts told."""

from collections import Counter
from typing import Final

from berth.core.state.cell import State
from berth.schemas.intake import JobRequest
from berth.schemas.ledger import Round
from berth.schemas.message import Message
from berth.schemas.usage_facts import NamespaceSeen, UsageSeen
from berth.schemas.volume_facts import ClaimSeen, StorageSeen, UnboundSeen, VolumeSeen
from tests.fuzz.constraint_draws import KINDS

_HAPPENS: Final = (
    "late",
    "limits",
    "domain is gone",
    "pod comes",
    "pod leaves",
    "pod is being deleted",
    "pod is relabelled",
    "placed pod is relabelled",
    "labels of its request again",
    "node is in no domain",
    "node is in two domains",
    "node moves",
)
REQUIRED: Final = (
    *(f"asked: {kind}" for kind in KINDS),
    *(f"placed with: {kind}" for kind in KINDS),
    *(
        f"placed: {what}"
        for what in ("pods with and without chips", "part without chips", "pods that select themselves")
    ),
    *(f"usage: {what}" for what in _HAPPENS),
    *(f"namespace: {what}" for what in ("labels", "no labels", "gone")),
    *(f"claim: {what}" for what in ("pending", "bound", "lost", "gone", "being deleted", "node is chosen", "one pod")),
    *(f"volume: {what}" for what in ("free", "has a claim", "gone", "being deleted")),
    *(f"unbound: {what}" for what in ("nodes", "volumes", "nothing")),
    *(f"decided: {what}" for what in ("a volume", "one is made")),
    *(f"storage: {what}" for what in ("gone", "waits", "at once", "capacities", "topologies")),
    *(f"fact: {kind}" for kind in ("usage", "namespace", "claim", "volume", "storage", "unbound")),
)
"""Features that a run of a minute must have had."""


def note_request(count: Counter[str], request: JobRequest) -> None:
    """Note what the pods of a request ask."""
    for kind in KINDS:
        count[f"asked: {kind}"] += any(
            getattr(task.constraints, kind) for task in request.tasks if task.constraints is not None
        )


def note_record(count: Counter[str], record: Round, state: State) -> None:
    """Note a record that is to be stored."""
    for verdict in record.verdicts:
        job = state.jobs.get((verdict.namespace, verdict.name))
        if verdict.placement is None or job is None or job.request is None:
            continue
        tasks = job.request.tasks
        chips = [task.chips for task in tasks]
        count["placed: pods with and without chips"] += any(chips) and not all(chips)
        for claim in verdict.placement.claims:
            count[f"decided: {'a volume' if claim.volume else 'one is made'}"] += 1
        count["placed: part without chips"] += "berth/beside" in job.request.annotations
        for task in tasks:
            if task.constraints is None:
                continue
            for kind in KINDS:
                count[f"placed with: {kind}"] += bool(getattr(task.constraints, kind))
            count["placed: pods that select themselves"] += any(
                term.selector is not None
                and any(one.key == "app" and task.labels.get("app") in one.values for one in term.selector.expressions)
                for term in (*task.constraints.affinity, *task.constraints.anti_affinity)
            )


def note_fact(count: Counter[str], fact: Message) -> None:
    """Note what a fact tells."""
    match fact:
        case NamespaceSeen():
            count[f"namespace: {'gone' if fact.gone else 'labels' if fact.labels else 'no labels'}"] += 1
        case ClaimSeen():
            count["claim: gone" if fact.gone else f"claim: {fact.phase}"] += 1
            count["claim: being deleted"] += fact.deleting
            count["claim: node is chosen"] += bool(fact.selected_node)
            count["claim: one pod"] += "ReadWriteOncePod" in fact.access
        case VolumeSeen():
            count["volume: gone" if fact.gone else "volume: free" if fact.claim is None else "volume: has a claim"] += 1
            count["volume: being deleted"] += fact.deleting
        case StorageSeen():
            count["storage: gone" if fact.gone else "storage: waits" if fact.waits else "storage: at once"] += 1
            count["storage: capacities"] += bool(fact.capacities)
            count["storage: topologies"] += bool(fact.topologies)
        case UnboundSeen():
            count["unbound: nodes"] += bool(fact.nodes)
            count["unbound: volumes"] += bool(fact.volumes)
            count["unbound: nothing"] += not (fact.nodes or fact.volumes)
        case UsageSeen():
            count["usage: nothing"] += not fact.names
        case _:
            pass
