"""Owners of gangs, read on demand: pending reads, results, and their age."""

from dataclasses import dataclass

from berth.formats.kubernetes.owner_facts import OwnerFacts
from berth.formats.kubernetes.owners import OwnerKey
from berth.formats.kubernetes.workloads import GangKey


@dataclass(slots=True)
class _Answer:
    """Result of a lookup and its time; the time is None until the result is first used."""

    facts: OwnerFacts | None
    at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class LookupResult:
    """Known state of an owner.

    Attributes:
        facts: Facts of the owner; None when it does not exist, cannot be read, or was not read yet.
        is_known: The owner was looked up.
        is_old: The result is too old to act on: the owner is to be read again first.
        at_ms: Time of the lookup.
    """

    facts: OwnerFacts | None = None
    is_known: bool = False
    is_old: bool = False
    at_ms: int = 0


class Lookups:
    """Results of lookups. A result is kept as long as a gang uses it."""

    def __init__(self, *, again_ms: int) -> None:
        self._again_ms = again_ms
        self._answers: dict[OwnerKey, _Answer] = {}
        self._pending: dict[OwnerKey, None] = {}
        self._users: dict[OwnerKey, dict[GangKey, None]] = {}
        self._owner_of: dict[GangKey, OwnerKey] = {}

    def answer(self, key: OwnerKey, facts: OwnerFacts | None) -> list[GangKey]:
        """Store a result; returns the gangs that use it."""
        self._pending.pop(key, None)
        users = self._users.get(key)
        if users is None:
            return []
        self._answers[key] = _Answer(facts)
        return sorted(users)

    def use(self, gang: GangKey, key: OwnerKey | None) -> None:
        """Note which owner a gang uses, None for none; an owner without users is dropped."""
        before = self._owner_of.get(gang)
        if before == key:
            return
        if before is not None:
            users = self._users[before]
            del users[gang], self._owner_of[gang]
            if not users:
                del self._users[before]
                self._answers.pop(before, None)
                self._pending.pop(before, None)
        if key is not None:
            self._users.setdefault(key, {})[gang] = None
            self._owner_of[gang] = key

    def lookup(self, gang: GangKey, now_ms: int) -> LookupResult:
        """Known state of the owner that a gang uses."""
        key = self._owner_of.get(gang)
        answer = self._answers.get(key) if key is not None else None
        if answer is None:
            return LookupResult()
        if answer.at_ms is None:
            answer.at_ms = now_ms
        is_old = now_ms >= answer.at_ms + self._again_ms
        return LookupResult(answer.facts, is_known=True, is_old=is_old, at_ms=answer.at_ms)

    def again_ms(self, lookup: LookupResult) -> int:
        """Time at which an owner is to be looked up again."""
        return lookup.at_ms + self._again_ms

    def ask(self, gang: GangKey) -> OwnerKey | None:
        """Owner that must be looked up for a gang; None when a lookup is pending already."""
        key = self._owner_of.get(gang)
        if key is None or key in self._pending:
            return None
        self._pending[key] = None
        return key
