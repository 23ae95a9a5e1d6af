"""The bus's server in a simulation: streams that followers hear of, mirrors that lag, and what a restart forgets."""

from collections import deque
from collections.abc import Callable, Collection, Mapping
from random import Random
from typing import Protocol

from berth.runtime.bus.port import Stored
from berth.runtime.clock import Clock
from berth.schemas.subjects import StreamSpec
from tests.sim.durability import SYNC_S, SimStream
from tests.sim.loop import Lane, SimLoop
from tests.support.fake_server import FakeServer, FakeStream


class Reader(Protocol):
    """A follower, as the server sees it."""

    def notify(self) -> None:
        """Look at the stream: it has changed."""


class SimServer(FakeServer):
    """See :class:`tests.support.fake_server.FakeServer`.

    Args:
        loop: The simulation.
        clock: Time of the server.
        rng: Of all its choices.

    Attributes:
        lag_s: How far mirrors are behind.
        silent_until_s: Until when a stream has no leader, by its name on the server.
        stuck: Names of streams that have no leader before they are deleted.
        on_store: Called with each message that is stored.
    """

    def __init__(self, loop: SimLoop, clock: Clock, rng: Random) -> None:
        super().__init__(clock)  # type: ignore[arg-type]  # it reads the time alone
        self.lane = Lane("server")
        self.lag_s = 0.0
        self.silent_until_s: dict[str, float] = {}
        self.stuck: set[str] = set()
        self.on_store: Callable[[str, Stored], object] | None = None
        self._loop = loop
        self._rng = rng
        self._readers: dict[str, list[Reader]] = {}
        self._names: dict[str, str] = {}
        self._mirrored: deque[tuple[FakeStream, str, Stored]] = deque()
        self._mirrored_s = 0.0

    def attach(self, name: str, reader: Reader) -> None:
        """Let a reader hear of changes of a stream."""
        self._readers.setdefault(name, []).append(reader)

    def detach(self, name: str, reader: Reader) -> None:
        """Let it hear no more."""
        readers = self._readers.get(name, [])
        if reader in readers:
            readers.remove(reader)

    def make(self, name: str, spec: StreamSpec, *, first_seq: int = 1, floor: int = 0) -> None:
        """Make a stream; one that exists is left alone. A mirror is filled from its origin."""
        if name in self.streams:
            return
        created = f"creation {next(self._creations)}"
        phase_s = self._loop.now_s + SYNC_S * self._rng.random()
        self.streams[name] = SimStream(spec, created, phase_s=phase_s, first_seq=first_seq)
        self.streams[name].floor = floor
        self._fill_mirror(name)

    def delete(self, name: str) -> None:
        """Delete a stream, as an operator might; one that does not exist is no error."""
        if name in self.streams:
            del self.streams[name]
            self.stuck.discard(name)
            self._names.clear()
            self.wake()

    def name_of(self, subject: str) -> str:
        """Stream that takes a subject; empty if there is none."""
        kind = subject.split(".", 3)[2] if subject.count(".") > 1 else subject
        name = self._names.get(kind)
        if name is None:
            name = super().name_of(subject)
            if name:
                self._names[kind] = name
        return name

    def wake(self) -> None:
        """All streams may have changed."""
        for name in self._readers:
            self._notify(name)

    def _notify(self, name: str) -> None:
        for reader in self._readers.get(name, ()):
            reader.notify()

    def has_leader(self, subject_or_stream: str) -> bool:
        """Whether the stream of a subject answers now."""
        if not self.silent_until_s and not self.stuck:
            return True
        name = subject_or_stream if subject_or_stream in self.streams else self.name_of(subject_or_stream)
        return self.silent_until_s.get(name, 0.0) <= self._loop.now_s and name not in self.stuck

    def is_stuck(self, name: str) -> bool:
        """Whether a stream is there that does not answer now."""
        return name in self.streams and not self.has_leader(name)

    def purge(self, stream: FakeStream, keep_from_seq: int | None, subject: str | None) -> None:
        """Remove messages of a stream, which knows when; its readers find out when they look next."""
        self.dated(stream).purge(keep_from_seq, subject)

    def store(
        self,
        subject: str,
        data: bytes,
        expected: tuple[str, int] | None,
        ttl_s: int | None,
        headers: Mapping[str, str] | None = None,
    ) -> int:
        """Store a message; raises as the real server answers."""
        name = self.name_of(subject)
        if name:
            self.dated(self.streams[name])
        sequence = super().store(subject, data, expected, ttl_s, headers)
        stored = self.streams[name].messages[sequence]
        self._loop.trace(f"store {subject} {sequence}", data)
        if self.on_store is not None:
            self.on_store(name, stored)
        return sequence

    def _stored(self, name: str, stored: Stored) -> None:
        """Let mirrors and followers have a message."""
        for mirror in self._mirrors_of(name):
            self._mirrored.append((mirror, name, stored))
            self._mirrored_s = max(self._mirrored_s, self._loop.now_s + self.lag_s * self._rng.random())
            self._loop.call_at(self._mirrored_s, self._mirror, context=self.lane.context)
        self._notify(name)

    def _mirror(self) -> None:
        if not self._mirrored:
            return
        mirror, _, stored = self._mirrored.popleft()
        if stored.sequence > mirror.last_seq:
            self.dated(mirror).put(stored, None)
        for name, stream in self.streams.items():
            if stream is mirror:
                self._notify(name)

    def forget_views(self, most: int) -> None:
        """Restart after a kill: of streams that are views, the newest messages may be gone; mirrors read them again."""
        self._mirrored.clear()
        for name, stream in list(self.streams.items()):
            if not stream.spec.is_view:
                continue
            lost = min(int(self._rng.random() * (most + 1)), stream.last_seq)
            self.rewind(name, max(stream.last_seq - lost, stream.floor - 1))  # what is below a floor is old
            stream.raise_ghosts()
            self._fill_mirror(name)

    def rewind(self, name: str, last_seq: int) -> None:
        """Let history go backwards."""
        super().rewind(name, last_seq)
        stream = self.streams[name]
        assert isinstance(stream, SimStream)
        stream.forget_after(last_seq)

    def lose_power(self, safe: Collection[str] = ()) -> dict[str, int]:
        """Restart after a power cut: each stream is as its last sync left it, and a bit newer.

        Args:
            safe: Streams that were just synced, by their names on the server.

        Returns:
            How many acknowledged messages each stream lost.
        """
        self._mirrored.clear()
        lost: dict[str, int] = {}
        for name, stream in self.streams.items():
            assert isinstance(stream, SimStream)
            share = self._rng.random()
            if name not in safe and (count := stream.lose_power(self._loop.now_s, share)):
                lost[name] = count
        for name in self.streams:
            self._fill_mirror(name)
        self.wake()
        return lost

    def _fill_mirror(self, name: str) -> None:
        """Let a mirror read what it does not have."""
        stream = self.streams[name]
        if stream.spec.mirror_of is None:
            return
        origin = self.streams.get(f"{stream.spec.mirror_of.value}_{name.partition('_')[2]}")
        if origin is None:
            return
        self._mirrored_s = max(self._mirrored_s, self._loop.now_s + 0.2)
        for sequence, stored in origin.messages.items():
            if sequence > stream.last_seq:
                self._mirrored.append((stream, name, stored))
                self._loop.call_at(self._mirrored_s, self._mirror, context=self.lane.context)

    def dated(self, stream: FakeStream) -> SimStream:
        """A stream that is about to change: it knows when."""
        assert isinstance(stream, SimStream)
        stream.now_s = self._loop.now_s
        return stream
