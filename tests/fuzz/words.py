"""What happened in a history, one line a fact or record."""

from collections.abc import Sequence
from typing import Final

from berth.core.cluster.node_packing import unpack_health, unpack_nodes
from berth.products.catalogue import NODE_PRODUCTS
from berth.schemas.columns import unpack, unpack_names
from berth.schemas.envelope import DecodeError, Envelope, body_of, open_envelope
from berth.schemas.facts import HealthSeen, JobSeen, NodesSeen, OutcomeSeen, PodPhase, PodsSeen, TopologySeen
from berth.schemas.fault_facts import DrainSeen, GroupSeen, ReplacementsSeen
from berth.schemas.intake import Task
from berth.schemas.ledger import Epoch, Round
from berth.schemas.nodes import NodeCondition, NodeDescription
from berth.schemas.placement import Placement
from berth.schemas.queues.facts import QueueSeen
from berth.schemas.recording import Entry
from berth.schemas.recovery import Recovery
from berth.schemas.usage_facts import NamespaceSeen, UsageSeen
from berth.schemas.volume_facts import ClaimSeen, StorageSeen, UnboundSeen, VolumeSeen

_AS_THEY_ARE: Final = {
    fact.KIND: fact
    for fact in (
        NamespaceSeen,
        ClaimSeen,
        VolumeSeen,
        StorageSeen,
        UnboundSeen,
        DrainSeen,
        GroupSeen,
        ReplacementsSeen,
        QueueSeen,
    )
}


def words_of(entry: Entry) -> str:
    """A fact or a record in one line."""
    head = f"{'fact' if entry.subject else 'record'} {entry.sequence}"
    try:
        return f"{head} {_told(open_envelope(entry.data))}"
    except DecodeError as error:
        return f"{head} does not decode: {error}"


def _told(envelope: Envelope) -> str:
    """What a message says.

    Raises:
        DecodeError: It does not decode.
    """
    words = envelope.kind
    match envelope.kind:
        case NodesSeen.KIND:
            fact = body_of(envelope, NodesSeen)
            words = f"nodes of {fact.domain}: {'; '.join(map(_node, unpack_nodes(fact))) or 'none'}"
        case HealthSeen.KIND:
            said = body_of(envelope, HealthSeen)
            words = f"health of {said.domain}: {'; '.join(map(_condition, unpack_health(said))) or 'none'}"
        case TopologySeen.KIND:
            words = repr(body_of(envelope, TopologySeen))
        case PodsSeen.KIND:
            words = f"pods: {_pods(body_of(envelope, PodsSeen))}"
        case JobSeen.KIND:
            words = f"job: {_job(body_of(envelope, JobSeen))}"
        case OutcomeSeen.KIND:
            told = body_of(envelope, OutcomeSeen)
            words = f"outcome: {told.name} {told.uid}#{told.attempt} {told.state} bound={told.bound} {told.failures}"
            words += f" step={told.step} done={told.done}" if told.step else ""
        case Epoch.KIND:
            words = f"epoch: {_differing(body_of(envelope, Epoch))}"
        case Round.KIND:
            words = f"round: {_round(body_of(envelope, Round))}"
        case _:
            words = _around(envelope)
    return words


def _around(envelope: Envelope) -> str:
    """What a fact of what is beside Berth says."""
    if envelope.kind in _AS_THEY_ARE:
        return repr(body_of(envelope, _AS_THEY_ARE[envelope.kind]))
    return f"usage: {_usage(body_of(envelope, UsageSeen))}" if envelope.kind == UsageSeen.KIND else envelope.kind


