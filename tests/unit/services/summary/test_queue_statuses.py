"""The status of Queues on an API server and a bus in memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from berth.runtime.bus.port import Stored
from berth.runtime.instruments import Instruments
from berth.runtime.kube.port import Body, PatchKind, RefusedError
from berth.schemas.envelope import encode
from berth.schemas.ledger import Epoch, Release, Round, Settings, Verdict
from berth.schemas.placement import Placement, Run, placement_of
from berth.schemas.queues.facts import QueueSeen, QueueSource
from berth.schemas.queues.queue import CHIP, Queue
from berth.schemas.subjects import StreamName
from berth.services.summary import queue_statuses
from berth.services.summary.app import write_on
from berth.services.summary.config import QueueStatusConfig, SummaryConfig
from berth.services.summary.metrics import SummaryMetrics
from tests.support.chained_records import append
from tests.support.clock import ManualClock
from tests.support.fake_bus import FakeBus, FakeServer
from tests.support.fake_kube import FakeKube
from tests.support.waiting import until

QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/ns/podgroups"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/volcano-system/leases"
CHIPS = "huawei.com/Ascend910"
NOTHING = {"cpu": "0", "memory": "0"}
SIXTEEN = {"cpu": "3", "memory": "2Gi", CHIPS: "16", "pods": "2"}
Tree = dict[str, Any]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queues are looked at without the pause that bounds writes."""
    monkeypatch.setattr(queue_statuses, "_PASS_S", 0.01)


class ReadBus(FakeBus):
    """A bus that knows whether queues were read."""

    has_read = False

    async def read(self, stream: StreamName, **where: Any) -> list[Stored]:  # noqa: ANN401 - as the port has it
        found = await super().read(stream, **where)
        self.has_read = self.has_read or self.subjects.facts("queue") in where.get("filters", ())
        return found


class Desk:
    """A cell whose queues are ``lab`` with ``team``, and ``other``, on an API server."""

    def __init__(self, *, source: QueueSource = "kubernetes", level: int = 1, write_state: bool = False) -> None:
        self.clock = ManualClock()
        self.kube = FakeKube(clock=self.clock)
        self.bus = ReadBus(FakeServer(self.clock), "c")
        queues = QueueStatusConfig(write_state=write_state)
        self.config = SummaryConfig(queues=queues, tor_share_namespace="", settle_s=0.01, retry_wait_max_s=0.02)
        self.source, self.level = source, level
        self.instruments = Instruments.make(SummaryMetrics)

    def queue(self, name: str, parent: str = "", state: str = "Open", **status: object) -> None:
        spec = {"parent": parent, "capability": {CHIPS: "64"}}
        self.kube.put(QUEUES, {"metadata": {"name": name}, "spec": spec, "status": {"state": state, **status}})

    async def begin(self) -> None:
        await self.bus.ensure_streams()
        for name, parent in (("lab", ""), ("team", "lab"), ("other", "")):
            self.queue(name, parent)
            fact = QueueSeen(Queue(name, parent=parent, capability={CHIPS: 64 * CHIP}), self.source)
            await self.bus.publish(self.bus.subjects.fact_queue(name), encode(fact))
        await append(self.bus, Epoch(1, 0, 0, 0, "test", Settings(queues=self.level)))

    async def round(self, **parts: object) -> None:
        head = (await self.bus.state(StreamName.LEDGER)).last_seq
        await append(self.bus, Round(1, head, 0, 0, head, **parts))  # type: ignore[arg-type]  # its fields

    async def place(self, name: str, queue: str, placement: Placement | None = None) -> None:
        await self.round(verdicts=[Verdict("ns", name, f"uid-{name}", 1, placement or two_pods(name), queue=queue)])

    def allocated(self, name: str) -> Tree | None:
        found = self.kube.object(f"{QUEUES}/{name}")
        assert found is not None
        allocated: Tree | None = found["status"].get("allocated")
        return allocated

    def writes(self) -> list[tuple[str, Tree]]:
        """Patches of Queues, by name."""
        return [
            (call.path.removeprefix(f"{QUEUES}/").removesuffix("/status"), call.body["status"])
            for call in self.kube.calls
            if call.method == "PATCH" and call.path.startswith(QUEUES)
        ]

    def hold_lease(self, holder: str, *, ago_s: int = 0) -> None:
        now = datetime.fromtimestamp(self.clock.now_ms() / 1000, UTC) - timedelta(seconds=ago_s)
        spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": now.isoformat()}
        self.kube.put(LEASES, {"metadata": {"name": "volcano", "namespace": "volcano-system"}, "spec": spec})

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(write_on(self.kube, self.bus, self.clock, self.config, self.instruments, stop))
            try:
                yield
            finally:
                stop.set()

    async def until(self, name: str, wanted: Tree) -> None:
        await until(lambda: self.allocated(name) == wanted, deadline_s=10, what="it is so")


def two_pods(name: str, chips: int = 8) -> Placement:
    nodes = [f"{name}-0", f"{name}-1"]
    return placement_of(nodes, [tuple(range(chips))] * 2, [Run(2, chips, 1_500, 1_024)], resource=CHIPS)


