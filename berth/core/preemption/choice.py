"""Choice of victims on one place, by counting: three ways to a set, and then nobody goes without need.

No place is planned here. A set that evicts too much may be what is not allowed, so adding more never helps there: that
is why there are three ways.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from berth.core.preemption.cost import Prices
from berth.core.preemption.legality import Legality
from berth.core.preemption.model import Candidate

_FEW: Final = 16
"""Most candidates among which single ones are exchanged."""


class Room(Protocol):
    """Room of a place, as far as it is counted."""

    def add(self, one: Candidate) -> None:
        """Let a candidate leave."""

    def remove(self, one: Candidate) -> None:
        """Let it stay."""

    def fits(self) -> bool:
        """Whether the preemptor may fit; true whenever a plan would succeed."""


class Picked:
    """Candidates that are picked on a place.

    Args:
        room: Room of the place, where none is gone.
        legality: The same set, as queues see it.
        shortened: The first ranks of a surplus.
    """

    def __init__(
        self, room: Room, legality: Legality, shortened: Callable[[Candidate, int], Candidate] = lambda one, _: one
    ) -> None:
        self._room, self._legality, self._shortened = room, legality, shortened
        self.victims: dict[Candidate, None] = {}
        self._surplus: dict[str, Candidate] = {}
        """Surplus that is picked, by uid of its gang."""
        self._whole: set[str] = set()
        """Gangs (uid) that are picked as a whole."""

    def add(self, one: Candidate) -> Candidate | None:
        """Pick a candidate; returns the surplus of the same gang, which it replaces.

        The surplus of a gang that is picked as a whole is not picked.
        """
        uid = one.gang.counted.uid
        if one.ranks and uid in self._whole:
            return None
        part = self._surplus.pop(uid, None)
        if part is not None:
            self.drop(part)
        if one.ranks:
            self._surplus[uid] = one
        else:
            self._whole.add(uid)
        self.victims[one] = None
        self._room.add(one)
        self._legality.add(one)
        return part

    def drop(self, one: Candidate) -> None:
        """Pick a candidate no more."""
        del self.victims[one]
        if one.ranks:
            self._surplus.pop(one.gang.counted.uid, None)
        else:
            self._whole.discard(one.gang.counted.uid)
        self._room.remove(one)
        self._legality.remove(one)

    def clear(self) -> None:
        """Pick none."""
        for one in list(self.victims):
            self.drop(one)

    def fits(self) -> bool:
        """Whether there may be room."""
        return self._room.fits()

    def is_enough(self) -> bool:
        """Whether there may be room, and the set is allowed."""
        return self._room.fits() and self._legality.is_allowed()

    def become(self, victims: Iterable[Candidate]) -> None:
        """Pick others instead."""
        self.clear()
        for one in victims:
            self.add(one)

    def is_kept(self) -> bool:
        """Whether more candidates may make the set one that is allowed."""
        return self._legality.is_kept()

    def bound_by(self, one: Candidate) -> int:
        """How many queues bind the preemptor to their entitlements if a candidate is picked."""
        return self._legality.bound_by(one)

    def trim(self) -> None:
        """Let as few ranks of each surplus leave as are enough."""
        shortened = self._shortened
        for one in [victim for victim in self.victims if len(victim.ranks) > 1]:
            self.drop(one)
            least, most = 1, len(one.ranks)
            while least < most:
                middle = (least + most) // 2
                part = shortened(one, middle)
                self.add(part)
                least, most = (least, middle) if self.is_enough() else (middle + 1, most)
                self.drop(part)
            self.add(one if most == len(one.ranks) else shortened(one, most))

    def take_back(self, is_enough: Callable[[], bool], without: Candidate | None = None) -> bool:
        """Let each victim stay, the dearest first, without which the rest is enough; returns whether any does.

        Args:
            is_enough: Whether the rest is.
            without: One that does not stay.
        """
        has_less = False
        for one in sorted(self.victims, key=lambda victim: victim.dearness[1:], reverse=True):
            if one is without:
                continue
            self.drop(one)
            if is_enough():
                has_less = True
            else:
                self.add(one)
        return has_less


def choose(candidates: Sequence[Candidate], picked: Picked, prices: Prices) -> list[Candidate] | None:
    """The cheapest of the sets that three ways find; None if none finds any.

    One gang that is reclaimed binds the preemptor to the entitlements up to where its path meets that of the gang. So
    the ways are also tried without gangs for which more queues bind than for others.

    Args:
        candidates: Candidates that help on the place, the cheapest first.
        picked: The set, empty; it is empty afterwards.
        prices: Compares sets.
    """
    best: list[Candidate] | None = None
    for most in sorted({picked.bound_by(one) for one in candidates}):
        some = [one for one in candidates if picked.bound_by(one) <= most]
        for way in (_cheapest, _room_first, _within):
            if way(some, picked):
                while picked.take_back(picked.is_enough):
                    pass
                picked.trim()
                found = list(picked.victims)
                if best is None or prices.of(found) < prices.of(best):
                    best = found
            picked.clear()
    if best is not None and len(best) < len(candidates) <= _FEW:
        best = _exchanged(candidates, best, picked, prices)
    return best


def _exchanged(
    candidates: Sequence[Candidate], best: list[Candidate], picked: Picked, prices: Prices
) -> list[Candidate]:
    """A set of few candidates, with one instead of others as often as that is cheaper."""
    for one in candidates:
        if one in best:
            continue
        picked.become([*(victim for victim in best if victim.gang is not one.gang), one])
        while picked.take_back(picked.is_enough, without=one):
            pass
        if one in picked.victims and picked.is_enough():
            picked.trim()
        found = list(picked.victims)
        if picked.is_enough() and prices.of(found) < prices.of(best):
            best = found
    picked.clear()
    return best


def _cheapest(candidates: Iterable[Candidate], picked: Picked) -> bool:
    """Pick until it is enough."""
    for one in candidates:
        picked.add(one)
        if picked.is_enough():
            return True
    return picked.is_enough()


def _room_first(candidates: Sequence[Candidate], picked: Picked) -> bool:
    """Pick until there is room, drop what that does not need, and then add gangs of the own queue."""
    for one in candidates:
        if picked.fits():
            break
        picked.add(one)
    if not picked.fits():
        return False
    picked.take_back(picked.fits)
    return picked.is_enough() or _cheapest(
        [one for one in candidates if one.is_own and one not in picked.victims], picked
    )


def _within(candidates: Iterable[Candidate], picked: Picked) -> bool:
    """Pick gangs of the own queue, and those of others with which nothing is taken that is due to their queues."""
    for one in candidates:
        part = picked.add(one)
        if one in picked.victims and not (one.is_own or picked.is_kept()):
            picked.drop(one)
            if part is not None:
                picked.add(part)
        elif picked.is_enough():
            return True
    return picked.is_enough()
