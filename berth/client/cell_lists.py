"""Lists of the cell: jobs, nodes, how full it is, faults, drains and queues, read page by page."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from typing import TypeVar

import msgspec

from berth.schemas.programs.expected import ExpectedJob, ExpectedStartsReply, ExpectedStartsRequest
from berth.schemas.programs.lists import (
    PAGE_MAX,
    Drain,
    DrainsReply,
    DrainsRequest,
    FaultGroup,
    FaultsReply,
    FaultsRequest,
    JobsReply,
    JobsRequest,
    ListedJob,
    ListedPhase,
    PlacesReply,
    PlacesRequest,
    PlaceUse,
    QueueEntry,
    QueuesReply,
    QueuesRequest,
    UsageReply,
    UsageRequest,
)
from berth.schemas.programs.replies import NodesReply, NodeState
from berth.schemas.programs.requests import NodesRequest
from berth.schemas.programs.shape import Reply, Request

_Answer = TypeVar("_Answer", bound=Reply)
_Paged = TypeVar(
    "_Paged", JobsReply, NodesReply, PlacesReply, FaultsReply, DrainsReply, QueuesReply, ExpectedStartsReply
)


class CellLists(ABC):
    """What a client can list."""

    async def jobs(self, *, namespace: str = "*", phase: ListedPhase = "", queue: str = "") -> list[ListedJob]:
        """Jobs by namespace and name, with their positions in the queue and why they wait.

        Jobs of several replies may be of different moments.

        Args:
            namespace: Only jobs of this namespace; ``*``: of all that the identity may read.
            phase: Only jobs in this phase; ``live``: those that are not over; empty: all.
            queue: Only jobs of this queue; empty: of all.
        """
        request = JobsRequest(namespace=namespace, phase=phase, queue=queue, limit=PAGE_MAX)
        return [job async for reply in self._pages("jobs", request, JobsReply) for job in reply.jobs]

    async def expected_starts(self, *, namespace: str = "*") -> list[ExpectedJob]:
        """When jobs that wait are expected to start, by namespace and name.

        Jobs of several replies may be of different moments.

        Args:
            namespace: Only jobs of this namespace; ``*``: of all that the identity may read.
        """
        pages = self._pages("expected-starts", ExpectedStartsRequest(namespace=namespace), ExpectedStartsReply)
        return [job async for reply in pages for job in reply.jobs]

    async def nodes(
        self, names: Sequence[str] = (), *, product: str = "", leaf: str = "", superpod: str = "", details: bool = False
    ) -> list[NodeState]:
        """Nodes and their chips, by name. Nodes of several replies may be of different moments.

        Args:
            names: Only these; empty: all.
            product: Only nodes of this product; empty: of any.
            leaf: Only nodes below this leaf switch; empty: anywhere.
            superpod: Only nodes of this SuperPoD; empty: anywhere.
            details: Whether they have their labels, cpu, memory, jobs and faults.
        """
        request = NodesRequest(names=list(names), product=product, leaf=leaf, superpod=superpod, details=details)
        return [node async for reply in self._pages("nodes", request, NodesReply) for node in reply.nodes]

    async def usage(self) -> UsageReply:
        """How full the cell is: chips by product, and jobs by namespace."""
        return await self._ask("usage", UsageRequest(), UsageReply)

    async def leaves(self, names: Sequence[str] = ()) -> list[PlaceUse]:
        """How full leaf switches are, by name.

        Args:
            names: Only these; empty: all.
        """
        return await self._places("leaves", names)

    async def superpods(self, names: Sequence[str] = ()) -> list[PlaceUse]:
        """How full SuperPoDs are, by name.

        Args:
            names: Only these; empty: all.
        """
        return await self._places("superpods", names)

    async def faults(self) -> list[FaultGroup]:
        """Faults of nodes and chips in groups, since when, and the jobs there."""
        pages = self._pages("faults", FaultsRequest(limit=PAGE_MAX), FaultsReply)
        return [group async for reply in pages for group in reply.groups]

    async def drains(self) -> list[Drain]:
        """What is drained or will be, and the jobs there."""
        pages = self._pages("drains", DrainsRequest(limit=PAGE_MAX), DrainsReply)
        return [drain async for reply in pages for drain in reply.drains]

    async def queues(self) -> list[QueueEntry]:
        """Queues, by name: what each is entitled to, holds and may hold, and how many jobs wait in it."""
        pages = self._pages("queues", QueuesRequest(limit=PAGE_MAX), QueuesReply)
        return [queue async for reply in pages for queue in reply.queues]

    async def _places(self, verb: str, names: Sequence[str]) -> list[PlaceUse]:
        pages = self._pages(verb, PlacesRequest(names=list(names)), PlacesReply)
        return [place async for reply in pages for place in reply.places]

    async def _pages(self, verb: str, request: Request, answer: type[_Paged]) -> AsyncGenerator[_Paged, None]:
        """Pages of a list, up to its end."""
        while True:
            reply = await self._ask(verb, request, answer)
            yield reply
            if not reply.next:
                return
            request = msgspec.structs.replace(request, after=reply.next)

    @abstractmethod
    async def _ask(self, verb: str, request: object, answer: type[_Answer], *, is_patient: bool = False) -> _Answer:
        """Answer to a request; see :class:`berth.client.Client`."""
