"""What fences are for: records whose fate is unknown, two leaders at a time, and messages that are nobody's record."""

from collections.abc import Callable
from typing import Final

from berth.schemas.chain import chained
from berth.schemas.envelope import encode, sealed
from berth.schemas.ledger import Epoch, Release, Round
from berth.schemas.message import Message
from berth.schemas.status import Heartbeat, LeaseHeld
from berth.schemas.subjects import StreamName
from tests.sim.bus import SimBus
from tests.sim.ledger_oracle import Position
from tests.sim.observer import Observer
from tests.sim.stage import Stage
from tests.sim.story import Event

ROLE: Final = "dispatcher"
DOUBTS: Final = 4
STRAYS: Final = 7


class Rivals(Stage):
    """See above."""

    observer: Observer
    is_at_work: bool

    def _do_doubt(self, event: Event) -> None:
        """Dispatchers learn late, or never, what became of their next record."""
        for bus in self._dispatchers():
            bus.on_append = self._doubt(bus, event)

    def _do_rival(self, event: Event) -> None:
        """Just as the leader sends a record, the other dispatcher believes that it is gone; the record comes late."""
        for bus in self._dispatchers():
            bus.on_append = self._unseat(bus, event)

    def _dispatchers(self) -> list[SimBus]:
        processes = self.cell.processes
        return [process.buses[0] for name, process in processes.items() if name.startswith(ROLE) and process.buses]

    def _doubt(self, bus: SimBus, event: Event) -> Callable[[], object]:
        def doubt() -> None:
            kind, until_s = event.two % DOUBTS, self.loop.now_s + min(event.for_s, 12.0)
            if kind == 0:  # it is stored, and nobody says so
                bus.lose_replies += 1
            elif kind == 1:  # it is stored, and that is said late
                bus.incoming.held_until_s = until_s
            elif kind == 2:  # it is stored late, perhaps after its writer gave up
                bus.outgoing.held_until_s = until_s
            else:  # it may be lost
                bus.cut(min(event.for_s, 3.0))

        return doubt

    def _unseat(self, bus: SimBus, event: Event) -> Callable[[], object]:
        def unseat() -> None:
            for other in self._dispatchers():
                other.on_append = None
            if event.two % 3:
                bus.outgoing.held_until_s = self.loop.now_s + min(event.for_s, 7.0)
            self._free_lease()

        return unseat

    def _free_lease(self) -> None:
        now_ms = self.cell.clocks["bus"].now_ms()
        subjects = self.user.subjects
        self.say(subjects.lease(ROLE), encode(LeaseHeld("", 0, now_ms)))
        beat = encode(Heartbeat("nobody", is_over=True))
        self.later(0.01, self.user._post, subjects.heartbeat(ROLE), beat, lambda _, __: None)

    def _do_stray(self, event: Event) -> None:
        """Two messages are in the ledger that no leader decided."""
        if not self.observer.records or self.is_at_work or self.observer.is_paused:
            return
        server = self.cell.server
        if server.is_down or self.user.subjects.stream(StreamName.LEDGER) not in server.streams:
            return  # nobody can store anything, or somebody has deleted it
        for kind in (event.two % STRAYS, event.two // STRAYS % STRAYS):
            data = self._stray(kind, self.observer.oracle.position, event.one)
            server.store(self.user.subjects.ledger, data, None, None)

    def _stray(self, kind: int, at: Position, choice: int) -> bytes:
        records = self.observer.records
        fold = self.observer.state.fold
        if kind == 1 and records:
            return records[choice % len(records)].data
        held = sorted(fold.holdings)
        releases = [Release(*held[choice % len(held)], "succeeded")] if held else []
        heads = {
            0: (at.epoch - 2, at.sequence),
            2: (at.epoch - 1, at.sequence),  # of a leader that is over
            3: (at.epoch, at.sequence),  # an epoch that began already
            4: (at.epoch, at.sequence - 1),  # decided before the last record
            5: (at.epoch + 1, at.sequence - 1),
            6: (at.epoch, at.sequence),  # nothing is wrong with it but its digest
        }
        epoch, base = heads.get(kind, heads[2])
        facts_seq, at_ms = self.observer.state.facts_seq, self.cell.clocks["bus"].now_ms()
        message: Message = Round(epoch, base, facts_seq, at_ms, fold.rounds + 1, releases=releases)
        if kind in {3, 5}:
            message = Epoch(epoch, base, facts_seq, at_ms, "nobody", fold.settings)
        return _sealed(message, at, is_right=kind != STRAYS - 1)


def _sealed(message: Message, at: Position, *, is_right: bool) -> bytes:
    """Bytes of a record with a digest, which alone does not keep it from counting if it is right.

    Args:
        message: The record.
        at: End of the ledger.
        is_right: Whether the digest is right.
    """
    envelope = sealed(message)
    digest = chained(at.digest if is_right else b"another", at.sequence + 1, envelope)
    return type(envelope)(envelope.kind, envelope.version, envelope.body, envelope.release, digest).encode()
