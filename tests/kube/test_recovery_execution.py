"""The binder carries recoveries out on a real API server: pods leave and others come, and killed anywhere it goes on.

The records are those of a dispatcher, and the facts those of an inventory; the test writes both.
"""

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.clock import SystemClock
from berth.runtime.fault_points import RECOVERY_POINTS
from berth.runtime.instruments import Instruments
from berth.runtime.kube.client import KubeApi as Client
from berth.runtime.kube.config import FaultObjectsConfig, KubeConfig
from berth.runtime.local.kube_server import KubeServer
from berth.schemas.envelope import encode
from berth.schemas.facts import Owner, PodPhase
from berth.schemas.ledger import Epoch, Release, Round, Settings, Verdict
from berth.schemas.recovery import How, Recovery, Scope
from berth.services.binder.config import BinderConfig
from berth.services.binder.kube_cluster import KubeCluster
from berth.services.binder.metrics import BinderMetrics
from tests.kube.test_binder_crashes import Cell
from tests.support.binder_cluster import USER, World
from tests.support.kube_api import KubeApi
from tests.support.kube_binder import a_gang, a_placement, a_pod, members_of, pods_of
from tests.support.kube_rights import grant, let_tell_agents
from tests.support.processes import Service, services
from tests.support.waiting import until, until_true

Tree = dict[str, Any]
pytestmark = pytest.mark.timeout(120)
CAUSE: Final = "pod of rank 1: its chip 0 is unhealthy"
LEFT: Final = (1, 2)
"""Ranks that leave: the first gets a place on another node, the second its own again."""
STAY: Final = (0, 3)
SOON_MS: Final = 6_000
"""Until pods are deleted at once; long enough to see before that they were asked to end."""
WHILE_LEAVING: Final = [
    ("outcome.after", 2), ("leave.before", 2), ("leave.after", 2), ("outcome.before", 3), ("outcome.after", 3),
    ("bind.before", 5), ("bind.after", 5), ("outcome.before", 4), ("outcome.after", 4),
]  # fmt: skip
"""Points at which the binder is killed; before it has bound four pods and said so."""
WHILE_MARKING: Final = [("mark.before", 1), ("mark.after", 1)]


def test_every_point_is_tried() -> None:
    assert {point for point, _ in [*WHILE_LEAVING, *WHILE_MARKING]} >= set(RECOVERY_POINTS)


@pytest.fixture
async def world(kube_server: KubeServer, kube_api: KubeApi, namespace: str, tmp_path: Path) -> AsyncIterator[World]:
    await grant(kube_api, USER, USER)
    config = KubeConfig(kubeconfig=kube_server.write_kubeconfig(tmp_path / "kubeconfig", user=USER))
    async with await Client.connect(config, clock=SystemClock()) as client:
        yield await World(kube_api, client, namespace).open()


