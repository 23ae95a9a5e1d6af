"""What checks a simulated cell: it sees each stored message and each change of an object at the moment it happens.

It follows the ledger as a standby does, from the streams alone, and knows nothing of the services. After each record:
every rule of the state, and, if it gives places, each live pod owns its chips in the ledger, or, if it has none, is
counted by the ledger or by the fact about its node. After each change of a pod: no chip has two live pods, and no pod
is bound without a place in the ledger. After each snapshot: it is what a reader comes to that began at the snapshot
before it. A check that never had anything to check is an error of the simulation, see
:meth:`Observer.see_all_checked`. Longer than 400 lines because all of it checks one account of the same moments.
"""

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from functools import reduce
from operator import or_
from typing import Any, Final

import msgspec

from berth.core.errors import CoreError
from berth.core.requests.job_validation import SHARE_AICORE, SHARE_HBM, SHARE_POLICY
from berth.core.scheduling.following import follow_record
from berth.core.scheduling.scheduler import Scheduler
from berth.core.state.cell import State
from berth.core.state.holdings.holding import Holding, owned_by
from berth.core.state.invariants import check
from berth.core.state.ledger import LedgerDump, dump_of
from berth.core.state.records.entries import Folded
from berth.formats.ascend.pod_annotations import ASCEND_REAL, ATTEMPT, JOB_UID, RANK
from berth.formats.kubernetes.pod_spec import PodSpec
from berth.formats.kubernetes.pods import pod_requirements
from berth.runtime.bus.port import Stored
from berth.schemas.chain import position_of
from berth.schemas.envelope import decode
from berth.schemas.recording import BEGINNING
from berth.schemas.status import SnapshotBody, SnapshotChunk, SnapshotEnd
from berth.schemas.subjects import StreamName, Subjects
from tests.fuzz.seat import Seat
from tests.sim.errors import Failure
from tests.sim.ledger_oracle import LedgerOracle, Position
from tests.sim.queue_watch import QueueWatch
from tests.support.kube_cells import chips_of
from tests.support.kube_rules import Place, Tree

CHECKS: Final = ("records", "chips of pods", "bindings", "snapshots", "live pods when places are given")
"""What must have been checked at least once in a run."""
SCHEDULER: Final = "berth"
"""Scheduler of the pods that get their nodes from Berth."""
WHOLE: Final = 100
"""Percent of a chip that a pod has who shares it with nobody."""
_ERRORS: Final = (CoreError, AssertionError, LookupError, ValueError, ArithmeticError, TypeError, AttributeError)
_OVER: Final = frozenset({"Succeeded", "Failed"})


