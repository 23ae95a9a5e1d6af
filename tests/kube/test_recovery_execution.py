"""The binder carries recoveries out on a real API server: pods leave and others come, and killed anywhere it goes on.

The records are those of a dispatcher, and the facts those of an inventory; the test writes both.
"""

import json
from typing import Any, Final

import pytest

from berth.runtime.clock import SystemClock
from berth.runtime.fault_points import RECOVERY_POINTS
from berth.runtime.instruments import Instruments
from berth.runtime.kube.config import FaultObjectsConfig
from berth.schemas.facts import Owner
from berth.services.binder.config import BinderConfig
from berth.services.binder.kube_cluster import KubeCluster
from berth.services.binder.metrics import BinderMetrics
from tests.support.binder_cluster import USER, World
from tests.support.binder_story import CAUSE, LEFT, STAY, Story
from tests.support.kube_api import KubeApi
from tests.support.kube_binder import members_of
from tests.support.kube_rights import let_tell_agents
from tests.support.processes import Service
from tests.support.waiting import until, until_true

Tree = dict[str, Any]
pytestmark = pytest.mark.timeout(120)
SOON_MS: Final = 15_000
"""Until pods are deleted at once; long enough to see before that they were asked to end."""
WHILE_LEAVING: Final = [
    ("outcome.after", 2), ("leave.before", 2), ("leave.after", 2), ("outcome.before", 3), ("outcome.after", 3),
    ("bind.before", 5), ("bind.after", 5), ("outcome.before", 4), ("outcome.after", 4),
]  # fmt: skip
"""Points at which the binder is killed; before it has bound four pods and said so."""
WHILE_MARKING: Final = [("mark.before", 1), ("mark.after", 1)]


def test_every_point_is_tried() -> None:
    assert {point for point, _ in [*WHILE_LEAVING, *WHILE_MARKING]} >= set(RECOVERY_POINTS)


def now_ms() -> int:
    return SystemClock().now_ms()


async def test_pods_leave_with_grace_and_others_come_in_their_places(story: Story, binder: Service) -> None:
    binder.start()
    await story.run()
    await story.recover("grace", until_ms=now_ms() + 3_600_000)
    await story.until_outcome(1, bound=4)
    for rank in LEFT:
        pod = await story.world.pod(f"p{rank}")
        meta = pod["metadata"]
        assert (meta["uid"], meta["deletionGracePeriodSeconds"]) == (story.uids[rank], 30)
        told = {one["type"]: (one["status"], one.get("reason")) for one in pod["status"]["conditions"]}
        assert told["Ready"] == ("False", "Evict")
        assert told["DisruptionTarget"] == ("True", "PreemptionByScheduler")

    async def events() -> set[tuple[str, str, str]]:
        found = await story.world.api.items(f"/api/v1/namespaces/{story.world.namespace}/events")
        return {(one["reason"], one["type"], one["message"]) for one in found}

    async def is_told() -> bool:
        return ("Evict", "Warning", CAUSE) in await events()

    await until_true(is_told, deadline_s=20, what="an Event")
    for rank in LEFT:  # the containers end
        await story.world.api.delete(f"{story.world.pods}/p{rank}?gracePeriodSeconds=0")
    await story.until_gone(*LEFT)
    await story.succeed()
    await story.until_outcome(1, done=1, bound=4)
    await story.check_end()
    await binder.stop()


async def test_a_pod_that_does_not_end_in_time_is_deleted_at_once_also_by_the_next_binder(
    story: Story, binder: Service
) -> None:
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
    story: Story,
    binder: Service,
    *,
    point: str,
    count: int,
) -> None:
    """No pod that stays is touched, and none that has come is deleted."""
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
    story: Story,
    binder: Service,
    *,
    point: str,
    count: int,
) -> None:
    binder.start(fault_point=f"{point}:{count}")
    await story.run()
    await story.recover("mark")
    assert await binder.ended() < 0
    binder.start()
    await story.until_outcome(1, done=1, bound=4)
    marks = [
        (await story.world.pod(f"p{rank}"))["metadata"]["annotations"].get("huawei.com/pod-status") for rank in range(4)
    ]
    assert marks == [None, "Unhealthy-CardUnhealthy", None, None]
    assert not any([await story.is_gone(rank) for rank in range(4)])
    await binder.stop()


async def test_a_whole_job_leaves_with_grace_and_then_at_once(story: Story, binder: Service) -> None:
    binder.start()
    await story.run()
    await story.recover("grace", until_ms=now_ms() + SOON_MS, scope="job")
    await story.until_outcome(0, bound=4, state="evicted")
    graces = [(await story.world.pod(f"p{rank}"))["metadata"]["deletionGracePeriodSeconds"] for rank in range(4)]
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
