"""The server behind :class:`tests.support.fake_bus.FakeBus`: streams in memory, and faults that a test may plant."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Protocol

from berth.runtime.bus.port import Gap, GapReason, Stored, StreamState
from berth.runtime.bus.process_stats import ProcessStats
from berth.runtime.bus.streams import is_pruned, refuse_floor, refuse_lost, refuse_purge
from berth.runtime.errors import (
    AmbiguousError,
    ConflictError,
    DuplicateError,
    NoStreamError,
    OversizeError,
    PoisonError,
    TransientError,
)
from berth.schemas.subjects import StreamSpec
from tests.support.clock import ManualClock


def matches(subject: str, filters: Sequence[str]) -> bool:
    """Whether a subject is one of the wildcards; no filters match all."""
    return not filters or any(_matches(subject.split("."), pattern.split(".")) for pattern in filters)


def _matches(tokens: list[str], pattern: list[str]) -> bool:
    for at, part in enumerate(pattern):
        if part == ">":
            return len(tokens) > at
        if at >= len(tokens) or part not in {"*", tokens[at]}:
            return False
    return len(tokens) == len(pattern)


class FakeStream:
    """What the server keeps of one stream."""

    def __init__(self, spec: StreamSpec, created: str) -> None:
        self.spec = spec
        self.created = created
        self.last_seq = 0
        self.messages: dict[int, Stored] = {}
        self.expires_ms: dict[int, int] = {}
        self.newest: dict[str, int] = {}
        self.floor = 0
        self.is_older = False
        """It is of a release before 0.5."""
        self._replaced: dict[str, Stored] = {}
        """The message before the latest one of each subject, where a floor allows purges."""
        self._ghosts: list[Stored] = []

    @property
    def first_seq(self) -> int:
        return max(next(iter(self.messages), self.last_seq + 1), min(self.floor, self.last_seq + 1))

    @property
    def state(self) -> StreamState:
        return StreamState(self.first_seq, self.last_seq, self.created, len(self.messages), self.floor)

    def counting(self) -> list[Stored]:
        """Messages from the floor on."""
        return [stored for stored in self.messages.values() if stored.sequence >= self.floor]

    def last(self, subject: str) -> Stored | None:
        """Latest message of a subject, if it counts."""
        sequence = self.newest.get(subject, 0)
        counts = sequence >= self.floor or not self.spec.has_floor
        return self.messages[sequence] if sequence and counts else None

    def raise_floor(self, sequence: int) -> None:
        refuse_floor(self.spec)
        self.floor = max(self.floor, sequence)

    def put(self, stored: Stored, expires_ms: int | None) -> None:
        older = self.newest.get(stored.subject)
        if self.spec.per_subject and older is not None:
            if self.spec.has_floor and older in self.messages:
                self._replaced[stored.subject] = self.messages[older]
            self.remove(older)
        self.messages[stored.sequence] = stored
        self.newest[stored.subject] = stored.sequence
        self.last_seq = stored.sequence
        if expires_ms is not None:
            self.expires_ms[stored.sequence] = expires_ms

    def remove(self, sequence: int) -> None:
        stored = self.messages.pop(sequence, None)
        self.expires_ms.pop(sequence, None)
        if stored is not None and self.newest.get(stored.subject) == sequence:
            del self.newest[stored.subject]
            if not self.spec.per_subject:
                older = (one for one in reversed(self.messages) if self.messages[one].subject == stored.subject)
                if (newest := next(older, None)) is not None:
                    self.newest[stored.subject] = newest

    def purge(self, keep_from_seq: int | None, subject: str | None) -> None:
        """Remove the messages before a sequence, or those of a subject."""
        refuse_purge(self.spec, keep_from_seq, subject, floor=self.floor)
        for stored in list(self.messages.values()):
            if stored.sequence < (keep_from_seq or 0) and stored.subject in self._replaced:
                self._ghosts.append(self._replaced.pop(stored.subject))
            if stored.sequence < (keep_from_seq or 0) or (subject is not None and matches(stored.subject, (subject,))):
                self.remove(stored.sequence)

    def raise_ghosts(self) -> None:
        """Let messages be there again that had been replaced before a purge: what a killed server really does."""
        ghosts = {one.sequence: one for one in self._ghosts if one.subject not in self.newest}
        self.messages = dict(sorted({**ghosts, **self.messages}.items()))
        self.newest.update((one.subject, one.sequence) for one in ghosts.values())
        self._ghosts.clear()

    def gap_after(self, covered: int, created: str) -> Gap | None:
        """Why a reader of the stream that was made then, and that has read up to a sequence, cannot go on."""
        if created and self.created != created:
            reason = GapReason.RECREATED
        elif self.last_seq < covered:
            reason = GapReason.BACKWARDS
        elif self.first_seq > covered + 1 and not is_pruned(self.spec):
            reason = GapReason.TOO_OLD
        else:
            return None
        return Gap(self.spec.name, reason, covered + 1, self.first_seq, self.last_seq)

    def expire(self, now_ms: int) -> None:
        gone = [sequence for sequence, at_ms in self.expires_ms.items() if at_ms <= now_ms]
        if self.spec.max_age_s:
            oldest_ms = now_ms - self.spec.max_age_s * 1000
            for sequence, stored in self.messages.items():
                if stored.at_ms > oldest_ms:
                    break
                gone.append(sequence)
        for sequence in gone:
            self.remove(sequence)


class Service(Protocol):
    """A handler as the server sees it."""

    subject: str
    queue: str

    def put(self, subject: str, data: bytes, reply: Callable[[bytes], None]) -> None:
        """Give it a request."""


class FakeServer:
    """State that all :class:`FakeBus` clients share, and the faults that a test may plant.

    ``is_down`` makes every call fail as if the connection were away. ``lose_answers`` (count) makes that many stored
    publishes land but end as ambiguous; ``lose_messages`` makes them end as ambiguous without landing. ``leaderless``
    are names of streams that do not answer.
    """

    def __init__(self, clock: ManualClock | None = None, *, payload_limit_bytes: int = 7_549_747) -> None:
        self.clock = clock or ManualClock()
        self.payload_limit_bytes = payload_limit_bytes
        self.is_down = False
        self.lose_answers = 0
        self.lose_messages = 0
        self.leaderless: set[str] = set()
        self.streams: dict[str, FakeStream] = {}
        self.forgets_ids = False
        self.ids: dict[tuple[str, str], tuple[int, bytes]] = {}  # sequence and data, by stream and id of a message
        self.followers: list[asyncio.Event] = []
        self.services: list[Service] = []
        self.processes: list[ProcessStats] = []
        """What processes say of themselves; set by a test."""
        self._creations = count(1)
        self._turns: dict[tuple[str, str], int] = {}

    def make(self, name: str, spec: StreamSpec) -> None:
        """Make a stream; one that exists is left alone."""
        if name not in self.streams:
            self.streams[name] = FakeStream(spec, f"creation {next(self._creations)}")

    def refuse_lost(self) -> None:
        """Check that no stream is gone whose mirror has messages; see :mod:`berth.runtime.bus.streams`."""
        for name, mirror in self.streams.items():
            if mirror.spec.mirror_of is not None:
                origin = name.replace(mirror.spec.name, mirror.spec.mirror_of, 1)
                if origin not in self.streams:
                    refuse_lost(origin, name, mirror.last_seq)

    def delete(self, name: str) -> None:
        """Delete a stream, as an operator might; one that does not exist is no error."""
        if name in self.streams:
            del self.streams[name]
            self.leaderless.discard(name)
            self.wake()

    def is_stuck(self, name: str) -> bool:
        """Whether a stream is there that does not answer."""
        return name in self.leaderless

    def purge(self, stream: FakeStream, keep_from_seq: int | None, subject: str | None) -> None:
        """Remove messages of a stream; see :meth:`FakeStream.purge`."""
        stream.purge(keep_from_seq, subject)
        self.wake()

    def rewind(self, name: str, last_seq: int) -> None:
        """Let history go backwards, as after a restored backup."""
        stream = self.streams[name]
        for sequence in [sequence for sequence in stream.messages if sequence > last_seq]:
            stream.remove(sequence)
        stream.last_seq = last_seq
        stream.newest = {stored.subject: sequence for sequence, stored in stream.messages.items()}
        self.wake()

    def stream(self, name: str) -> FakeStream:
        # as it is now: what has expired is gone
        self.check()
        stream = self.streams.get(name)
        if stream is None:
            raise NoStreamError(f"stream {name} not found")
        if name in self.leaderless:
            raise TransientError(f"{name} has no leader")
        stream.expire(self.clock.now_ms())
        return stream

    def check(self) -> None:
        if self.is_down:
            raise TransientError("not connected; nothing was sent")

    def store(
        self,
        subject: str,
        data: bytes,
        expected: tuple[str, int] | None,
        ttl_s: int | None,
        headers: Mapping[str, str] | None = None,
    ) -> int:
        # what is expected: the scope, which is stream or subject, and its last sequence
        self.check()
        if len(data) > self.payload_limit_bytes:
            raise OversizeError(subject, size_bytes=len(data), limit_bytes=self.payload_limit_bytes)
        name = self.name_of(subject)
        if not name:
            raise TransientError(f"no stream accepts {subject}")
        if self.lose_messages:
            self.lose_messages -= 1
            raise AmbiguousError(f"publish to {subject}: time-out")
        stream = self.stream(name)
        if ttl_s is not None and not stream.spec.allow_ttl:
            raise PoisonError(f"publish to {subject}: per-message TTL is disabled")
        if expected is not None:
            scope, sequence = expected
            last_seq = stream.last_seq if scope == "stream" else stream.newest.get(subject, 0)
            if sequence != last_seq:
                raise ConflictError(f"publish to {subject}: wrong last sequence: {last_seq}", last_seq=last_seq)
        stored = Stored(subject, stream.last_seq + 1, data, self.clock.now_ms(), headers)
        stream.put(stored, None if ttl_s is None else stored.at_ms + ttl_s * 1000)
        self._stored(name, stored)
        if self.lose_answers:
            self.lose_answers -= 1
            raise AmbiguousError(f"publish to {subject}: time-out")
        return stored.sequence

    def store_once(
        self, subject: str, data: bytes, expected: tuple[str, int] | None, ttl_s: int | None, message_id: str
    ) -> int:
        """Store a message unless its stream has one with its id; the window for repeated ids is without end.

        Raises:
            DuplicateError: It has.
        """
        name = self.name_of(subject)
        sequence, known = self.ids.get((name, message_id), (0, b""))
        stored = self.streams[name].messages.get(sequence) if name in self.streams else None
        if stored is not None and stored.data == known and not self.forgets_ids:
            raise DuplicateError(f"publish to {subject}: message {sequence} has its id")
        sequence = self.store(subject, data, expected, ttl_s)
        self.ids[name, message_id] = (sequence, data)
        return sequence

    def name_of(self, subject: str) -> str:
        """Stream that takes a subject; empty if there is none."""
        return next((name for name, known in self.streams.items() if _takes(known.spec, subject)), "")

    def _stored(self, name: str, stored: Stored) -> None:
        """Let mirrors and followers have a message."""
        for mirror in self._mirrors_of(name):
            mirror.put(stored, None)
        self.wake()

    def route(self, subject: str) -> list[Service]:
        """Handlers that get a message: each without a queue, one of each queue in turn."""
        self.check()
        found: list[Service] = []
        queues: dict[str, list[Service]] = {}
        for service in self.services:
            if matches(subject, (service.subject,)):
                if service.queue:
                    queues.setdefault(service.queue, []).append(service)
                else:
                    found.append(service)
        for queue, members in queues.items():
            turn = self._turns.get((subject, queue), 0)
            self._turns[subject, queue] = turn + 1
            found.append(members[turn % len(members)])
        return found

    def wake(self) -> None:
        """Let all followers look at their streams."""
        for event in self.followers:
            event.set()

    def _mirrors_of(self, name: str) -> list[FakeStream]:
        cell = name.partition("_")[2]
        origin = self.streams[name].spec.name
        return [
            stream
            for mirror, stream in self.streams.items()
            if stream.spec.mirror_of is origin and mirror.partition("_")[2] == cell
        ]


class PickyServer(FakeServer):
    """Loses what is published on subjects with a word in them."""

    loses = ""

    def store(
        self,
        subject: str,
        data: bytes,
        expected: tuple[str, int] | None,
        ttl_s: int | None,
        headers: Mapping[str, str] | None = None,
    ) -> int:
        if self.loses and self.loses in subject:
            raise AmbiguousError(f"publish to {subject}: time-out")
        return super().store(subject, data, expected, ttl_s, headers)


def _takes(spec: StreamSpec, subject: str) -> bool:
    return bool(spec.subjects) and matches(subject, spec.subjects)