async def test_a_queue_and_those_above_have_what_is_placed_until_it_is_released() -> None:
    desk = Desk()
    await desk.begin()
    await desk.place("job", "team")
    async with desk.running():
        for name in ("team", "lab"):
            await desk.until(name, SIXTEEN)
        await desk.until("other", NOTHING)
        await desk.round(releases=[Release("uid-job", 1, "succeeded")])
        for name in ("team", "lab"):
            await desk.until(name, NOTHING)
    names = sorted(name for name, _ in desk.writes())
    assert names == ["lab", "lab", "other", "team", "team"], "each once for each change"
    assert all(set(status) == {"allocated"} for _, status in desk.writes())


async def test_a_restart_writes_nothing_and_what_others_wrote_is_written_again() -> None:
    desk = Desk()
    await desk.begin()
    await desk.place("job", "team")
    async with desk.running():
        await desk.until("lab", SIXTEEN)
        await desk.until("other", NOTHING)
        await desk.until("team", SIXTEEN)
    count = len(desk.writes())
    async with desk.running():
        desk.queue("other", allocated={"cpu": 5, "huawei.com/Ascend310": "1"})
        await desk.until("other", NOTHING)
    assert [name for name, _ in desk.writes()[count:]] == ["other"]


@pytest.mark.parametrize(("source", "level"), [("berth", 1), ("kubernetes", 0)])
async def test_nothing_is_written_before_queues_are_those_of_the_cell(source: QueueSource, level: int) -> None:
    desk = Desk(source=source, level=level)
    await desk.begin()
    await desk.place("job", "team")
    async with desk.running():
        await until(lambda: desk.bus.has_read, deadline_s=10, what="it is so")
        for _ in range(200):  # it catches up, and would write
            await asyncio.sleep(0)
        await desk.round(releases=[Release("uid-job", 1, "succeeded")])
        await append(desk.bus, Epoch(2, 3, 0, 0, "test", Settings(queues=1)))
        for name, parent in (("lab", ""), ("team", "lab"), ("other", "")):
            fact = QueueSeen(Queue(name, parent=parent, capability={CHIPS: 64 * CHIP}), "kubernetes")
            await desk.bus.publish(desk.bus.subjects.fact_queue(name), encode(fact))
        await desk.until("other", NOTHING)
        await desk.until("team", NOTHING)
    assert all(status == {"allocated": NOTHING} for _, status in desk.writes())


async def test_nothing_is_written_while_volcanos_scheduler_holds_its_lease() -> None:
    desk = Desk()
    await desk.begin()
    desk.hold_lease("somebody")
    async with desk.running():
        await until(
            lambda: any(call.path.startswith(LEASES) for call in desk.kube.calls), deadline_s=10, what="it is so"
        )
        assert desk.writes() == []
        desk.hold_lease("somebody", ago_s=16)
        await desk.until("other", NOTHING)
        count = len(desk.writes())
        desk.hold_lease("")
        await desk.place("job", "other")
        await desk.until("other", SIXTEEN)
    assert len(desk.writes()) == count + 1


class Quarrel(FakeKube):
    """The first patch of each Queue meets another writer, and the Queue ``lab`` is gone."""

    met: dict[str, None]

    async def patch(self, path: str, body: Body, *, how: PatchKind = "merge", field_manager: str = "") -> bytes:
        if path.startswith(QUEUES) and path not in self.met:
            self.met[path] = None
            status, cause = (404, "NotFound") if "/lab/" in path else (409, "Conflict")
            raise RefusedError("no", status=status, cause=cause)
        return await super().patch(path, body, how=how, field_manager=field_manager)


async def test_a_conflict_is_tried_again_and_holds_back_no_other_queue() -> None:
    desk = Desk()
    desk.kube = kube = Quarrel(clock=desk.clock)
    kube.met = {}
    await desk.begin()
    async with desk.running():
        for name in ("lab", "other", "team"):
            await desk.until(name, NOTHING)
    assert len(kube.met) == 3
    assert desk.instruments.metrics.queue_failures._value.get() == 0


async def test_the_state_is_written_with_the_setting_alone_and_together_with_what_is_allocated() -> None:
    desk = Desk(write_state=True)
    await desk.begin()
    desk.queue("team", "lab", state="Closing", allocated=NOTHING)
    desk.queue("other", state="")
    desk.kube.put(GROUPS, {"metadata": {"name": "pg", "namespace": "ns"}, "spec": {"queue": "team"}})

    def state(name: str) -> str:
        found = desk.kube.object(f"{QUEUES}/{name}")
        assert found is not None
        return str(found["status"]["state"])

    async with desk.running():
        await until(lambda: state("other") == "Open", deadline_s=10, what="it is so")
        assert state("team") == "Closing", "a PodGroup names it"
        desk.kube.confirm(f"{GROUPS}/pg")
        await until(lambda: state("team") == "Closed", deadline_s=10, what="it is so")
    assert all("allocated" in status for _, status in desk.writes())
