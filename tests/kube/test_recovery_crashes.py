"""Dispatcher, binder and NATS are killed at each step of a recovery: every service is a process on a real API server.

No chip has two owners at any time, healthy pods stay, and no pod leaves that no record names.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from berth.core.state.cell import State
from berth.formats.ascend.pod_annotations import ATTEMPT, RANK, STEP
from berth.lab.servers.nats_server import EmbeddedServer
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.errors import TransientError
from berth.schemas.envelope import body_of, decode, open_envelope
from berth.schemas.facts import OutcomeSeen
from berth.schemas.ledger import Round
from berth.schemas.recovery import Recovery
from berth.schemas.simulation import BreakNode
from berth.schemas.subjects import StreamName
from berth.services.inventory.gangs.replacements import TAKEN_BACK
from tests.support.faulty_cell import JOBS, Seat, break_node, pods_of, settings, start, statuses_of, until_seats
from tests.support.kube_api import KubeApi
from tests.support.kube_cells import KubeCell, a_volcano_job
from tests.support.kube_history import History, recording
from tests.support.kube_storm import UNREACHED
from tests.support.processes import services
from tests.support.waiting import until, until_true
from tests.support.watch import Watch, at_rest, verify

pytestmark = pytest.mark.timeout(240)
TOPOLOGY: Final = """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {product: module910bx8, count: 6, name: "a2-{index}", leaf: {size: 3}}
"""
JOB: Final = "train"
RANKS: Final = 3
CHIPS: Final = 8
DISPATCHER: Final = (
    "append.before:1", "append.after:1", "status.before:1", "status.after:1", "append.before:2", "append.after:2",
)  # fmt: skip
"""Before and after the record of the step and that of the release, and while statuses are published."""
BINDER: Final = (
    "outcome.after:1",  # the step is announced
    "leave.before:1",
    "leave.after:1",
    "outcome.before:2",  # it is taken up
    "outcome.after:2",
    "bind.before:1",
    "bind.after:1",
    "outcome.before:3",  # it is carried out
)
"""tests/kube/test_recovery_execution.py has them with several pods."""
WHOLE: Final = (
    ("dispatcher", "append.after:1"),
    ("dispatcher", "append.before:2"),
    ("dispatcher", "append.after:2"),
    ("binder", "leave.after:2"),
    ("binder", "bind.after:2"),
)
"""While the whole job restarts: the step is recorded, the attempt is released with what stays held, two of three pods
are deleted, and two of the three new ones are bound."""
NATS: Final = ("broken", "recorded", "gone", "waits", "bound")
"""What has just happened when it is killed, while one rank moves."""
NATS_WHOLE: Final = ("recorded", "waits")
"""Likewise, while the whole job restarts."""


class RestartedCell(KubeCell):
    """A cell whose services are started again, as a kubelet does, where they end because NATS lost what it had told."""

    def check(self) -> None:
        """Start what ended by itself."""
        for service in self.services.values():
            if service.returncode == UNREACHED:
                service.start()
        super().check()


class Cell:
    """A job that runs, and whatever is killed while one of its ranks moves."""

    def __init__(self, world: KubeCell, nats: EmbeddedServer, watch: Watch, namespace: str) -> None:
        self.world = world
        self.bus = world.bus
        self.nats = nats
        self.watch = watch
        self.namespace = namespace
        self.seats: dict[int, Seat] = {}
        self.faults = 0
        self.was_away = False
        """Whether NATS was killed."""
        self.newest = ""
        """What the binder and the dispatcher said last, for a message."""

    async def run(self) -> None:
        """The job runs."""
        job = a_volcano_job(JOB, RANKS, CHIPS, run_for="3600s")
        job["metadata"]["labels"] |= {"fault-scheduling": "force", "pod-rescheduling": "on"}
        await self.world.api.post(JOBS.format(self.namespace), job)
        self.seats = await until_seats(self.world, self.namespace, JOB, RANKS)

    async def arm(self, name: str, point: str) -> None:
        """Start a service again, which dies at a point."""
        service, epoch = self.world.services[name], self.watch.fold.epoch
        await service.kill()
        service.start(fault_point=point)
        if name == "dispatcher":
            await until(lambda: self.watch.fold.epoch > epoch, deadline_s=20, what="a new epoch")
        else:
            what = f"--- start {service.starts}"
            await until(
                lambda: "ledger folded" in service.whole_log().partition(what)[2], deadline_s=20, what="a start"
            )

    async def broken(self, rank: int | None = None) -> tuple[int, Seat]:
        """A chip of the node of a worker, or of this rank, breaks; returns the rank and where it was."""
        self.faults += 1
        rank = 1 + self.faults % (RANKS - 1) if rank is None else rank
        await break_node(self.world, BreakNode(self.seats[rank].node, "chip", [3]))
        return rank, self.seats[rank]

    async def is_over(self) -> bool:
        """Whether nothing of the newest recovery is left to do, as the dispatcher and the binder tell."""
        told = await self.bus.last(StreamName.FACTS, self.bus.subjects.fact_outcome(self.namespace, f"vcjob.{JOB}"))
        outcome = None if told is None else decode(told.data, OutcomeSeen)
        statuses = await statuses_of(self.world)
        self.newest = f"{outcome}\n{statuses}"
        is_done = outcome is not None and not outcome.open
        # While NATS is away, inventory may see a new pod before it reads which rank recovers: then it takes it back.
        taken_back = ("cancelled", TAKEN_BACK) if self.was_away else None
        recoveries = [status.recovery for status in statuses if (status.phase, status.sentence) != taken_back]
        return is_done and [one is not None and not one.open for one in recoveries] == [True]

    async def recovered(self, rank: int, old: Seat) -> None:
        """Wait for the end of the recovery; only this rank has moved, with the master all. The node is repaired.

        Raises:
            AssertionError: It does not end in time; shows logs.
        """
        left = {rank} if rank else set(range(RANKS))
        uids = frozenset(self.seats[other].uid for other in left)
        now = await until_seats(self.world, self.namespace, JOB, RANKS, without=uids)
        try:
            await until_true(self.is_over, deadline_s=20, what="the recovery is over, and no pod stays a job")
        except AssertionError as error:
            logs = [service.log() for service in self.world.services.values()]
            raise AssertionError("\n\n".join([str(error), self.newest, *logs])) from error
        stay = {other: seat for other, seat in self.seats.items() if other not in left}
        assert {other: now[other] for other in stay} == stay, "healthy pods stay"
        assert now[rank].node not in {old.node, *(seat.node for seat in stay.values())}
        assert {seat.chips for seat in now.values()} == {0xFF}
        assert await self.world.check_chips(self.namespace) == RANKS * CHIPS
        self.seats = now
        await break_node(self.world, BreakNode(old.node, "chip", [3], repair=True))

    async def kill_nats(self) -> None:
        """Kill NATS and start it again; the test is connected again afterwards, and so are nodes and controllers."""
        self.was_away = True
        await self.nats.kill()
        await self.nats.start()

        async def is_connected() -> bool:
            self.world.check()
            try:
                await self.world.counts()
            except TransientError:
                return False
            return True

        await until_true(is_connected, deadline_s=20, what="a connection")

    async def until_reached(self, moment: str, old: Seat) -> None:
        """Wait until a recovery has come so far."""
        if moment == "broken":
            return

        async def is_reached() -> bool:
            pods = await pods_of(self.world.api, self.namespace, JOB)
            if moment == "recorded":
                return len(steps_of(self.watch)) >= self.faults
            if old.uid in {pod["metadata"]["uid"] for pod in pods}:
                return False
            others = {seat.uid for seat in self.seats.values()}
            fresh = [pod for pod in pods if pod["metadata"]["uid"] not in others]
            return moment == "gone" or any(moment == "waits" or "nodeName" in pod["spec"] for pod in fresh)

        await until_true(is_reached, deadline_s=30, what=moment)


def steps_of(watch: Watch) -> list[Recovery]:
    """All steps of the ledger, oldest first."""
    envelopes = [open_envelope(stored.data) for stored in watch.records]
    return [step for one in envelopes if one.kind == Round.KIND for step in body_of(one, Round).recoveries]


def check_pods(history: History, steps: list[Recovery], seats: dict[int, Seat]) -> None:
    """See that every pod was bound once, one for each rank and step, and that those left which records name."""
    bound: dict[str, tuple[int, int, int, str]] = {}
    for name, pod in history.pods.order:
        if pod.spec.node_name:
            note = pod.metadata.annotation
            said = (int(note(RANK)), int(note(ATTEMPT)), int(note(STEP) or 0), pod.spec.node_name)
            assert bound.setdefault(pod.metadata.uid, said) == said, f"{name} was bound again: {said}"
    assert len({said[:3] for said in bound.values()}) == len(bound), "a later pod of a rank carries a later step"
    kept = {seat.uid for seat in seats.values()}
    left = [said[0] for uid, said in bound.items() if uid not in kept]
    assert sorted(left) == sorted(rank for step in steps for rank in step.ranks)


@asynccontextmanager
async def a_cell(
    api: KubeApi, namespace: str, nats: EmbeddedServer, cell: str, folder: Path
) -> AsyncIterator[tuple[Cell, History]]:
    """A cell with a job that runs."""
    async with AsyncExitStack() as stack:
        bus = await stack.enter_async_context(
            await NatsBus.connect(nats.url, cell, name="test", inbox="_INBOX.person.test")
        )
        await bus.ensure_streams()
        made = stack.enter_context(services(folder, nats.url))
        watch = Watch(bus)
        watch.start()
        own = settings()
        own["dispatcher"] = {**own["dispatcher"], "lease_s": 1, "tick_s": 0.2, "snapshot_records": 10}
        own |= {name: {"retry_wait_max_s": 0.5} for name in ("binder", "inventory", "health")}
        own["health"] = {**own["health"], "flap_hold_s": 0}  # the same chips break again and again
        world = RestartedCell(made, folder=folder, cell=cell, bus=bus, api=api, topology=TOPOLOGY, settings=own)
        await start(world)
        history = await stack.enter_async_context(recording(api, folder, namespace))
        found = Cell(world, nats, watch, namespace)
        await found.run()
        yield found, history
        await watch.stop()


@pytest.mark.processes
async def test_killed_at_each_step_of_a_recovery_every_service_goes_on(
    kube_api: KubeApi, namespace: str, own_server: EmbeddedServer, cell: str, tmp_path: Path
) -> None:
    async with a_cell(kube_api, namespace, own_server, cell, tmp_path) as (place, history):
        for name, points in (("dispatcher", DISPATCHER), ("binder", BINDER)):
            service = place.world.services[name]
            for point in points:
                await place.arm(name, point)
                rank, old = await place.broken()
                assert await service.ended() < 0, point
                service.start()
                await place.recovered(rank, old)
        for name, point in WHOLE:
            await place.arm(name, point)
            rank, old = await place.broken(0)
            assert await place.world.services[name].ended() < 0, point
            place.world.services[name].start()
            await place.recovered(rank, old)
        for moment, of_job in [(one, False) for one in NATS] + [(one, True) for one in NATS_WHOLE]:
            rank, old = await place.broken(0 if of_job else None)
            await place.until_reached(moment, old)
            await place.kill_nats()
            await place.recovered(rank, old)
        assert len(steps_of(place.watch)) == place.faults, "one step for each fault"
        await place.world.stop()
        for service in place.world.services.values():
            assert "Traceback" not in service.whole_log(), service.whole_log().partition("Traceback")[2][:5000]
        await at_rest(place.watch)
        state: State = await verify(place.watch, [])
        (holding,) = state.fold.holdings.values()
        assert holding.placement.names() == [place.seats[rank].node for rank in range(RANKS)]
        assert (holding.moves, holding.unplaced, holding.gone, state.fold.held) == ([], [], [], {})
        check_pods(history, steps_of(place.watch), place.seats)
