"""A decision that differs when it is replayed: the recorded one, the replayed one, and the state around them."""

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Final, NamedTuple

import msgspec

from berth.core.errors import guarded
from berth.core.explain.node_snapshot import NodeSnapshot, ShapeEvaluation
from berth.core.explain.refusal_text import reason_words, sentence
from berth.core.scheduling.scheduler import Scheduler
from berth.core.scheduling.turn import Opening
from berth.core.state.ledger import PodShare, pods_of
from berth.core.text import pluralize, ranges
from berth.schemas.facts import NodeHealth
from berth.schemas.ledger import (
    Adoption,
    Correction,
    Eviction,
    HeldPlaces,
    Recovery,
    Release,
    Reservation,
    Round,
    Settings,
    Verdict,
)
from berth.schemas.message import Part
from berth.schemas.offers import Shape
from berth.schemas.placement import Placement
from berth.schemas.recording import Entry
from berth.schemas.refusal import NodeReason

_PODS_SHOWN: Final = 4
_NODES_SHOWN: Final = 8
_QUEUE_SHOWN: Final = 12
_NOTHING: Final = "nothing"
_FITS: Final = int(NodeReason.FITS)


class NodeDetails(msgspec.Struct, frozen=True):
    """A node of one of the decisions, just before the gang was decided."""

    node: str
    free: list[int]
    """Free chips."""
    health: str
    held_by: list[str]
    """Jobs with chips there, as ``namespace/name``, those of the same record included."""
    score: int | None = None
    """Score for a pod of the gang; None when it does not fit."""
    unfit: str = ""
    """Why it does not fit."""


class Difference(msgspec.Struct, frozen=True):
    """The first difference between a recorded and a replayed decision."""

    sequence: int
    """Record of the ledger."""
    epoch: int
    round: int
    at_ms: int
    facts_seq: int
    """Last fact that the record is based on."""
    facts_given: int
    """Last fact before it in the recording."""
    subject: str
    """Subject of the difference: ``gang namespace/name``, or another part of the record."""
    recorded: str
    replayed: str
    nodes: list[NodeDetails]
    queue: list[str]
    """Last gangs of the round up to the differing one, in order, as ``namespace/name``."""
    queue_length: int
    """All waiting gangs."""
    asleep: list[str]
    """One gang of each class that was not tried."""
    before: list[Entry]
    """Last facts and records before it."""
    settings: Settings
    missing: list[int]
    """Shards that did not answer."""


class Moment(NamedTuple):
    """The state in which a record is replayed, before it is folded."""

    scheduler: Scheduler
    sequence: int
    opening: Opening | None
    before: list[Entry]


def difference_of(moment: Moment, recorded: Round, replayed: Round | None) -> Difference:
    """The first difference of two decisions on the same state; they must differ.

    Args:
        moment: The state and the entries before it.
        recorded: The stored record.
        replayed: The replayed record; None when there was nothing to decide.
    """
    mine = replayed.verdicts if replayed is not None else []
    theirs = _first(recorded.verdicts, mine)
    if theirs is None:
        return _difference(moment, recorded, "the record", *_rest(recorded, replayed), nodes=[])
    uid = theirs.uid
    was = _of(recorded.verdicts, uid)
    now = _of(mine, uid)
    compared = _Compared(moment, recorded.at_ms, mine, uid)
    words = (_place_words(recorded.verdicts, uid), _place_words(mine, uid)) if was == now else compared.words(was, now)
    subject = f"gang {theirs.namespace}/{theirs.name}"
    return _difference(moment, recorded, subject, *words, nodes=compared.nodes, uid=uid)


def _first(recorded: Sequence[Verdict], mine: Sequence[Verdict]) -> Verdict | None:
    """The first verdict in which two records differ: one that only one of them has before one in another place."""
    for was, now in zip_longest(recorded, mine):
        if was == now:
            continue
        if was is None or (now is not None and _of(recorded, now.uid) is None):
            return was if was is not None and _of(mine, was.uid) is None else now
        return was
    return None


def _place_words(verdicts: Sequence[Verdict], uid: str) -> str:
    place = next(index for index, verdict in enumerate(verdicts, 1) if verdict.uid == uid)
    return f"the same verdict, number {place} of {len(verdicts)} in the record"


def _of(verdicts: Iterable[Verdict], uid: str) -> Verdict | None:
    return next((verdict for verdict in verdicts if verdict.uid == uid), None)


