"""Faults of processes and of the network."""

from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from tests.chaos.cell import ChaosCell
from tests.chaos.fault import Fault, Setup
from tests.chaos.proxy import Weather

_DELAY_MIN_S: Final = 0.02
_DELAY_MAX_S: Final = 0.4
_SECONDS_S: Final = 40.0
_MINUTES_S: Final = 300.0
"""Less than ``tombstone_after_ms``: jobs that are over for longer are forgotten, and nobody can account for them."""


@dataclass
class Kill:
    """kill -9, and a start when it heals."""

    name: str
    kind: str = "kill"

    @property
    def victims(self) -> tuple[str, ...]:
        """The process."""
        return (self.name,)

    async def inject(self, cell: ChaosCell) -> None:
        """Kill it."""
        await cell.components[self.name].kill()

    async def heal(self, cell: ChaosCell) -> None:
        """Start it."""
        await cell.components[self.name].start()


@dataclass
class Pause:
    """SIGSTOP, and SIGCONT when it heals."""

    name: str
    kind: str = "stop"

    @property
    def victims(self) -> tuple[str, ...]:
        """The process."""
        return (self.name,)

    async def inject(self, cell: ChaosCell) -> None:
        """Stop it."""
        await cell.components[self.name].pause()

    async def heal(self, cell: ChaosCell) -> None:
        """Let it go on."""
        cell.components[self.name].resume_now()


@dataclass
class Step:
    """The wall clock of a service is set, and set right when it heals."""

    name: str
    shift_s: float
    kind: str = "clock"

    @property
    def victims(self) -> tuple[str, ...]:
        """Its clock."""
        return (f"clock of {self.name}",)

    async def inject(self, cell: ChaosCell) -> None:
        """Set it wrong."""
        cell.clocks[self.name].set(self.shift_s)

    async def heal(self, cell: ChaosCell) -> None:
        """Set it right."""
        cell.clocks[self.name].set(0.0)


@dataclass
class Partition:
    """Packets between hosts are lost, in one direction or in both."""

    pairs: tuple[tuple[str, str], ...]
    kind: str

    @property
    def victims(self) -> tuple[str, ...]:
        """The ways."""
        return tuple(f"{one}>{other}" for one, other in self.pairs)

    async def inject(self, cell: ChaosCell) -> None:
        """Lose them."""
        for one, other in self.pairs:
            cell.network.cut(one, other)

    async def heal(self, cell: ChaosCell) -> None:
        """Lose them no more."""
        for one, other in self.pairs:
            cell.network.heal(one, other)


@dataclass
class Bad:
    """Bytes on the way of a client to a server are late, stopped or lost."""

    way: tuple[str, str]
    kind: str
    up: Weather = field(default_factory=Weather)
    down: Weather = field(default_factory=Weather)

    @property
    def victims(self) -> tuple[str, ...]:
        """The proxy."""
        return (f"proxy {self.way[0]}>{self.way[1]}",)

    async def inject(self, cell: ChaosCell) -> None:
        """Begin."""
        proxy = cell.proxies[self.way]
        proxy.up, proxy.down = replace(self.up), replace(self.down)

    async def heal(self, cell: ChaosCell) -> None:
        """Let all through again."""
        cell.proxies[self.way].clear()


@dataclass
class Cut:
    """All connections of a client to a server end at once, and new ones do until it heals."""

    way: tuple[str, str]
    kind: str = "cut"

    @property
    def victims(self) -> tuple[str, ...]:
        """The proxy."""
        return (f"proxy {self.way[0]}>{self.way[1]}",)

    async def inject(self, cell: ChaosCell) -> None:
        """Cut them."""
        proxy = cell.proxies[self.way]
        proxy.is_closed = True
        proxy.cut()

    async def heal(self, cell: ChaosCell) -> None:
        """Take connections again."""
        cell.proxies[self.way].clear()


def kill(random: Random, setup: Setup) -> Fault:
    """Some process dies."""
    return Kill(random.choice(setup.processes))


def kill_server(random: Random, setup: Setup) -> Fault:
    """A nats-server, kube-apiserver or etcd dies."""
    return Kill(random.choice((*setup.nats, *setup.kube)), kind="kill server")


def pause(random: Random, setup: Setup) -> Fault:
    """Some service stands still."""
    return Pause(random.choice(setup.services))


def pause_server(random: Random, setup: Setup) -> Fault:
    """A nats-server, kube-apiserver or etcd stands still, and its connections stay open."""
    return Pause(random.choice((*setup.nats, *setup.kube)), kind="stop server")


def step(random: Random, setup: Setup) -> Fault:
    """The clock of some service is set, by seconds or by minutes, forward or back."""
    return Step(random.choice(setup.services), random.choice((-_MINUTES_S, -_SECONDS_S, _SECONDS_S, _MINUTES_S)))


def partition(random: Random, setup: Setup) -> Fault:
    """A client and a server do not reach each other."""
    one, other = random.choice(setup.ways_of_services)
    return Partition(((one, other), (other, one)), "partition")


def partition_one_way(random: Random, setup: Setup) -> Fault:
    """One of them is not heard by the other."""
    one, other = random.choice(setup.ways_of_services)
    pair = (one, other) if random.random() < 0.5 else (other, one)
    return Partition((pair,), "partition one way")


def isolate_server(random: Random, setup: Setup) -> Fault:
    """A nats-server is cut off from all clients and all other servers."""
    name = random.choice(setup.nats)
    others = [one for one in (*setup.services, *setup.nats) if one != name]
    return Partition(tuple(pair for other in others for pair in ((name, other), (other, name))), "isolated server")


def split_servers(random: Random, setup: Setup) -> Fault:
    """A nats-server is cut off from the other servers, and not from clients; perhaps in one direction."""
    name = random.choice(setup.nats)
    others = [one for one in setup.nats if one != name]
    if random.random() < 0.5:
        pairs = [pair for other in others for pair in ((name, other), (other, name))]
    else:
        pairs = [(name, other) if random.random() < 0.5 else (other, name) for other in others]
    return Partition(tuple(pairs), "split servers")


def split_etcd(random: Random, setup: Setup) -> Fault:
    """kube-apiserver and etcd do not reach each other."""
    del setup
    pairs = (("kube-apiserver", "etcd"), ("etcd", "kube-apiserver"))
    return Partition(pairs if random.random() < 0.5 else (random.choice(pairs),), "split etcd")


def delay(random: Random, setup: Setup) -> Fault:
    """Bytes of a connection are late."""

    def late() -> Weather:
        return Weather(random.uniform(_DELAY_MIN_S, _DELAY_MAX_S), random.uniform(0, _DELAY_MAX_S))

    up, down = (late(), late()) if random.random() < 0.6 else (late(), Weather())
    return Bad(random.choice(setup.ways), "delay", up, down)


def loss(random: Random, setup: Setup) -> Fault:
    """Bytes of a connection are taken and never come."""
    up, down = random.choice(((True, False), (False, True), (True, True)))
    return Bad(random.choice(setup.ways), "loss", Weather(is_lossy=up), Weather(is_lossy=down))


def stall(random: Random, setup: Setup) -> Fault:
    """Bytes of a connection wait, in one direction or in both."""
    up, down = random.choice(((True, False), (False, True), (True, True)))
    return Bad(random.choice(setup.ways), "stall", Weather(is_stopped=up), Weather(is_stopped=down))


def cut(random: Random, setup: Setup) -> Fault:
    """Connections of a client end."""
    return Cut(random.choice(setup.ways))
