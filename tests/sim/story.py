"""Stories as data: what a seed makes of a cluster, of its users, and of everything that breaks.

An event has a time and is possible in any state of the cell, so every part of a story is a story. That is how a failing
one is made shorter.
"""

from collections.abc import Sequence
from random import Random
from typing import Final

import msgspec

from tests.sim.cell import CellSettings

HORIZON_S: Final = 60.0
"""Events happen within this time; then all that is broken is mended."""
FIRST_S: Final = 2.0
UNSYNCED: Final = 0.2
"""Share of the seeds whose server does not sync each write."""

CLUSTERS: Final = (
    '{product: module910bx8, count: 4, name: "a2-{index}", leaf: {size: 2}}',
    '{product: module910bx8, count: 8, name: "a2-{index}", leaf: {size: 4}}',
    '{product: module910a3x16, count: 6, name: "a3-{index}", superpod: {size: 3}}',
    '{product: module910bx8, count: 2, name: "a2-{index}"}',
)
PRODUCTS: Final = ("module910bx8", "module910bx8", "module910a3x16", "module910bx8")
SIZES: Final = ((1, 2, 4, 8), (1, 4, 8, 8), (2, 4, 8, 16), (1, 2, 4, 8))
SERVICES: Final = ("dispatcher-0", "dispatcher-1", "inventory", "health", "binder", "summary")
WEIGHTS: Final[dict[str, int]] = {
    "job": 40,
    "ascend": 12,
    "drain": 4,
    "pod": 6,
    "end": 8,
    "again": 5,
    "remove": 6,
    "cancel": 4,
    "request": 4,
    "rubbish": 1,
    "break": 10,
    "cordon": 4,
    "relabel": 3,
    "kill": 8,
    "blackout": 1,
    "fuse": 8,
    "point": 8,
    "restart": 3,
    "pause": 4,
    "cut": 5,
    "hold": 5,
    "deafen": 4,
    "unheard": 6,
    "consumers": 3,
    "lag": 3,
    "leaderless": 3,
    "server": 1,
    "busy": 4,
    "failing": 4,
    "conflicts": 3,
    "denying": 2,
    "hanging": 2,
    "expire": 3,
    "kube-down": 2,
    "clock": 2,
    "settings": 2,
    "power": 2,
    "backup": 0,
    "delete-stream": 1,
    "doubt": 8,
    "rival": 6,
    "stray": 5,
}
"""What may happen, and how often where everything does."""
VERBS: Final = tuple(verb for verb, weight in WEIGHTS.items() for _ in range(weight))
USERS: Final = ("job", "ascend", "pod", "end", "again", "remove", "cancel", "request", "rubbish", "drain")


class Event(msgspec.Struct, frozen=True):
    """Something that happens; what the numbers mean depends on ``verb``.

    Attributes:
        at_s: When.
        verb: One of :data:`WEIGHTS`.
        one: Who.
        two: What.
        for_s: How long.
    """

    at_s: float
    verb: str
    one: int = 0
    two: int = 0
    for_s: float = 1.0

    def __str__(self) -> str:
        return f"{self.at_s:8.3f} s {self.verb} {self.one} {self.two} for {self.for_s:.2f} s"


class Story(msgspec.Struct, frozen=True):
    """A cluster, the settings of the services, and events in order of time."""

    kind: int
    settings: CellSettings
    events: tuple[Event, ...]

    def only(self, kept: Sequence[int]) -> "Story":
        """A part of it, by the numbers of the events."""
        return msgspec.structs.replace(self, events=tuple(self.events[number] for number in kept))

    @property
    def topology(self) -> str:
        """Text of the topology file."""
        return f"apiVersion: berth/v1\nkind: Cluster\nnodes:\n  - {CLUSTERS[self.kind]}\n"


def draw(seed: int) -> Story:
    """The story of a seed."""
    chance = Random(f"{seed} story")  # noqa: S311  # a simulation
    kind = chance.randrange(len(CLUSTERS))
    recoveries = chance.random() < 0.5
    settings = CellSettings(
        shards=chance.choice((0, 0, 1, 2, 3)),
        dispatchers=chance.choice((1, 2, 2)),
        decisions={"queue_policy": chance.choice(("skip", "skip", "fifo", "easy")), "chain": int(seed % 4 != 1)},
        faults={"enabled": True, "plan_before_delete": chance.random() < 0.5} if recoveries else {},
        snapshot_records=chance.choice((10, 20, 50)),
        sync="default" if _is_unsynced(seed) else "always",
    )
    # Not everything happens in every story: what is rare would never be alone with what is common.
    troubles = [verb for verb in VERBS if verb not in USERS and _is_in(seed, verb)] or ["kill"]
    wishes = [verb for verb in VERBS if verb in USERS]
    drawn = [chance.choice(wishes) for _ in range(chance.randrange(8, 26))]
    drawn += [chance.choice(troubles) for _ in range(chance.randrange(6, 32))]
    if settings.sync != "always":
        drawn += ["backup"] * 5 + ["power"] * chance.choice((1, 1, 2))
    events = sorted((_event(chance, verb) for verb in drawn), key=lambda event: event.at_s)
    return Story(kind, settings, tuple(events))


def _event(chance: Random, verb: str) -> Event:
    return Event(
        round(FIRST_S + chance.random() * (HORIZON_S - FIRST_S), 3),
        verb,
        chance.randrange(1000),
        chance.randrange(1000),
        round(chance.choice((0.3, 2.0, 8.0, 20.0)) * (0.2 + chance.random()), 3),
    )


def _is_unsynced(seed: int) -> bool:
    """Whether the bus's server of a seed acknowledges what it may still lose with the power."""
    return Random(f"{seed} sync").random() < UNSYNCED  # noqa: S311  # a simulation


def _is_in(seed: int, verb: str) -> bool:
    return Random(f"{seed} {verb}").random() < 0.4  # noqa: S311  # a simulation