def _usage(fact: UsageSeen) -> str:
    names = unpack_names(fact.names)
    tables: tuple[tuple[str, Sequence[object], bytes, bytes, list[int]], ...] = (
        ("pods of", fact.pod_sets, fact.set_node, fact.set_index, unpack(fact.set_pods, 4)),
        ("term", fact.terms, fact.term_node, fact.term_index, []),
        ("port", fact.ports, fact.port_node, fact.port_index, []),
        ("uses", fact.resources, fact.used_node, fact.used_index, unpack(fact.used, 8)),
        ("offers", fact.resources, fact.offered_node, fact.offered_index, unpack(fact.offered, 8)),
        ("claim", fact.claims, fact.claim_node, fact.claim_index, []),
        ("most of", fact.drivers, fact.limit_node, fact.limit_index, unpack(fact.limit, 4)),
    )
    words = [
        f"{fact.domain}: {' '.join(names) or 'none'}",
        f"pods {unpack(fact.pods, 4)} of {unpack(fact.pods_max, 4)}",
    ]
    for what, table, nodes, indexes, amounts in tables:
        rows = zip(unpack(nodes, 4), unpack(indexes, 4), amounts or [1] * (len(nodes) // 4), strict=True)
        words += [f"{names[node]} {what} {table[index]} {amount}" for node, index, amount in rows]
    return "; ".join([*words, *map(repr, fact.relabelled)])


def _node(node: NodeDescription) -> str:
    known = NODE_PRODUCTS[node.product]
    words = [node.name, node.product, f"chips={node.chips:#x}", f"allocatable={node.allocatable}"]
    words += [f"{name}={value}" for name in ("superpod", "rack", "leaf") if (value := getattr(node, name))]
    words += [f"{key}={value}" for key, value in node.labels.items() if known.labels.get(key) != value]
    words += [f"cpu={node.cpu_milli}", f"memory={node.memory_mib}"]
    words += ["cordoned"] if node.cordoned else []
    words += [] if node.ready else ["not ready"]
    return " ".join(words)


def _condition(condition: NodeCondition) -> str:
    masks = ("unhealthy", "recovering", "network_unhealthy", "withheld")
    words = [f"{name}={value:#x}" for name in masks if (value := getattr(condition, name))]
    words += [condition.level.name] if condition.level else []
    words += [] if condition.network_known else ["network unknown"]
    return f"{condition.name} {' '.join(words) or 'well'}"


def _pods(fact: PodsSeen) -> str:
    names = unpack_names(fact.nodes)
    rows = zip(unpack(fact.rank, 4), unpack(fact.node_index, 4), fact.phase, unpack(fact.chips, 8), strict=True)
    pods = [f"{rank}:{names[node]} {PodPhase(phase).name} {chips:#x}" for rank, node, phase, chips in rows]
    pods += [f"steps {unpack(fact.steps, 4)}"] if fact.steps else []
    pods += [f"codes {unpack(fact.exit_codes, 4)}"] if fact.exit_codes else []
    pods += [f"marks {fact.marks}"] if fact.marks else []
    pods += [f"labels {fact.steering}"] if fact.steering else []
    whose = "of another scheduler " if fact.foreign else ""
    rest = f" {fact.tor_affinity} {fact.leaf_states!r}" if fact.tor_affinity else ""
    return f"{fact.gang} {whose}{fact.uid}#{fact.attempt}: {', '.join(pods) or 'none'}{rest}"


def _job(job: JobSeen) -> str:
    asked = ""
    if job.request is not None:
        request = job.request
        tasks = "+".join(f"{task.replicas}x{task.chips}" for task in request.tasks)
        details = {**request.labels, **request.annotations, **request.node_selector}
        asked = f" {tasks} {request.resource} {details} priority={request.priority} run_ms={request.run_ms}"
        asked += "".join(
            f" ({task.name}: cpu={task.cpu_milli} memory={task.memory_mib} {task.affinity or ''}{task.tolerations or ''}"
            f"{task.labels or ''}{_constraints(task)})"
            for task in request.tasks
            if task.cpu_milli or task.memory_mib or task.affinity or task.tolerations or task.labels or task.constraints
        )
    return f"{job.name} {job.uid} {job.state}{asked}{f' rejected: {job.refusal}' if job.refusal else ''}"


def _constraints(task: Task) -> str:
    fields = type(task.constraints).__struct_fields__ if task.constraints is not None else ()
    return "".join(f" {name}={value}" for name in fields if (value := getattr(task.constraints, name)))


def _differing(epoch: Epoch) -> str:
    settings, plain = epoch.settings, type(epoch.settings)()
    names = [name for name in type(settings).__struct_fields__ if getattr(settings, name) != getattr(plain, name)]
    return ", ".join(f"{name}={getattr(settings, name)!r}" for name in names) or "defaults"


def _round(record: Round) -> str:
    words = [f"at {record.at_ms}"]
    for verdict in record.verdicts:
        who = f"{verdict.uid}#{verdict.attempt}"
        refusal = verdict.refusal
        if verdict.placement is not None:
            words.append(f"{who} on {_placement(verdict.placement)}")
        elif refusal is not None:
            words.append(
                f"{who} refused: {refusal.code} {refusal.ahead} {refusal.start_ms or ''} fit {refusal.nodes_fit}"
            )
    words += [_recovery(one) for one in record.recoveries]
    words += [f"hold {one.uid}#{one.attempt} {one.ranks} until {one.until_ms}" for one in record.held]
    words += [f"evict {one.uid}#{one.attempt} {one.reason}" for one in record.evictions]
    words += [f"release {one.uid}#{one.attempt} {one.reason} {one.ranks or ''}" for one in record.releases]
    words += [f"adopt {one.uid} on {_placement(one.placement)}" for one in record.adoptions]
    words += [f"{one.name} {one.uid} {'waits' if one.refusal else 'is admitted'}: {one}" for one in record.admissions]
    words += [f"missing {record.missing} of {record.shards}"] if record.missing else []
    return "; ".join(words)


def _recovery(one: Recovery) -> str:
    places = f" on {_placement(one.placement)}" if one.placement is not None else ""
    return f"recover {one.uid}#{one.attempt} step {one.step} {one.kind} {one.scope} {one.how} {one.ranks}{places}"


def _placement(placement: Placement) -> str:
    pods = zip(placement.names(), placement.chips_by_rank(), strict=True)
    return ", ".join(f"{node}{list(chips)}" for node, chips in pods)
