"""The summary writer on an API server and a bus in memory."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from itertools import count

import msgspec
import pytest

from berth.formats.kubernetes.objects import PodGroup
from berth.runtime.errors import AmbiguousError, TransientError
from berth.runtime.instruments import Instruments
from berth.runtime.kube.port import RefusedError
from berth.runtime.logs import DEFAULT_LOG
from berth.schemas.envelope import decode
from berth.schemas.status import JobSummary
from berth.schemas.subjects import StreamName
from berth.services.summary import loop
from berth.services.summary.config import SummaryConfig
from berth.services.summary.job_summaries import JobSummaries
from berth.services.summary.loop import Loop
from berth.services.summary.metrics import SummaryMetrics
from berth.services.summary.record import Chunk
from berth.services.summary.store import Store
from berth.services.summary.views import JobName
from tests.support.clock import ManualClock
from tests.support.fake_bus import FakeBus, FakeServer
from tests.support.fake_kube import FakeKube
from tests.support.fault_desk import summary_on
from tests.support.waiting import until, until_true

MAPS = "/api/v1/namespaces/team-a/configmaps"
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/team-a/podgroups"
OWNER = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "llm", "uid": "u-llm", "controller": True}
GROUP = {
    "metadata": {"name": "llm-u", "ownerReferences": [OWNER], "labels": {"framework": "pytorch"}},
    "spec": {"minMember": 1},
}
CONFIGURATION = (
    '{"pod_name":"llm-0","host_ip":"192.0.2.1","super_pod_id":-2,"devices":[{"device_id":"0","device_ip":"10.0.0.1"}]}'
)


class Desk:
    """An API server and a bus that outlive the service."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.kube = FakeKube(clock=self.clock)
        self.server = FakeServer(self.clock)
        self.bus = FakeBus(self.server, "c")
        self.config = SummaryConfig(settle_s=0.01, retry_wait_max_s=0.01, kinds_retry_s=0.01, kept_s=60)

    def running(self) -> AbstractAsyncContextManager[None]:
        return summary_on(self.kube, self.bus, self.clock, self.config)

    def group(self) -> None:
        self.kube.put(GROUPS, GROUP)

    def pod(self, phase: str) -> None:
        annotations = {
            "hccl/rankIndex": "0",
            "ascend.kubectl.kubernetes.io/ascend-910-configuration": CONFIGURATION,
        }
        requests = {"requests": {"huawei.com/Ascend910": "1"}}
        self.kube.put(
            "/api/v1/namespaces/team-a/pods",
            {
                "metadata": {"name": "llm-0", "uid": "p0", "annotations": annotations, "ownerReferences": [OWNER]},
                "spec": {"nodeName": "n", "containers": [{"name": "main", "resources": requests}]},
                "status": {"phase": phase, "hostIP": "192.0.2.1"},
            },
        )

    def data(self, name: str = "job-summary-llm") -> dict[str, str]:
        found: dict[str, str] = self.kube.object(f"{MAPS}/{name}")["data"]
        return found

    def names(self) -> list[str]:
        return [item["metadata"]["name"] for item in self.kube.objects(MAPS)]

    def status(self) -> str:
        return self.data()["job_status"] if "job-summary-llm" in self.names() else ""

    async def until_status(self, status: str) -> None:
        await until(lambda: self.status() == status, deadline_s=5, what=f"the summary says {status}")

    def writes(self) -> int:
        return sum(call.method in {"POST", "PUT", "DELETE"} and "configmaps" in call.path for call in self.kube.calls)

    async def end_is_told(self) -> bool:
        return [event.deleted for event in await self.events()] == [True]

    async def events(self) -> list[JobSummary]:
        return [decode(stored.data, JobSummary) for stored in await self.bus.read(StreamName.SUMMARY)]


async def test_a_job_is_told_from_its_group_until_it_is_gone() -> None:
    desk = Desk()
    desk.group()
    async with desk.running():
        await desk.until_status("pending")
        desk.pod("Running")
        await desk.until_status("running")
        assert desk.data()["masterAddr"] == "192.0.2.1"
        desk.pod("Succeeded")
        await desk.until_status("complete")
        desk.kube.confirm("/api/v1/namespaces/team-a/pods/llm-0")
        desk.kube.confirm(f"{GROUPS}/llm-u")
        await until(lambda: desk.data()["operator"] == "delete", deadline_s=5, what="the summary says delete")
        (event,) = await desk.events()
        assert (event.data, event.name, event.total) == (desk.data(), "job-summary-llm", 1)
        desk.clock.advance(61)
        desk.kube.put("/api/v1/nodes", {"metadata": {"name": "n"}})  # an event lets it look at the clock
        await until(lambda: desk.names() == [], deadline_s=5, what="the summary is deleted")
    (event,) = await desk.events()
    assert (event.deleted, event.data) == (True, {})


async def test_a_server_that_refuses_to_say_whether_it_has_groups_is_asked_again() -> None:
    desk = Desk()
    desk.group()
    desk.kube.fail(RefusedError("may not", status=403, cause="Forbidden"), method="GET", part="podgroups", times=2)
    async with desk.running():
        await desk.until_status("pending")


