"""What an operator does: backups, and what follows when the bus lost what it had acknowledged, or a stream is deleted.

A server that syncs each write loses nothing but the ends of views. One that does not loses the newest messages of all
streams when its power fails. Then everything is stopped. If messages of facts or requests are gone, the cell is
restored from its last backup; so it is if some of what a restore stored is gone. If it is records alone, the inventory
is started first, and says by which record pods are bound; a dispatcher that finds that this record is gone must not
lead, and the cell is restored.
"""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, cast

from berth.formats.ascend.ledger_mark import mark_of
from berth.formats.ascend.pod_annotations import LEDGER
from berth.runtime.backups.backup import BackupError, backup
from berth.runtime.backups.restore import RestoreError, restore
from berth.runtime.bus.leaders import ROLE
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.bus.port import Stored
from berth.runtime.errors import AmbiguousError, TransientError
from berth.runtime.stored_snapshots import newest_snapshot
from berth.schemas.envelope import decode
from berth.schemas.facts import LedgerSeen
from berth.schemas.recording import BEGINNING
from berth.schemas.status import RESTORE_HOLDER, LeaseHeld
from berth.schemas.subjects import StreamName
from tests.sim.cell import CLUSTER
from tests.sim.errors import Failure
from tests.sim.observer import Observer
from tests.sim.stage import Stage
from tests.sim.story import Event
from tests.sim.users import PODS

ESSENTIAL: Final = (StreamName.FACTS, StreamName.INTAKE, StreamName.LEDGER)
"""Streams that nothing makes again."""
SAFE: Final[tuple[tuple[StreamName, ...], ...]] = (
    ESSENTIAL,
    (StreamName.FACTS, StreamName.INTAKE),
    (StreamName.FACTS, StreamName.INTAKE),
    (),
    (),
)
"""What was synced just before the power fails: each stream is synced at its own time."""
DELETED: Final = (
    StreamName.STATUS,
    StreamName.SUMMARY,
    StreamName.LATEST,
    StreamName.LEASE,
    StreamName.DEAD,
    StreamName.LEDGER,
    StreamName.FACTS,
)
_TRIES: Final = 90
_LEADS_S: Final = 120.0
"""A dispatcher waits half a minute beside a stuck stream of leases, and so does the next one if it is killed then."""
_TAKES_S: Final = 8
"""Seconds in which a dispatcher takes a lease that is free."""
_REFUSES: Final = ("were lost", "is ahead of the bus", "is the inventory running")
"""How a dispatcher says that it does not lead because of what is stored."""


