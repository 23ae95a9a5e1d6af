"""What must hold in the middle of a run as well as at its end: checked every so many steps, on what the streams say.

The observer knows exactly what the newest record knew. A decision that is due then is not yet an error, so waiting jobs
are only judged at a moment at which nothing is to be decided: a reader that begins then decides nothing. The leader may
not get its next record stored for long, and until then nobody is woken by what the last one changed.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from berth.cli.recordings.replay import lines_of
from berth.core.errors import CoreError
from berth.core.gangs import QueueOrder
from berth.core.placement.round_demand import is_heavy
from berth.core.replay.replay import ReplayError
from berth.core.requests.gangs import queue_order
from berth.core.scheduling.queue import Queue
from berth.core.scheduling.rules.queues import QUEUES
from berth.core.scheduling.turn import MissingShards
from berth.core.state.cell import State
from berth.schemas.chain import Position
from berth.schemas.intake import JobRequest
from berth.schemas.queues.queue import DEFAULT
from berth.schemas.recording import BEGINNING
from berth.schemas.refusal import Refusal
from tests.fuzz.failure import Failure as FuzzFailure
from tests.fuzz.likeness import see_alike
from tests.fuzz.seat import Seat
from tests.fuzz.sleepers import see_nobody_sleeps
from tests.sim.errors import Failure
from tests.sim.observer import Observer
from tests.sim.planner import Planner
from tests.sim.queue_oracle import QueueOracle
from tests.sim.queue_watch import charge_of
from tests.sim.shard_replay import ShardReplay
from tests.support.replays import entries_of

EVERY: Final = 500
"""Steps between two looks."""
SHARDS: Final = (1, 2, 4)
"""Numbers of scorers with which a history is decided again, one of them in each seed."""
MIDDLE: Final = (
    "looks",
    "snapshots in the middle",
    "sleepers in the middle",
    "looks at who waits",
    *(f"planner, judged: {code}" for code in ("no-room", "no-blocks", "no-claim", "no-topology", "behind")),
    *(f"decided with {count} scorers" for count in SHARDS),
)
"""What must have been checked at least once in a run of many seeds."""
_NEVER: Final = frozenset({"larger-than-cluster", "no-topology", "internal"})
"""Refusals of gangs that wait for another cluster: they are before none in a queue."""
_FAILURES: Final = (CoreError, AssertionError, LookupError, ValueError, ArithmeticError, TypeError, AttributeError)


class Middle:
    """Looks at a cell while it runs.

    Args:
        observer: Follows the cell.
        seed: Chooses the number of scorers with which decisions are made again.

    Attributes:
        due: Step at which the next look is due.
    """

    def __init__(self, observer: Observer, seed: int) -> None:
        self._observer = observer
        self._shards = SHARDS[seed % len(SHARDS)]
        self._replay = ShardReplay(BEGINNING, self._shards)
        self._generation = observer.generation
        self._fed = (0, 0)
        self.due = EVERY

    def look(self, steps: int, now_ms: int) -> None:
        """Look if it is time.

        Raises:
            Failure: Something is wrong.
        """
        observer = self._observer
        if steps < self.due or observer.is_paused:
            return
        self.due = steps + EVERY
        observer.count["looks"] += 1
        self.see_replayed()
        self.see_now(now_ms)

    def see_now(self, now_ms: int) -> None:
        """A reader that begins at this moment goes on alike, and nobody waits who could be placed.

        Raises:
            Failure: It is not so.
        """
        observer = self._observer
        try:
            observer.queues.see_sums(observer.state)
            reader = self._see_alike()
            if not observer.scheduler.has_work:
                if reader.decided(now_ms, MissingShards()) is None:
                    see_refused(observer)
                    observer.count["looks at who waits"] += 1
                if observer.count["looks"] % 2:  # it decides everything anew, twice
                    see_nobody_sleeps(observer.state.dump(observer.scheduler.dump()), now_ms)
                    observer.count["sleepers in the middle"] += 1
        except FuzzFailure as failure:
            raise Failure(f"in the middle: {failure.kind}", failure.details) from failure
        except _FAILURES as error:
            raise Failure(f"in the middle: {type(error).__name__}", str(error)[:2000]) from error

    def see_replayed(self) -> None:
        """The records since the last look are decided again, on the offers of scorers, and come out the same.

        Raises:
            Failure: One does not.
        """
        observer = self._observer
        if self._generation != observer.generation:
            self._generation, self._fed = observer.generation, (0, 0)
            self._replay = ShardReplay(observer.base, self._shards)
        facts, records = self._fed
        until = len(observer.facts)
        while until > facts and observer.facts[until - 1].sequence > observer.known_seq:
            until -= 1
        fold = self._replay.state.fold
        position = Position(fold.base_seq, fold.epoch, fold.chain)
        entries = entries_of(observer.facts[facts:until], observer.records[records:], position)
        before = self._replay.on_offers
        try:
            for entry in entries:
                found = self._replay.feed(entry)
                if found is not None:
                    raise Failure(f"decided otherwise with {self._shards} scorers", "\n".join(lines_of(found))[:3000])
        except FuzzFailure as failure:
            raise Failure(f"decided again: {failure.kind}", failure.details) from failure
        except (ReplayError, *_FAILURES) as error:
            raise Failure(f"decided again: {type(error).__name__}", str(error)[:2000]) from error
        observer.count[f"decided with {self._shards} scorers"] += self._replay.on_offers - before
        self._fed = (until, len(observer.records))

    def _see_alike(self) -> Seat:
        """A reader that begins at a snapshot of this moment has the state that is there; returns it."""
        observer = self._observer
        seat = Seat()
        seat.state, seat.scheduler = observer.state, observer.scheduler
        observer.count["snapshots in the middle"] += 1
        return see_alike(seat, seat.snapshot())


def see_refused(observer: Observer) -> None:
    """Each gang that was refused, and waits, cannot be placed, or waits for one that is before it in the queue.

    Raises:
        Failure: One can.
    """
    state, fold = observer.state, observer.state.fold
    settings, queue = fold.settings, observer.scheduler.queue
    planner = Planner(_facts(observer), fold.holdings.values(), settings, held=fold.held.values())
    line: list[str] = []
    waits = _line(state, queue)
    oracle = observer.queues.now(state)
    if oracle is not None:
        continuing = {(held.namespace, held.name): held.queue for held in fold.held.values()}
        waits = list(_let_in(oracle, waits, planner.count, continuing))
    ordered = [_name(request) for request, _ in waits] if oracle is not None else line
    """With queues one that was accepted later may have an earlier turn."""
    for index, (request, refusal) in enumerate(waits):
        name = _name(request)
        in_lane = not any(task.chips for task in request.tasks)
        # Only a strict queue holds a gang back for one that is before it and has no reservation.
        is_behind = refusal.code == "behind" and settings.queue_policy == "fifo" and refusal.ahead in line
        is_behind = is_behind or refusal.rule == QUEUES
        if is_behind or refusal.code == "reserved":
            planner.count[f"judged: {refusal.code}"] += 1
            if refusal.code == "reserved" and refusal.ahead not in ordered:
                raise Failure("a gang waits for none that is before it", f"{name}: {refusal}, after {line}"[:2000])
        elif refusal.code == "behind" and refusal.ahead in _later(state, waits[index:]):
            raise Failure("a gang waits for one that is not before it", f"{name}: {refusal}, after {line}"[:2000])
        elif _is_tried_again(state, queue, state.jobs[request.namespace, request.name].uid):
            planner.count["not judged: a scorer is missing"] += 1
        else:
            # The one ahead may have left, after a gang like this one was refused: then there is no room for this one.
            why = msgspec.structs.replace(refusal, code="no-room") if refusal.code == "behind" else refusal
            found = planner.could_place(request, why, is_first=in_lane or not line)
            if found:
                raise Failure("a gang waits that could be placed", f"{found}: {refusal}"[:2000])
        if not in_lane and refusal.code not in _NEVER:
            line.append(name)
    for what, number in planner.count.items():
        observer.count[f"planner, {what}"] += number


def see_answered(observer: Observer) -> None:
    """Nobody waits for the answer of a scorer. Heavy gangs are tried again at a time without that.

    Raises:
        Failure: Somebody does.
    """
    queue, nodes = observer.scheduler.queue, len(observer.state.table)
    light = [gang for gang in queue.gangs() if not is_heavy(gang.request_class, nodes)]
    waits = [gang.name for gang in light if _is_tried_again(observer.state, queue, gang.uid)]
    observer.count["gangs that wait for no scorer"] += len(light)
    if waits:
        raise Failure("a gang waits for a scorer, and all of them are there", f"{waits}")


def _let_in(
    oracle: QueueOracle,
    waits: Iterable[tuple[JobRequest, Refusal]],
    count: Counter[str],
    continuing: Mapping[tuple[str, str], str],
) -> Iterator[tuple[JobRequest, Refusal]]:
    """Those of the gangs that their queues let in; one that was refused by its queue waits for room since then.

    One that waits in a fifo queue for another one that was refused before it has that refusal still, with its rule.
    """
    before: list[tuple[str, str]] = []
    for request, refusal in waits:
        name = request.queue or DEFAULT
        is_continuing = continuing.get((request.namespace, request.name)) in {"", name}  # on places of the same queue
        why = None if is_continuing else oracle.why(charge_of(request))
        is_behind = refusal.code == "behind" and oracle.is_fifo(name) and (refusal.ahead, name) in before
        if refusal.code not in _NEVER:
            before.append((_name(request), name))
        if why is not None:
            count["judged: its queue binds"] += 1
        elif refusal.rule != QUEUES or is_behind:
            yield request, refusal
        else:
            yield request, msgspec.structs.replace(refusal, code="no-room", rule="", queue=None)


def _of_now(queue: Queue, uid: str, refusal: Refusal) -> Refusal:
    """What a gang waits for: room, if its class does, although it was itself refused for something else.

    When something has changed only the first gang of a class is tried, so that the refusals of the others are from
    before: for want of another cluster, or for a reservation of one that has left. Where reservations count, gangs are
    held one by one.
    """
    key = queue.class_of(uid)
    is_old = key is not None and refusal.code in _NEVER and not queue.sleep_of(key).never
    is_old = is_old or (key is not None and refusal.code == "reserved" and not queue.is_held(uid))
    return msgspec.structs.replace(refusal, code="no-room") if is_old else refusal


def _is_tried_again(state: State, queue: Queue, uid: str) -> bool:
    """Whether the class of a gang sleeps until a time: a scorer did not answer when its first gang was tried last.

    The gangs after the first one are not tried then, so that what they were refused for is from before. With
    preemption a class without room sleeps until a time, too: then its newest refusal says whether a scorer is missing.
    """
    key = queue.class_of(uid)
    if key is None or not queue.sleep_of(key).retry_at_ms:
        return False
    records = (state.fold.gangs[gang.uid] for gang in queue.of_class(key) if gang.uid in state.fold.gangs)
    newest = max(records, key=lambda one: one.ledger_seq, default=None)
    if not state.fold.settings.preempt or newest is None or newest.refusal is None:
        return True
    return bool(newest.refusal.missing_shards)


def _name(request: JobRequest) -> str:
    return f"{request.namespace}/{request.name}"


def _later(state: State, waits: Sequence[tuple[JobRequest, Refusal]]) -> set[str]:
    """The first of some gangs, and those after it that were accepted no later: they were never before it.

    One that was accepted later may have the name of another that was before it, and is gone.
    """
    accepted = [state.jobs[request.namespace, request.name].accepted_seq for request, _ in waits]
    return {_name(request) for (request, _), seq in zip(waits, accepted, strict=True) if seq <= accepted[0]}


def _line(state: State, queue: Queue) -> list[tuple[JobRequest, Refusal]]:
    """Gangs that wait and were refused, in the order of the queue."""
    found: list[tuple[QueueOrder, JobRequest, Refusal]] = []
    for job in state.jobs.values():
        gang = state.fold.gangs.get(job.uid)
        if job.state != "accepted" or job.request is None or gang is None or gang.phase != "waiting":
            continue
        if gang.refusal is not None:
            found.append((queue_order(job, job.request), job.request, _of_now(queue, job.uid, gang.refusal)))
    return [(request, refusal) for _, request, refusal in sorted(found, key=lambda one: one[0])]


def _facts(observer: Observer) -> dict[str, bytes]:
    """The newest fact of each subject that the observer has applied."""
    latest = {kept.subject: kept.data for kept in observer.base.facts}
    latest |= {fact.subject: fact.data for fact in observer.facts if fact.sequence <= observer.state.facts_seq}
    return latest
