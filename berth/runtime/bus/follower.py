"""Reader of a stream that delivers every message in order, or reports a gap.

A follower has its own consumer on the server, pulls in overlapping batches with idle heartbeats, and keeps its own
position. After any failure it creates a new consumer at ``applied + 1``. A gap is reported only if a new consumer
cannot continue.

Messages wait in a queue between the connection and the task of the follower. The follower requests as many messages as
the task has delivered, so one batch bounds the queue.

Longer than 400 lines because what is delivered, what is asked for and when a consumer counts as lost depend on one
another.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from berth.runtime.backoff import Backoff
from berth.runtime.bus.deliveries import Deliveries, number_of
from berth.runtime.bus.port import Gap, GapReason, Stored
from berth.runtime.bus.process_stats import Followed
from berth.runtime.bus.stream_api import PREFIX, Api, StreamInfo
from berth.runtime.bus.wire import Received, Wire
from berth.runtime.errors import FatalError, TransientError
from berth.schemas.subjects import StreamName

_BATCH_MAX: Final = 1000
_BATCH_MIN: Final = 8  # of 8 MB each these stay below the server's limit of pending bytes
_BATCH_BYTES: Final = 16 << 20
_EXPIRES_S: Final = 30.0
_HEARTBEAT_S: Final = 1.0
_SILENCE_S: Final = 2.5  # seconds without a message or heartbeat after which the consumer counts as lost
_TICK_S: Final = 0.5
_CHECK_S: Final = 5.0
_STUCK_CHECKS: Final = 3  # checks in a row that find messages outstanding and none delivered
_SLICE: Final = 256  # messages delivered before the task yields to others
_INACTIVE_S: Final = 30.0  # after which the server removes a consumer without a reader
_BACKOFF: Final = Backoff(first_s=0.05, max_s=1.0)
_NS: Final = 1_000_000_000
_HEARTBEAT: Final = "100"
_PULL_ENDED: Final = "408"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Range of a follower.

    ``stream`` is the name on the server. ``is_pruned`` states that the stream removes messages in normal operation,
    ``is_latest`` that it keeps the latest message of each subject: the head then moves on with what replaces messages
    that are still to be delivered, and all are delivered only when the server has none left. ``has_floor`` states that
    messages below the floor of the stream do not count.
    """

    name: StreamName
    stream: str
    start_seq: int
    filters: tuple[str, ...] = ()
    created: str = ""
    is_pruned: bool = False
    is_latest: bool = False
    has_floor: bool = False


class _Pull(msgspec.Struct):
    batch: int
    expires: int = int(_EXPIRES_S * _NS)
    idle_heartbeat: int = int(_HEARTBEAT_S * _NS)


class _Session:
    """One consumer, its inbox and its progress."""

    def __init__(self, wire: Wire, stream: str) -> None:
        self.inbox = wire.deliveries()
        self.name = self.inbox.rpartition(".")[2]
        self.deliveries = Deliveries(stream, self.name)
        self.pull_subject = f"{PREFIX}.CONSUMER.MSG.NEXT.{stream}.{self.name}"
        self.epoch = wire.epoch
        self.consumer_seq = 0  # of the last delivered message
        self.batch = _BATCH_MIN
        self.owed = 0  # messages requested and not yet delivered
        self.heard_at = 0.0
        self.check_at = 0.0
        self.timer: asyncio.TimerHandle | None = None
        self.head = 0  # last sequence of the stream at the start of the session
        self.seen = 0  # last sequence of the stream at the check before
        self.checked_seq = -1  # of the last message that was delivered before it
        self.stuck = 0  # checks in a row that found messages outstanding and none delivered