def _difference(
    moment: Moment, record: Round, subject: str, was: str, now: str, *, nodes: list[NodeDetails], uid: str = ""
) -> Difference:
    scheduler = moment.scheduler
    taken = moment.opening.gangs if moment.opening is not None else []
    queue = [(f"{gang.namespace}/{gang.name}", gang.uid) for gang in taken]
    upto = next((index for index, (_, taken_uid) in enumerate(queue) if taken_uid == uid), len(queue) - 1)
    _, sleepers = scheduler.queue.dump()
    gangs = scheduler.state.fold.gangs
    asleep = [gangs[sleeper.uid] for sleeper in sleepers if sleeper.uid in gangs]
    return Difference(
        sequence=moment.sequence,
        epoch=record.epoch,
        round=record.number,
        at_ms=record.at_ms,
        facts_seq=record.facts_seq,
        facts_given=scheduler.state.facts_seq,
        subject=subject,
        recorded=was,
        replayed=now,
        nodes=nodes,
        queue=[name for name, _ in queue[: upto + 1]][-_QUEUE_SHOWN:],
        queue_length=len(scheduler.queue),
        asleep=[f"{gang.namespace}/{gang.name}" for gang in asleep][:_QUEUE_SHOWN],
        before=moment.before,
        settings=scheduler.state.fold.settings,
        missing=list(record.missing),
    )


def _rest(recorded: Round, replayed: Round | None) -> tuple[str, str]:
    """How records with the same verdicts differ."""
    if replayed is None:
        return _parts(recorded), "nothing was to be decided"
    one: Sequence[Part]
    other: Sequence[Part]
    for what, one, other in (
        ("corrections", recorded.corrections, replayed.corrections),
        ("recoveries", recorded.recoveries, replayed.recoveries),
        ("evictions", recorded.evictions, replayed.evictions),
        ("held places", recorded.held, replayed.held),
        ("reserved places", recorded.reserved, replayed.reserved),
        ("releases", recorded.releases, replayed.releases),
        ("adoptions", recorded.adoptions, replayed.adoptions),
    ):
        pair = next((pair for pair in zip_longest(one, other) if pair[0] != pair[1]), None)
        if pair is not None:
            return f"{what}: {_part_words(pair[0])}", f"{what}: {_part_words(pair[1])}"
    return _field_words(recorded, replayed)


def _parts(record: Round) -> str:
    """Contents of a record in a few words."""
    counts = (
        (record.verdicts, "verdict"),
        (record.corrections, "correction"),
        (record.recoveries, "recovery step"),
        (record.evictions, "eviction"),
        (record.held, "change of held places"),
        (record.reserved, "reserved place"),
        (record.releases, "release"),
        (record.adoptions, "adoption"),
    )
    return ", ".join(pluralize(len(parts), noun) for parts, noun in counts if parts) or _NOTHING


def _part_words(part: Part | None) -> str:
    match part:
        case Eviction():
            return f"{part.uid}, attempt {part.attempt}, because {part.reason}"
        case HeldPlaces() | Correction():
            return f"{part.uid}, attempt {part.attempt}: {_rank_words(part)}"
        case Release():
            ranks = f", ranks {ranges(part.ranks)}" if part.ranks else ""
            return f"{part.uid}, attempt {part.attempt}{ranks}: {part.reason}{', again' if part.again else ''}"
        case Recovery():
            where = (
                f", new places {_where(pods_of(part.placement), ranks=part.ranks)}"
                if part.placement is not None
                else ""
            )
            return f"{part.uid}, attempt {part.attempt}, step {part.step}: {part.how} {part.scope}, ranks {ranges(part.ranks)}{where}"
        case Adoption() | Reservation():
            gang = part.gang if isinstance(part, Adoption) else part.name
            return f"{part.namespace}/{gang}: {_where(pods_of(part.placement))}"
        case _:
            return _NOTHING


def _rank_words(part: HeldPlaces | Correction) -> str:
    if isinstance(part, Correction):
        return ", ".join(f"rank {rank} has {ranges(of)}" for rank, of in zip(part.ranks, part.chips, strict=True))
    return f"ranks {ranges(part.ranks)} until {part.until_ms}" if part.ranks else "no longer"


def _field_words(one: msgspec.Struct, other: msgspec.Struct, path: str = "") -> tuple[str, str]:
    """The first field in which two messages of one kind differ, with both values."""
    for name in one.__struct_fields__:
        was, now = getattr(one, name), getattr(other, name)
        if was == now:
            continue
        here = f"{path}{name}"
        if isinstance(was, Part) and type(was) is type(now):
            return _field_words(was, now, f"{here}.")
        return f"{here} is {was!r}", f"{here} is {now!r}"
    return _NOTHING, _NOTHING


def _where(pods: Sequence[PodShare], first: int = 0, ranks: Sequence[int] = ()) -> str:
    """Nodes and chips of some ranks; ``ranks`` are those of ``pods`` if they are not all."""
    parts = [
        f"rank {ranks[rank] if ranks else rank} on {pod.node}, {f'chips {ranges(pod.chips)}' if pod.chips else 'no chips'}"
        for rank, pod in enumerate(pods[first : first + _PODS_SHOWN], start=first)
    ]
    more = len(pods) - first - len(parts)
    return "; ".join(parts) + (f"; and {pluralize(more, 'pod')} more" if more > 0 else "")


