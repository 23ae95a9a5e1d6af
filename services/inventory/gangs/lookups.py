"""Owners of gangs, read on demand: pending reads, results, their age, and what a watch has shown since.

A watch is only a hint: it may be late, and an owner that it shows otherwise is read before anything follows from it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from berth.formats.kubernetes.workloads.facts import OwnerFacts
from berth.formats.kubernetes.workloads.port import GangKey, OwnerKey, OwnerKind

_PAUSES_MAX: Final = 4
"""Longest pause between two reads of an owner that does not change, in pauses after a change."""
_CHANGED_APART_MS: Final = 1_000
"""Least pause before an owner that a watch shows otherwise is read again: some are written many times a second."""
ObjectKey: TypeAlias = tuple[OwnerKind, str, str]
"""Kind, namespace and name of an object; a Workload is an owner for each of its groups."""


@dataclass(slots=True)
class _Answer:
    """Result of a lookup and its time; the time is None until the result is first used."""

    facts: OwnerFacts | None
    is_gone: bool
    serial: int
    read: int
    """Number of its read among those of the owner."""
    pause_ms: int
    """Time until it is read again although nothing says that it has changed."""
    at_ms: int | None = None


@dataclass(slots=True)
class _Sight:
    """What a watch showed last of an owner, None when it is gone, and how many reads of it had begun before."""

    facts: OwnerFacts | None
    reads: int


@dataclass(slots=True)
class _Use:
    """Owner that a gang uses, the uid that it must have (empty: any), and the lookups before it was used."""

    owner: OwnerKey
    uid: str
    serial: int


@dataclass(frozen=True, slots=True)
class LookupResult:
    """Known state of an owner.

    Attributes:
        facts: Facts of the owner; None when it does not exist, cannot be read, or was not read yet.
        is_known: The owner was looked up.
        is_old: The result is too old to act on: the owner is to be read again first.
        is_changed: A watch shows the owner otherwise, and no read of it has begun since.
        at_ms: Time of the lookup.
        read: Number of the read among those of the owner, from 1; 0 without one. See :meth:`Lookups.reads`.
        refresh_ms: Time at which it is read again: soon if it has changed, late if nothing says so.
        ended: Why the owner is over, as a sentence; empty while it exists, and when that is unknown.
        finished: Why it makes no pods any more although it exists, as a sentence; empty while it may.
    """

    facts: OwnerFacts | None = None
    is_known: bool = False
    is_old: bool = False
    is_changed: bool = False
    at_ms: int = 0
    read: int = 0
    refresh_ms: int = 0
    ended: str = ""
    finished: str = ""

    @property
    def is_unread(self) -> bool:
        """Whether the owner could not be read; an API server that starts refuses reads until it knows the rights."""
        return self.is_known and self.facts is None and not self.ended


class Lookups:
    """Results of lookups. A result is kept as long as a gang uses it."""

    def __init__(self, *, again_ms: int) -> None:
        self._again_ms = again_ms
        self._answers: dict[OwnerKey, _Answer] = {}
        self._pending: dict[OwnerKey, None] = {}
        self._shown: dict[OwnerKey, _Sight] = {}
        """Owners that a watch shows otherwise than they were read, or while they are read."""
        self._reads: dict[OwnerKey, int] = {}
        """Number of reads that have begun."""
        self._users: dict[OwnerKey, dict[GangKey, None]] = {}
        self._owners_of: dict[ObjectKey, dict[OwnerKey, None]] = {}
        """Owners with users, by object."""
        self._use_of: dict[GangKey, _Use] = {}
        self._serial = 0

    def answer(self, key: OwnerKey, facts: OwnerFacts | None, *, is_gone: bool = False) -> list[GangKey]:
        """Store a result; returns the gangs that use it.

        Args:
            key: The owner.
            facts: Its facts; None when it does not exist or cannot be read.
            is_gone: It does not exist.
        """
        self._pending.pop(key, None)
        users = self._users.get(key)
        if users is None:
            return []
        self._serial += 1
        before = self._answers.get(key)
        is_same = before is not None and (before.facts, before.is_gone) == (facts, is_gone)
        pause_ms = min(2 * before.pause_ms, _PAUSES_MAX * self._again_ms) if before and is_same else self._again_ms
        read = self._reads.get(key, 0)
        self._answers[key] = _Answer(facts, is_gone, self._serial, read, pause_ms)
        shown = self._shown.get(key)
        if shown is not None and (shown.facts == facts or shown.reads < read):
            del self._shown[key]
        return sorted(users)

    def use(self, gang: GangKey, key: OwnerKey | None, uid: str = "") -> None:
        """Note which owner a gang uses, None for none; an owner without users is dropped.

        Args:
            gang: The gang.
            key: Its owner.
            uid: Uid that the owner must have; another object of the name is not the owner. Empty for any.
        """
        before = self._use_of.get(gang)
        if before is not None and (before.owner, before.uid) == (key, uid):
            return
        if before is not None:
            users = self._users[before.owner]
            del users[gang], self._use_of[gang]
            if not users:
                self._drop(before.owner)
        if key is not None:
            self._users.setdefault(key, {})[gang] = None
            self._owners_of.setdefault(key[:3], {})[key] = None
            self._use_of[gang] = _Use(key, uid, self._serial)

    def _drop(self, owner: OwnerKey) -> None:
        """Forget an owner that has no users any more."""
        del self._users[owner]
        owners = self._owners_of[owner[:3]]
        del owners[owner]
        if not owners:
            del self._owners_of[owner[:3]]
        for known in (self._answers, self._pending, self._shown, self._reads):
            known.pop(owner, None)

    def see(self, key: ObjectKey, facts_of: Callable[[OwnerKey], OwnerFacts | None]) -> list[GangKey]:
        """Take what a watch shows of an object; returns the gangs whose owner is to be read again because of it.

        Args:
            key: The object. Of one that is no owner of a gang nothing is kept.
            facts_of: Its facts now, as the given owner; None when it is gone.
        """
        touched: list[GangKey] = []
        for owner in self._owners_of.get(key, ()):
            facts, answer = facts_of(owner), self._answers.get(owner)
            is_changed = answer is not None and answer.facts != facts
            if is_changed or owner in self._pending:
                self._shown[owner] = _Sight(facts, self._reads.get(owner, 0))
            else:
                self._shown.pop(owner, None)
            if is_changed and owner not in self._pending:  # else it is seen when the answer comes
                touched += self._users[owner]
        return sorted(touched)

    def objects(self, kind: OwnerKind) -> list[ObjectKey]:
        """Objects of a kind that are owners of gangs."""
        return [key for key in self._owners_of if key[0] == kind]

    def lookup(self, gang: GangKey, now_ms: int) -> LookupResult:
        """Known state of the owner that a gang uses."""
        use = self._use_of.get(gang)
        answer = self._answers.get(use.owner) if use is not None else None
        if use is None or answer is None:
            return LookupResult()
        if answer.at_ms is None:
            answer.at_ms = now_ms
        is_old = now_ms >= answer.at_ms + self._again_ms
        name = f"{use.owner.kind} {use.owner.name}"
        facts, ended = answer.facts, f"{name} does not exist" if answer.is_gone else ""
        if facts is not None and facts.uid and use.uid and facts.uid != use.uid:
            if answer.serial <= use.serial:
                return LookupResult()  # it was read before this gang was known
            facts, ended = None, f"{name} was deleted and created again"
        elif facts is not None and facts.is_ending:
            ended = f"{name} is being deleted"
        finished = f"{name} has ended: {facts.final}" if facts is not None and facts.final else ""
        is_changed = use.owner in self._shown and use.owner not in self._pending
        pause_ms = min(answer.pause_ms, _CHANGED_APART_MS) if is_changed else answer.pause_ms
        return LookupResult(
            facts,
            is_known=True,
            is_old=is_old,
            is_changed=is_changed,
            at_ms=answer.at_ms,
            read=answer.read,
            refresh_ms=answer.at_ms + pause_ms,
            ended=ended,
            finished=finished,
        )

    def again_ms(self, lookup: LookupResult) -> int:
        """Time at which an owner is to be looked up again."""
        return lookup.at_ms + self._again_ms

    def outdate(self, gang: GangKey) -> None:
        """Note that the owner of a gang may have changed: its facts are too old to act on."""
        use = self._use_of.get(gang)
        answer = self._answers.get(use.owner) if use is not None else None
        if answer is not None and answer.at_ms is not None:
            answer.at_ms -= self._again_ms

    def ask(self, gang: GangKey) -> OwnerKey | None:
        """Owner that must be looked up for a gang; None when a lookup is pending already."""
        use = self._use_of.get(gang)
        if use is None or use.owner in self._pending:
            return None
        self._pending[use.owner] = None
        self._reads[use.owner] = self._reads.get(use.owner, 0) + 1
        return use.owner

    def reads(self, gang: GangKey) -> int:
        """Number of reads of a gang's owner that have begun: only a later one shows what happens from now on."""
        use = self._use_of.get(gang)
        return self._reads.get(use.owner, 0) if use is not None else 0
