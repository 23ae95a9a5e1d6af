"""A follower of a simulated stream."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from berth.runtime.bus.port import Gap, Stored
from berth.runtime.errors import FatalError
from berth.schemas.subjects import StreamSpec
from tests.sim.loop import SimFuture
from tests.support.fake_server import FakeStream, matches

if TYPE_CHECKING:
    from tests.sim.bus import SimBus


class SimFollower:
    """A reader of a stream; see :class:`berth.runtime.bus.port.Follower`."""

    def __init__(
        self,
        bus: "SimBus",
        spec: StreamSpec,
        start: tuple[int, tuple[str, ...], str],
        on_message: Callable[[Stored], None],
        on_gap: Callable[[Gap], None],
    ) -> None:
        self.caught_up = asyncio.Event()
        self.recreations = 0
        self.gaps = 0
        start_seq, self._filters, self._created = start
        self.applied = max(0, start_seq - 1)
        self.covered = self.applied
        self._is_from_oldest = start_seq <= 1
        self._bus = bus
        self._spec = spec
        self._name = bus.subjects.stream(spec.name)
        self._on_message = on_message
        self._on_gap = on_gap
        self._is_due = False
        self._ended: SimFuture = bus.loop.create_future()
        self._late_until_s = 0.0
        bus.server.attach(self._name, self)
        self.notify()

    def notify(self) -> None:
        """Look at the stream soon."""
        if not self._is_due and not self._ended.done():
            self._is_due = True
            when_s = max(self._bus.incoming.arrival_s(), self._late_until_s)
            self._bus.loop.call_at(when_s, self._look, context=self._bus.lane.context)

    def lose_consumer(self, late_s: float) -> None:
        """The consumer is gone; another is made after some time."""
        self.recreations += 1
        self._late_until_s = self._bus.loop.now_s + late_s
        self.notify()

    async def stop(self) -> None:
        self.end(None)

    async def wait(self) -> Gap | None:
        gap: Gap | None = await asyncio.shield(self._ended)
        return gap

    def end(self, gap: Gap | None) -> None:
        """Hear nothing more."""
        if not self._ended.done():
            self._ended.set_result(gap)
        self._bus.server.detach(self._name, self)

    def _look(self) -> None:
        self._is_due = False
        bus = self._bus
        if self._ended.done() or bus.is_dead:
            return
        if not bus.is_connected or bus.server.is_down:
            return  # it is told when the connection is back
        if bus.loop.now_s < max(self._late_until_s, bus.incoming.held_until_s) or not bus.server.has_leader(self._name):
            bus.loop.call_later(0.2, self.notify, context=bus.lane.context)
            return
        stream = bus.server.streams.get(self._name)
        if stream is None:
            bus.loop.call_later(0.5, self.notify, context=bus.lane.context)
            return
        stream.expire(bus.server.clock.now_ms())
        try:
            gap = self._judge(stream)
            if gap is not None:
                self.gaps += 1
                self.end(gap)
                self._on_gap(gap)
            else:
                self._deliver(stream)
        except Exception as error:  # noqa: BLE001  # as the real one: the process ends
            self._ended.set_exception(error)
            self._ended.exception()  # whoever waits gets it; nobody has to
            bus.server.detach(self._name, self)
            failure = FatalError(f"follower of {self._spec.name} ended: {error!r}")
            failure.__cause__ = error
            bus.fail(failure)

    def _deliver(self, stream: FakeStream) -> None:
        """Hand over what there is, or a part of it."""
        first = max(self.covered + 1, stream.first_seq)
        last = stream.last_seq
        if last - first >= 1 and self._bus.rng.random() < 0.3:
            last = first + int(self._bus.rng.random() * (last - first))
        loop, name = self._bus.loop, self._spec.name.value
        for sequence in range(first, last + 1):
            stored = stream.messages.get(sequence)
            if stored is not None and matches(stored.subject, self._filters):
                loop.trace(f"{self._bus.lane.name} hears {name} {sequence}")
                self._on_message(stored)
                self.applied = sequence
            self.covered = sequence
        self.covered = max(self.covered, last)
        if last < stream.last_seq:
            self.notify()
        else:
            self.caught_up.set()

    def _judge(self, stream: FakeStream) -> Gap | None:
        if self._is_from_oldest:
            self._is_from_oldest = False
            self.covered = max(self.covered, stream.first_seq - 1)
        gap = stream.gap_after(self.covered, self._created)
        if gap is None:
            self._created = stream.created
        return gap
