"""Entries of a log as one line of text each, and as trees for JSON with names and unpacked columns.

Longer than 400 lines because every kind of message has its line here.
"""

import base64
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from berth.cli.output import listed, moment
from berth.cli.recordings.entry_choice import EntryChoice
from berth.core.explain.refusal_text import sentence
from berth.core.queues.amounts import number_of
from berth.core.queues.refusals import text_of
from berth.core.text import numbered, pluralize
from berth.formats.shown import Shown, shown
from berth.schemas.columns import unpack, unpack_names
from berth.schemas.envelope import DecodeError, Envelope, VersionError, body_of, open_envelope
from berth.schemas.facts import (
    HealthSeen,
    JobSeen,
    LedgerSeen,
    MembersSeen,
    NodesSeen,
    OutcomeSeen,
    PodPhase,
    PodsSeen,
    TimerSeen,
    TopologySeen,
)
from berth.schemas.fault_facts import ApprovalSeen, DrainSeen, GroupSeen, ReplacementsSeen
from berth.schemas.ledger import Epoch, Recovery, Round, check_readable
from berth.schemas.message import Message
from berth.schemas.placement import Placement
from berth.schemas.queues.facts import QueueSeen
from berth.schemas.recording import Entry
from berth.schemas.usage_facts import NamespaceSeen, UsageSeen
from berth.schemas.volume_facts import ClaimSeen, StorageSeen, UnboundSeen, VolumeSeen

_KINDS: Final[dict[str, type[Message]]] = {
    kind.KIND: kind
    for kind in (
        NodesSeen, HealthSeen, TopologySeen, PodsSeen, MembersSeen, JobSeen, OutcomeSeen, TimerSeen, UsageSeen, NamespaceSeen,
        ClaimSeen, VolumeSeen, StorageSeen, UnboundSeen, GroupSeen, ReplacementsSeen, DrainSeen, ApprovalSeen,
        QueueSeen, LedgerSeen, Epoch, Round,
    )
}  # fmt: skip
_NAMES_MAX: Final = 100_000
"""Maximum number of remembered job names."""
_NAMES: Final = 0
_COLUMNS: Final[dict[str, dict[str, int]]] = {
    "NodesSeen": {
        "names": _NAMES, "class_index": 2, "chips": 8, "allocatable": 2, "cpu_milli": 4, "memory_mib": 4, "superpod_index": 4,
        "leaf_index": 4, "position": 2, "rack_index": 4, "cpu_others": 4, "memory_others": 4,
        "chips_others": 2, "unsettled": 1,
    },
    "HealthSeen": {
        "names": _NAMES, "unhealthy": 8, "recovering": 8, "network_unhealthy": 8, "level": 1, "network_known": 1, "withheld": 8,
        "reason_index": 4, "updated_ms": 8, "sub_healthy": 8, "sources": 1, "noded_level": 1, "switch_level": 1,
    },
    "PodsSeen": {
        "rank": 4, "nodes": _NAMES, "node_index": 4, "phase": 1, "chips": 8, "consumed": 1, "leaf_states": 1, "blocks": 2,
        "exit_codes": 4, "steps": 4, "rejections": 1,
    },
    "ReplacementsSeen": {"ranks": 4, "since_ms": 8},
    "MembersSeen": {"rank": 4},
    "UsageSeen": {
        "names": _NAMES, "pods": 4, "pods_max": 4, "offered_node": 4, "offered_index": 4, "offered": 8, "used_node": 4,
        "used_index": 4, "used": 8, "set_node": 4, "set_index": 4, "set_pods": 4, "term_node": 4, "term_index": 4,
        "port_node": 4, "port_index": 4, "claim_node": 4, "claim_index": 4, "limit_node": 4, "limit_index": 4, "limit": 4,
    },
    "Placement": {"nodes": _NAMES, "node_index": 4, "chips": 1},
    "Groups": {"name_index": 2, "part_index": 2, "states": 1},
}  # fmt: skip
"""Width of the columns of each struct, 0 for a table of names; see their docstrings."""


def opened(entry: Entry) -> tuple[Envelope, Message | None]:
    """Envelope and body of an entry; no body for a kind that this release does not know.

    Raises:
        DecodeError: It cannot be decoded.
        VersionError: It is a record that only another release reads.
    """
    envelope = open_envelope(entry.data)
    if not entry.subject:
        check_readable(envelope)
    kind = _KINDS.get(envelope.kind)
    return envelope, body_of(envelope, kind) if kind is not None else None