class _Compared:
    """Two verdicts on one gang, compared on the state that the gang met."""

    def __init__(self, moment: Moment, at_ms: int, mine: Sequence[Verdict], uid: str) -> None:
        self.nodes: list[NodeDetails] = []
        state = moment.scheduler.state
        self._snapshot = NodeSnapshot(state, state.fold.settings, at_ms)
        for verdict in mine:
            if verdict.uid == uid:
                break
            if verdict.placement is not None:
                self._snapshot.take_all(verdict, verdict.placement)

    def words(self, was: Verdict | None, now: Verdict | None) -> tuple[str, str]:
        """Both verdicts in words; also notes the nodes on which they differ."""
        if was is None or now is None:
            self._note(was or now, 0, [was, now])
            return self._verdict(was, 0), self._verdict(now, 0)
        if was.placement is not None and now.placement is not None:
            return self._placements(was, was.placement, now, now.placement)
        self._note(now, 0, [was, now])
        one, other = self._verdict(was, 0), self._verdict(now, 0)
        if one == other:
            return _field_words(was, now)
        return one, other

    def _placements(self, was: Verdict, one: Placement, now: Verdict, other: Placement) -> tuple[str, str]:
        ours, theirs = pods_of(other), pods_of(one)
        first = next((rank for rank, pair in enumerate(zip(theirs, ours, strict=False)) if pair[0] != pair[1]), -1)
        if first < 0:
            words = _field_words(was, now)
            return f"the same nodes and chips, {words[0]}", f"the same nodes and chips, {words[1]}"
        for pod in ours[:first]:
            self._snapshot.take(pod, other.share)
        self._note(now, first, [was, now])
        return self._verdict(was, first), self._verdict(now, first)

    def _verdict(self, verdict: Verdict | None, first: int) -> str:
        """A verdict in words, placements from rank ``first`` on."""
        if verdict is None:
            return "no verdict on it in this round"
        if verdict.placement is not None:
            pods = pods_of(verdict.placement)
            details = next((node for node in self.nodes if node.node == pods[first].node), None) if pods else None
            score = f" (score {details.score})" if details is not None and details.score is not None else ""
            plan = ", by one plan" if verdict.placement.groups else ""
            return f"placed{plan}: {_where(pods, first)}{score}"
        if verdict.refusal is None:
            return _NOTHING
        return f"{'rejected' if verdict.final else 'refused'}: {sentence(verdict.refusal)}"

    def _note(self, of: Verdict | None, first: int, verdicts: Sequence[Verdict | None]) -> None:
        """Note the nodes of the verdicts from rank ``first`` on, in the state before that rank was placed."""
        names: dict[str, None] = {}
        placed = [pods_of(each.placement) for each in verdicts if each is not None and each.placement is not None]
        for rank in range(first, first + _PODS_SHOWN):
            names.update(dict.fromkeys(pods[rank].node for pods in placed if rank < len(pods)))
        gang = self._snapshot.gang(of) if of is not None else None
        evaluation: ShapeEvaluation | None = None
        if gang is not None and gang.request_class:
            tasks = [index for index, (_, count) in enumerate(gang.request_class) for _ in range(count)]
            evaluation = self._evaluation(gang.request_class[tasks[min(first, len(tasks) - 1)]][0])
        self.nodes = [self._node(name, evaluation) for name in list(names)[:_NODES_SHOWN]]

    def _evaluation(self, shape: Shape) -> ShapeEvaluation | None:
        """Evaluation of the nodes for a shape; None when scoring ends with an error."""

        def evaluation() -> ShapeEvaluation | None:
            return ShapeEvaluation(self._snapshot, shape)

        return guarded(evaluation, lambda _: None)

    def _node(self, name: str, evaluation: ShapeEvaluation | None) -> NodeDetails:
        snapshot = self._snapshot
        row = snapshot.table.row(name)
        free = snapshot.at(row).free
        details = NodeDetails(
            node=name,
            free=[chip for chip in range(free.bit_length()) if free >> chip & 1],
            health=self._health(row),
            held_by=snapshot.holders(name),
        )
        if evaluation is None or row >= len(evaluation.reasons):
            return details
        reason = int(evaluation.reasons[row])
        if reason == _FITS:
            return msgspec.structs.replace(details, score=int(evaluation.scores[row]))
        words = reason_words(reason, nodes=1, chips=evaluation.shape.chips, form=evaluation.shape.form)
        return msgspec.structs.replace(details, unfit=words)

    def _health(self, row: int) -> str:
        table = self._snapshot.table
        if not table.present[row]:
            return "no fact"
        level = NodeHealth(int(table.level[row]))
        unhealthy = int(table.unhealthy_count[row])
        words = "healthy" if level == NodeHealth.OK else level.name.lower().replace("_", " ")
        return f"{words}, {pluralize(unhealthy, 'unhealthy chip')}" if unhealthy else words
