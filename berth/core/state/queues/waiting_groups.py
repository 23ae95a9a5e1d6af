"""PodGroups that wait for their admission, or for their pods after it: what they ask for, and what was decided.

They are kept in the order in which they are asked, by classes of those that ask for the same, so that a decision need
not look at each of them.
"""

import bisect
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from berth.core.changes import JobKey
from berth.core.queues.admission_turns import Counted, Place, WaitingClass, reason_of
from berth.core.state.ledger import Folded, LedgerFold
from berth.schemas.fault_facts import GroupSeen
from berth.schemas.intake import rank_of
from berth.schemas.ledger import Admission
from berth.schemas.queues.facts import WaitingGroup
from berth.schemas.queues.queue import DEFAULT
from berth.schemas.refusal import QueueRefusal


class _Asking(NamedTuple):
    """A PodGroup that asks to be admitted."""

    asks: WaitingClass
    place: Place
    reason: QueueRefusal | None
    """Why it waits, without amounts, as the ledger has it; None if the ledger says nothing."""


class WaitingGroups:
    """PodGroups of a cell at its facts and records.

    Args:
        fold: The folded ledger, which has what was decided.

    Attributes:
        version: It grows with each change.
        standing: It grows with each change but those of why somebody waits.
        counted: Those that are admitted, by namespace and name.
        classes: Places of the others by class, in order.
    """

    def __init__(self, fold: LedgerFold) -> None:
        self.version = self.standing = 0
        self.counted: dict[JobKey, Counted] = {}
        self.classes: dict[WaitingClass, list[Place]] = {}
        self._fold = fold
        self._groups: dict[JobKey, tuple[str, WaitingGroup]] = {}
        self._key_of: dict[str, JobKey] = {}
        self._requested_as: dict[JobKey, list[tuple[int, JobKey]]] = {}
        """PodGroups by the name that the request of their pods has, ascending by when they were made: one that is made
        again may be there before the old one is gone."""
        self._asking: dict[JobKey, _Asking] = {}
        self._by_reason: dict[WaitingClass, dict[QueueRefusal | None, dict[JobKey, None]]] = {}
        self._unconfirmed: dict[JobKey, None] = {}
        """Those that were admitted when they were first told of, and of which the ledger says nothing."""

    def __len__(self) -> int:
        return len(self._groups)

    def apply(self, fact: GroupSeen, facts_seq: int) -> None:
        """Take over what a PodGroup asks for.

        Args:
            fact: The fact.
            facts_seq: Its sequence.
        """
        key = (fact.namespace, fact.name)
        before = self._groups.get(key)
        now = (fact.uid, fact.waiting) if fact.waiting is not None and not fact.gone else None
        if before == now:
            return
        self.version += 1
        self.standing += 1
        if before is not None:
            self._remove(key)
            self._unlink(key)
            del self._groups[key]
            if now is None or now[0] != before[0]:
                del self._key_of[before[0]]
                self._fold.forget_admission(before[0], facts_seq)
        if now is not None:
            self._groups[key] = now
            self._key_of[now[0]] = key
            bisect.insort(self._requested_as.setdefault(self.request_of(key), []), (now[1].created_ms, key))
            self._put(key)

    def follow(self, folded: Folded) -> None:
        """Take over what a record decided."""
        for one in folded.admissions:
            key = self._key_of.get(one.uid)
            self.version += 1
            if key is not None:
                before = self._asking.get(key)
                self._remove(key)
                self._put(key)
                now = self._asking.get(key)
                self.standing += before is None or now is None or before[:2] != now[:2]

    def begin(self) -> None:
        """Take over all that the ledger has."""
        self.version += 1
        self.standing += 1
        for key in self._groups:
            self._remove(key)
            self._put(key)

    def forget_unnamed(self, facts_seq: int) -> None:
        """Forget decisions on PodGroups that are not told of; for a start from LATEST."""
        for uid in [uid for uid in self._fold.admissions if uid not in self._key_of]:
            self._fold.forget_admission(uid, facts_seq)

    def admission(self, key: JobKey, refusal: QueueRefusal | None) -> Admission:
        """A decision on a PodGroup, as a record has it: without what is wrong with its queue."""
        uid, waiting = self._groups[key]
        if refusal is not None:
            refusal = msgspec.structs.replace(refusal, reason="")
        return Admission(*key, uid, waiting.queue or DEFAULT, waiting.minimum, waiting.pods, refusal)

    def request_of(self, key: JobKey) -> JobKey:
        """Namespace and name that the request of its pods will have."""
        return key[0], self._groups[key][1].job

    def requested_as(self, job: JobKey) -> JobKey | None:
        """PodGroup of the request that has, or will have, a name, the newest of several; None without one."""
        found = self._requested_as.get(job)
        return found[-1][1] if found else None

    def asking(self) -> Iterator[tuple[str, JobKey, int]]:
        """Those that are not admitted: the queue, the request that their pods will have, and when they were made."""
        for key in self._asking:
            waiting = self._groups[key][1]
            yield waiting.queue or DEFAULT, self.request_of(key), waiting.created_ms

    def queue_of(self, key: JobKey) -> str:
        """The queue that a PodGroup names."""
        return self._groups[key][1].queue or DEFAULT

    def is_news(self, key: JobKey, refusal: QueueRefusal | None) -> bool:
        """Whether the ledger says otherwise of a PodGroup that asks, or nothing."""
        return refusal is None or self._asking[key].reason != reason_of(refusal)

    def unconfirmed(self) -> Sequence[JobKey]:
        """PodGroups that were admitted before anything was decided, by name."""
        return sorted(self._unconfirmed)

    def told_otherwise(self, refused: Mapping[WaitingClass, QueueRefusal]) -> Iterator[tuple[Place, QueueRefusal]]:
        """Those that wait for another reason than the ledger says.

        Args:
            refused: Why each class waits.
        """
        for asks, refusal in refused.items():
            now = reason_of(refusal)
            for reason, keys in self._by_reason.get(asks, {}).items():
                if reason != now:
                    yield from ((self._asking[key].place, refusal) for key in keys)

    def _recorded(self, uid: str) -> Admission | None:
        return None if self._fold.forgets_admission(uid) else self._fold.admissions.get(uid)

    def _unlink(self, key: JobKey) -> None:
        request = self.request_of(key)
        found = self._requested_as[request]
        found.remove((self._groups[key][1].created_ms, key))
        if not found:
            del self._requested_as[request]

    def _put(self, key: JobKey) -> None:
        uid, waiting = self._groups[key]
        queue, recorded = waiting.queue or DEFAULT, self._recorded(uid)
        is_admitted = waiting.is_admitted if recorded is None else recorded.refusal is None
        rank = rank_of(waiting.priority, is_fragile=False)
        asked = recorded is None or (recorded.queue, recorded.minimum, recorded.pods) == (
            queue,
            waiting.minimum,
            waiting.pods,
        )
        place = (rank, int(not is_admitted), waiting.created_ms, *key)
        if is_admitted and asked:
            self.counted[key] = Counted(place, queue, key[0], waiting.minimum, waiting.pods)
            if recorded is None:
                self._unconfirmed[key] = None
            return
        minimum = tuple(sorted(waiting.minimum.items()))
        declared, displaces = waiting.is_declared, waiting.may_displace
        asks = WaitingClass(queue, key[0], minimum, waiting.pods, waiting.priority, displaces, declared)
        refusal = recorded.refusal if recorded is not None and asked else None
        reason = reason_of(refusal) if refusal is not None else None
        self._asking[key] = _Asking(asks, place, reason)
        bisect.insort(self.classes.setdefault(asks, []), place)
        self._by_reason.setdefault(asks, {}).setdefault(reason, {})[key] = None

    def _remove(self, key: JobKey) -> None:
        self.counted.pop(key, None)
        self._unconfirmed.pop(key, None)
        one = self._asking.pop(key, None)
        if one is None:
            return
        places, reasons = self.classes[one.asks], self._by_reason[one.asks]
        del places[bisect.bisect_left(places, one.place)]
        del reasons[one.reason][key]
        if not reasons[one.reason]:
            del reasons[one.reason]
        if not places:
            del self.classes[one.asks], self._by_reason[one.asks]
