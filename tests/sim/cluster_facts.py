"""At rest the facts are as the cluster is, and nobody's request is without an answer.

The last fact of each subject is compared with the objects of the API server. Of what the services keep in memory
nothing is read, so a fact that was not stored is missed here, whoever believes that it is.
"""

from collections.abc import Sequence
from typing import Any, Final, TypeVar

from berth.core.cluster.node_packing import unpack_health, unpack_nodes
from berth.runtime.bus.port import Stored
from berth.schemas.envelope import DecodeError, body_of, decode, open_envelope
from berth.schemas.facts import HealthSeen, JobSeen, NodeHealth, NodesSeen
from berth.schemas.intake import JobRequest
from berth.schemas.message import Message
from berth.schemas.nodes import NodeCondition, NodeDescription
from berth.schemas.status import KeptFact
from berth.schemas.subjects import StreamName
from tests.sim.errors import Failure
from tests.sim.nature import NODES
from tests.sim.world import World

FAULTS: Final = {"break": 0.5, "stuck": 25.0}
"""Events that break something below, and how much longer than they say it may last."""
_SETTLES_S: Final = 10.0
"""How late a fault may begin, and how long after its end a cell may take to say that it is over."""
M = TypeVar("M", bound=Message)


def faults_over_s(world: World) -> float:
    """When the last fault of the cluster is over, and known to be."""
    ends = [event.at_s + event.for_s + FAULTS[event.verb] for event in world.story.events if event.verb in FAULTS]
    return max(ends, default=0.0) + _SETTLES_S


async def see_facts(world: World) -> None:
    """See that facts and cluster agree.

    Raises:
        Failure: They do not.
    """
    _see_nodes(world)
    _see_health(world)
    await _see_verdicts(world)


def _see_nodes(world: World) -> None:
    """Each node is in one fact, as it is.

    Raises:
        Failure: It is not.
    """
    told: dict[str, NodeDescription] = {}
    for fact in _latest(world, "node", NodesSeen):
        for node in unpack_nodes(fact):
            if node.name in told:
                raise Failure("a node is in two facts", node.name)
            told[node.name] = node
    found = {node["metadata"]["name"]: node for node in world.cell.kube.objects(NODES)}
    if set(told) != set(found):
        raise Failure("facts have other nodes than the cluster", f"{sorted(told)} instead of {sorted(found)}")
    for name, node in found.items():
        world.observer.count["nodes at rest"] += 1
        seen = told[name]
        wanted = (bool(node["spec"].get("unschedulable")), _is_ready(node))
        if (seen.cordoned, seen.ready) != wanted:
            raise Failure("a node is not as its fact says", f"{name}: cordoned, ready {wanted}: {seen}")
        labels = node["metadata"].get("labels") or {}
        other = {key: value for key, value in seen.labels.items() if labels.get(key) != value}
        if other:
            raise Failure("a node has other labels than its fact says", f"{name}: {other}, it has {labels}")


def _is_ready(node: dict[str, Any]) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or []
    return all(one["status"] == "True" for one in conditions if one["type"] == "Ready")


def _see_health(world: World) -> None:
    """All faults are over, so every node is healthy; chips that failed often are withheld for a time.

    Not seen while the clock of the health service is another than those of the nodes: reports may then be too old.

    Raises:
        Failure: A fact says something else.
    """
    if any(clock.ahead_ms for clock in world.cell.clocks.values()):
        return
    told: dict[str, NodeCondition] = {}
    for fact in _latest(world, "health", HealthSeen):
        rows = unpack_health(fact)
        flapping = {rows[one.row].name for one in fact.flapping}
        told.update({row.name: row for row in rows if row.name not in flapping})
    for name, row in told.items():
        world.observer.count["health at rest"] += 1
        if row.unhealthy or row.network_unhealthy or row.level is not NodeHealth.OK:
            raise Failure("a node that is healthy is said to be faulty", f"{name}: {row}")


async def _see_verdicts(world: World) -> None:
    """Each request that is stored has a verdict or is a dead letter.

    Raises:
        Failure: It has neither.
    """
    facts = [decode(fact.data, JobSeen) for fact in _of(world, "job")]
    judged = {fact.intake_seq for fact in facts} | {fact.rejection.intake_seq for fact in facts if fact.rejection}
    base = world.observer.base
    # Of a restored cell only the newest verdict on each name is known; requests were judged in order.
    before = max((decode(fact.data, JobSeen).intake_seq for fact in _of(world, "job", base.facts)), default=0)
    for stored in await world.user.read(StreamName.INTAKE):
        if _is_request(stored):
            world.observer.count["requests"] += 1
            if stored.sequence > before and stored.sequence not in judged:
                raise Failure("a request has no verdict", f"{stored.sequence} {stored.subject}")


def _is_request(stored: Stored) -> bool:
    try:
        body_of(open_envelope(stored.data), JobRequest)
    except DecodeError:
        return False
    return True


def _latest(world: World, kind: str, form: type[M]) -> list[M]:
    """Last fact of each subject of a kind."""
    last = {fact.subject: fact.data for fact in _of(world, kind)}
    return [decode(data, form) for data in last.values()]


def _of(world: World, kind: str, facts: Sequence[Stored | KeptFact] | None = None) -> list[Stored | KeptFact]:
    """Facts of a kind in order, among some or all; of a restored cell, those that its backup kept and all after."""
    prefix = world.user.subjects.facts(kind).removesuffix(">")
    whole = [*world.observer.base.facts, *world.observer.facts] if facts is None else facts
    return [fact for fact in whole if fact.subject.startswith(prefix)]
