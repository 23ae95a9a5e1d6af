"""A cell whose ledger answers late or not at all, whose scorers stop answering, and that keeps every snapshot."""

from typing import Final

import msgspec

from berth.runtime.errors import AmbiguousError, ConflictError, TransientError
from berth.runtime.instruments import Instruments
from berth.schemas.envelope import decode, encode
from berth.schemas.ledger import Round
from berth.schemas.status import SnapshotBody
from berth.services.dispatcher.config import DecisionConfig
from berth.services.dispatcher.loop import Dispatcher
from berth.services.dispatcher.metrics import DispatcherMetrics
from berth.services.scorer.loop import Shard
from berth.services.scorer.metrics import ScorerMetrics
from tests.support.cells import Cell
from tests.support.fake_bus import FakeBus, FakeServed

FAULTS: Final = ("lost", "unheard", "late", "rival", "away")
"""What may become of an append: it is lost, stored without an answer, stored before the next one is looked at, another
writer's void record comes first, or nothing is sent."""


class UnreliableBus(FakeBus):
    """A client whose appends go wrong as the test says; ``faults`` are taken one an append."""

    def __init__(self, cell: "UnreliableCell") -> None:
        super().__init__(cell.server, cell.cell)
        self.faults: list[str] = []
        self._late: tuple[bytes, int] | None = None

    async def append(self, data: bytes, *, expected_seq: int, timeout_s: float = 5.0) -> int:
        await self._land()
        fault = self.faults.pop(0) if self.faults else ""
        match fault:
            case "lost":
                raise AmbiguousError("no answer")
            case "late":
                self._late = (data, expected_seq)
                raise AmbiguousError("no answer yet")
            case "away":
                raise TransientError("nothing was sent")
            case "rival":
                void = Round(epoch=0, base_seq=expected_seq, facts_seq=0, at_ms=1, number=999)
                await super().append(encode(void), expected_seq=expected_seq)
            case _:
                pass
        sequence = await super().append(data, expected_seq=expected_seq, timeout_s=timeout_s)
        if fault == "unheard":
            raise AmbiguousError("no answer")
        return sequence

    async def _land(self) -> None:
        """Store what was on its way, unless somebody was first."""
        late, self._late = self._late, None
        if late is not None:
            try:
                await super().append(late[0], expected_seq=late[1])
            except ConflictError:
                return


class UnreliableCell(Cell):
    """See :class:`Cell`; a manual clock, and faults when the test says so."""

    snapshots: list[SnapshotBody]
    bus: UnreliableBus
    served: dict[int, FakeServed]

    async def open(self) -> "UnreliableCell":
        self.snapshots, self.served = [], {}
        await super().open()
        return self

    async def start_dispatcher(self) -> None:
        self.bus = UnreliableBus(self)
        self.buses.append(self.bus)
        self.dispatcher = Dispatcher(
            self.bus, self.clock, self.config, holder="test", instruments=Instruments.make(DispatcherMetrics)
        )
        await self.dispatcher.start()
        self._keep_snapshots(self.dispatcher)

    def _keep_snapshots(self, dispatcher: Dispatcher) -> None:
        """Keep what a snapshot would hold at each moment in which one may be written."""

        async def keep(*, is_idle: bool = False) -> None:
            del is_idle
            body = dispatcher.state.dump(dispatcher.scheduler.dump())
            self.snapshots.append(decode(body, SnapshotBody))

        dispatcher.snapshots.maybe_write = keep  # type: ignore[method-assign]  # the rest of it stays as it is

    async def restart(self, **decisions: object) -> None:
        """End the dispatcher and begin another reign, with other settings if some are named."""
        await self.dispatcher.stop()
        if decisions:
            changed = DecisionConfig(**decisions)  # type: ignore[arg-type]  # fields of the settings
            self.config = msgspec.structs.replace(self.config, decisions=changed)
        await self.start_dispatcher()

    async def start_shard(self, number: int) -> None:
        bus = FakeBus(self.server, self.cell)
        self.buses.append(bus)
        shard = Shard(
            bus, self.clock, shard=number, shards=self.config.shards, instruments=Instruments.make(ScorerMetrics)
        )
        await shard.start()
        self.served[number] = await bus.serve(bus.subjects.score(number), shard.answer, queue=f"shard-{number}")
        await bus.serve(bus.subjects.advance, shard.advance)
        self.shards.append(shard)

    def missing_shards(self, number: int, *, is_silent: bool) -> None:
        """Let a shard hear nothing, or hear again."""
        served, services = self.served[number], self.server.services
        if is_silent and served in services:
            services.remove(served)
        elif not is_silent and served not in services:
            services.append(served)

    async def turn(self) -> None:
        """One turn, which may fail for want of the bus."""
        try:
            await self.dispatcher.turn()
        except TransientError:
            return

    async def rest(self) -> None:
        """Turn until all faults are over and everything is decided."""
        self.bus.faults.clear()
        for number in self.served:
            self.missing_shards(number, is_silent=False)
        for _ in range(3):
            await self.settle()
            self.clock.advance(2)
            await self.turn()
        await self.settle()
