"""Hot switches on a real API server: a backup pod gets a place beside the pod of its rank, and takes the rank over."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from berth.schemas.simulation import BreakNode
from tests.support.faulty_cell import (
    ASCEND_JOBS,
    RunningCell,
    Seat,
    a2_nodes,
    ascend_job,
    break_node,
    pods_of,
    rounds_of,
    seats_of,
    settings,
    statuses_of,
    steps_of,
    until_seats,
)
from tests.support.kube_api import KubeApi
from tests.support.kube_cells import KubeCell, Tree
from tests.support.waiting import until_true

pytestmark = pytest.mark.timeout(150)
LABELS: Final = {"fault-scheduling": "force", "pod-rescheduling": "on", "subHealthyStrategy": "hotSwitch"}
BOTH_MARKS: Final = {
    "metadata": {"annotations": {"needVolcanoOpe": "delete"}, "labels": {"fault-type": "SubHealth"}},
}
DEADLINE_S: Final = 30.0


class Switching:
    """A job of a master and two workers that runs, one of which is switched."""

    def __init__(self, world: KubeCell, namespace: str, old: dict[int, Seat]) -> None:
        self.world = world
        self.namespace = namespace
        self.old = old

    async def worker(self) -> Tree:
        """The pod that is switched."""
        pods = await pods_of(self.world.api, self.namespace, "llm")
        return next(pod for pod in pods if pod["metadata"]["name"] == "llm-worker-0")

    async def backup(self) -> Tree | None:
        """Its backup pod; None while there is none."""
        pods = await pods_of(self.world.api, self.namespace, "llm")
        return next((pod for pod in pods if "-hot-" in pod["metadata"]["name"]), None)

    @property
    def path(self) -> str:
        """Of the pod that is switched."""
        return f"/api/v1/namespaces/{self.namespace}/pods/llm-worker-0"

    async def make_sub_healthy(self) -> tuple[int, Tree]:
        """A chip of the pod that is switched is sub-healthy; returns its rank, and the pod."""
        old = await self.worker()
        await break_node(self.world, BreakNode(old["spec"]["nodeName"], "chip", [3], level="SubHealthFault"))
        return int(old["metadata"]["annotations"]["berth/rank"]), old

    async def begin(self) -> tuple[int, Tree]:
        """Ask the operator for a backup pod; returns the rank, and that pod once it runs."""
        return await self.ask(), await self.until_backup_runs()

    async def ask(self) -> int:
        """Ask the operator for a backup pod, as ClusterD does; returns the rank."""
        old = await self.worker()
        await self.world.api.patch(
            self.path, {"metadata": {"annotations": {"inHotSwitchFlow": "true", "needOperatorOpe": "create"}}}
        )
        return int(old["metadata"]["annotations"]["berth/rank"])

    async def until_backup_is_told(self) -> str:
        """The backup pod says why it has no place, by its condition and an Event; returns the sentence."""
        words = ""

        async def is_told() -> bool:
            nonlocal words
            self.world.check()
            pod = await self.backup() or {"metadata": {"name": ""}, "status": {}}
            conditions = {one["type"]: one for one in pod["status"].get("conditions", [])}
            scheduled = conditions.get("PodScheduled", {})
            words = scheduled.get("message", "")
            events = await self.world.api.items(f"/api/v1/namespaces/{self.namespace}/events")
            named = [(one["involvedObject"]["name"], one["reason"], one["message"]) for one in events]
            is_waiting = (scheduled.get("status"), scheduled.get("reason")) == ("False", "Unschedulable")
            return is_waiting and (pod["metadata"]["name"], "FailedScheduling", words) in named

        await until_true(is_told, deadline_s=DEADLINE_S, what="the backup pod says why it has no place")
        return words

    async def until_places(self, count: int) -> list[str]:
        """Nodes of the places that the ledger has given to backup pods, once there are so many.

        It does not matter whether all services run.
        """
        nodes: list[str] = []

        async def are_given() -> bool:
            taken = [one for one in await steps_of(self.world, "acjob.llm") if one.how == "backup"]
            nodes[:] = [name for one in taken if one.placement is not None for name in one.placement.names()]
            return len(nodes) == count

        await until_true(are_given, deadline_s=DEADLINE_S, what=f"{count} places for backup pods")
        return nodes

    async def until_backup_runs(self) -> Tree:
        found: Tree = {}

        async def runs() -> bool:
            nonlocal found
            self.world.check()
            found = await self.backup() or {}
            return bool(found) and found["status"].get("phase") == "Running"

        await until_true(runs, deadline_s=DEADLINE_S, what="the backup pod runs beside the old one")
        return found

    async def until_placed_at(self, nodes: dict[int, str]) -> None:
        """The ledger has the ranks on these nodes, nothing recovers, and there is no other request."""

        async def placed() -> bool:
            self.world.check()
            statuses = await statuses_of(self.world)
            if len(statuses) != 1:
                return False
            (status,) = statuses
            names = status.placement.names() if status.placement is not None else []
            recovery = status.recovery
            is_over = recovery is None or (recovery.placed and not recovery.open)
            return status.phase == "running" and is_over and dict(enumerate(names)) == nodes

        await until_true(placed, deadline_s=DEADLINE_S, what=f"the ranks are on {nodes}")

    async def steps(self) -> list[tuple[str, list[int]]]:
        return [(one.how, one.ranks) for one in await steps_of(self.world, "acjob.llm")]


@asynccontextmanager
async def switching(
    running: RunningCell, namespace: str, *, nodes: int = 8, **agents: object
) -> AsyncIterator[Switching]:
    """A job of three pods that runs on as many nodes as are wanted."""
    async with running(a2_nodes(nodes), settings(**agents)) as world:
        job = ascend_job("llm", 2, labels=LABELS, annotations={})
        await world.api.post(ASCEND_JOBS.format(namespace), job)
        found = Switching(world, namespace, await until_seats(world, namespace, "llm", 3))
        await found.until_placed_at({rank: seat.node for rank, seat in found.old.items()})
        yield found


async def test_a_hot_switch_moves_a_sub_healthy_pod_to_its_backup_and_all_others_stay(
    running: RunningCell, namespace: str, kube_api: KubeApi
) -> None:
    async with switching(running, namespace, recovery=True) as job:
        rank, old = await job.make_sub_healthy()

        async def is_switched() -> bool:
            job.world.check()
            now = await pods_of(kube_api, namespace, "llm")
            new = await job.backup()
            return (
                len(now) == 3
                and new is not None
                and new["status"]["phase"] == "Running"
                and "podType" not in new["metadata"]["annotations"]
            )

        await until_true(is_switched, deadline_s=DEADLINE_S, what="the backup pod has taken the place of the old one")
        new = await job.backup()
        assert new is not None
        notes = new["metadata"]["annotations"]
        assert (notes["berth/rank"], notes["berth/step"]) == (str(rank), "1")
        assert notes["berth/uid"] == old["metadata"]["annotations"]["berth/uid"]
        assert new["spec"]["nodeName"] != old["spec"]["nodeName"]
        now = seats_of(await pods_of(kube_api, namespace, "llm"))
        assert {key: seat for key, seat in now.items() if key != rank} == {
            key: seat for key, seat in job.old.items() if key != rank
        }
        await job.until_placed_at({key: seat.node for key, seat in now.items()})
        assert await job.steps() == [("backup", [rank]), ("force", [rank])]
        assert await job.world.check_chips(namespace) == 24


async def test_a_late_backup_pod_is_deleted_by_its_operator_and_nothing_of_it_remains(
    running: RunningCell, namespace: str, kube_api: KubeApi
) -> None:
    """It is placed at once, and its containers start too late."""
    agents: dict[str, Any] = {"recovery": True, "start_s": 10.0, "hot_switch_wait_s": 7.0}
    async with switching(running, namespace, **agents) as job:
        rank, _ = await job.make_sub_healthy()

        async def is_free() -> bool:
            job.world.check()
            releases = [one for record in await rounds_of(job.world) for one in record.releases]
            return [(one.reason, one.ranks) for one in releases] == [("backup", [rank])]

        await until_true(is_free, deadline_s=DEADLINE_S, what="the place of the backup pod is free again")
        assert await job.steps() == [("backup", [rank])]
        assert await job.backup() is None
        assert seats_of(await pods_of(kube_api, namespace, "llm")) == job.old
        await job.until_placed_at({key: seat.node for key, seat in job.old.items()})
        assert await job.world.check_chips(namespace) == 24


async def test_the_failure_mark_on_rank_0_restarts_the_whole_job_and_its_backup_pod_goes_too(
    running: RunningCell, namespace: str, kube_api: KubeApi
) -> None:
    """The marks are set by hand, so that the switch stays where both pods of the rank run."""
    async with switching(running, namespace) as job:
        rank, backup = await job.begin()
        assert backup["spec"]["nodeName"] not in {seat.node for seat in job.old.values()}
        assert (await job.worker())["metadata"]["uid"] == job.old[rank].uid, "both run"
        assert await job.steps() == [("backup", [rank])]
        assert await job.world.check_chips(namespace) == 32

        await kube_api.patch(f"/api/v1/namespaces/{namespace}/pods/llm-master-0", BOTH_MARKS)
        gone = frozenset({backup["metadata"]["uid"], *(seat.uid for seat in job.old.values())})
        now = await until_seats(job.world, namespace, "llm", 3, without=gone)
        await job.until_placed_at({key: seat.node for key, seat in now.items()})
        assert await job.steps() == [("backup", [rank]), ("force", [0, 1, 2])]
        assert await job.world.check_chips(namespace) == 24


@pytest.mark.processes
async def test_a_hot_switch_goes_on_after_every_service_was_started_again(
    running: RunningCell, namespace: str, kube_api: KubeApi
) -> None:
    async with switching(running, namespace) as job:
        rank, backup = await job.begin()
        for service in ("dispatcher", "binder", "inventory"):
            await job.world.restart(service)
        await kube_api.patch(job.path, BOTH_MARKS)
        now = await until_seats(job.world, namespace, "llm", 3, without=frozenset({job.old[rank].uid}))
        assert now[rank].uid == backup["metadata"]["uid"]
        assert {key: seat for key, seat in now.items() if key != rank} == {
            key: seat for key, seat in job.old.items() if key != rank
        }
        await job.until_placed_at({key: seat.node for key, seat in now.items()})
        assert await job.steps() == [("backup", [rank]), ("force", [rank])]
        assert await job.world.check_chips(namespace) == 24


async def test_a_backup_pod_without_a_place_says_why_and_gets_the_first_that_comes_free(
    running: RunningCell, namespace: str, kube_api: KubeApi
) -> None:
    async with switching(running, namespace, nodes=4) as job:
        await kube_api.post(ASCEND_JOBS.format(namespace), ascend_job("other", 0, labels={}, annotations={}))
        await until_seats(job.world, namespace, "other", 1)
        rank = await job.ask()
        words = await job.until_backup_is_told()
        assert words.startswith(f"the backup pod of rank {rank} waits for a place: ")
        (status,) = [one for one in await statuses_of(job.world) if one.backups]
        assert [one.rank for one in status.backups] == [rank]
        assert words.endswith(status.backups[0].refusal)
        assert status.sentence == words
        assert await job.steps() == []
        await kube_api.delete(f"{ASCEND_JOBS.format(namespace)}/other")
        backup = await job.until_backup_runs()
        assert backup["spec"]["nodeName"] not in {seat.node for seat in job.old.values()}
        assert await job.steps() == [("backup", [rank])]


@pytest.mark.processes
async def test_a_backup_pod_whose_place_breaks_before_it_is_bound_gets_another_one(
    running: RunningCell, namespace: str, kube_api: KubeApi
) -> None:
    """The binder is away until both places are in the ledger."""
    async with switching(running, namespace) as job:
        binder = job.world.services["binder"]
        await binder.kill()
        rank = await job.ask()
        (lost,) = await job.until_places(1)
        await break_node(job.world, BreakNode(lost, "chip", [3]))
        places = await job.until_places(2)
        binder.start()
        backup = await job.until_backup_runs()
        assert (places[0], backup["spec"]["nodeName"]) == (lost, places[1])
        assert lost != places[1]
        assert backup["metadata"]["annotations"]["berth/step"] == "2"
        assert await job.steps() == [("backup", [rank]), ("backup", [rank])]
        uid = backup["metadata"]["uid"]
        others = [one for one in await pods_of(kube_api, namespace, "llm") if one["metadata"]["uid"] != uid]
        assert seats_of(others) == job.old
        assert await job.world.check_chips(namespace) == 32
