"""Faults of clocks."""

from dataclasses import dataclass
from random import Random
from typing import Final

from tests.chaos.cell import ChaosCell
from tests.chaos.fault import Fault, Setup

_STEPS_S: Final = (-7200.0, -600.0, -30.0, 30.0, 600.0, 7200.0)


@dataclass
class Step:
    """The wall clock of a service is set, and set right when it heals: two steps, one in each direction."""

    name: str
    shift_s: float
    kind: str = "clock"

    @property
    def victims(self) -> tuple[str, ...]:
        """The clock; its process may have other faults meanwhile."""
        return (f"clock of {self.name}",)

    async def inject(self, cell: ChaosCell) -> None:
        """Set it."""
        cell.clocks[self.name].set(self.shift_s)

    async def heal(self, cell: ChaosCell) -> None:
        """Set it right."""
        cell.clocks[self.name].set(0.0)


def step(random: Random, setup: Setup) -> Fault:
    """Some service's clock is set by half a minute to two hours."""
    return Step(random.choice(setup.services), random.choice(_STEPS_S))