class NatsFollower:
    """See :class:`berth.runtime.bus.port.Follower`."""

    def __init__(
        self, wire: Wire, api: Api, wanted: Wanted, on_message: Callable[[Stored], None], on_gap: Callable[[Gap], None]
    ) -> None:
        self.applied = max(0, wanted.start_seq - 1)
        self.caught_up = asyncio.Event()
        self.recreations = 0
        self.gaps = 0
        self.trouble: TransientError | None = None
        self._wire = wire
        self._api = api
        self._wanted = wanted
        self._on_message = on_message
        self._on_gap = on_gap
        self._created = wanted.created
        self.foreign = 0  # messages in its inbox that its consumer did not deliver
        self._pending = 0  # messages that the server had not sent at the last delivery
        self.covered = self.applied  # no matching message up to here is outstanding
        self._holes_until = 0  # sequences up to here may be missing, because the stream removed single messages
        self._has_hole = False
        self._queue: deque[Received] = deque()
        self._session: _Session | None = None
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        # Not in a task group: the bus owns it and stops it at close; its failure goes to `lost` and `wait()`.
        self._task = self._loop.create_task(self._run(), name=f"follow {wanted.stream}")
        self._task.add_done_callback(self._ended)

    @property
    def is_done(self) -> bool:
        """Whether it has ended."""
        return self._task.done()

    @property
    def followed(self) -> Followed:
        """How far it is."""
        waiting = self._pending + len(self._queue)
        is_filtered = bool(self._wanted.filters)
        return Followed(self._wanted.name.value, self.applied, waiting, is_filtered, self.foreign)

    def kick(self) -> None:
        """React to a change of the connection: it broke or was restored."""
        self._wake.set()

    async def stop(self) -> None:
        """Stop; no message is delivered afterwards."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def wait(self) -> Gap | None:
        """Wait for its end; see :meth:`berth.runtime.bus.port.Follower.wait`."""
        await asyncio.wait([self._task])
        return None if self._task.cancelled() else self._task.result()

    async def reach_head(self, progress_s: float) -> None:
        """Wait until every message that was stored at the time of the connection is delivered.

        Where the stream keeps the latest message of each subject: until the last of the stream is delivered too. What
        the server says of messages that are still to come is too low there while it replaces them.

        Raises:
            TransientError: The follower ended, or no message came for ``progress_s`` seconds.
        """
        await self._catch_up(progress_s)
        while self._wanted.is_latest:
            self.caught_up.clear()  # before the look: what is delivered meanwhile may set it
            if await self._has_last():
                self.caught_up.set()
                return
            await self._catch_up(progress_s)

    async def _has_last(self) -> bool:
        """Whether the last message of the stream, or of the filters, is delivered."""
        info = await self._api.stream(self._wanted.stream)
        if self.covered >= info.state.last_seq or self._session is None:
            return True
        if not self._wanted.filters:
            return False
        consumer = await self._api.consumer(self._wanted.stream, self._session.name)
        return not consumer.num_pending and consumer.delivered.consumer_seq <= self._session.consumer_seq

    async def _catch_up(self, progress_s: float) -> None:
        caught_up = self._loop.create_task(self.caught_up.wait(), name="reach head")
        try:
            while not caught_up.done():
                before = self.applied
                await asyncio.wait([caught_up, self._task], timeout=progress_s, return_when=asyncio.FIRST_COMPLETED)
                if not caught_up.done() and (self._task.done() or self.applied == before):
                    raise TransientError(f"{self._wanted.stream}: reading ended at {self.applied}: {self.trouble}")
        finally:
            caught_up.cancel()

    async def _run(self) -> Gap:
        tries = 1
        while True:
            before = self.applied
            try:
                gap = await self._follow()
            except TransientError as error:
                self.trouble = error
                gap = None
            if gap is not None:
                self.gaps += 1
                self._on_gap(gap)
                return gap
            self.recreations += 1
            tries = 1 if self.applied > before else tries + 1
            await self._pause(_BACKOFF.pause_s(tries))

    async def _pause(self, seconds: float) -> None:
        self._wake.clear()
        timer = self._loop.call_later(seconds, self._wake.set)
        await self._wake.wait()
        timer.cancel()

    async def _follow(self) -> Gap | None:
        """Read with one consumer; returns None if a new one is needed.

        Raises:
            TransientError: One is needed, and for now there may be none that is any better.
        """
        if self._wanted.has_floor:
            self._start_at((await self._api.stream(self._wanted.stream)).floor)
        session = self._session = _Session(self._wire, self._wanted.stream)
        self._queue.clear()
        consumer = await self._api.create_consumer(self._wanted.stream, self._consumer_config(session.name))
        listening = None
        try:
            # Read after the creation of the consumer: if the stream is replaced from now on, the consumer is lost with
            # it.
            info = await self._api.stream(self._wanted.stream)
            if (gap := self._judge(info)) is not None:
                return gap
            if info.lacks(consumer.cluster.leader):  # the end of what it has is not the end of the stream
                raise TransientError(f"{self._wanted.stream} is not complete on {consumer.cluster.leader} yet")
            if self._has_hole:  # the oldest message is not beyond the position, so single messages were removed
                self._holes_until, self._has_hole = info.state.last_seq, False
            if not consumer.num_pending:
                self.caught_up.set()
            session.head = session.seen = info.state.last_seq
            self._pending = consumer.num_pending
            average = max(1, info.state.bytes // max(1, info.state.messages))
            session.batch = max(_BATCH_MIN, min(_BATCH_MAX, _BATCH_BYTES // average))
            listening = await self._wire.listen(session.inbox, self._receive)
            return await self._consume(session)
        finally:
            if listening is not None:
                await listening.stop()
            if self._wire.connected:  # optional: the server removes an idle consumer
                with contextlib.suppress(TransientError):
                    await self._wire.write(f"{PREFIX}.CONSUMER.DELETE.{self._wanted.stream}.{session.name}", b"")

    def _start_at(self, floor: int) -> None:
        """Leave out what is below the floor of the stream: an older message may be on file there again."""
        self.applied = max(self.applied, floor - 1)
        self.covered = max(self.covered, self.applied)

    async def _consume(self, session: _Session) -> Gap | None:
        session.heard_at = self._loop.time()
        session.check_at = session.heard_at + _CHECK_S
        self._arm(session)
        try:
            while session.epoch == self._wire.epoch:
                await self._pull(session)
                if not self._queue:
                    self._wake.clear()
                    await self._wake.wait()
                if not await self._hand_over(session):
                    return None
                now = self._loop.time()
                if now - session.heard_at > _SILENCE_S:
                    return None
                if now >= session.check_at and (gap := await self._check(session)) is not None:
                    return gap
            return None
        finally:
            if session.timer is not None:
                session.timer.cancel()

    def _arm(self, session: _Session) -> None:
        due = self._loop.time() + _TICK_S
        session.timer = self._loop.call_at(due, self._tick, session, due)

    def _tick(self, session: _Session, due: float) -> None:
        now = self._loop.time()
        if now - due > _HEARTBEAT_S:  # the loop was blocked: messages from that time are not read yet
            session.heard_at = now
        self._wake.set()
        self._arm(session)

    async def _hand_over(self, session: _Session) -> bool:
        """Deliver a part of the queue; returns False if a new consumer is needed."""
        if self._queue:
            for _ in range(min(len(self._queue), _SLICE)):
                if not self._take(session, self._queue.popleft()):
                    return False
            session.heard_at = self._loop.time()  # taken now: the delivery may have been slow
            await asyncio.sleep(0)
        return True

    async def _pull(self, session: _Session) -> None:
        # The next pull follows when half is delivered, so the server always has an open request.
        if session.owed <= session.batch // 2:
            more = session.batch - session.owed
            session.owed += more
            await self._wire.write(session.pull_subject, msgspec.json.encode(_Pull(batch=more)), session.inbox)

    def _receive(self, message: Received) -> None:
        self._queue.append(message)
        self._wake.set()

    def _take(self, session: _Session, message: Received) -> bool:
        """Deliver a message; returns False if a new consumer is needed."""
        if message.subject == session.inbox:
            return self._handle_status(session, message)
        delivery = session.deliveries.read(message.reply)
        if delivery is None:
            self.foreign += 1
            return True
        sequence, consumer_seq, at_ns, pending = delivery
        if consumer_seq != session.consumer_seq + 1:
            return False
        if sequence != self.applied + 1 and not self._may_skip(sequence):
            self._has_hole = True
            return False
        self._on_message(Stored(message.subject, sequence, message.data, at_ns // 1_000_000, message.headers))
        self._pending = pending
        session.consumer_seq = consumer_seq
        session.owed -= 1
        self.applied = sequence
        self.covered = max(self.covered, sequence)
        if not pending or (sequence >= session.head and not self._wanted.is_latest):
            self.caught_up.set()
        return True

    def _may_skip(self, sequence: int) -> bool:
        return (
            bool(self._wanted.filters)
            or self._wanted.is_pruned
            or sequence == self.covered + 1  # the oldest kept message at the start
            or sequence <= self._holes_until
        )

    def _handle_status(self, session: _Session, message: Received) -> bool:
        """Handle a status message of the server; returns False if a new consumer is needed."""
        headers = message.headers or {}
        status = headers.get("Status")
        if status == _PULL_ENDED:
            session.owed -= number_of(headers.get("Nats-Pending-Messages", ""), session.owed)
        return status in {_HEARTBEAT, _PULL_ENDED}

    async def _check(self, session: _Session) -> Gap | None:
        """Check that the stream is still the same, how far its filters have advanced, and that what it has comes.

        A consumer may send heartbeats and no messages: its server lost them on the way, or its replica fell behind.

        Raises:
            TransientError: Messages are outstanding, and none comes.
        """
        info = await self._api.stream(self._wanted.stream)
        consumer = await self._api.consumer(self._wanted.stream, session.name)
        server = consumer.cluster.leader
        if info.lacks(server):
            raise TransientError(f"{self._wanted.stream} is not complete on {server} any more")
        is_idle = not consumer.num_pending and consumer.delivered.consumer_seq == session.consumer_seq
        # A replica gets a little later what the leader has: what that had a check ago must be there.
        is_late = info.lag_of(server) > info.state.last_seq - session.seen
        if is_idle:
            self.caught_up.set()
            if self._is_same(info) and not is_late:
                self.covered = max(self.covered, info.state.last_seq if info.is_led_by(server) else session.seen)
        session.heard_at = self._loop.time()
        session.check_at = session.heard_at + _CHECK_S
        if (gap := self._judge(info)) is None:
            self._check_progress(session, is_idle=is_idle and not is_late)
            session.seen = info.state.last_seq
        return gap

    def _check_progress(self, session: _Session, *, is_idle: bool) -> None:
        """Check that messages that are outstanding come.

        Raises:
            TransientError: None came for several checks.
        """
        has_moved = session.consumer_seq != session.checked_seq or bool(self._queue)
        session.checked_seq = session.consumer_seq
        session.stuck = 0 if is_idle or has_moved else session.stuck + 1
        if session.stuck >= _STUCK_CHECKS:
            raise TransientError(f"{self._wanted.stream}: messages are outstanding, and none comes")

    def _is_same(self, info: StreamInfo) -> bool:
        return not self._created or info.created == self._created

    def _judge(self, info: StreamInfo) -> Gap | None:
        first_seq, last_seq = info.first_seq, info.state.last_seq
        wanted = self._wanted
        if wanted.start_seq <= 1 and not self.covered and self._is_same(info):
            self.covered = max(0, first_seq - 1)
        if not self._is_same(info):
            reason = GapReason.RECREATED
        elif last_seq < self.covered:
            reason = GapReason.BACKWARDS
        elif first_seq > self.covered + 1 and not wanted.is_pruned:
            reason = GapReason.TOO_OLD
        else:
            self._created = info.created
            return None
        return Gap(wanted.name, reason, self.covered + 1, first_seq, last_seq)

    def _consumer_config(self, name: str) -> dict[str, object]:
        config: dict[str, object] = {
            "name": name,
            "ack_policy": "none",
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self.applied + 1,
            "max_deliver": 1,
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": int(_INACTIVE_S * _NS),
        }
        if self._wanted.filters:
            config["filter_subjects"] = list(self._wanted.filters)
        return config

    def _ended(self, task: asyncio.Task[Gap]) -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        failure = FatalError(f"follower of {self._wanted.stream} ended: {error!r}")
        failure.__cause__ = error
        self._wire.fail(failure)