class Story:
    """A gang of four pods on three nodes, of which two leave."""

    def __init__(self, bus: NatsBus, world: World) -> None:
        self.cell = Cell(bus, world)
        self.world = world
        nodes = [world.node(0), world.node(1), world.node(2), world.node(2)]
        self.gang = a_gang("job", nodes, [(0,), (0,), (0,), (1,)], namespace=world.namespace)
        self.uids: dict[int, str] = {}
        self.before: dict[int, Tree] = {}

    async def publish_members(self) -> None:
        rows = [(rank, f"p{rank}", uid) for rank, uid in sorted(self.uids.items())]
        subject = self.cell.bus.subjects.fact_member(self.gang.namespace, self.gang.name)
        await self.cell.bus.publish(subject, encode(members_of(self.gang, rows)))

    async def publish_pods(self, phases: Mapping[int, PodPhase]) -> None:
        names = self.gang.placement.names()
        rows = [(rank, names[rank], phases.get(rank, PodPhase.RUNNING), 1, True) for rank in range(len(names))]
        subject = self.cell.bus.subjects.fact_pod(self.gang.namespace, self.gang.name)
        await self.cell.bus.publish(subject, encode(pods_of(self.gang, rows)))

    async def make(self, *ranks: int) -> None:
        for rank in ranks:
            made = await self.world.api.post(self.world.pods, a_pod(f"p{rank}"))
            self.uids[rank] = str(made["metadata"]["uid"])
        await self.publish_members()

    async def record(self, **parts: object) -> None:
        number = self.cell.records
        await self.cell.append(Round(1, number, 0, 0, number, **parts))  # type: ignore[arg-type]  # fields of it

    async def run(self) -> None:
        """The gang runs."""
        await self.make(*range(4))
        gang = self.gang
        await self.cell.append(Epoch(1, 0, 0, 0, "me", Settings(recoveries=1)))
        await self.record(verdicts=[Verdict(gang.namespace, gang.name, gang.uid, 1, gang.placement)])
        await self.until_outcome(0, bound=4)
        await self.publish_pods({})
        self.before = {rank: await self.world.pod(f"p{rank}") for rank in range(4)}

    async def recover(self, how: How, *, until_ms: int = 0, scope: Scope = "pod") -> None:
        """Record a step: of the ranks that leave, of all for the whole job; a mark names the faulty one alone."""
        gang = self.gang
        ranks = {"mark": [1], "grace": list(LEFT), "force": list(LEFT)}[how] if scope == "pod" else list(range(4))
        has_places = scope == "pod" and how != "mark"
        placement = a_placement([self.world.node(0), self.world.node(2)], [(1,), (0,)]) if has_places else None
        step = Recovery(
            gang.namespace, gang.name, gang.uid, 1, 1, "CardUnhealthy", CAUSE, scope, how, ranks, [1],
            until_ms or 1, until_ms, placement,
        )  # fmt: skip
        await self.record(recoveries=[step])

    async def until_outcome(self, step: int, *, done: int = 0, bound: int, state: str = "bound") -> None:
        async def is_there() -> bool:
            told = await self.cell.outcome(self.gang)
            return told is not None and (told.step, told.done, told.bound, told.state) == (step, done, bound, state)

        await until_true(is_there, deadline_s=40, what=f"the outcome of step {step}, {done} carried out")
        told = await self.cell.outcome(self.gang)
        assert told is not None
        assert told.failures == []

    async def is_gone(self, rank: int) -> bool:
        pods = await self.world.api.items(self.world.pods)
        return self.before[rank]["metadata"]["uid"] not in {pod["metadata"]["uid"] for pod in pods}

    async def until_gone(self, *ranks: int) -> None:
        for rank in ranks:
            await until_true(lambda rank=rank: self.is_gone(rank), deadline_s=30, what=f"the end of pod {rank}")  # type: ignore[misc]  # a rank

    async def succeed(self) -> None:
        """The pods are gone, others have come, and the ledger lets the ranks take their places."""
        await self.publish_pods(dict.fromkeys(LEFT, PodPhase.GONE))
        await self.make(*LEFT)
        await self.record(releases=[Release(self.gang.uid, 1, "fault", ranks=list(LEFT))])

    async def check_end(self) -> None:
        """The new pods are at their places, and nothing has touched the others."""
        for rank in STAY:
            assert await self.world.pod(f"p{rank}") == self.before[rank], "it keeps uid, node, chips and all else"
        pods = {rank: await self.world.pod(f"p{rank}") for rank in LEFT}
        assert {rank: pod["metadata"]["uid"] for rank, pod in pods.items()} == {rank: self.uids[rank] for rank in LEFT}
        assert {rank: pod["spec"]["nodeName"] for rank, pod in pods.items()} == {
            1: self.world.node(0),
            2: self.world.node(2),
        }
        notes = {rank: pod["metadata"]["annotations"] for rank, pod in pods.items()}
        assert {rank: one["huawei.com/Ascend910"] for rank, one in notes.items()} == {
            1: "Ascend910-1",
            2: "Ascend910-0",
        }
        assert {one["berth/step"] for one in notes.values()} == {"1"}
        assert {rank: one.get("reschedule-in-place") for rank, one in notes.items()} == {1: None, 2: "true"}
        assert all("deletionTimestamp" not in pod["metadata"] for pod in pods.values())


