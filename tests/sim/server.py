"""The bus's server in a simulation: streams that followers hear of, mirrors that lag, and what a restart forgets."""

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Protocol

from berth.runtime.bus.port import Stored
from berth.runtime.clock import Clock
from berth.schemas.subjects import StreamName
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
        on_store: Called with each message that is stored.
    """

    def __init__(self, loop: SimLoop, clock: Clock, rng: Random) -> None:
        super().__init__(clock)  # type: ignore[arg-type]  # it reads the time alone
        self.lane = Lane("server")
        self.lag_s = 0.0
        self.silent_until_s: dict[str, float] = {}
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
        if not self.silent_until_s:
            return True
        name = subject_or_stream if subject_or_stream in self.streams else self.name_of(subject_or_stream)
        return self.silent_until_s.get(name, 0.0) <= self._loop.now_s

    def store(self, subject: str, data: bytes, expected: tuple[str, int] | None, ttl_s: int | None) -> int:
        """Store a message; raises as the real server answers."""
        sequence = super().store(subject, data, expected, ttl_s)
        name = self.name_of(subject)
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
            mirror.put(stored, None)
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
            if stream.spec.mirror_of is StreamName.FACTS:
                self._mirrored_s = self._loop.now_s + 0.2
                origin = self.streams[f"{stream.spec.mirror_of.value}_{name.partition('_')[2]}"]
                for sequence, stored in origin.messages.items():
                    if sequence > stream.last_seq:
                        self._mirrored.append((stream, name, stored))
                        self._loop.call_at(self._mirrored_s, self._mirror, context=self.lane.context)