class Operator(Stage):
    """See above.

    Attributes:
        observer: What checks the cell.
        is_at_work: Whether the operator repairs the cell at the moment.
    """

    observer: Observer
    is_at_work = False
    _folder: TemporaryDirectory[str] | None = None
    _backups = 0
    _begun = 0
    _is_deleted = False
    """Whether a stream that nothing makes again was deleted, and the cell is not restored yet."""

    @property
    def _bus(self) -> NatsBus:
        return cast("NatsBus", self.user)  # as much of it as backups and restores use

    def _do_backup(self, event: Event) -> None:
        """The operator makes a backup."""
        del event
        if self.cell.settings.sync != "always" and not self.is_at_work:
            self._work(self._back_up())

    async def _back_up(self) -> None:
        if self._folder is None:
            self._folder = TemporaryDirectory()
        self._begun += 1
        path = Path(self._folder.name) / f"next-{self._begun}"  # two operators may make one at a time
        try:
            await backup(self._bus, self.cell.clocks["bus"], path)
        except (BackupError, TransientError):
            return  # the cell removed something meanwhile, or the bus is away: the one before is still there
        if not self.is_at_work:
            path.replace(self._file)
            self._backups += 1
            self.observer.count["backups"] += 1

    @property
    def _file(self) -> Path:
        assert self._folder is not None
        return Path(self._folder.name) / "backup"

    def _do_power(self, event: Event) -> None:
        """The server's machine and those of all services lose their power."""
        if self.is_at_work:
            return
        self._stop_all()
        self.cell.server.is_down = True
        self.user.cut(event.for_s)
        self.later(event.for_s, self._power_is_back, event)

    def _power_is_back(self, event: Event) -> None:
        cell, subjects = self.cell, self.user.subjects
        cell.server.is_down = False
        if cell.settings.sync == "always":
            cell.server.forget_views(1 + event.two % 8)
            self._start_all()
            return
        safe = SAFE[event.two % len(SAFE)] if self._backups else ESSENTIAL
        lost = cell.server.lose_power([subjects.stream(name) for name in safe])
        self.observer.count["messages lost with the power"] += sum(lost.values())
        gone = [name for name in ESSENTIAL if subjects.stream(name) in lost]
        if self._is_deleted:  # just before the power failed
            self._work(self._restore())
        elif not gone:
            self._start_all()
            self._work(self._see_the_lease())
        elif gone == [StreamName.LEDGER] and self._head() >= self.observer.base.ledger_seq:
            self.observer.lose_records(self._head())
            self._work(self._try_to_lead())
        else:
            self._work(self._restore())

    def _do_delete_stream(self, event: Event) -> None:
        """Somebody deletes a stream; the operator starts all services again, or restores the cell."""
        name = DELETED[event.two % len(DELETED)]
        if self.is_at_work or (name in ESSENTIAL and not self._backups):
            return
        self._is_deleted |= name in ESSENTIAL
        self.cell.server.delete(self.user.subjects.stream(name))
        self.later(event.for_s, self._see_deleted, name)

    def _see_deleted(self, name: StreamName) -> None:
        if self.is_at_work:
            return
        self._stop_all()
        if name in ESSENTIAL:
            self._work(self._restore())
        else:
            self.later(1.0, self._start_all)

    # What the operator does about it.

    def _work(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work, context=self.loop.main.context)
        task.add_done_callback(self._has_worked, context=self.loop.main.context)

    def _has_worked(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Failure):
            self.observer.failures.append(error)
        elif error is not None:
            self.observer.fail(f"the operator: {type(error).__name__}", repr(error), error)

    def _stop_all(self) -> None:
        """Stop all services; nobody starts them before the operator does."""
        self.is_at_work = True
        cell = self.cell
        names = [name for name in cell.names if name != CLUSTER]
        cell.held = {*names, *cell.processes} - {CLUSTER}
        for name in list(cell.processes):
            if name != CLUSTER:
                cell.kill(name, "the operator stops it")

    def _start_all(self) -> None:
        self.cell.held = set()
        for name in self.cell.names:
            self.cell.start(name)
        self.is_at_work = False

    async def _try_to_lead(self) -> None:
        """Records are lost: let the inventory say by which one pods are bound, then let dispatchers try.

        Raises:
            Failure: One leads that must not, or none does and none says why.
        """
        cell = self.cell
        cell.held = {name for name in cell.held if name.startswith("dispatcher")}
        for name in cell.names:
            cell.start(name)
        head = self._head()
        seen = await self._until_told()
        must_refuse = seen > head
        records = len(self.observer.records)
        failures_before = dict(cell.ends)
        cell.held = set()
        for name in cell.names:
            cell.start(name)
        until_s = self.loop.now_s + _LEADS_S
        while self.loop.now_s < until_s:
            await asyncio.sleep(0.5)
            if len(self.observer.records) > records:
                if must_refuse:
                    raise Failure(
                        "somebody leads on a ledger that has lost its end", f"{head}, a pod is bound by {seen}"
                    )
                self.is_at_work = False
                return
            if self._has_refused(failures_before):
                self.observer.count["lost records refused"] += 1
                await self._restore()
                return
        raise Failure("nobody leads after records were lost, and nobody says why", f"{head}, bound by {seen}")

    async def _see_the_lease(self) -> None:
        """See that no restore holds the lease: the release of the last one may be lost. Then the cell is restored."""
        held_s = 0
        while held_s < _TAKES_S:
            await asyncio.sleep(1.0)
            try:
                stored = await self.user.last(StreamName.LEASE, self.user.subjects.lease(ROLE))
            except TransientError:
                continue
            if self.is_at_work or stored is None or decode(stored.data, LeaseHeld).holder != RESTORE_HOLDER:
                return
            held_s += 1
        self.observer.count["restores again"] += 1
        await self._restore()

    def _head(self) -> int:
        return self.cell.server.streams[self.user.subjects.stream(StreamName.LEDGER)].last_seq

    async def _until_told(self) -> int:
        """Wait until the inventory has said by which record pods are bound; returns it.

        Raises:
            Failure: It does not in time.
        """
        for _ in range(_TRIES):
            await asyncio.sleep(1.0)
            try:
                stored = await self.user.last(StreamName.FACTS, self.user.subjects.fact_ledger)
                stream = (await self.user.state(StreamName.LEDGER)).created
            except TransientError:
                continue
            seen = decode(stored.data, LedgerSeen) if stored is not None else None
            told = seen.sequence if seen is not None and seen.stream == stream else 0
            inventory = self.cell.processes.get("inventory")
            if inventory is None or inventory.instruments.readiness.reason or told < self._bound_by(stream):
                continue
            return told
        raise Failure("the inventory does not say by which record pods are bound", f"{self._bound_by('')}")

    def _bound_by(self, stream: str) -> int:
        """The newest record of a stream by which a pod is bound."""
        newest = 0
        for pod in self.cell.kube.objects(PODS):
            mark = mark_of((pod["metadata"].get("annotations") or {}).get(LEDGER, ""))
            if mark is not None and mark.stream == stream:
                newest = max(newest, mark.sequence)
        return newest

    def _has_refused(self, before: dict[str, int]) -> bool:
        """Whether a dispatcher has said that it cannot lead on what is stored."""
        for process in self.cell.logs:
            if (
                process.name.startswith("dispatcher")
                and not process.is_dead
                and process.log.said["error", "does not lead"]
            ):
                return True
        return any(
            count > before.get(reason, 0)
            and reason.startswith("dispatcher")
            and any(word in reason for word in _REFUSES)
            for reason, count in self.cell.ends.items()
        )

    async def _restore(self) -> None:
        """Restore the last backup.

        Raises:
            Failure: It cannot be restored.
        """
        self._stop_all()
        self.observer.is_paused = True
        for _ in range(_TRIES):
            try:
                await restore(self._bus, self.cell.clocks["bus"], self._file, replace=True)
                break
            except (RestoreError, TransientError, AmbiguousError):
                await asyncio.sleep(1.0)  # the lease of the last leader is not over, or the bus is away
        else:
            raise Failure("a backup cannot be restored", str(self._file))
        body = await newest_snapshot(self._bus)
        base = body if body is not None else BEGINNING
        streams, subjects = self.cell.server.streams, self.user.subjects

        def after(name: StreamName, sequence: int) -> list[Stored]:
            messages = streams[subjects.stream(name)].messages.values()
            return [stored for stored in messages if stored.sequence > sequence]

        self.observer.begin_again(
            base,
            after(StreamName.FACTS, base.facts_seq),
            after(StreamName.LEDGER, base.ledger_seq),
            restored_stream=streams[subjects.stream(StreamName.LEDGER)].created,
        )
        self.observer.count["restores"] += 1
        self._is_deleted = False
        self._start_all()

    def clean(self) -> None:
        """Remove the files of the operator."""
        if self._folder is not None:
            self._folder.cleanup()