class Lines:
    """Entries as lines, one after another: a job whose name was in an earlier entry is named by it.

    Args:
        choice: What of the entries is wanted.
    """

    def __init__(self, choice: EntryChoice | None = None) -> None:
        self._choice = choice or EntryChoice()
        self._names: dict[str, str] = {}
        """Job of each uid, the oldest first."""

    def line_of(self, entry: Entry) -> Shown:
        """An entry as one line: its kind, its sequence, the time, and its content; empty if it is not wanted."""
        return shown(self._line(entry))

    def _line(self, entry: Entry) -> str:
        what = f"{'fact' if entry.subject else 'record':6} {entry.sequence:>8}"
        try:
            envelope, body = opened(entry)
            if body is None:
                return f"{what}  {'':27}  {envelope.kind}: not known to this release"
            at_ms = getattr(body, "at_ms", 0)
            chosen = self._choice.of(body)
            words = self._words(body)  # also of what is not wanted, for the names in it
            if chosen is None:
                return ""
            if chosen.body is not body:
                words = chosen.words or self._words(chosen.body)
            return f"{what}  {moment(at_ms) if at_ms else '':27}  {words}"
        except VersionError as error:
            return f"{what}  {'':27}  {error}"
        except (DecodeError, ValueError) as error:
            return f"{what}  {'':27}  does not decode: {error}"

    def _words(self, body: Message) -> str:
        match body:
            case Round():
                for one in body.verdicts:
                    self._learn(one.uid, one.namespace, one.name)
                for adoption in body.adoptions:
                    self._learn(adoption.uid, adoption.namespace, adoption.gang)
                return _round(body, self._names)
            case JobSeen():
                self._learn(body.uid, body.namespace, body.name)
            case _:
                pass
        return _WORDS[body.KIND](body)

    def _learn(self, uid: str, namespace: str, name: str) -> None:
        self._names.pop(uid, None)
        self._names[uid] = f"{namespace}/{name}"
        if len(self._names) > _NAMES_MAX:
            del self._names[next(iter(self._names))]


def line_of(entry: Entry) -> str:
    """An entry as one line, without earlier entries."""
    return Lines().line_of(entry)


def tree_of(entry: Entry, choice: EntryChoice | None = None) -> dict[str, Any] | None:
    """An entry as a tree for JSON: bodies with the names of their fields, columns as lists; None if not wanted."""
    tree: dict[str, Any] = {"what": "fact" if entry.subject else "record", "sequence": entry.sequence}
    if entry.subject:
        tree["subject"] = entry.subject
    try:
        envelope, body = opened(entry)
    except (DecodeError, VersionError) as error:
        return tree | {"error": str(error), "data": base64.b64encode(entry.data).decode()}
    if choice is not None and body is not None:
        chosen = choice.of(body)
        if chosen is None:
            return None
        body = chosen.body
    tree["kind"] = envelope.kind
    return tree | ({"data": base64.b64encode(entry.data).decode()} if body is None else {"body": _tree(body)})


def _tree(value: Any) -> Any:  # noqa: ANN401  # a tree of messages of any form
    match value:
        case msgspec.Struct():
            columns = _COLUMNS.get(type(value).__name__, {})
            return {
                name: _column(got, columns[name]) if name in columns else _tree(got)
                for name, got in ((name, getattr(value, name)) for name in value.__struct_fields__)
            }
        case list() | tuple():
            return [_tree(one) for one in value]
        case _:
            return value


def _column(column: bytes, width: int) -> Any:  # noqa: ANN401  # names, numbers, or what does not unpack
    try:
        return unpack_names(column) if width == _NAMES else unpack(column, width)
    except ValueError:
        return column


def _epoch(body: Epoch) -> str:
    return f"epoch {body.epoch} begins: {body.holder}, knows facts up to {body.facts_seq}"