def binder_of(started: Any, cell: str, kube_server: KubeServer, folder: Path) -> Service:  # noqa: ANN401 - a factory
    settings: Tree = {
        "kube": {"kubeconfig": str(kube_server.write_kubeconfig(folder / "own", user=USER))},
        "one_at_a_time": False,
        "retry_wait_s": 0.05,
        "binds_at_once": 1,
    }
    found: Service = started.service("binder", cell, **settings)
    return found


def now_ms() -> int:
    return SystemClock().now_ms()


async def test_pods_leave_with_grace_and_others_come_in_their_places(
    world: World, kube_server: KubeServer, nats_server: str, real_bus: NatsBus, cell: str, tmp_path: Path
) -> None:
    story = Story(real_bus, world)
    with services(tmp_path, nats_server) as started:
        binder = binder_of(started, cell, kube_server, tmp_path)
        binder.start()
        await story.run()
        await story.recover("grace", until_ms=now_ms() + 3_600_000)
        await story.until_outcome(1, bound=4)
        for rank in LEFT:
            pod = await world.pod(f"p{rank}")
            meta = pod["metadata"]
            assert (meta["uid"], meta["deletionGracePeriodSeconds"]) == (story.uids[rank], 30)
            told = {one["type"]: (one["status"], one.get("reason")) for one in pod["status"]["conditions"]}
            assert told["Ready"] == ("False", "Evict")
            assert told["DisruptionTarget"] == ("True", "PreemptionByScheduler")

        async def events() -> set[tuple[str, str, str]]:
            found = await world.api.items(f"/api/v1/namespaces/{world.namespace}/events")
            return {(one["reason"], one["type"], one["message"]) for one in found}

        async def is_told() -> bool:
            return ("Evict", "Warning", CAUSE) in await events()

        await until_true(is_told, deadline_s=20, what="an Event")
        for rank in LEFT:  # the containers end
            await world.api.delete(f"{world.pods}/p{rank}?gracePeriodSeconds=0")
        await story.until_gone(*LEFT)
        await story.succeed()
        await story.until_outcome(1, done=1, bound=4)
        await story.check_end()
        await binder.stop()


async def test_a_pod_that_does_not_end_in_time_is_deleted_at_once_also_by_the_next_binder(
    world: World, kube_server: KubeServer, nats_server: str, real_bus: NatsBus, cell: str, tmp_path: Path
) -> None:
    story = Story(real_bus, world)
    with services(tmp_path, nats_server) as started:
        binder = binder_of(started, cell, kube_server, tmp_path)
        binder.start()
        await story.run()
        await story.recover("grace", until_ms=now_ms() + SOON_MS)
        await story.until_outcome(1, bound=4)
        assert not await story.is_gone(1)
        await binder.kill()
        binder.start()
        await story.until_gone(*LEFT)
        assert not any([await story.is_gone(rank) for rank in STAY])
        await story.succeed()
        await story.until_outcome(1, done=1, bound=4)
        await story.check_end()
        await binder.stop()