async def test_a_restart_writes_nothing_and_corrects_what_changed_meanwhile() -> None:
    desk = Desk()
    desk.group()
    desk.pod("Running")
    async with desk.running():
        await desk.until_status("running")
    told = desk.writes()
    async with desk.running():
        desk.kube.put(
            "/api/v1/namespaces/team-b/configmaps",
            {"metadata": {"name": "other", "labels": {"outside-job-info": "true"}}},
        )
        desk.kube.put(
            MAPS,
            {
                "metadata": {"name": "job-summary-llm-1", "labels": {"outside-job-info": "true"}},
                "data": {**desk.data(), "cm_index": "1"},
            },
        )
        await until(lambda: desk.names() == ["job-summary-llm"], deadline_s=5, what="a surplus chunk is deleted")
    assert desk.writes() == told + 1
    assert len(await desk.events()) == 1
    desk.pod("Failed")
    async with desk.running():
        await desk.until_status("failed")


async def test_the_end_of_a_summary_is_told_also_when_the_writer_died_before_it_could() -> None:
    desk = Desk()
    desk.group()
    async with desk.running():
        await desk.until_status("pending")
        await until_true(desk.events, deadline_s=5, what="the event is stored")
    desk.kube.confirm(f"{GROUPS}/llm-u")
    desk.kube.confirm(f"{MAPS}/job-summary-llm")
    async with desk.running():
        await until_true(desk.end_is_told, deadline_s=5, what="the end is told")


async def test_a_summary_that_somebody_deletes_or_changes_is_written_again() -> None:
    desk = Desk()
    desk.group()
    async with desk.running():
        await desk.until_status("pending")
        desk.kube.confirm(f"{MAPS}/job-summary-llm")
        await until(lambda: "job-summary-llm" in desk.names(), deadline_s=5, what="it is there again")
        for data in ({"job_id": "u-llm", "job_status": "odd"}, {"job_status": "odd"}):
            desk.kube.put(
                MAPS,
                {"metadata": {"name": "job-summary-llm", "labels": {"outside-job-info": "true"}}, "data": data},
            )
            await desk.until_status("pending")


async def test_failures_are_tried_again_until_the_summary_stands() -> None:
    desk = Desk()
    desk.kube.fail(TransientError("busy"), method="POST", part="configmaps", times=3)
    desk.kube.fail(AmbiguousError("broke off"), method="POST", part="configmaps", landed=True)
    desk.group()
    async with desk.running():
        await desk.until_status("pending")
        desk.kube.fail(RefusedError("forbidden", status=403, cause="Forbidden"), method="PUT", part="configmaps")
        desk.pod("Running")
        await desk.until_status("running")
        await until(lambda: len(desk.server.streams) > 0, deadline_s=5, what="events")
    (event,) = await desk.events()
    assert event.data["job_status"] == "running"


async def test_a_server_without_pod_groups_has_summaries_too() -> None:
    desk = Desk()
    desk.kube = FakeKube(clock=desk.clock, unserved={"podgroups"})
    desk.pod("Running")
    async with desk.running():
        await desk.until_status("running")


async def test_a_stop_before_the_first_list_ends_it() -> None:
    desk = Desk()
    desk.kube.fail(TransientError("not there"), method="GET", part="podgroups", times=100)
    async with desk.running():
        pass


async def a_store(desk: Desk) -> Store:
    await desk.bus.ensure_streams()
    return Store(desk.kube, desk.bus, desk.clock, DEFAULT_LOG)


def a_chunk(index: int) -> Chunk:
    return Chunk("team-a", f"job-summary-llm{f'-{index}' if index else ''}", {}, {"job_id": "u-llm", "n": str(index)})


async def test_the_first_chunk_is_written_when_all_others_are_there() -> None:
    desk = Desk()
    store = await a_store(desk)
    await store.reconcile(JobName("team-a", "Job", "llm", "u-llm"), [a_chunk(0), a_chunk(1), a_chunk(2)])
    made = [call.body["metadata"]["name"] for call in desk.kube.calls if call.method == "POST"]
    assert made == ["job-summary-llm-2", "job-summary-llm-1", "job-summary-llm"]


async def test_an_event_that_may_not_have_been_stored_is_published_again() -> None:
    desk = Desk()
    store = await a_store(desk)
    job = JobName("team-a", "Job", "llm", "u-llm")
    desk.server.lose_messages = 1
    with pytest.raises(TransientError):
        await store.reconcile(job, [a_chunk(0)])
    assert await desk.events() == []
    await store.reconcile(job, [a_chunk(0)])
    assert [event.data["n"] for event in await desk.events()] == ["0"]