def _round(body: Round, names: Mapping[str, str]) -> str:
    parts: list[str] = []
    for verdict in body.verdicts:
        name = f"{verdict.namespace}/{verdict.name}"
        if verdict.placement is not None:
            parts.append(f"placed {name} {_place(verdict.placement)}")
        elif verdict.refusal is not None:
            parts.append(f"{'rejected' if verdict.final else 'refused'} {name}: {sentence(verdict.refusal)}")
    parts += [
        f"corrected the chips of {names.get(one.uid, one.uid)} ({pluralize(len(one.ranks), 'pod')})"
        for one in body.corrections
    ]
    parts += [_recovery(one) for one in body.recoveries]
    parts += [f"evicted {names.get(one.uid, one.uid)}: {one.reason}" for one in body.evictions]
    for held in body.held:
        places = f"{pluralize(len(held.ranks), 'place')} held for" if held.ranks else "no places held any more for"
        parts.append(f"{places} {names.get(held.uid, f'{held.namespace}/{held.name}')}")
    for place in body.reserved:
        awaited = ", ".join(
            f"{numbered('rank', one.ranks)} of {name}" if one.ranks else name
            for one in place.awaits
            for name in (names.get(one.uid, one.uid),)
        )
        parts.append(f"reserved {_place(place.placement)} for {place.namespace}/{place.name} once {awaited} left")
    for release in body.releases:
        part = f" ({pluralize(len(release.ranks), 'pod')})" if release.ranks else ""
        parts.append(
            f"released {names.get(release.uid, release.uid)}{part}: {release.reason}{', again' if release.again else ''}"
        )
    parts += [
        f"PodGroup {one.namespace}/{one.name} {f'waits: {text_of(one.refusal)}' if one.refusal else 'admitted'}"
        for one in body.admissions
    ]
    parts += [f"adopted {one.namespace}/{one.gang} {_place(one.placement)}" for one in body.adoptions]
    if body.missing:
        parts.append(f"without shards {', '.join(map(str, body.missing))}")
    return f"round {body.number}: {'; '.join(parts) or 'nothing'}"


def _recovery(one: Recovery) -> str:
    what = f"{one.namespace}/{one.name} step {one.step}"
    ranks = numbered("rank", one.ranks)
    where = f", new places {_place(one.placement)}" if one.placement is not None else ""
    if one.how in {"place", "backup"}:
        backup = "backup pod of " if one.how == "backup" else ""
        return f"recovery of {what}: {backup}{ranks}{where}"
    done = {"grace": "evicted", "force": "deleted"}.get(one.how, "marked")
    return f"recovery of {what}: {one.cause}; {ranks} {done} ({one.scope}){where}"


def _place(placement: Placement) -> str:
    names = unpack_names(placement.nodes)
    chips = sum(run.pods * run.chips for run in placement.runs)
    where = f"on {names[0]}" if len(names) == 1 else f"on {pluralize(len(names), 'node')}"
    return f"{where} ({pluralize(chips, 'chip')})"


def _nodes(body: NodesSeen) -> str:
    rows = len(body.class_index) // 2
    return f"nodes of {body.domain}: {pluralize(rows, 'node')}" if rows else f"domain {body.domain} is gone"


def _health(body: HealthSeen) -> str:
    columns = (body.unhealthy, body.recovering, body.network_unhealthy)
    masks = zip(body.level, *(unpack(column, 8) for column in columns), strict=True)
    unwell = sum(any(row) for row in masks)
    return f"health of {body.domain}: {pluralize(len(body.level), 'node')}, {unwell} not healthy"


def _topology(body: TopologySeen) -> str:
    return f"topology {body.kind}: {pluralize(len(body.leaves), 'leaf')}"


def _pods(body: PodsSeen) -> str:
    foreign = ", of another scheduler" if body.foreign else ""
    foreign += f" or of job {body.job}" if body.job else ""
    return f"pods of {body.namespace}/{body.gang}, attempt {body.attempt}{foreign}: {_phases(body.phase) or 'none'}"


def _phases(phases: Iterable[int]) -> str:
    known = {int(phase): phase.name.lower() for phase in PodPhase}
    counts = sorted(Counter(phases).items())
    return ", ".join(f"{count:,} {known.get(phase, f'in phase {phase}')}" for phase, count in counts)


def _group(body: GroupSeen) -> str:
    values = ", ".join(f"{key}={value}" for key, value in (body.labels | body.annotations).items())
    waits = f"; it waits for queue {body.waiting.queue}" if body.waiting is not None else ""
    return f"PodGroup {body.namespace}/{body.name} for faults: {values or 'nothing'}{waits}"


def _replacements(body: ReplacementsSeen) -> str:
    ranks = listed(str(rank) for rank in unpack(body.ranks, 4))
    return f"new pods of {body.namespace}/{body.job}: {f'ranks {ranks}' if ranks else 'none'}"


def _drain(body: DrainSeen) -> str:
    if body.gone:
        return f"drain of {body.kind} {body.name} withdrawn"
    reason = f": {body.reason}" if body.reason else ""
    return f"drain of {body.kind} {body.name} from {moment(body.since_ms)} on{reason}"


def _queue(body: QueueSeen) -> str:
    queue = body.queue
    if body.gone:
        return f"queue {queue.name} is declared no longer"
    below = f" below {queue.parent}" if queue.parent else ""
    limits = [
        f"{number_of(dimension, queue.capability[dimension])} {dimension}" for dimension in sorted(queue.capability)
    ]
    wrong = f"; not valid: {queue.wrong[0]}" if queue.wrong else ""
    return f"queue {queue.name}{below} of {', '.join(limits) or 'no limit'}{wrong}"


