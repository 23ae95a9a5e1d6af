"""Rules of a round: which gangs it tries, what it leaves free for others, and which gangs may start.

A round has an ordered tuple of rules; without any, each gang gets what it finds. The rules themselves are in
``berth.core.scheduling.rules``. Only the methods that a rule defines are called.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

import msgspec

from berth.core.gangs import Gang
from berth.schemas.placement import Placement
from berth.schemas.recovery import Recovery
from berth.schemas.refusal import Code, Refusal

RESERVED: Final[Code] = "reserved"


class NotPlaced(NamedTuple):
    """Why a gang has no placement."""

    task: int
    """Index of the task that found no room."""
    refusal: Refusal


class Entry(msgspec.Struct):
    """A gang of a round: what was found for it, and what it comes to."""

    gang: Gang
    known: NotPlaced | None = None
    """How its class was refused before in this round."""
    placement: Placement | None = None
    refusal: Refusal | None = None
    is_final: bool = False
    """Waiting does not change the refusal."""
    is_news: bool = True
    """The record contains the verdict."""


class KeptRoom(NamedTuple):
    """Cpu and memory that pods of a gang without chips must leave free."""

    rows: Mapping[int, tuple[int, int]] = MappingProxyType({})
    """Cpu in thousandths and memory in MiB, by row."""
    refusal: Refusal | None = None
    """Refusal of a gang for which there would be room without it."""


NOTHING_KEPT: Final = KeptRoom()
LastRefusal = Callable[[str], Refusal | None]
"""Last refusal of a gang (uid) in the ledger."""


class RuleRound:
    """A rule in one round. The round asks it gang by gang, in queue order.

    Attributes:
        lane: Gangs about which it is asked: those with chips, those without (``plain``), or ``all``.
        admits_again: :meth:`admit` is also asked about gangs of a class that was refused in this round.
    """

    lane: Literal["all", "chips", "plain"] = "all"
    admits_again: bool = False

    def admit(self, entry: Entry) -> Refusal | None:  # noqa: ARG002  # the rules that define it use it; so below
        """Why a gang is not tried; None when it is to be decided."""
        return None

    def kept(self, entry: Entry) -> KeptRoom:  # noqa: ARG002
        """What the gang must leave free; gangs without chips are decided after all others."""
        return NOTHING_KEPT

    def allow(self, entry: Entry, placement: Placement) -> Refusal | None:  # noqa: ARG002
        """Why a gang may not take the placement that was found for it; None when it may."""
        return None

    def refused(self, entry: Entry, refusal: Refusal) -> Refusal:  # noqa: ARG002
        """Note that a gang, or its class, found no room; returns the refusal with what the rule adds to it."""
        return refusal

    def started(self, gang: Gang, placement: Placement) -> None:
        """Note that a gang starts; of either lane, and also one that returns to places held for it."""

    def stepped(self, gang: Gang, recovery: Recovery) -> None:
        """Note a step of the recovery of a placed gang; all steps of a round come before its gangs."""

    def grew(self, gang: Gang) -> None:
        """Note that a placed gang gets ranks back that it gave up; its charge is that of these ranks."""

    def lets_in(self, gang: Gang) -> bool:  # noqa: ARG002
        """Whether a gang may start, wherever there is room; also asked of one that returns to places held for it."""
        return True

    def is_news(self, entry: Entry, refusal: Refusal, last: Refusal) -> bool:  # noqa: ARG002
        """Whether the record must contain a refusal although its code is that of the last one of the gang."""
        return False

    def starts(self) -> Mapping[str, int]:
        """When room is reserved for gangs that are not tried in this round (ms), by uid."""
        return {}


class Lane:
    """Rules that are asked about the gangs of a lane: each for what it defines, and none if none does.

    Attributes:
        admits: Rules that refuse gangs without a look at places.
        keeps: Rules that keep room free.
        allows: Rules that see the places that were found.
        asks_again: Gangs of a class that was refused may fare in different ways.

    Args:
        rules: The rules, in their order.
        last: Last refusals.
    """

    def __init__(self, rules: Sequence[RuleRound], last: LastRefusal) -> None:
        self._last = last
        self.admits: list[Callable[[Entry], Refusal | None]] = [*_defined(rules, "admit")]
        again = [rule for rule in rules if rule.admits_again]
        self._admits_again: list[Callable[[Entry], Refusal | None]] = [*_defined(again, "admit")]
        self.keeps: list[Callable[[Entry], KeptRoom]] = [*_defined(rules, "kept")]
        self.allows: list[Callable[[Entry, Placement], Refusal | None]] = [*_defined(rules, "allow")]
        self._refuses: list[Callable[[Entry, Refusal], Refusal]] = [*_defined(rules, "refused")]
        self._news: list[Callable[[Entry, Refusal, Refusal], bool]] = [*_defined(rules, "is_news")]
        self.asks_again = bool(self._admits_again or self._refuses)

    def admit(self, entry: Entry) -> Refusal | None:
        """Why a gang is not tried: what the first rule says that refuses it."""
        for admit in self.admits if entry.known is None else self._admits_again:
            if (refusal := admit(entry)) is not None:
                return refusal
        return None

    def kept(self, entry: Entry) -> KeptRoom:
        """What a gang must leave free, for all rules; with the refusal of the first that keeps something."""
        found = NOTHING_KEPT
        for kept in self.keeps:
            one = kept(entry)
            found = one if found is NOTHING_KEPT else _both(found, one)
        return found

    def allow(self, entry: Entry, placement: Placement) -> Refusal | None:
        """Why a gang may not take its placement: what the first rule says that refuses it."""
        for allow in self.allows:
            if (refusal := allow(entry, placement)) is not None:
                return refusal
        return None

    def refused(self, entry: Entry, refusal: Refusal) -> Refusal:
        """A refusal for lack of room, with what the rules add to it."""
        for refused in self._refuses:
            refusal = refused(entry, refusal)
        return refusal

    def is_news(self, entry: Entry, refusal: Refusal) -> bool:
        """Whether the record must contain a refusal: it is the first of the gang, or differs from the last one."""
        last = self._last(entry.gang.uid)
        if entry.gang.fresh or last is None or (last.code, last.rule) != (refusal.code, refusal.rule):
            return True
        return any(is_news(entry, refusal, last) for is_news in self._news)


class Rules:
    """All rules of a round.

    Args:
        rules: The rules, in their order.
        last: Last refusals.
    """

    def __init__(self, rules: Sequence[RuleRound] = (), last: LastRefusal = lambda _: None) -> None:
        self.chips = Lane([rule for rule in rules if rule.lane != "plain"], last)
        """For gangs with chips."""
        self.plain = Lane([rule for rule in rules if rule.lane != "chips"], last)
        """For gangs without."""
        self._rules = rules
        self._starts: list[Callable[[Gang, Placement], None]] = [*_defined(rules, "started")]
        self._steps: list[Callable[[Gang, Recovery], None]] = [*_defined(rules, "stepped")]
        self._grows: list[Callable[[Gang], None]] = [*_defined(rules, "grew")]
        self._lets_in: list[Callable[[Gang], bool]] = [*_defined(rules, "lets_in")]

    def started(self, gang: Gang, placement: Placement) -> None:
        """Tell the rules that a gang starts."""
        for started in self._starts:
            started(gang, placement)

    def stepped(self, gang: Gang, recovery: Recovery) -> None:
        """Tell the rules of a step of the recovery of a placed gang."""
        for stepped in self._steps:
            stepped(gang, recovery)

    def grew(self, gang: Gang) -> None:
        """Tell the rules that a placed gang gets ranks back."""
        for grew in self._grows:
            grew(gang)

    def lets_in(self, gang: Gang) -> bool:
        """Whether all rules let a gang start, wherever there is room."""
        return all(lets_in(gang) for lets_in in self._lets_in)

    def starts(self) -> dict[str, int]:
        """When room is reserved for gangs that are not tried in this round (ms), by uid."""
        return {uid: start_ms for rule in self._rules for uid, start_ms in rule.starts().items()}


def _defined(rules: Sequence[RuleRound], method: str) -> Iterator[Any]:
    """A method of the rules that define it."""
    neutral = getattr(RuleRound, method)
    return (getattr(rule, method) for rule in rules if getattr(type(rule), method) is not neutral)


def _both(one: KeptRoom, other: KeptRoom) -> KeptRoom:
    rows = dict(one.rows)
    for row, (cpu, memory) in other.rows.items():
        before = rows.get(row, (0, 0))
        rows[row] = (before[0] + cpu, before[1] + memory)
    return KeptRoom(rows, one.refusal or other.refusal)


NO_RULES: Final = Rules()
