"""Hot switches on a real API server: a backup pod gets a place beside the pod of its rank, and takes the rank over."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from berth.runtime.bus.nats_bus import NatsBus
from berth.schemas.envelope import body_of, open_envelope
from berth.schemas.ledger import Round
from berth.schemas.simulation import BreakNode
from berth.schemas.subjects import StreamName
from tests.support.faulty_cell import (
    ASCEND_JOBS,
    Seat,
    ascend_job,
    break_node,
    pods_of,
    seats_of,
    settings,
    start,
    statuses_of,
    until_seats,
)
from tests.support.kube_api import KubeApi
from tests.support.kube_cells import KubeCell, Tree
from tests.support.processes import services
from tests.support.waiting import until_true

pytestmark = pytest.mark.timeout(150)
TOPOLOGY: Final = """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {product: module910bx8, count: COUNT, name: "a2-{index:02}", leaf: {size: 4, name: "leaf-{index}"}}
"""
LABELS: Final = {"fault-scheduling": "force", "pod-rescheduling": "on", "subHealthyStrategy": "hotSwitch"}
PODS: Final = "/api/v1/namespaces/{}/pods"
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

    async def begin(self) -> int:
        """Ask the operator for a backup pod by hand, so that the switch stays where both pods run; returns the rank."""
        pod = await self.worker()
        begin = {"metadata": {"annotations": {"inHotSwitchFlow": "true", "needOperatorOpe": "create"}}}
        await self.world.api.patch(f"{PODS.format(self.namespace)}/llm-worker-0", begin)
        return int(pod["metadata"]["annotations"]["berth/rank"])

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

    async def until_steps(self, *wanted: tuple[str, list[int]]) -> None:
        """The ledger has these steps; whether all services run is not asked."""

        async def are_taken() -> bool:
            return await self.steps() == list(wanted)

        await until_true(are_taken, deadline_s=DEADLINE_S, what=f"steps {wanted}")

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

    async def rounds(self) -> list[Round]:
        envelopes = [open_envelope(stored.data) for stored in await self.world.bus.read(StreamName.LEDGER)]
        return [body_of(envelope, Round) for envelope in envelopes if envelope.kind == Round.KIND]

    async def steps(self) -> list[tuple[str, list[int]]]:
        return [(one.how, one.ranks) for record in await self.rounds() for one in record.recoveries]


@asynccontextmanager
async def switching(
    kube_api: KubeApi, namespace: str, bus: NatsBus, url: str, cell: str, folder: Path, nodes: int = 8, **agents: object
) -> AsyncIterator[Switching]:
    """A job of three pods that runs on as many nodes as are wanted."""
    topology = TOPOLOGY.replace("COUNT", str(nodes))
    with services(folder, url) as made:
        world = KubeCell(
            made, folder=folder, cell=cell, bus=bus, api=kube_api, topology=topology, settings=settings(**agents)
        )
        await start(world)
        await kube_api.post(ASCEND_JOBS.format(namespace), ascend_job("llm", 2, labels=LABELS, annotations={}))
        old = await until_seats(world, namespace, "llm", 3)
        found = Switching(world, namespace, old)
        await found.until_placed_at({rank: seat.node for rank, seat in old.items()})
        yield found
        await world.stop()


async def test_a_hot_switch_moves_a_sub_healthy_pod_to_its_backup_and_all_others_stay(
    kube_api: KubeApi, namespace: str, real_bus: NatsBus, nats_server: str, cell: str, tmp_path: Path
) -> None:
    async with switching(kube_api, namespace, real_bus, nats_server, cell, tmp_path, recovery=True) as job:
        old = await job.worker()
        rank = int(old["metadata"]["annotations"]["berth/rank"])
        await break_node(job.world, BreakNode(old["spec"]["nodeName"], "chip", [3], level="SubHealthFault"))

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
    kube_api: KubeApi, namespace: str, real_bus: NatsBus, nats_server: str, cell: str, tmp_path: Path
) -> None:
    """It is placed at once, and its containers start too late."""
    agents: dict[str, Any] = {"recovery": True, "start_s": 10.0, "hot_switch_wait_s": 7.0}
    async with switching(kube_api, namespace, real_bus, nats_server, cell, tmp_path, **agents) as job:
        old = await job.worker()
        rank = int(old["metadata"]["annotations"]["berth/rank"])
        await break_node(job.world, BreakNode(old["spec"]["nodeName"], "chip", [3], level="SubHealthFault"))

        async def is_free() -> bool:
            job.world.check()
            releases = [one for record in await job.rounds() for one in record.releases]
            return [(one.reason, one.ranks) for one in releases] == [("backup", [rank])]

        await until_true(is_free, deadline_s=DEADLINE_S, what="the place of the backup pod is free again")
        assert await job.steps() == [("backup", [rank])]
        assert await job.backup() is None
        assert seats_of(await pods_of(kube_api, namespace, "llm")) == job.old
        await job.until_placed_at({key: seat.node for key, seat in job.old.items()})
        assert await job.world.check_chips(namespace) == 24


async def test_the_failure_mark_on_rank_0_restarts_the_whole_job_and_its_backup_pod_goes_too(
    kube_api: KubeApi, namespace: str, real_bus: NatsBus, nats_server: str, cell: str, tmp_path: Path
) -> None:
    """The marks are set by hand, so that the switch stays where both pods of the rank run."""
    async with switching(kube_api, namespace, real_bus, nats_server, cell, tmp_path) as job:
        old = await job.worker()
        rank = int(old["metadata"]["annotations"]["berth/rank"])
        path = f"{PODS.format(namespace)}/llm-worker-0"
        begin = {"metadata": {"annotations": {"inHotSwitchFlow": "true", "needOperatorOpe": "create"}}}
        await kube_api.patch(path, begin)
        backup = await job.until_backup_runs()
        assert backup["spec"]["nodeName"] not in {seat.node for seat in job.old.values()}
        assert (await job.worker())["metadata"]["uid"] == job.old[rank].uid, "both run"
        assert await job.steps() == [("backup", [rank])]
        assert await job.world.check_chips(namespace) == 32

        await kube_api.patch(f"{PODS.format(namespace)}/llm-master-0", BOTH_MARKS)
        gone = frozenset({backup["metadata"]["uid"], *(seat.uid for seat in job.old.values())})
        now = await until_seats(job.world, namespace, "llm", 3, without=gone)
        await job.until_placed_at({key: seat.node for key, seat in now.items()})
        assert await job.steps() == [("backup", [rank]), ("force", [0, 1, 2])]
        assert await job.world.check_chips(namespace) == 24


async def test_a_hot_switch_goes_on_after_every_service_was_started_again(
    kube_api: KubeApi, namespace: str, real_bus: NatsBus, nats_server: str, cell: str, tmp_path: Path
) -> None:
    async with switching(kube_api, namespace, real_bus, nats_server, cell, tmp_path) as job:
        old = await job.worker()
        rank = int(old["metadata"]["annotations"]["berth/rank"])
        path = f"{PODS.format(namespace)}/llm-worker-0"
        begin = {"metadata": {"annotations": {"inHotSwitchFlow": "true", "needOperatorOpe": "create"}}}
        await kube_api.patch(path, begin)
        backup = await job.until_backup_runs()
        for service in ("dispatcher", "binder", "inventory"):
            await job.world.restart(service)
        await kube_api.patch(path, BOTH_MARKS)
        now = await until_seats(job.world, namespace, "llm", 3, without=frozenset({job.old[rank].uid}))
        assert now[rank].uid == backup["metadata"]["uid"]
        assert {key: seat for key, seat in now.items() if key != rank} == {
            key: seat for key, seat in job.old.items() if key != rank
        }
        await job.until_placed_at({key: seat.node for key, seat in now.items()})
        assert await job.steps() == [("backup", [rank]), ("force", [rank])]
        assert await job.world.check_chips(namespace) == 24


async def test_a_backup_pod_without_a_place_says_why_and_gets_the_first_that_comes_free(
    kube_api: KubeApi, namespace: str, real_bus: NatsBus, nats_server: str, cell: str, tmp_path: Path
) -> None:
    async with switching(kube_api, namespace, real_bus, nats_server, cell, tmp_path, nodes=4) as job:
        await kube_api.post(ASCEND_JOBS.format(namespace), ascend_job("other", 0, labels={}, annotations={}))
        await until_seats(job.world, namespace, "other", 1)
        rank = await job.begin()
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


async def test_a_backup_pod_whose_place_breaks_before_it_is_bound_gets_another_one(
    kube_api: KubeApi, namespace: str, real_bus: NatsBus, nats_server: str, cell: str, tmp_path: Path
) -> None:
    """The binder is away until both places are in the ledger."""
    async with switching(kube_api, namespace, real_bus, nats_server, cell, tmp_path) as job:
        binder = job.world.services["binder"]
        await binder.kill()
        rank = await job.begin()
        await job.until_steps(("backup", [rank]))
        places = [one.placement for record in await job.rounds() for one in record.recoveries]
        assert places[0] is not None
        (lost,) = places[0].names()
        await break_node(job.world, BreakNode(lost, "chip", [3]))
        await job.until_steps(("backup", [rank]), ("backup", [rank]))
        binder.start()
        backup = await job.until_backup_runs()
        places = [one.placement for record in await job.rounds() for one in record.recoveries]
        assert places[1] is not None
        backup_name = backup["metadata"]["name"]
        assert [backup["spec"]["nodeName"]] == places[1].names() != [lost]
        assert backup["metadata"]["annotations"]["berth/step"] == "2"
        others = [one for one in await pods_of(kube_api, namespace, "llm") if one["metadata"]["name"] != backup_name]
        assert seats_of(others) == job.old
        assert await job.world.check_chips(namespace) == 32
