"""A stream of the simulated bus that knows what of it is on the disk."""

from typing import Final, NamedTuple

from berth.runtime.bus.port import Stored
from berth.schemas.subjects import StreamSpec
from tests.support.fake_server import FakeStream

SYNC_S: Final = 20.0
"""``sync_interval`` of a server that does not sync each write; the real default is two minutes, stories take one."""


class _Change(NamedTuple):
    """A message that was stored, or a purge.

    Attributes:
        at_s: When.
        stored: The message; None for a purge.
        expires_ms: End of the message.
        keep_from_seq: First message that the purge left.
        subject: What it removed otherwise.
    """

    at_s: float
    stored: Stored | None
    expires_ms: int | None = None
    keep_from_seq: int | None = None
    subject: str | None = None


class SimStream(FakeStream):
    """A stream, and all that changed in it since it was made.

    Attributes:
        now_s: Time of the change that comes; whoever changes it sets it.
        phase_s: Time of its first sync.
    """

    def __init__(self, spec: StreamSpec, created: str, *, phase_s: float, first_seq: int = 1) -> None:
        super().__init__(spec, created)
        self.last_seq = first_seq - 1
        self.now_s = 0.0
        self.phase_s = phase_s
        self._first_seq = first_seq
        self._changes: list[_Change] = []

    def put(self, stored: Stored, expires_ms: int | None) -> None:
        self._changes.append(_Change(self.now_s, stored, expires_ms))
        super().put(stored, expires_ms)

    def purge(self, keep_from_seq: int | None, subject: str | None) -> None:
        super().purge(keep_from_seq, subject)
        self._changes.append(_Change(self.now_s, None, None, keep_from_seq, subject))

    def forget_after(self, last_seq: int) -> None:
        """Take note that later messages were taken away."""
        self._changes = [one for one in self._changes if one.stored is None or one.stored.sequence <= last_seq]

    def synced_s(self, now_s: float) -> float:
        """Time of the last sync."""
        return now_s - (now_s - self.phase_s) % SYNC_S

    def lose_power(self, now_s: float, share: float) -> int:
        """Be as at the last sync, and as a part of what changed since then left it.

        Args:
            now_s: The moment.
            share: Part of the later changes that reached the disk all the same, from 0 to 1.

        Returns:
            How many stored messages are lost.
        """
        sure = sum(one.at_s <= self.synced_s(now_s) for one in self._changes)
        kept = sure + int((len(self._changes) - sure) * share)
        lost = sum(one.stored is not None for one in self._changes[kept:])
        changes, self._changes = self._changes[:kept], []
        self.messages.clear()
        self.expires_ms.clear()
        self.newest.clear()
        self._replaced.clear()
        self._ghosts.clear()
        self.last_seq = self._first_seq - 1
        for one in changes:
            self.now_s = one.at_s
            if one.stored is not None:
                self.put(one.stored, one.expires_ms)
            else:
                self.purge(one.keep_from_seq, one.subject)
        if self.spec.has_floor:  # it is in the stream's settings: what is lost came after it was raised
            self.floor = min(self.floor, self.last_seq + 1)
        return lost
