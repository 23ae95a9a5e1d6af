"""What a fault is: something that breaks, is seen to be broken, and is repaired."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from tests.chaos.cell import ChaosCell

World = Literal["bus", "kube"]
USERS: Final = "users"
"""Name of those who submit and cancel jobs, among the clients of servers."""
_FOR_PROGRAMS: Final = ("api", "gateway")


class Setup(NamedTuple):
    """What a cell is made of.

    Attributes:
        world: ``bus`` has its cluster on the bus, and requests go to it; ``kube`` has an API server, and jobs are
            objects there.
        servers: Number of nats-servers, 1 or 3.
    """

    world: World
    servers: int

    @property
    def nats(self) -> tuple[str, ...]:
        """Names of the nats-servers."""
        return tuple(f"nats-{number}" for number in range(self.servers))

    @property
    def services(self) -> tuple[str, ...]:
        """Names of the services of Berth, in the order in which they are started."""
        if self.world == "bus":
            return ("nodesim", "dispatcher", "dispatcher-2", "scorer-0", "scorer-1", "binder", *_FOR_PROGRAMS)
        others = ("inventory", "health", "binder", "summary")
        return ("nodesim", "dispatcher", "dispatcher-2", "scorer-0", *others, *_FOR_PROGRAMS)

    @property
    def shards(self) -> int:
        """Number of scorers."""
        return sum(name.startswith("scorer") for name in self.services)

    @property
    def kube(self) -> tuple[str, ...]:
        """Names of the processes of the API server."""
        return ("etcd", "kube-apiserver") if self.world == "kube" else ()

    @property
    def on_kubernetes(self) -> tuple[str, ...]:
        """Services that call the API server."""
        wanted = {"nodesim", "inventory", "health", "binder", "summary"}
        return tuple(name for name in self.services if name in wanted) if self.world == "kube" else ()

    @property
    def processes(self) -> tuple[str, ...]:
        """Names of all processes."""
        return (*self.nats, *self.kube, *self.services)

    @property
    def ways_of_services(self) -> tuple[tuple[str, str], ...]:
        """Each service with each server that it calls."""
        return (
            *((name, server) for name in self.services for server in self.nats),
            *((name, "kube-apiserver") for name in self.on_kubernetes),
        )

    @property
    def ways(self) -> tuple[tuple[str, str], ...]:
        """Likewise, and those of the users; each has a proxy."""
        return (
            *self.ways_of_services,
            *((USERS, server) for server in self.nats),
            *((USERS, server) for server in self.kube[-1:]),
        )


class Fault(Protocol):
    """One fault of a run."""

    @property
    def kind(self) -> str:
        """Name of its kind."""

    @property
    def victims(self) -> tuple[str, ...]:
        """What it takes for itself: two faults that overlap have no victim in common.

        Any words, such as the name of a process, or ``binder>nats-0`` for a way.
        """

    async def inject(self, cell: "ChaosCell") -> None:
        """Break it; returns when it is in effect."""

    async def heal(self, cell: "ChaosCell") -> None:
        """Repair it; afterwards whatever it broke runs again."""


@dataclass(frozen=True)
class Kind:
    """A kind of faults.

    Attributes:
        make: A fault of the kind from random numbers.
        suits: Whether it can happen to a cell.
        weight: How often it is drawn compared with others.
    """

    name: str
    make: Callable[[Random, Setup], Fault]
    suits: Callable[[Setup], bool] = lambda _: True
    weight: int = 2
