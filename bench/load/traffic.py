"""Jobs that come, run a short while and end: what users, binder and inventory of a cell would send."""

import asyncio
import contextlib
import random
import time
from collections import deque
from typing import Final, NamedTuple

from bench.arrivals import fail
from bench.cell import PRODUCT, pods_seen
from bench.load.samples import Latency
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.bus.port import Stored
from berth.schemas.envelope import body_of, encode, open_envelope
from berth.schemas.facts import PodPhase
from berth.schemas.intake import JobRequest, Task
from berth.schemas.ledger import Round
from berth.schemas.placement import Placement
from berth.schemas.subjects import StreamName

_NAMESPACE: Final = "load"
_SHAPES: Final = ((1, 1), (1, 8), (4, 8))
"""Pods and chips of each."""
_WEIGHTS: Final = (45, 45, 10)
_TICK_S: Final = 0.01


class _Job(NamedTuple):
    due_s: float
    uid: str


class Traffic:
    """Submits jobs under a bounded set of names, and ends the oldest when more chips than wanted are in use.

    Args:
        bus: The cell.
        names: Number of names; a name is used again once its job is over and all others had their turn.
        keep_chips: Chips in use at most.
        seed: Of the choice of shapes.
    """

    def __init__(self, bus: NatsBus, *, names: int, keep_chips: int, seed: int = 7) -> None:
        self.submitted = 0
        self.placed = 0
        self.refused = 0
        self.failed = 0
        """Messages that the server did not store."""
        self._bus = bus
        self._rng = random.Random(seed)  # noqa: S311  # a repeatable load, not a secret
        self._free = deque(range(names))
        self._keep_chips = keep_chips
        self._used_chips = 0
        self._waiting: dict[str, _Job] = {}
        self._running: deque[tuple[str, str, Placement]] = deque()
        self._took_ms: list[float] = []
        self._facts: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
        self._changed = asyncio.Event()
        bus.follow(StreamName.LEDGER, on_message=self._on_record, on_gap=fail)

    @property
    def outstanding(self) -> int:
        """Jobs that are submitted and not placed."""
        return len(self._waiting)

    async def at_most(self, seconds: float, *, outstanding: int) -> float:
        """Submit a job whenever fewer are outstanding; returns the jobs placed a second in the last half."""
        began_s = time.perf_counter()
        counted, counted_s = self.placed, began_s
        while (now_s := time.perf_counter()) < began_s + seconds:
            if counted_s == began_s and now_s >= began_s + seconds / 2:
                counted, counted_s = self.placed, now_s
            while self.outstanding < outstanding:
                await self._submit(time.perf_counter())
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK_S):
                    await self._changed.wait()
        return (self.placed - counted) / (time.perf_counter() - counted_s)

    async def paced(self, rate: float, stop: asyncio.Event) -> None:
        """Submit ``rate`` jobs a second until ``stop`` is set, whatever becomes of them."""
        began_s, sent = time.perf_counter(), 0
        while not stop.is_set():
            wanted = int((time.perf_counter() - began_s) * rate)
            while sent < wanted:
                await self._submit(began_s + sent / rate)
                sent += 1
            await asyncio.sleep(_TICK_S)

    async def until_placed(self, deadline_s: float) -> None:
        """Wait until no job is outstanding.

        Raises:
            TimeoutError: One still is at the deadline.
        """
        async with asyncio.timeout(deadline_s):
            while self._waiting:
                self._changed.clear()
                await self._changed.wait()

    def take_latency(self) -> Latency:
        """Latency of the jobs that were placed since the last call."""
        took, self._took_ms = sorted(self._took_ms), []
        if not took:
            return Latency(0, 0.0, 0.0, 0.0)
        return Latency(len(took), took[len(took) // 2], took[len(took) * 99 // 100], took[-1])

    async def send_facts(self) -> None:
        """Send what became of pods, for ever."""
        while True:
            future = await self._bus.submit_wait(*await self._facts.get())
            future.add_done_callback(self._look)

    async def _submit(self, due_s: float) -> None:
        """Submit the next job.

        Raises:
            RuntimeError: All names are in use.
        """
        if not self._free:
            raise RuntimeError("more jobs than names are outstanding or run: too few names, or the cell stands still")
        name = f"job-{self._free.popleft()}"
        pods, chips = self._rng.choices(_SHAPES, _WEIGHTS)[0]
        self.submitted += 1
        uid = f"{name}-{self.submitted}"
        self._waiting[name] = _Job(due_s, uid)
        request = JobRequest(
            namespace=_NAMESPACE,
            name=name,
            uid=uid,
            resource=PRODUCT.resource,
            tasks=[Task("worker", pods, chips)],
            node_selector=dict(PRODUCT.selector),
        )
        future = await self._bus.submit_wait(self._bus.subjects.intake_request(_NAMESPACE, name), encode(request))
        future.add_done_callback(self._look)

    def _on_record(self, stored: Stored) -> None:
        envelope = open_envelope(stored.data)
        if envelope.kind != Round.KIND:
            return
        now_s = time.perf_counter()
        for verdict in body_of(envelope, Round).verdicts:
            job = self._waiting.get(verdict.name)
            if job is None or job.uid != verdict.uid:
                continue
            if verdict.placement is None:
                self.refused += 1
                continue
            del self._waiting[verdict.name]
            self.placed += 1
            self._took_ms.append(1000 * (now_s - job.due_s))
            self._used_chips += len(verdict.placement.chips)
            self._running.append((verdict.name, verdict.uid, verdict.placement))
            self._report(verdict.name, verdict.uid, verdict.placement, PodPhase.RUNNING)
        while self._used_chips > self._keep_chips:
            name, uid, placement = self._running.popleft()
            self._used_chips -= len(placement.chips)
            self._report(name, uid, placement, PodPhase.SUCCEEDED)
            self._free.append(int(name.removeprefix("job-")))
        self._changed.set()

    def _report(self, name: str, uid: str, placement: Placement, phase: PodPhase) -> None:
        seen = pods_seen(_NAMESPACE, name, uid, placement, phase)
        self._facts.put_nowait((self._bus.subjects.fact_pod(_NAMESPACE, name), encode(seen)))

    def _look(self, future: "asyncio.Future[int]") -> None:
        if not future.cancelled() and future.exception() is not None:
            self.failed += 1