@pytest.mark.parametrize("lost", [0, 1])
async def test_the_end_of_a_summary_is_told_once_and_nothing_of_it_is_kept(
    lost: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk()
    store = await a_store(desk)
    job = JobName("team-a", "Job", "llm", "u-llm")
    await store.reconcile(job, [a_chunk(0), a_chunk(1)])
    publish, told = desk.bus.publish, count()

    async def publish_unless_lost(subject: str, data: bytes) -> int:
        if next(told) == lost:
            raise TransientError("lost")
        return await publish(subject, data)

    with monkeypatch.context() as patch:
        patch.setattr(desk.bus, "publish", publish_unless_lost)
        with pytest.raises(TransientError):
            await store.reconcile(job, [])
    for _ in range(2):
        await store.reconcile(job, [])
        assert sorted((event.chunk, event.deleted) for event in await desk.events()) == [(0, True), (1, True)]
    assert store._published == {}
    head = (await desk.bus.state(StreamName.SUMMARY)).last_seq
    again = Store(desk.kube, desk.bus, desk.clock, DEFAULT_LOG)
    await again.load_events()
    await again.publish_gone(frozenset())
    assert again._published == {}
    assert (await desk.bus.state(StreamName.SUMMARY)).last_seq == head == 4


async def test_pauses_before_a_summary_is_tried_again_double() -> None:
    desk = Desk()
    store = await a_store(desk)
    config = SummaryConfig(retry_wait_max_s=0.75)
    writer = Loop(JobSummaries(kept_s=60), store, desk.clock, config, Instruments.make(SummaryMetrics))
    clock = asyncio.get_running_loop()
    for expected_s in (0.25, 0.5, 0.75):
        writer._later(JobName("team-a", "Job", "llm", "u-llm"), TransientError("busy"))
        timer = writer._waiting["u-llm"]
        assert expected_s - 0.1 < timer.when() - clock.time() <= expected_s
        timer.cancel()


class SlowStore(Store):
    """A store whose writes take until they may end."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk.kube, desk.bus, desk.clock, DEFAULT_LOG)
        self.begun: list[str] = []
        self.may_end = asyncio.Event()

    async def reconcile(self, job: JobName, wanted: list[Chunk]) -> int:
        self.begun.append(job.name)
        await self.may_end.wait()
        return await super().reconcile(job, wanted)


async def test_a_stop_waits_for_the_summaries_that_are_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_WRITES_AT_ONCE", 1)
    desk, stop, summaries = Desk(), asyncio.Event(), JobSummaries(kept_s=60)
    await desk.bus.ensure_streams()
    store = SlowStore(desk)
    config = SummaryConfig(settle_s=0.01)
    for name in ("one", "two"):
        owner = {**OWNER, "name": name, "uid": f"u-{name}"}
        tree = {"metadata": {"name": name, "namespace": "team-a", "ownerReferences": [owner]}}
        summaries.set_group(msgspec.convert(tree, PodGroup))
    writer = Loop(summaries, store, desk.clock, config, Instruments.make(SummaryMetrics))
    async with asyncio.TaskGroup() as group:
        group.create_task(writer.run(stop), name="write")
        await until(lambda: store.begun == ["one"], deadline_s=5, what="the first write")
        stop.set()
        for _ in range(20):  # until the stop is seen
            await asyncio.sleep(0)
        store.may_end.set()
    assert sorted(desk.names()) == ["job-summary-one", "job-summary-two"]


class ReturningStore(Store):
    """A store during whose last write for a job, the deletion of its summary, the job comes back."""

    def __init__(self, desk: Desk, comes_back: Callable[[], Awaitable[None]]) -> None:
        super().__init__(desk.kube, desk.bus, desk.clock, DEFAULT_LOG)
        self._comes_back = comes_back

    async def reconcile(self, job: JobName, wanted: list[Chunk]) -> int:
        count = await super().reconcile(job, wanted)
        if not wanted:
            await self._comes_back()
        return count


async def test_a_job_that_comes_back_while_its_summary_is_deleted_has_one_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop, "_WRITES_AT_ONCE", 1)
    desk, stop, summaries = Desk(), asyncio.Event(), JobSummaries(kept_s=1)
    await desk.bus.ensure_streams()
    tree = {"metadata": {"name": "llm-u", "namespace": "team-a", "ownerReferences": [OWNER]}}
    group_of_job = msgspec.convert(tree, PodGroup)

    async def comes_back() -> None:
        summaries.set_group(group_of_job)
        writer.dirty.set()
        await until(lambda: OWNER["uid"] in writer._ready, deadline_s=5, what="the loop to see it")

    config = SummaryConfig(settle_s=0.01)
    store = ReturningStore(desk, comes_back)
    writer = Loop(summaries, store, desk.clock, config, Instruments.make(SummaryMetrics))
    summaries.set_group(group_of_job)
    async with asyncio.TaskGroup() as group:
        group.create_task(writer.run(stop), name="write")
        await until(lambda: desk.names() == ["job-summary-llm"], deadline_s=5, what="the summary")
        summaries.drop_group(("team-a", "llm-u"))
        writer.dirty.set()
        await until(lambda: desk.data()["operator"] == "delete", deadline_s=5, what="the summary says delete")
        desk.clock.advance(2)
        writer.dirty.set()
        await until(lambda: desk.names() == [], deadline_s=5, what="the summary is deleted")
        await until(lambda: desk.names() == ["job-summary-llm"], deadline_s=5, what="the summary is there again")
        stop.set()
    assert desk.data()["operator"] == "add"