class Observer:
    """The checks that are made all the time.

    Args:
        cell: Name of the cell.

    Attributes:
        facts: All facts that were ever stored.
        records: All records of the ledger.
        count: How often each check was made.
        codes: How often each refusal was given.
        state: State at the end of the ledger.
        queues: What is declared of queues.
    """

    def __init__(self, cell: str) -> None:
        self.facts: list[Stored] = []
        self.records: list[Stored] = []
        self.count: Counter[str] = Counter()
        self.codes: Counter[str] = Counter()
        self.state = State(keeps=True)
        self.scheduler = Scheduler(self.state)
        self.failures: list[Failure] = []
        self.oracle = LedgerOracle()
        self.queues = QueueWatch(self.count, self.fail)
        self._subjects = Subjects(cell)
        self._names = {self._subjects.stream(name): name for name in StreamName}
        self._pending: deque[Stored] = deque()
        self._chips: dict[str, dict[int, dict[str, int]]] = {}
        """Percent of a chip that pods (uid) have, by node and chip; only those that Berth bound."""
        self._places: dict[str, tuple[str, int]] = {}
        """Node and chips of each live pod."""
        self._requests: dict[str, tuple[int, int]] = {}
        """CPU (thousandths) and memory (MiB) of each live pod."""
        self._mounted: set[str] = set()
        """Pods (uid) that had other chips than were decided, now or before."""
        self._attempts: dict[str, tuple[str, int]] = {}
        """Attempt of each live pod: uid of the job, and number."""
        self._parts: dict[str, bytes] = {}
        self._reader: Seat | None = None
        self._reader_at = (0, 0)
        self.base = BEGINNING
        """Where the history begins: at the beginning of the cell, or with the snapshot of a restored one."""
        self.generation = 0
        """How often it began again."""
        self.known_seq = 0
        """Last fact that the newest record knew."""
        self.restored_stream = ""
        """Id of the stream of a restored ledger; empty if the cell was not restored."""
        self.is_paused = False
        self.has_strangers = False
        """Pods of another scheduler are there, so that the device plug-in may mount other chips than were decided."""

    def fail(self, kind: str, details: str = "", cause: BaseException | None = None) -> None:
        """Note that a rule does not hold."""
        failure = Failure(kind, details)
        failure.__cause__ = cause
        self.failures.append(failure)

    def stored(self, name: str, stored: Stored) -> None:
        """A message was stored."""
        if self.is_paused:
            return
        match self._names[name]:
            case StreamName.FACTS:
                self.facts.append(stored)
                self._pending.append(stored)
            case StreamName.LEDGER:
                self._record(stored)
            case StreamName.SNAPSHOT:
                self._snapshot(stored)
            case _:
                pass

    def _record(self, stored: Stored, *, is_new: bool = True) -> None:
        """Take a record; what was decided before a restore knew other pods than those of today."""
        self.records.append(stored)
        self.count["records"] += 1
        counts = self.oracle.read(stored.sequence, stored.data)
        try:
            link = self.state.fold.link(stored.sequence, stored.data)
            if counts == bool(link.void):
                does, why = ("counts", "must not") if not counts else ("does not count", f"must: {link.void}")
                self.fail(f"a message of the ledger {does} and {why}", f"{stored.sequence}: {stored.data[:200]!r}")
            while self._pending and self._pending[0].sequence <= link.facts_seq:
                self._apply(self._pending.popleft())
            self.known_seq = max(self.known_seq, link.facts_seq)
            self.queues.before(self.state, is_new=is_new)
            folded = follow_record(self.scheduler, link)
            check(self.state)
            self.queues.after(self.state, stored.sequence, folded)
        except _ERRORS as error:
            self.fail(f"record: {type(error).__name__}", f"{stored.sequence}: {error}", error)
            return
        if is_new and (folded.moved or self._gives_places(folded.taken)):
            self._see_owners(stored.sequence, folded)
        for gang in folded.gangs:
            refusal = getattr(gang, "refusal", None)
            if refusal is not None:
                self.codes[refusal.code] += 1

    def _gives_places(self, taken: Sequence[Holding]) -> bool:
        """Whether attempts get places, other than those that were found by their pods.

        Of a restored ledger a record may find one attempt by its pods and end an older attempt of another job, whose
        newer one the next record finds; between the two nothing is given to others.
        """
        found = set(self._attempts.values())
        return any(not holding.foreign and (holding.uid, holding.attempt) not in found for holding in taken)

    def _see_owners(self, sequence: int, folded: Folded) -> None:
        """See that each pod that lives is accounted for, by a record that has given places.

        One with chips owns them in the ledger. In a restored one an attempt that is over may own them still: then
        they are given to nobody, and the pod gets them next. One without chips that the ledger does not know takes
        nothing that is given twice: of its node's CPU and memory, the fact about the node leaves it out. Of a
        restored ledger both hold as soon as the inventory has said that it has listed the pods, which it says after
        all facts about them.
        """
        seen = self.state.ledger_seen
        if self.restored_stream and seen is not None and seen.stream != self.restored_stream:
            self.fail(
                "places are given in a restored ledger before all pods are known",
                f"record {sequence}: the inventory has listed those of {seen.stream}, not of {self.restored_stream}",
            )
        self.count["live pods when places are given"] += len(self._places)
        unknown: dict[str, list[str]] = {}
        for uid, (node, mask) in self._places.items():
            keys = [self._attempts[uid], (uid, 0)]
            owned = [share for key in keys if key in self.state.fold.holdings for share in self.state.held_by(key)]
            missing = mask & ~reduce(or_, (share.mask for share in owned if share.node == node), 0)
            if self.restored_stream or self.has_strangers:
                new, freed = (_mask_on(node, some) for some in ((*folded.taken, *folded.moved), folded.given_back))
                missing &= new | ~(self.state.held(node) | freed)
            if missing:
                self.fail(
                    "places are given while a live pod does not own its chips",
                    f"record {sequence}: {uid} of {keys[0]} on {node}, chips {mask:x}, lacks {missing:x}",
                )
            elif not mask and all(share.node != node for share in owned):
                unknown.setdefault(node, []).append(uid)
        for node, uids in unknown.items():
            self._see_counted(sequence, node, uids)

    def _see_counted(self, sequence: int, node: str, uids: Sequence[str]) -> None:
        """See that the fact about a node leaves out what pods use of it that the ledger does not know."""
        self.count["pods without chips that the ledger does not know"] += len(uids)
        table = self.state.table
        row = table.row_of.get(node)
        if row is None:
            return  # no place is given on it
        amounts = zip(*(self._requests[uid] for uid in uids), strict=True)
        columns = ((table.cpu, table.cpu_others), (table.memory, table.memory_others))
        for used, (left, others) in zip(map(sum, amounts), columns, strict=True):
            if used > others[row] and left[row] > 0:
                self.fail(
                    "places are given while nothing counts a live pod without chips",
                    f"record {sequence}: {uids} on {node} use {used}, others {others[row]} of it",
                )

    def _apply(self, fact: Stored) -> None:
        applied = self.state.apply_fact(fact.subject, fact.sequence, fact.data)
        self.scheduler.note(applied.changes)
        self.queues.fact(fact.subject, fact.data)

    def catch_up(self) -> None:
        """Apply all facts that are stored."""
        while self._pending:
            self._apply(self._pending.popleft())

    def lose_records(self, last_seq: int) -> None:
        """Forget the records after a sequence: the bus has lost them, and facts are all there."""
        kept = [one for one in self.records if one.sequence <= last_seq]
        self.begin_again(self.base, self.facts, kept, restored_stream=self.restored_stream)

    def begin_again(
        self, base: SnapshotBody, facts: Sequence[Stored], records: Sequence[Stored], *, restored_stream: str
    ) -> None:
        """Follow another history: that of a restored cell, or of one that has lost records.

        Args:
            base: Where it begins.
            facts: What is stored after it.
            records: What is stored after it.
            restored_stream: Id of the stream of the ledger, if it was restored.
        """
        self.is_paused = False
        self.base = base
        self.generation += 1
        self.known_seq = base.facts_seq
        self._reader = None
        self._parts.clear()
        self.state = State(keeps=True)
        self.scheduler = Scheduler(self.state)
        at = position_of(base)
        self.oracle = LedgerOracle(Position(base.ledger_seq, at.epoch, at.digest))
        if base is not BEGINNING:
            loaded = self.state.load(base)
            if loaded.waiting is not None:
                self.scheduler.load(loaded.waiting, loaded.changes)
        self.facts, self.records = list(facts), []
        self._pending = deque(facts)
        self.queues.begin_again((kept.subject, kept.data) for kept in base.facts)
        for stored in records:
            self._record(stored, is_new=False)
        self.restored_stream = restored_stream

    # Snapshots.

    def _snapshot(self, stored: Stored) -> None:
        tail = stored.subject.rsplit(".", 1)[1]
        if tail != "end":
            self._parts[tail] = decode(stored.data, SnapshotChunk).data
            return
        end = decode(stored.data, SnapshotEnd)
        body = b"".join(self._parts.get(str(number), b"") for number in range(end.chunks))
        self._parts.clear()
        if len(body) != end.bytes_total:
            return  # of one that was not finished, or two writers at a time: readers see that too
        self._compare(body)

    def _compare(self, body: bytes) -> None:
        """See that a snapshot is what follows from the one before it."""
        found = decode(body, SnapshotBody)
        reader, (ledger_seq, facts_seq) = self._reader, self._reader_at
        if reader is not None and (found.facts_seq < facts_seq or found.ledger_seq < ledger_seq):
            return  # of one that led before, and was late
        self._reader, self._reader_at = Seat.loaded(body), (found.ledger_seq, found.facts_seq)
        if reader is None:
            return
        facts = deque(fact for fact in self.facts if facts_seq < fact.sequence <= found.facts_seq)
        for record in self.records:
            if ledger_seq < record.sequence <= found.ledger_seq:
                link = reader.state.fold.link(record.sequence, record.data)
                while facts and facts[0].sequence <= link.facts_seq:
                    fact = facts.popleft()
                    reader.fact(fact.subject, fact.sequence, fact.data)
                follow_record(reader.scheduler, link)
        for fact in facts:
            reader.fact(fact.subject, fact.sequence, fact.data)
        self.count["snapshots"] += 1
        other = decode(reader.snapshot(), SnapshotBody)
        for name, mine, its in _parts(found, other):
            if mine != its:
                self.fail(
                    f"snapshot: {name} differs",
                    f"{found.ledger_seq}, {found.facts_seq}: {mine!r}, a reader {its!r}"[:3000],
                )

    # Pods.

    def changed(self, place: Place, old: Tree | None, new: Tree | None) -> None:
        """An object changed."""
        if place.plural != "pods":
            return
        uid = (new or old or {})["metadata"]["uid"]
        if new is None or not _is_live(new):
            self._leave(uid)
            return
        was_bound = old is not None and bool(old["spec"].get("nodeName"))
        if not was_bound:
            self._bound(new)
        self._take(uid, new)

    def _leave(self, uid: str) -> None:
        self._attempts.pop(uid, None)
        self._requests.pop(uid, None)
        node, mask = self._places.pop(uid, ("", 0))
        chips = self._chips.get(node, {})
        for chip in range(mask.bit_length()):
            chips.get(chip, {}).pop(uid, None)

    def _take(self, uid: str, pod: Tree) -> None:
        annotations = pod["metadata"].get("annotations") or {}
        if JOB_UID not in annotations or ATTEMPT not in annotations:
            return  # seen when it was bound
        node, mask = pod["spec"]["nodeName"], chips_of(pod)
        if self.has_strangers and (mask != decided_chips(pod) or uid in self._mounted):
            self._mounted.add(uid)
            self._leave(uid)  # the cell learns late which chips it has, and when it has the decided ones again
            self.count["pods with other chips than decided"] += 1
            return
        if self._places.get(uid) == (node, mask):
            return
        self._leave(uid)
        self._places[uid] = (node, mask)
        self._attempts[uid] = (annotations[JOB_UID], int(annotations[ATTEMPT]))
        ask = pod_requirements(msgspec.convert(pod["spec"], PodSpec))
        self._requests[uid] = (ask.cpu_milli, ask.memory_mib)
        chips = self._chips.setdefault(node, {})
        self.count["chips of pods"] += 1
        percent = int(annotations.get(SHARE_AICORE, WHOLE))
        for chip in range(mask.bit_length()):
            if mask >> chip & 1:
                owners = chips.setdefault(chip, {})
                owners[uid] = percent
                if sum(owners.values()) > WHOLE:
                    self.fail("two live pods have one chip", f"{node} chip {chip}: {owners}")

    def _bound(self, pod: Tree) -> None:
        """A pod is bound: the ledger must have given it its place, and the pod must say which it is."""
        annotations = pod["metadata"].get("annotations") or {}
        name = f"{pod['metadata']['name']} on {pod['spec']['nodeName']}"
        missing = [key for key in (JOB_UID, ATTEMPT, RANK) if key not in annotations]
        if missing:
            if missing != [JOB_UID, ATTEMPT, RANK] or pod["spec"].get("schedulerName") == SCHEDULER:
                self.fail("a pod is bound and does not say which place it has", f"{name} lacks {', '.join(missing)}")
            return
        self.count["bindings"] += 1
        key = (annotations[JOB_UID], int(annotations[ATTEMPT]))
        holding = self.state.fold.holdings.get(key)
        if holding is None:
            self.fail("a pod is bound and holds nothing in the ledger", f"{name}, {key}")
            return
        rank = int(annotations[RANK])
        shares = {rank: [share] for rank, share in enumerate(self.state.owned(key))}
        for reserved, share in holding.reserved().items():
            shares.setdefault(reserved, []).append(share)
        mask = chips_of(pod)
        fits = [one for one in shares.get(rank, ()) if one.node == pod["spec"]["nodeName"] and one.mask == mask]
        if not fits:
            self.fail("a pod is bound elsewhere than the ledger says", f"{name}, chips {mask:x}: {shares.get(rank)}")
        quota = holding.placement.share
        if quota is not None and mask:
            self.count["bindings of shared chips"] += 1
            given = {SHARE_AICORE: str(quota.aicore), SHARE_HBM: str(quota.hbm_mib), SHARE_POLICY: quota.policy}
            said = {name: annotations.get(name) for name in given}
            if said != given:
                self.fail("a pod is bound with another share than the ledger says", f"{name}: {said}, not {given}")

    def see_all_checked(self) -> list[str]:
        """Checks that were never made."""
        return [name for name in CHECKS if not self.count[name]]


def _parts(one: SnapshotBody, other: SnapshotBody) -> Iterator[tuple[str, object, object]]:
    """Parts of two snapshots. Who waits since when is left out: only a leader opens turns in which nothing is done."""
    for name in ("ledger_seq", "facts_seq", "facts"):
        yield name, getattr(one, name), getattr(other, name)
    mine, its = dump_of(one.ledger), dump_of(other.ledger)
    for name in LedgerDump.__struct_fields__:
        if name != "waiting":
            yield name, getattr(mine, name), getattr(its, name)


def decided_chips(pod: Tree) -> int:
    """Chips that were decided for a pod, whatever it has mounted, as a mask."""
    annotations = {**pod["metadata"]["annotations"], ASCEND_REAL: ""}
    return chips_of({**pod, "metadata": {**pod["metadata"], "annotations": annotations}})


def _is_live(pod: Tree) -> bool:
    status: dict[str, Any] = pod.get("status") or {}
    return bool(pod["spec"].get("nodeName")) and status.get("phase") not in _OVER


def _mask_on(node: str, holdings: Sequence[Holding]) -> int:
    """Chips of a node that attempts own, or owned, as a mask."""
    return reduce(or_, (share.mask for one in holdings for share in owned_by(one) if share.node == node), 0)
