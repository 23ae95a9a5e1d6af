"""Receive, step, publish: the simulated cluster on the bus.

Facts go through an outbox that keeps the newest message of each subject, in the order in which subjects changed; a
request is answered when the facts that follow from it are stored.
"""

import asyncio
import math
from typing import Final, assert_never

from berth.lab.nodesim.config import NodesimConfig
from berth.lab.nodesim.fault_plan import FaultPlan
from berth.lab.nodesim.gangs import Restored
from berth.lab.nodesim.metrics import NodesimMetrics
from berth.lab.nodesim.sim import Alarmed, Answered, Event, PodsChanged, Sim, Ticked
from berth.lab.nodesim.sim_nodes import SimNodes
from berth.runtime.backoff import Backoff
from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock
from berth.runtime.errors import FatalError, TransientError
from berth.runtime.instruments import Instruments
from berth.runtime.waits import pause
from berth.schemas.envelope import DecodeError, decode, encode
from berth.schemas.facts import HealthSeen, NodesSeen, PodPhase, PodsSeen, is_repeat
from berth.schemas.message import Message
from berth.schemas.placement import Share
from berth.schemas.simulation import BindGang, BreakNode, EvictGang, GangBound, GangEvicted, NodeBroken

_MS: Final = 1000


class Outbox:
    """Facts that are still to be stored: the newest of each subject."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._waiting: dict[str, bytes] = {}
        self._lock = asyncio.Lock()

    def put(self, subject: str, message: Message) -> None:
        """Add a fact; an older one of the subject is dropped."""
        self._waiting[subject] = encode(message)

    def __len__(self) -> int:
        return len(self._waiting)

    async def flush(self) -> None:
        """Store all that waits.

        Raises:
            TransientError: A message could not be stored; it and the later ones remain queued.
        """
        async with self._lock:
            while self._waiting:
                subject, data = next(iter(self._waiting.items()))
                await self._bus.publish(subject, data)
                if self._waiting.get(subject) is data:
                    del self._waiting[subject]


class Loop:
    """A simulated cluster.

    Args:
        bus: Where facts go and requests come from.
        clock: Source of time.
        config: Settings.
        sim_nodes: The nodes.
        instruments: Of the process.
    """

    def __init__(
        self,
        bus: Bus,
        clock: Clock,
        config: NodesimConfig,
        sim_nodes: SimNodes,
        instruments: Instruments[NodesimMetrics],
    ) -> None:
        self._bus = bus
        self._clock = clock
        self._config = config
        self._sim_nodes = sim_nodes
        self.outbox = Outbox(bus)
        self.sim = Sim(
            sim_nodes,
            run_default_ms=round(config.run_default_s * _MS),
            terminating_ms=round(config.terminating_s * _MS),
        )
        self._plan = FaultPlan(config.fault_plan, sim_nodes.nodes.values(), start_ms=clock.now_ms())
        self._published: dict[str, NodesSeen | HealthSeen] = {}
        self._stepped_ms = 0
        self._shown_s = -math.inf
        self._changed = asyncio.Condition()
        self._log = instruments.log
        self._metrics = instruments.metrics

    def publish_nodes(self, domains: list[str], published: dict[str, NodesSeen | HealthSeen] | None = None) -> None:
        """Put the facts of ``domains`` into the outbox, where they differ from the published ones.

        Args:
            domains: Names of the domains.
            published: What earlier runs published, by subject; None keeps what this run published.
        """
        self._published.update(published or {})
        now_ms = self._stepped_ms = self._clock.now_ms()
        for domain in domains:
            facts = self._sim_nodes.facts(domain, now_ms)
            self._publish(self._bus.subjects.fact_node(domain), facts.nodes)
            self._publish(self._bus.subjects.fact_health(domain), facts.health)

    def _publish(self, subject: str, message: NodesSeen | HealthSeen) -> None:
        before = self._published.get(subject)
        if not is_repeat(before, message):
            self._published[subject] = message
            self.outbox.put(subject, message)

    def restore(self, seen: PodsSeen, *, run_ms: int, share: Share | None) -> None:
        """Take up pods of an earlier run."""
        self._step(Restored(seen, run_ms, share))

    async def bind(self, data: bytes) -> bytes:
        """Answer a :class:`BindGang`."""
        try:
            request = decode(data, BindGang)
        except DecodeError as error:
            return await self._unreadable(error, GangBound(0))
        return await self._ask(request)

    async def evict(self, data: bytes) -> bytes:
        """Answer an :class:`EvictGang`."""
        try:
            request = decode(data, EvictGang)
        except DecodeError as error:
            return await self._unreadable(error, GangEvicted(0))
        return await self._ask(request)

    async def break_node(self, data: bytes) -> bytes:
        """Answer a :class:`BreakNode`."""
        try:
            request = decode(data, BreakNode)
        except DecodeError as error:
            return await self._unreadable(error, NodeBroken(f"request unreadable: {error.reason}"))
        reason = self._break(request)
        if not reason:
            await self.outbox.flush()
            async with self._changed:
                self._changed.notify_all()
        return encode(NodeBroken(reason))

    def _break(self, request: BreakNode) -> str:
        """Break or repair something, and put the facts into the outbox; returns why not, or an empty text."""
        reason = self._sim_nodes.break_node(request, self._clock.now_ms())
        if not reason:
            domain_of = self._sim_nodes.domain_of
            self.publish_nodes(sorted({domain_of[name] for name in self._sim_nodes.names_of(request)}))
        return reason

    async def counts(self, _data: bytes) -> bytes:
        """Answer with the counts, whatever was asked."""
        return encode(self.sim.counts())

    async def _unreadable(self, error: DecodeError, answer: GangBound | GangEvicted | NodeBroken) -> bytes:
        self._log.warning("request unreadable", reason=error.reason, kind=error.kind)
        return encode(answer)

    async def _ask(self, request: BindGang | EvictGang) -> bytes:
        answer = self._step(request)
        if answer is None:
            raise FatalError(f"no answer to {request.KIND}")
        await self.outbox.flush()
        async with self._changed:
            self._changed.notify_all()
        return encode(answer)

    def _step(self, event: Event) -> GangBound | GangEvicted | None:
        answer: GangBound | GangEvicted | None = None
        for effect in self.sim.step(event, self._clock.now_ms()):
            match effect:
                case PodsChanged(seen):
                    self.outbox.put(self._bus.subjects.fact_pod(seen.namespace, seen.gang), seen)
                    self._log.info(
                        "pods changed",
                        namespace=seen.namespace,
                        gang=seen.gang,
                        attempt=seen.attempt,
                        phases=sorted({PodPhase(phase).name.lower() for phase in seen.phase}),
                    )
                case Answered(message):
                    answer = message
                case Alarmed(gang, failures):
                    self._log.error(
                        "placement does not fit",
                        namespace=gang.namespace,
                        gang=gang.name,
                        attempt=gang.attempt,
                        failures=len(failures),
                        first=failures[0].reason if failures else "",
                        double_allocations=self.sim.counts().double_allocations,
                    )
                case _:
                    assert_never(effect)
        return answer

    async def run(self, stop: asyncio.Event) -> None:
        """End pods when they are due, let faults come and go, and store facts, until ``stop`` is set."""
        backoff, failures = Backoff(first_s=self._config.retry_wait_s, max_s=self._config.retry_wait_max_s), 0
        while not stop.is_set():
            self._step(Ticked())
            self._show()
            for request in self._plan.take(self._clock.now_ms()):
                if reason := self._break(request):
                    self._log.warning("fault left out", node=request.node, fault=request.fault, reason=reason)
            turn_ms = self._sim_nodes.next_turn_ms(self._stepped_ms)
            if turn_ms is not None and turn_ms <= self._clock.now_ms():
                self.publish_nodes(self._sim_nodes.faulty_domains())
            try:
                await self.outbox.flush()
                failures = 0
            except TransientError as error:
                failures += 1
                wait_s = backoff.pause_s(failures)
                self._log.warning("facts not stored", waiting=len(self.outbox), reason=error.reason, wait_s=wait_s)
                await pause(stop, wait_s)
                continue
            await self._sleep(stop)
        try:
            await self.outbox.flush()
        except TransientError as error:  # the next run sees that their time has passed
            self._log.warning("facts not stored at the end", waiting=len(self.outbox), reason=error.reason)

    def _show(self) -> None:
        """Update the metrics, once a second at most: counting reads all nodes."""
        now_s = self._clock.monotonic_s()
        if now_s - self._shown_s >= 1:
            self._shown_s = now_s
            self._metrics.show(self.sim.counts())

    async def _sleep(self, stop: asyncio.Event) -> None:
        """Sleep until a step is due, a request has changed the next step, ``stop`` is set, or a tick has passed."""
        due = [moment for moment in (self.sim.next_due_ms(), self._sim_nodes.next_turn_ms(self._stepped_ms)) if moment]
        seconds = self._config.tick_s
        if due:
            seconds = min(seconds, max(min(due) - self._clock.now_ms(), 1) / _MS)
        try:
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(stop.is_set)
        except TimeoutError:
            return
