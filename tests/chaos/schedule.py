"""What breaks when: rounds of faults with overlapping times, drawn from a seed. Pure."""

from collections.abc import Collection
from random import Random
from typing import Final, NamedTuple

from tests.chaos.catalogue import KINDS
from tests.chaos.fault import Fault, Kind, Setup

_TRIES_MAX: Final = 40


class Strike(NamedTuple):
    """One fault of a round.

    Attributes:
        at_s: After the round has begun.
        until_s: When it is healed.
    """

    fault: Fault
    at_s: float
    until_s: float


class Length(NamedTuple):
    """How long a round is, and how many faults it has."""

    faults_min: int = 2
    faults_max: int = 5
    breaks_s: float = 8.0
    """All faults begin and end within so long."""
    lasts_min_s: float = 0.5


LONG: Final = Length()
SHORT: Final = Length(3, 4, 4.0)


def kinds_for(setup: Setup, names: Collection[str] = ()) -> list[Kind]:
    """Kinds that suit a cell, in the order of the catalogue; of these names, if there are any.

    Raises:
        ValueError: A name is unknown, or none of them suits the cell; lists those that there are.
    """
    if unknown := sorted(set(names) - set(KINDS)):
        raise ValueError(f"fault {', '.join(unknown)} is unknown: there are {', '.join(KINDS)}")
    found = [kind for name, kind in KINDS.items() if kind.suits(setup) and (not names or name in names)]
    if not found:
        raise ValueError(
            f"no fault of {', '.join(names)} can happen to a cell {setup.world} with {setup.servers} servers"
        )
    return found


class Plan:
    """Rounds without end. In the first ones every kind occurs once.

    Args:
        seed: Of all choices.
        setup: Of the cell.
        names: Kinds to choose from; none for all.
        length: Of a round.
    """

    def __init__(self, seed: int, setup: Setup, names: Collection[str] = (), length: Length = LONG) -> None:
        self._random = Random(seed)  # noqa: S311  # the same faults every time
        self._setup = setup
        self._kinds = kinds_for(setup, names)
        self._length = length
        self._due = list(self._kinds)
        self._random.shuffle(self._due)

    def next_round(self) -> list[Strike]:
        """Faults in the order in which they begin; at least two overlap if there are two."""
        random, length = self._random, self._length
        taken: set[str] = set()
        found: list[Strike] = []
        for _ in range(random.randint(length.faults_min, length.faults_max)):
            fault = self._fault(taken)
            if fault is None:
                break
            taken |= set(fault.victims)
            # All that begin in the first half and end in the second overlap.
            at_s = random.uniform(0, length.breaks_s / 2)
            until_s = random.uniform(max(at_s + length.lasts_min_s, length.breaks_s / 2), length.breaks_s)
            found.append(Strike(fault, at_s, until_s))
        return sorted(found, key=lambda strike: strike.at_s)

    def _fault(self, taken: set[str]) -> Fault | None:
        """A fault that has no victim with the others in common; None if none is found."""
        for _ in range(_TRIES_MAX):
            is_due = bool(self._due)
            kind = self._due[0] if is_due else self._any()
            fault = kind.make(self._random, self._setup)
            if not taken & set(fault.victims):
                if is_due:
                    self._due.pop(0)
                return fault
        return None

    def _any(self) -> Kind:
        return self._random.choices(self._kinds, [kind.weight for kind in self._kinds])[0]
