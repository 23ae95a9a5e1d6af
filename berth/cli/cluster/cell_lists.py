"""Lists of the cell from the service ``api``, which holds the state: without it a command folds the facts itself.

Without the latter nothing imports numpy. The service is asked where NATS has no users: otherwise it knows callers by an
identity, and persons have none.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Final, Protocol, TypeVar

import msgspec

from berth.cli.api import NoApiError, ask
from berth.cli.cluster.drain_rows import DrainLine, line_from
from berth.cli.cluster.node_rows import NodeRow, row_from
from berth.cli.cluster.node_summary import Use
from berth.runtime.bus.port import Bus
from berth.schemas.programs.lists import (
    PAGE_MAX,
    DrainsReply,
    DrainsRequest,
    FaultGroup,
    FaultsReply,
    FaultsRequest,
    PlacesReply,
    PlacesRequest,
    UsageReply,
    UsageRequest,
)
from berth.schemas.programs.replies import NodesReply, NodeState
from berth.schemas.programs.requests import NodesRequest
from berth.schemas.programs.shape import Request

NO_FAULTS: Final = "no node, chip or job is faulty"
_PLACES: Final = PlacesRequest(limit=PAGE_MAX)
_Paged = TypeVar("_Paged", NodesReply, PlacesReply, FaultsReply, DrainsReply)


class CellLists(Protocol):
    """What a cell has."""

    async def use(self) -> Use:
        """How full it is."""

    async def size(self) -> int:
        """Number of nodes."""

    async def nodes(self) -> list[NodeRow]:
        """All nodes, by product and name; reasons of their health may be missing."""

    async def with_reasons(self, nodes: list[NodeRow]) -> list[NodeRow]:
        """Some of these nodes, with the reasons of their health."""

    async def node(self, name: str) -> NodeState | None:
        """A node with details; None if there is no such node."""

    async def faults(self) -> list[FaultGroup]:
        """Faults in groups, by kind, scope and name."""

    async def drains(self) -> list[DrainLine]:
        """What is drained, or will be."""


async def lists_of(bus: Bus) -> CellLists:
    """The lists of the service, or those that are folded here if it does not answer.

    Raises:
        TransientError: The bus did not answer.
    """
    try:
        return await ApiLists.open(bus)
    except NoApiError:
        from berth.cli.cluster.folded_lists import FoldedLists  # noqa: PLC0415  # imports numpy

        return await FoldedLists.read(bus)


class ApiLists:
    """What the service lists; all methods raise :class:`NoApiError` if it does not answer.

    Args:
        bus: The cell.
        usage: Its answer to the first question.
    """

    def __init__(self, bus: Bus, usage: UsageReply) -> None:
        self._bus = bus
        self._usage = usage

    @classmethod
    async def open(cls, bus: Bus) -> "ApiLists":
        """Ask the service.

        Raises:
            NoApiError: It does not answer.
        """
        return cls(bus, await ask(bus, "usage", UsageRequest(), UsageReply))

    async def use(self) -> Use:
        """How full the cell is."""
        places = [
            [one async for reply in self._pages(verb, _PLACES, PlacesReply) for one in reply.places]
            for verb in ("leaves", "superpods")
        ]
        return Use(self._usage.total, self._usage.products, *places)

    async def size(self) -> int:
        """Number of nodes."""
        return self._usage.total.nodes

    async def nodes(self) -> list[NodeRow]:
        """All nodes, without the reasons of their health."""
        found = [row_from(node) for node in await self._nodes()]
        return sorted(found, key=lambda node: (node.product, node.name))

    async def with_reasons(self, nodes: list[NodeRow]) -> list[NodeRow]:
        """Nodes with the reasons of their health."""
        names = [node.name for node in nodes]
        found = {node.name: row_from(node) for node in await self._nodes(names, details=True)} if names else {}
        return [found.get(node.name, node) for node in nodes]

    async def node(self, name: str) -> NodeState | None:
        """A node with details."""
        found = await self._nodes([name], details=True)
        return found[0] if found else None

    async def faults(self) -> list[FaultGroup]:
        """Faults in groups."""
        asked = FaultsRequest(limit=PAGE_MAX)
        return [one async for reply in self._pages("faults", asked, FaultsReply) for one in reply.groups]

    async def drains(self) -> list[DrainLine]:
        """What is drained, or will be."""
        asked = DrainsRequest(limit=PAGE_MAX)
        return [line_from(one) async for reply in self._pages("drains", asked, DrainsReply) for one in reply.drains]

    async def _nodes(self, names: Sequence[str] = (), *, details: bool = False) -> list[NodeState]:
        asked = NodesRequest(names=list(names), details=details)
        return [node async for reply in self._pages("nodes", asked, NodesReply) for node in reply.nodes]

    async def _pages(self, verb: str, asked: Request, answer: type[_Paged]) -> AsyncIterator[_Paged]:
        after = ""
        while True:
            reply = await ask(self._bus, verb, msgspec.structs.replace(asked, after=after), answer)
            yield reply
            after = reply.next
            if not after:
                return
