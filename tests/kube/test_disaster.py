"""A cell loses all that its bus stored and is restored from a backup, on a real API server with all services."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from berth.runtime.backups.backup import backup
from berth.runtime.backups.restore import restore
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.clock import SystemClock
from berth.runtime.errors import TransientError
from berth.runtime.history import state_now
from berth.schemas.envelope import decode
from berth.schemas.simulation import BreakNode
from berth.schemas.status import JobStatus
from berth.schemas.subjects import StreamName
from tests.support.faulty_cell import JOBS, a2_nodes, break_node, settings, start, submit, until_seats
from tests.support.kube_api import KubeApi
from tests.support.kube_cells import ORDER, KubeCell
from tests.support.processes import services
from tests.support.waiting import until_true

pytestmark = pytest.mark.timeout(300)
CLOCK = SystemClock()
DEADLINE_S = 60.0


class Disaster:
    """A cell, and what happens to it."""

    def __init__(self, world: KubeCell, namespace: str) -> None:
        self.world = world
        self.bus = world.bus
        self.namespace = namespace

    async def strike(self, file: Path) -> None:
        """All services are killed, everything on the bus is deleted, and the backup is restored."""
        for name in reversed(ORDER):
            await self.world.services[name].kill()
        for spec in reversed(self.bus.subjects.streams()):
            await self.bus.delete_stream(spec.name)
        await restore(self.bus, CLOCK, file)

    async def status(self, job: str) -> JobStatus | None:
        stored = await self.bus.last(StreamName.STATUS, self.bus.subjects.status(self.namespace, job))
        return decode(stored.data, JobStatus) if stored is not None else None

    async def until(self, job: str, condition: Callable[[JobStatus], bool], what: str) -> JobStatus:
        """Wait until the status of a job is so."""
        found: JobStatus | None = None

        async def is_so() -> bool:
            nonlocal found
            self.world.check()
            try:
                found = await self.status(job)
            except TransientError:
                return False
            return found is not None and condition(found)

        try:
            await until_true(is_so, deadline_s=DEADLINE_S, what=f"{job} {what}")
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {found}{self.world.logs()}") from error
        assert found is not None
        return found

    async def checked(self, work: Awaitable[None]) -> None:
        """Look at the chips of all pods all the time until something is done."""
        task = asyncio.ensure_future(work)
        while not task.done():
            await self.world.check_chips(self.namespace)
            await asyncio.wait([task], timeout=0.2)
        await task


async def test_a_cell_goes_on_after_everything_on_its_bus_was_lost(
    kube_api: KubeApi, namespace: str, real_bus: NatsBus, nats_server: str, cell: str, tmp_path: Path
) -> None:
    own = settings()
    own["dispatcher"] = {**own["dispatcher"], "lease_s": 1, "snapshot_records": 10}
    own["inventory"] = {"stranger_s": 1}
    with services(tmp_path, nats_server) as made:
        world = KubeCell(made, folder=tmp_path, cell=cell, bus=real_bus, api=kube_api, topology=a2_nodes(4), settings=own)
        await start(world)
        after = Disaster(world, namespace)
        await submit(world, namespace, "recovers", 2, fault_scheduling="force", pod_rescheduling="on")
        recovering = await until_seats(world, namespace, "recovers", 2)
        await submit(world, namespace, "runs", 1)
        running = (await until_seats(world, namespace, "runs", 1))[0]
        await submit(world, namespace, "frees", 1)
        freeing = (await until_seats(world, namespace, "frees", 1))[0]
        broken = recovering[1].node
        await break_node(world, BreakNode(broken, "chip", [3]))
        await after.until("vcjob.recovers", lambda one: bool(one.recovery and one.recovery.unplaced), "has no place")
        await submit(world, namespace, "waits", 1)
        await after.until("vcjob.waits", lambda one: one.phase == "waiting" and one.refusal is not None, "waits")

        file = tmp_path / "backup"
        await backup(world.bus, CLOCK, file)
        before = await state_now(world.bus, CLOCK)
        stream = (await world.bus.state(StreamName.LEDGER)).created
        await after.strike(file)
        assert (await world.bus.state(StreamName.LEDGER)).created != stream
        restored = await state_now(world.bus, CLOCK)
        assert sorted(restored.fold.holdings) == sorted(before.fold.holdings)
        assert sorted(restored.jobs) == sorted(before.jobs)
        await after.checked(world.start())
        assert (await until_seats(world, namespace, "runs", 1))[0] == running

        # Pods that are bound after the backup: one of a job that it has as waiting, one of a job that it does not have.
        await kube_api.delete(f"{JOBS.format(namespace)}/frees")
        late = (await until_seats(world, namespace, "waits", 1))[0]
        assert late.node == freeing.node
        await kube_api.delete(f"{JOBS.format(namespace)}/runs")
        await submit(world, namespace, "unknown", 1)
        stranger = (await until_seats(world, namespace, "unknown", 1))[0]
        assert stranger.node == running.node
        await after.strike(file)
        await submit(world, namespace, "new", 1)
        await after.checked(world.start())
        assert (await until_seats(world, namespace, "waits", 1))[0] == late
        assert (await until_seats(world, namespace, "unknown", 1))[0] == stranger
        await after.until("vcjob.new", lambda one: one.phase == "waiting" and one.refusal is not None, "waits")
        await world.check_chips(namespace)

        # Nothing is lost: what waits and what recovers goes on when there is room.
        await break_node(world, BreakNode(broken, "chip", [3], mend=True))
        await kube_api.delete(f"{JOBS.format(namespace)}/unknown")
        now = await until_seats(world, namespace, "recovers", 2, without=frozenset({recovering[1].uid}))
        assert now[0] == recovering[0]
        await until_seats(world, namespace, "new", 1)
        await world.check_chips(namespace)
        await world.stop()