@pytest.mark.parametrize(("point", "count"), WHILE_LEAVING)
async def test_killed_at_any_step_of_a_recovery_the_binder_goes_on(
    world: World, kube_server: KubeServer, nats_server: str, real_bus: NatsBus, cell: str, tmp_path: Path,
    *, point: str, count: int,
) -> None:  # fmt: skip
    """No pod that stays is touched, and none that has come is deleted."""
    story = Story(real_bus, world)
    with services(tmp_path, nats_server) as started:
        binder = binder_of(started, cell, kube_server, tmp_path)
        binder.start(fault_point=f"{point}:{count}")
        await story.run()
        await story.recover("force")
        if point.startswith("leave") or count in {2, 3}:
            assert await binder.ended() < 0
            binder.start()
        await story.until_gone(*LEFT)
        await story.until_outcome(1, bound=4)
        await story.succeed()
        if binder.starts == 1:
            assert await binder.ended() < 0
            binder.start()
        await story.until_outcome(1, done=1, bound=4)
        await story.check_end()
        # Once more from the start: there is nothing left to do.
        await binder.kill()
        binder.start()
        await until(
            lambda: "ledger folded" in binder.whole_log().partition("--- start 3")[2],
            deadline_s=20,
            what="a third start",
        )
        await binder.stop()
        assert "pending=0" in binder.whole_log().partition("--- start 3")[2]
        await story.check_end()


@pytest.mark.parametrize(("point", "count"), WHILE_MARKING)
async def test_killed_while_it_marks_a_pod_the_binder_marks_it(
    world: World, kube_server: KubeServer, nats_server: str, real_bus: NatsBus, cell: str, tmp_path: Path,
    *, point: str, count: int,
) -> None:  # fmt: skip
    story = Story(real_bus, world)
    with services(tmp_path, nats_server) as started:
        binder = binder_of(started, cell, kube_server, tmp_path)
        binder.start(fault_point=f"{point}:{count}")
        await story.run()
        await story.recover("mark")
        assert await binder.ended() < 0
        binder.start()
        await story.until_outcome(1, done=1, bound=4)
        marks = [
            (await world.pod(f"p{rank}"))["metadata"]["annotations"].get("huawei.com/pod-status") for rank in range(4)
        ]
        assert marks == [None, "Unhealthy-CardUnhealthy", None, None]
        assert not any([await story.is_gone(rank) for rank in range(4)])
        await binder.stop()


async def test_a_whole_job_leaves_with_grace_and_then_at_once(
    world: World, kube_server: KubeServer, nats_server: str, real_bus: NatsBus, cell: str, tmp_path: Path
) -> None:
    story = Story(real_bus, world)
    with services(tmp_path, nats_server) as started:
        binder = binder_of(started, cell, kube_server, tmp_path)
        binder.start()
        await story.run()
        await story.recover("grace", until_ms=now_ms() + SOON_MS, scope="job")
        await story.until_outcome(0, bound=4, state="evicted")
        graces = [(await world.pod(f"p{rank}"))["metadata"]["deletionGracePeriodSeconds"] for rank in range(4)]
        assert graces == [30] * 4
        await story.until_gone(*range(4))
        await binder.stop()


async def test_agents_are_told_to_save_once_the_binder_has_the_right(
    world: World, kube_api: KubeApi, namespace: str
) -> None:
    config = BinderConfig(fault_objects=FaultObjectsConfig(written_by="berth"))
    cluster = KubeCluster(world.client, SystemClock(), config, Instruments.make(BinderMetrics))
    gang = world.gang("job", 0)
    cluster.take_members(members_of(gang, [(0, "p0", "u")], owner=Owner("AscendJob", "llm", "u")))
    maps, name = f"/api/v1/namespaces/{namespace}/configmaps", "reset-config-llm"
    data = {"reset.json": '{"RetryTime":2,"status":"x"}', "mine": "y"}
    made = await kube_api.post(maps, {"metadata": {"name": name}, "data": data})
    await cluster.request_checkpoint(gang, 1)
    assert (await kube_api.get(f"{maps}/{name}"))["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]

    await let_tell_agents(kube_api, namespace, USER)

    async def is_told() -> bool:
        await cluster.request_checkpoint(gang, 1)
        return bool(json.loads((await kube_api.get(f"{maps}/{name}"))["data"]["reset.json"]).get("GracefulExit"))

    await until_true(is_told, deadline_s=30, what="agents are told to save")
    found = (await kube_api.get(f"{maps}/{name}"))["data"]
    told = json.loads(found["reset.json"])
    assert (told["RetryTime"], told["status"], found["mine"]) == (2, "x", "y")
