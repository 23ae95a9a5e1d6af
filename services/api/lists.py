"""Lists of the cell in pages: jobs, nodes, places, faults, drains and queues. Pages of a state are made once."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

import msgspec

from berth.core.faults.storms import held_now
from berth.core.overview.chip_use import is_whole_free
from berth.core.overview.drain_list import drain_of, known_drains
from berth.core.overview.node_list import NodeList
from berth.core.overview.queue_use import queue_entries
from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock
from berth.schemas.programs.lists import (
    NAMES_MAX,
    PAGE_MAX,
    Approval,
    DrainsReply,
    DrainsRequest,
    FaultsReply,
    FaultsRequest,
    HeldRestart,
    JobsReply,
    JobsRequest,
    PlacesReply,
    PlacesRequest,
    PlaceUse,
    QueuesReply,
    QueuesRequest,
    UsageReply,
    UsageRequest,
)
from berth.schemas.programs.replies import NodesReply
from berth.schemas.programs.requests import NodesRequest
from berth.schemas.programs.shape import Reply, Request
from berth.services.api.access import Access
from berth.services.api.config import EVERY
from berth.services.api.loop import Loop
from berth.services.api.request_errors import decoded

_BYTES_MAX: Final = 500_000
"""Longest page, if it has several entries ..."""
_FRAME_BYTES: Final = 600
"""... and what may surround them."""
_LOOKED_AT_MAX: Final = 5_000
"""Most entries that are looked at for a page."""
_KEPT_MAX: Final = 256
"""Most pages of a state that are kept."""
_MADE_A_TOKEN: Final = 8
_LINES_A_TOKEN: Final = 100
"""Entries of a page that cost a token: those that are made for it, and those that are there."""
_LOOKED_AT_A_TOKEN: Final = 500
"""Entries that are looked at for a page."""
_NODES_A_TOKEN: Final = 1_000
"""Nodes of the cell, where their chips are counted."""
_FAULTY_A_TOKEN: Final = 100
"""Nodes with faults, where these are put into groups."""

T = TypeVar("T")
R = TypeVar("R", bound=Request)


class Page(NamedTuple):
    """A reply as JSON, and what it costs."""

    data: bytes
    tokens: int


class _Reader(NamedTuple):
    """Namespaces that a caller may read; ``*`` for all."""

    namespaces: tuple[str, ...]

    @property
    def sees_all(self) -> bool:
        return EVERY in self.namespaces

    def may(self, namespace: str) -> bool:
        return self.sees_all or namespace in self.namespaces


class Lists:
    """Answers the operations that list what the cell has.

    Args:
        bus: The cell.
        clock: Of the process.
        loop: Keeps the state of the cell, its jobs and faults, and how full it is.
        access: Who may do what.
    """

    def __init__(self, bus: Bus, clock: Clock, loop: Loop, access: Access) -> None:
        self._bus = bus
        self._clock = clock
        self._state = loop.state
        self._jobs = loop.jobs
        self._faults = loop.faults
        self._usage = loop.usage
        self._nodes = NodeList(loop.state, loop.faults)
        self._access = access
        self._version: tuple[int, ...] = ()
        self._pages: dict[tuple[str, bytes, _Reader], Page] = {}

    def steps(self) -> Mapping[str, Callable[[bytes, str], Awaitable[Page]]]:
        """The operations."""
        return {
            "jobs": self._step("jobs", JobsRequest, self._list_jobs),
            "nodes": self._step("nodes", NodesRequest, self._list_nodes),
            "usage": self._step("usage", UsageRequest, self._list_usage),
            "leaves": self._step("leaves", PlacesRequest, self._list_leaves),
            "superpods": self._step("superpods", PlacesRequest, self._list_superpods),
            "faults": self._step("faults", FaultsRequest, self._list_faults),
            "drains": self._step("drains", DrainsRequest, self._list_drains),
            "queues": self._step("queues", QueuesRequest, self._list_queues),
        }

    def _step(
        self, verb: str, kind: type[R], make: Callable[[R, _Reader], tuple[Reply, int]]
    ) -> Callable[[bytes, str], Awaitable[Page]]:
        async def step(data: bytes, identity: str) -> Page:
            asked = decoded(data, kind)
            namespace = asked.namespace if isinstance(asked, JobsRequest) else EVERY
            self._access.check(identity, "read", "" if namespace == EVERY else namespace)
            reader = _Reader(tuple(self._access.namespaces(identity, "read")))
            at = (self._state.facts_seq, self._state.fold.head, self._jobs.revision)
            version = (*at, self._usage.begun_drains(), self._bus.payload_limit_bytes)
            if version != self._version:
                self._version = version
                self._pages.clear()
            page = self._pages.get((verb, data, reader))
            if page is None:
                reply, tokens = make(asked, reader)
                reply = msgspec.structs.replace(
                    reply, facts_seq=self._state.facts_seq, ledger_seq=self._state.fold.head
                )
                page = Page(msgspec.json.encode(reply), tokens)
                if len(self._pages) < _KEPT_MAX:
                    self._pages[verb, data, reader] = page
            return page

        return step

    def _list_jobs(self, asked: JobsRequest, reader: _Reader) -> tuple[Reply, int]:
        jobs, after, looked_at = self._page(self._jobs.entries(asked, reader.namespaces), asked.limit)
        reply = JobsReply(
            jobs=jobs,
            next=after,
            waiting=self._jobs.waiting,
        )
        return reply, len(jobs) // _LINES_A_TOKEN + looked_at // _LOOKED_AT_A_TOKEN

    def _list_nodes(self, asked: NodesRequest, reader: _Reader) -> tuple[Reply, int]:
        entries = self._nodes.entries(asked, reader.may)
        nodes, after, looked_at = self._page(entries, asked.limit)
        return NodesReply(nodes=nodes, next=after), len(nodes) // _MADE_A_TOKEN + looked_at // _LOOKED_AT_A_TOKEN

    def _list_usage(self, asked: UsageRequest, reader: _Reader) -> tuple[Reply, int]:
        del asked  # it says nothing
        use = self._usage.use()
        jobs, _, jobs_waiting, waiting = self._jobs.totals()
        namespaces = self._jobs.uses(reader.namespaces, PAGE_MAX)
        reply = UsageReply(
            total=use.total,
            products=self._usage.products(),
            namespaces=namespaces,
            jobs=jobs,
            jobs_waiting=jobs_waiting,
            waiting=waiting,
            leaves_free=sum(map(is_whole_free, use.leaves)),
            superpods_free=sum(map(is_whole_free, use.superpods)),
        )
        looked_at = self._jobs.waiting // _LOOKED_AT_A_TOKEN
        return reply, len(namespaces) // _LINES_A_TOKEN + use.total.nodes // _NODES_A_TOKEN + looked_at

    def _list_leaves(self, asked: PlacesRequest, _: _Reader) -> tuple[Reply, int]:
        return self._places(asked, self._usage.use().leaves)

    def _list_superpods(self, asked: PlacesRequest, _: _Reader) -> tuple[Reply, int]:
        return self._places(asked, self._usage.use().superpods)

    def _places(self, asked: PlacesRequest, places: Iterable[PlaceUse]) -> tuple[Reply, int]:
        named = frozenset(asked.names)
        chosen = ((one.name, one) for one in places if one.name > asked.after and (not named or one.name in named))
        found, after, _ = self._page(chosen, asked.limit)
        tokens = len(found) // _LINES_A_TOKEN + self._usage.use().total.nodes // _NODES_A_TOKEN
        return PlacesReply(places=found, next=after), tokens

    def _list_faults(self, asked: FaultsRequest, reader: _Reader) -> tuple[Reply, int]:
        places = self._faults.places()
        chosen = ((one.id, self._faults.group(one, reader.may)) for one in places if one.id > asked.after)
        groups, after, _ = self._page(chosen, asked.limit)
        now_ms = self._clock.now_ms()
        held = held_now(self._state, at_ms=now_ms) if len(self._faults) and not asked.after else []
        seen = [one for one in held if reader.may(one.namespace)][:NAMES_MAX]
        reply = FaultsReply(
            groups=groups,
            next=after,
            total=len(places),
            nodes=len(self._faults),
            held=[
                HeldRestart(
                    namespace=one.namespace,
                    name=one.name,
                    kind=one.cause.kind,
                    domain=one.cause.domain,
                    reason=one.reason,
                    approvable=one.approvable,
                )
                for one in seen
            ],
            more_held=len(held) - len(seen),
            approvals=[
                Approval(
                    kind=one.kind,
                    domain=one.domain,
                    until_ms=one.until_ms,
                    reason=one.reason,
                    by=one.by if reader.sees_all else "",
                )
                for one in self._state.faults.approvals_at(now_ms)
            ],
        )
        return reply, (len(groups) + len(held)) // _MADE_A_TOKEN + len(self._faults) // _FAULTY_A_TOKEN

    def _list_drains(self, asked: DrainsRequest, reader: _Reader) -> tuple[Reply, int]:
        chosen = (
            (cursor, drain_of(self._state, one, reader.may, with_author=reader.sees_all))
            for cursor, one in known_drains(self._state).items()
            if cursor > asked.after
        )
        drains, after, _ = self._page(chosen, asked.limit)
        return DrainsReply(drains=drains, next=after), len(drains) // _MADE_A_TOKEN

    def _list_queues(self, asked: QueuesRequest, reader: _Reader) -> tuple[Reply, int]:
        entries = queue_entries(self._state, reader.may)
        queues, after, _looked_at = self._page(
            ((one.name, one) for one in entries if one.name > asked.after), asked.limit
        )
        reply = QueuesReply(queues=queues, next=after, are_applied=self._state.queues.tree() is not None)
        return reply, len(entries) // _LINES_A_TOKEN

    def _page(self, entries: Iterable[tuple[str, T | None]], limit: int) -> tuple[list[T], str, int]:
        """Entries of a page, the cursor after which the next one begins (empty at the end), and how many it looked at.

        Args:
            entries: In their order, each with the cursor after it; None for one that is not asked for.
            limit: Most of them.
        """
        found: list[T] = []
        size, size_max = 0, min(_BYTES_MAX, self._bus.payload_limit_bytes - _FRAME_BYTES)
        last, looked_at = "", 0
        for cursor, entry in entries:
            looked_at += 1
            if entry is not None:
                if len(found) == limit:
                    return found, last, looked_at
                size += len(msgspec.json.encode(entry)) + 1
                if found and size > size_max:
                    return found, last, looked_at
                found.append(entry)
            last = cursor
            if looked_at == _LOOKED_AT_MAX:
                return found, last, looked_at
        return found, "", looked_at
