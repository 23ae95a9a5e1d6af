"""A cell loses all that its bus stored and is restored from a backup, on a real API server with all services."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

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
from tests.support.faulty_cell import (
    FAULTS,
    JOBS,
    Seat,
    a2_nodes,
    break_node,
    settings,
    start,
    submit,
    submit_pod,
    until_seats,
)
from tests.support.kube_api import KubeApi
from tests.support.kube_cells import ORDER, KubeCell, chips_of
from tests.support.processes import services
from tests.support.waiting import until_true

pytestmark = pytest.mark.timeout(300)
CLOCK = SystemClock()
BERTH = tuple(name for name in ORDER if name != "nodesim")
"""All but the simulated cluster, which goes on."""
DEADLINE_S = 30.0


class Disaster:
    """A cell, and what happens to it."""

    def __init__(self, world: KubeCell, namespace: str) -> None:
        self.world = world
        self.bus = world.bus
        self.namespace = namespace

    async def strike(self, file: Path) -> None:
        """All services are killed, everything on the bus is deleted, and the backup is restored."""
        for name in reversed(BERTH):
            await self.world.services[name].kill()
        for spec in reversed(self.bus.subjects.streams()):
            await self.bus.delete_stream(spec.name)
        await restore(self.bus, CLOCK, file)

    async def status(self, job: str) -> JobStatus | None:
        stored = await self.bus.last(StreamName.STATUS, self.bus.subjects.status(self.namespace, job))
        return decode(stored.data, JobStatus) if stored is not None else None

    async def until(self, job: str, condition: Callable[[JobStatus], bool], what: str) -> JobStatus:
        """Wait until the status of a job is so.

        Raises:
            AssertionError: It is not in time; shows it, and logs.
        """
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

    async def begin(self) -> None:
        """Start all services and wait until somebody leads; no chip is given twice meanwhile.

        Raises:
            AssertionError: Nobody does in time, or a chip is.
        """
        head = (await self.bus.state(StreamName.LEDGER)).last_seq
        await self.world.start(*BERTH)

        async def leads() -> bool:
            self.world.check()
            await self.see_chips()
            return (await self.bus.state(StreamName.LEDGER)).last_seq > head

        try:
            await until_true(leads, deadline_s=DEADLINE_S, what="somebody leads")
        except AssertionError as error:
            raise AssertionError(f"{error}{self.world.logs()}") from error

    async def see_chips(self) -> None:
        """See that no two live pods name the same chip."""
        held: dict[str, int] = {}
        for pod in await self.world.api.items(f"/api/v1/namespaces/{self.namespace}/pods"):
            node = pod["spec"].get("nodeName")
            if node and pod["status"].get("phase") not in {"Succeeded", "Failed"}:
                assert not held.get(node, 0) & chips_of(pod), f"{pod['metadata']['name']} shares a chip of {node}"
                held[node] = held.get(node, 0) | chips_of(pod)


class Places(NamedTuple):
    """Where jobs are before the disaster."""

    recovering: dict[int, Seat]
    running: Seat
    freeing: Seat


async def filled(after: Disaster) -> Places:
    """Fill the cell: a job runs, one will end, one recovers and has no place for a rank, one waits."""
    world, namespace = after.world, after.namespace
    await submit(world, namespace, "recovers", 2, fault_scheduling="force", pod_rescheduling="on")
    recovering = await until_seats(world, namespace, "recovers", 2)
    seats = []
    for name in ("runs", "frees"):
        await submit(world, namespace, name, 1)
        seats.append((await until_seats(world, namespace, name, 1))[0])
    await break_node(world, BreakNode(recovering[1].node, "chip", [3]))
    await after.until("vcjob.recovers", lambda one: bool(one.recovery and one.recovery.unplaced), "has no place")
    await submit_pod(world, namespace, "waits")
    await after.until("pod.waits", is_refused, "waits")
    return Places(recovering, *seats)


def is_refused(status: JobStatus) -> bool:
    """Whether a job waits and was told why."""
    return status.phase == "waiting" and status.refusal is not None


async def bound_later(after: Disaster, places: Places) -> tuple[Seat, Seat]:
    """Let pods be bound after a backup: one of a job that waits in it, one of a job that it does not have."""
    world, namespace = after.world, after.namespace
    await world.api.delete(f"{JOBS.format(namespace)}/frees")
    late = (await until_seats(world, namespace, "waits", 1))[0]
    assert late.node == places.freeing.node
    await world.api.delete(f"{JOBS.format(namespace)}/runs")
    await submit(world, namespace, "unknown", 1)
    stranger = (await until_seats(world, namespace, "unknown", 1))[0]
    assert stranger.node == places.running.node
    return late, stranger


@pytest.mark.processes
async def test_a_cell_goes_on_after_everything_on_its_bus_was_lost(
    kube_api: KubeApi, namespace: str, real_bus: NatsBus, nats_server: str, cell: str, tmp_path: Path
) -> None:
    own = settings()
    faults = {**FAULTS, "escalate_job_ms": 600_000}  # a rank without a place waits until there is one
    own |= {"dispatcher": {"decisions": faults, "snapshot_records": 10}, "inventory": {"stranger_s": 1}}
    with services(tmp_path, nats_server) as made:
        world = KubeCell(
            made, folder=tmp_path, cell=cell, bus=real_bus, api=kube_api, topology=a2_nodes(4), settings=own
        )
        await start(world)
        after = Disaster(world, namespace)
        places = await filled(after)

        file = tmp_path / "backup"
        await backup(world.bus, CLOCK, file)
        before = await state_now(world.bus, CLOCK)
        stream = (await world.bus.state(StreamName.LEDGER)).created
        await after.strike(file)
        assert (await world.bus.state(StreamName.LEDGER)).created != stream
        restored = await state_now(world.bus, CLOCK)
        assert (restored.fold.holdings, restored.jobs) == (before.fold.holdings, before.jobs)
        assert [one.recovers for one in restored.fold.holdings.values()].count(True) == 1
        await after.begin()
        assert (await until_seats(world, namespace, "runs", 1))[0] == places.running

        # What recovers goes on: its rank gets its place when there is one.
        await break_node(world, BreakNode(places.recovering[1].node, "chip", [3], repair=True))
        recovered = await until_seats(world, namespace, "recovers", 2, without=frozenset({places.recovering[1].uid}))
        assert recovered[0] == places.recovering[0]
        await after.until("vcjob.recovers", lambda one: not (one.recovery and one.recovery.open), "has recovered")

        # Pods that are bound after the backup run on, and nobody else gets their chips.
        await backup(world.bus, CLOCK, file)
        late, stranger = await bound_later(after, places)
        await after.strike(file)
        await submit_pod(world, namespace, "new")
        await after.begin()
        assert (await until_seats(world, namespace, "waits", 1))[0] == late
        assert (await until_seats(world, namespace, "unknown", 1))[0] == stranger
        await after.until("pod.new", is_refused, "waits")
        await world.check_chips(namespace)

        # Nothing is lost: what waits runs when there is room.
        await kube_api.delete(f"{JOBS.format(namespace)}/unknown")
        assert await until_seats(world, namespace, "recovers", 2) == recovered
        await until_seats(world, namespace, "new", 1)
        await world.check_chips(namespace)
        await world.stop()
