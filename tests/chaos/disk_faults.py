"""Faults of the disks of nats-servers."""

import asyncio
from dataclasses import dataclass
from itertools import permutations
from random import Random
from typing import Final

from tests.chaos.cell import ChaosCell
from tests.chaos.component import start_all
from tests.chaos.fault import Fault, Setup
from tests.chaos.replicas import are_whole
from tests.support.waiting import until, until_true

_LEFT_MAX_BYTES: Final = 20_000
_FULL_S: Final = 30.0
_REJOINS_S: Final = 60.0


@dataclass
class PowerLoss:
    """Servers and their disks lose power; what was not synced is gone, but for what a seed keeps."""

    names: tuple[str, ...]
    seed: int | None
    kind: str

    @property
    def victims(self) -> tuple[str, ...]:
        """The servers."""
        return self.names

    async def inject(self, cell: ChaosCell) -> None:
        """Cut the power."""
        async with asyncio.TaskGroup() as group:
            for name in self.names:
                group.create_task(cell.components[name].kill(), name=f"power of {name}")
        for name in self.names:
            cell.disks[name].lose_power(self.seed)

    async def heal(self, cell: ChaosCell) -> None:
        """Start them."""
        await start_all([cell.components[name] for name in self.names])


@dataclass
class Full:
    """A disk has no room. When it heals the server starts again: before, a stream that found no room stores nothing."""

    name: str
    left_bytes: int
    kind: str = "full disk"

    @property
    def victims(self) -> tuple[str, ...]:
        """The server."""
        return (self.name,)

    async def inject(self, cell: ChaosCell) -> None:
        """Fill it, and wait until a write found no room."""
        disk = cell.disks[self.name]
        refused = disk.figures().refused
        disk.fill(left_bytes=self.left_bytes)
        await until(lambda: disk.figures().refused > refused, deadline_s=_FULL_S, what=f"{self.name} finds no room")

    async def heal(self, cell: ChaosCell) -> None:
        """Make room."""
        cell.disks[self.name].limit(None)
        await cell.components[self.name].kill()
        await cell.components[self.name].start()


@dataclass
class Slow:
    """Each write and each sync takes longer."""

    name: str
    write_s: float
    sync_s: float
    kind: str = "slow disk"

    @property
    def victims(self) -> tuple[str, ...]:
        """The disk; its server may have other faults meanwhile."""
        return (f"disk of {self.name}",)

    async def inject(self, cell: ChaosCell) -> None:
        """Slow it down."""
        cell.disks[self.name].delay(write_s=self.write_s, sync_s=self.sync_s)

    async def heal(self, cell: ChaosCell) -> None:
        """Let it be fast again."""
        cell.disks[self.name].delay()


@dataclass
class Stalled:
    """A disk answers nothing; not even kill -9 ends a process that waits for it, so its server has no other fault."""

    name: str
    kind: str = "stalled disk"

    @property
    def victims(self) -> tuple[str, ...]:
        """The server and its disk."""
        return (self.name, f"disk of {self.name}")

    async def inject(self, cell: ChaosCell) -> None:
        """Stop it."""
        cell.disks[self.name].stall()

    async def heal(self, cell: ChaosCell) -> None:
        """Let it answer."""
        cell.disks[self.name].go()


@dataclass
class Lost:
    """One of three servers gets a new, empty disk and rejoins.

    Nothing else may concern the servers meanwhile: with the votes of a member lost, a majority is the other two.
    """

    name: str
    servers: tuple[str, ...]
    kind: str = "lost disk"

    @property
    def victims(self) -> tuple[str, ...]:
        """All servers, their disks, and the ways between them."""
        ways = (f"{one}>{other}" for one, other in permutations(self.servers, 2))
        return (*self.servers, *(f"disk of {name}" for name in self.servers), *ways)

    async def inject(self, cell: ChaosCell) -> None:
        """Wait until the others have everything, and take the disk away."""
        await until_true(
            lambda: are_whole(cell.bus, len(self.servers)), deadline_s=_REJOINS_S, what="all replicas are current"
        )
        await cell.components[self.name].kill()
        cell.disks[self.name].erase()

    async def heal(self, cell: ChaosCell) -> None:
        """Start the server once the others have everything, and wait until it has everything again.

        Of what was stored last, one of the others may have nothing yet: the empty server would vote for that one.
        """
        await until_true(
            lambda: are_whole(cell.bus, len(self.servers) - 1),
            deadline_s=_REJOINS_S,
            what=f"those beside {self.name} are current",
        )
        await cell.components[self.name].start()
        await until_true(
            lambda: are_whole(cell.bus, len(self.servers)),
            deadline_s=_REJOINS_S,
            what=f"{self.name} has all streams again",
        )


def power_loss(random: Random, setup: Setup) -> Fault:
    """The host of a nats-server loses power."""
    return PowerLoss((random.choice(setup.nats),), _seed(random), "power loss")


def power_loss_of_all(random: Random, setup: Setup) -> Fault:
    """All of them at once."""
    return PowerLoss(setup.nats, _seed(random), "power loss of all")


def full(random: Random, setup: Setup) -> Fault:
    """The disk of a nats-server is full."""
    return Full(random.choice(setup.nats), random.randrange(_LEFT_MAX_BYTES))


def slow(random: Random, setup: Setup) -> Fault:
    """The disk of a nats-server is slow."""
    return Slow(random.choice(setup.nats), random.uniform(0, 0.01), random.uniform(0.01, 0.1))


def stalled(random: Random, setup: Setup) -> Fault:
    """The disk of a nats-server stands still."""
    return Stalled(random.choice(setup.nats))


def lost(random: Random, setup: Setup) -> Fault:
    """The disk of a nats-server is replaced."""
    return Lost(random.choice(setup.nats), setup.nats)


def _seed(random: Random) -> int | None:
    return random.randrange(1 << 30) if random.random() < 0.7 else None