def _approval(body: ApprovalSeen) -> str:
    what = f"approval of restarts for {body.kind} in domain {body.domain or '-'}"
    if body.gone:
        return f"{what} withdrawn"
    return f"{what} until {moment(body.until_ms)}{f': {body.reason}' if body.reason else ''}"


def _members(body: MembersSeen) -> str:
    hold = f"; {body.hold}" if body.hold else ""
    return f"members of {body.namespace}/{body.job}: {pluralize(len(body.pods), 'pod')}{hold}"


def _job(body: JobSeen) -> str:
    name = f"job {body.namespace}/{body.name} {body.state}"
    refusal = body.refusal or (body.rejection.refusal if body.rejection is not None else None)
    if body.state == "rejected" and refusal is not None:
        return f"{name}: {sentence(refusal)}"
    if body.state == "accepted" and body.request is not None:
        pods = sum(task.replicas for task in body.request.tasks)
        chips = sum(task.replicas * task.chips for task in body.request.tasks)
        name = f"{name}: {pluralize(pods, 'pod')}, {pluralize(chips, 'chip')}"
    turned = f"; rejected another request: {sentence(body.rejection.refusal)}" if body.rejection is not None else ""
    return f"{name}{f': {body.reason}' if body.reason else ''}{turned}"


def _outcome(body: OutcomeSeen) -> str:
    failed = listed(f"rank {one.rank}: {one.reason}" for one in body.failures)
    return (
        f"outcome of {body.namespace}/{body.name}, attempt {body.attempt}: {body.state},"
        f" {pluralize(body.bound, 'pod')} bound{f'; {failed}' if failed else ''}"
    )


def _timer(_: TimerSeen) -> str:
    return "tick of the dispatcher's clock"


def _ledger(body: LedgerSeen) -> str:
    newest = f"bound by records up to {body.sequence} (epoch {body.epoch})" if body.sequence else "none bound by it"
    return f"pods of the cluster, ledger made {body.stream}: {newest}"


def _usage(body: UsageSeen) -> str:
    pods = sum(unpack(body.pods, 4))
    rows = len(unpack_names(body.names))
    return f"usage in {body.domain}: {pluralize(rows, 'node')}, {pluralize(pods, 'pod')} of other schedulers"


def _namespace(body: NamespaceSeen) -> str:
    labels = pluralize(len(body.labels), "label")
    return f"namespace {body.name} is gone" if body.gone else f"namespace {body.name}: {labels}"


def _claim(body: ClaimSeen) -> str:
    volume = f", volume {body.volume}" if body.volume else ""
    return f"claim {body.namespace}/{body.name}: {'gone' if body.gone else f'{body.phase}{volume}'}"


def _volume(body: VolumeSeen) -> str:
    claim = f"claim {body.claim.namespace}/{body.claim.name}" if body.claim is not None else "no claim"
    return f"volume {body.name}: {'gone' if body.gone else claim}"


def _storage(body: StorageSeen) -> str:
    return f"storage class {body.name}: {'gone' if body.gone else body.provisioner or 'no provisioner'}"


def _unbound(body: UnboundSeen) -> str:
    claim = f"claim {body.namespace}/{body.name}"
    without = ", ".join([*(f"node {name}" for name in body.nodes), *(f"volume {name}" for name in body.volumes)])
    return f"{claim} not bound with {without}: {body.reason}" if without else f"{claim}: no failure counts any more"


_WORDS: Final[dict[str, Callable[[Any], str]]] = {
    NodesSeen.KIND: _nodes,
    HealthSeen.KIND: _health,
    TopologySeen.KIND: _topology,
    PodsSeen.KIND: _pods,
    GroupSeen.KIND: _group,
    ReplacementsSeen.KIND: _replacements,
    DrainSeen.KIND: _drain,
    ApprovalSeen.KIND: _approval,
    QueueSeen.KIND: _queue,
    MembersSeen.KIND: _members,
    JobSeen.KIND: _job,
    OutcomeSeen.KIND: _outcome,
    TimerSeen.KIND: _timer,
    LedgerSeen.KIND: _ledger,
    UsageSeen.KIND: _usage,
    NamespaceSeen.KIND: _namespace,
    ClaimSeen.KIND: _claim,
    VolumeSeen.KIND: _volume,
    StorageSeen.KIND: _storage,
    UnboundSeen.KIND: _unbound,
    Epoch.KIND: _epoch,
}
