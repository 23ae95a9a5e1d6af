"""Objects that gangs belong to, read on demand: what was asked for, what came back, and when it is too old."""

from dataclasses import dataclass

from berth.formats.kubernetes.owner_facts import OwnerFacts
from berth.formats.kubernetes.owners import OwnerKey
from berth.formats.kubernetes.workloads import GangKey


@dataclass(slots=True)
class _Answer:
    """What a look-up gave, and when; no time until it was first used."""

    facts: OwnerFacts | None
    at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Looked:
    """What is known of an object.

    Attributes:
        facts: What it specifies; None when it is not there, or cannot be read, or was not read yet.
        is_known: It was looked up.
        is_old: That was so long ago that it is to be looked up again before anything follows from it.
        at_ms: When it was looked up.
    """

    facts: OwnerFacts | None = None
    is_known: bool = False
    is_old: bool = False
    at_ms: int = 0


class Lookups:
    """Answers for as long as a gang uses them."""

    def __init__(self, *, again_ms: int) -> None:
        self._again_ms = again_ms
        self._answers: dict[OwnerKey, _Answer] = {}
        self._looking: dict[OwnerKey, None] = {}
        self._users: dict[OwnerKey, dict[GangKey, None]] = {}
        self._look_of: dict[GangKey, OwnerKey] = {}

    def answer(self, key: OwnerKey, facts: OwnerFacts | None) -> list[GangKey]:
        """Keep an answer; returns the gangs that use it."""
        self._looking.pop(key, None)
        users = self._users.get(key)
        if users is None:
            return []
        self._answers[key] = _Answer(facts)
        return sorted(users)

    def use(self, gang: GangKey, key: OwnerKey | None) -> None:
        """Note which object a gang uses, None for none; one that is used no more is forgotten."""
        before = self._look_of.get(gang)
        if before == key:
            return
        if before is not None:
            users = self._users[before]
            del users[gang], self._look_of[gang]
            if not users:
                del self._users[before]
                self._answers.pop(before, None)
                self._looking.pop(before, None)
        if key is not None:
            self._users.setdefault(key, {})[gang] = None
            self._look_of[gang] = key

    def looked(self, gang: GangKey, now_ms: int) -> Looked:
        """What is known of the object that a gang uses."""
        key = self._look_of.get(gang)
        answer = self._answers.get(key) if key is not None else None
        if answer is None:
            return Looked()
        if answer.at_ms is None:
            answer.at_ms = now_ms
        is_old = now_ms >= answer.at_ms + self._again_ms
        return Looked(answer.facts, is_known=True, is_old=is_old, at_ms=answer.at_ms)

    def again_ms(self, looked: Looked) -> int:
        """When an object is to be looked up again."""
        return looked.at_ms + self._again_ms

    def ask(self, gang: GangKey) -> OwnerKey | None:
        """Object that is to be read for a gang; None when that is under way."""
        key = self._look_of.get(gang)
        if key is None or key in self._looking:
            return None
        self._looking[key] = None
        return key
