"""One pod through both scheduling processes, object by object; two equal pods; every service killed in every step.

Source: docs/reference/kubernetes.md, "Life of a pod", "Life of a pod with reported lists" and "Gaps of the hand-off".
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from berth.core.cluster.node_packing import unpack_health
from berth.formats.ascend.check_code import check_code
from berth.formats.ascend.pod_annotations import ASCEND_REAL, CONFIGURATION_910, CONSUMED, KLT_DEV, PREDICATE_TIME
from berth.formats.kubernetes.objects import Pod
from berth.lab.servers.kube_server import ADMIN
from berth.runtime.bus.nats_bus import NatsBus
from berth.schemas.envelope import decode
from berth.schemas.facts import HealthSeen
from berth.schemas.nodes import NodeCondition
from berth.schemas.subjects import StreamName
from tests.support.inventories import set_phase
from tests.support.kube_api import KubeApi
from tests.support.kube_cells import ORDER, KubeCell, Tree, a_volcano_job, chips_of
from tests.support.kube_history import History, recording
from tests.support.processes import Services, services
from tests.support.waiting import until, until_true

pytestmark = pytest.mark.timeout(240)
RESOURCE = "huawei.com/Ascend910"
TRIES = 12
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces"
ONE_NODE = """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {product: module910bx8, name: only}
"""


class Bench:
    """What a test of this file works with."""

    def __init__(self, made: Services, api: KubeApi, bus: NatsBus, cell: str, namespace: str, folder: Path) -> None:
        self.api = api
        self.bus = bus
        self.namespace = namespace
        self.folder = folder
        self._made = made
        self._cell = cell

    def cell(self, topology: str = ONE_NODE, **settings: dict[str, object]) -> KubeCell:
        return KubeCell(
            self._made,
            folder=self.folder,
            cell=self._cell,
            bus=self.bus,
            api=self.api,
            topology=topology,
            settings=settings,
        )

    async def submit(self, job: Tree) -> Tree:
        return await self.api.post(f"{JOBS}/{self.namespace}/jobs", job)

    async def device_list(self, node: str) -> dict[str, str]:
        """Device list of a node's ConfigMap, whose checksum must be right."""
        found = await self.api.get(f"/api/v1/namespaces/kube-system/configmaps/mindx-dl-deviceinfo-{node}")
        told = json.loads(found["data"]["DeviceInfoCfg"])
        info = told["DeviceInfo"]
        assert told["CheckCode"] == check_code({"DeviceList": info["DeviceList"], "UpdateTime": info["UpdateTime"]})
        devices: dict[str, str] = info["DeviceList"]
        return devices

    async def condition(self, node: str) -> NodeCondition | None:
        """Health of a node as the latest fact has it."""
        for stored in await self.bus.read(StreamName.LATEST, filters=(self.bus.subjects.facts("health"),)):
            for condition in unpack_health(decode(stored.data, HealthSeen)):
                if condition.name == node:
                    return condition
        return None


@pytest.fixture
def bench(
    kube_api: KubeApi, real_bus: NatsBus, nats_server: str, cell: str, namespace: str, tmp_path: Path
) -> Iterator[Bench]:
    with services(tmp_path, nats_server) as made:
        yield Bench(made, kube_api, real_bus, cell, namespace, tmp_path)


def first(versions: list[Pod], key: str) -> int:
    """Number of the first version that has an annotation."""
    return next(number for number, pod in enumerate(versions) if pod.metadata.annotation(key))


def phases(history: History, name: str) -> list[str]:
    """Phases of a PodGroup as they followed one another."""
    found: list[str] = []
    for group in history.groups.of.get(name, ()):
        if not found or found[-1] != group.status.phase:
            found.append(group.status.phase)
    return found


RUNS = (["Inqueue", "Running"], ["Inqueue", "Running", "Completed"])
"""Phases of a PodGroup after those before its admission."""


def is_over(history: History) -> bool:
    """Whether the end of a pod was seen, so that all its versions were."""
    return any(versions[-1].status.phase == "Succeeded" for versions in history.pods.of.values())


async def until_complete(bench: Bench, job: str) -> None:
    """Wait until the summary of a job says that it is complete."""
    path = f"/api/v1/namespaces/{bench.namespace}/configmaps/job-summary-{job}"

    async def is_told() -> bool:
        return (await bench.api.data(path)).get("job_status") == "complete"

    await until_true(is_told, deadline_s=20, what=f"the summary says that {job} is complete")


async def test_process_1_object_by_object(bench: Bench) -> None:
    cell = bench.cell()
    assert ADMIN not in cell.users.values(), "services have the rights that k8s/ grants, and no more"
    await cell.start()
    node = await bench.api.get("/api/v1/nodes/only")
    assert node["status"]["capacity"][RESOURCE] == node["status"]["allocatable"][RESOURCE] == "8"
    assert sorted(json.loads(node["metadata"]["annotations"]["baseDeviceInfos"])) == [
        f"Ascend910-{n}" for n in range(8)
    ]
    assert len((await bench.device_list("only"))[RESOURCE].split(",")) == 8
    async with recording(bench.api, bench.folder, bench.namespace) as history:
        job = await bench.submit(a_volcano_job("one", 1, 2, run_for="12s"))
        group = f"one-{job['metadata']['uid']}"
        await cell.until_pods(bench.namespace, {"Succeeded": 1})
        await until(
            lambda: group in history.groups.gone, deadline_s=20, what="the PodGroup of the job that is over is gone"
        )
        await until(lambda: is_over(history), deadline_s=20, what="the watch has shown the end of the pod")
        # 3 and 4: no pod before the group is let in
        assert phases(history, group)[0] in {"", "Pending"}
        # Its controller may delete it before it is completed.
        assert [phase for phase in phases(history, group)[1:] if phase != "Pending"][:3] in RUNS
        let_in = next(item for item in history.groups.of[group] if item.status.phase == "Inqueue")
        (name,) = history.pods.of
        versions = history.pods.of[name]
        assert int(versions[0].metadata.resource_version) > int(let_in.metadata.resource_version)
        assert (versions[0].spec.node_name, versions[0].status.phase, versions[0].spec.scheduler_name) == (
            "",
            "Pending",
            "berth",
        )
        # 7: the record of the chips and the binding are one
        bound = next(number for number, pod in enumerate(versions) if pod.spec.node_name)
        assert (
            bound == first(versions, PREDICATE_TIME) == first(versions, RESOURCE) == first(versions, "distributed-job")
        )
        meta = versions[bound].metadata
        assert (versions[bound].spec.node_name, meta.annotation("distributed-job")) == ("only", "false")
        assert meta.annotation(RESOURCE) == "Ascend910-0,Ascend910-1"
        assert 1_700_000_000_000_000_000 < int(meta.annotation(PREDICATE_TIME)) < 2**63
        # 10 and 11: the device plug-in has found the pod
        consumed = next(n for n, pod in enumerate(versions) if pod.metadata.annotation(PREDICATE_TIME) == CONSUMED)
        assert consumed > bound
        # 13: what is really mounted, one period later
        told = first(versions, ASCEND_REAL)
        assert told > bound
        assert versions[told].metadata.annotation(ASCEND_REAL) == "Ascend910-0,Ascend910-1"
        assert len(versions[-1].metadata.annotation(KLT_DEV).split(",")) == 2
        configuration = json.loads(versions[-1].metadata.annotation(CONFIGURATION_910))
        assert [device["device_id"] for device in configuration["devices"]] == ["0", "1"]
        assert configuration["server_id"] == versions[0].metadata.uid
        # 15: the summary
        await until_complete(bench, "one")
        # 16: the chips are free again
        await bench.submit(a_volcano_job("two", 1, 8, run_for="60s"))
        await cell.until_pods(bench.namespace, {"Succeeded": 1, "Running": 1})
        assert await cell.check_chips(bench.namespace) == 8
    await cell.stop()


async def test_process_2_object_by_object(bench: Bench) -> None:
    cell = bench.cell(
        health={"self_maintain_available_card": False},
        nodesim={"agents": {"report_s": 1.5}},
    )
    await cell.start()
    # 2: the plug-in's own list is what is free
    assert len((await bench.device_list("only"))[RESOURCE].split(",")) == 8
    await bench.submit(a_volcano_job("one", 1, 2, run_for="600s"))
    await bench.submit(a_volcano_job("other", 1, 2, run_for="600s"))
    pods = await cell.until_pods(bench.namespace, {"Running": 2})
    # Between the binding and the next report the list shows chips that are taken: nobody gets them.
    assert chips_of(pods[0]) & chips_of(pods[1]) == 0
    assert [pod["metadata"]["annotations"][PREDICATE_TIME] for pod in pods] == [CONSUMED] * 2

    # 8: the report follows, and so does what the node withholds
    async def reported() -> bool:
        return len((await bench.device_list("only"))[RESOURCE].split(",")) == 4

    await until_true(reported, deadline_s=20, what="the list is shorter by four chips")

    async def withheld(mask: int) -> bool:
        condition = await bench.condition("only")
        return condition is not None and condition.withheld == mask

    both = chips_of(pods[0]) | chips_of(pods[1])
    await until_true(lambda: withheld(both), deadline_s=20, what="the chips are withheld")
    await set_phase(bench.api, bench.namespace, pods[0]["metadata"]["name"], "Succeeded")
    await cell.until_pods(bench.namespace, {"Running": 1, "Succeeded": 1})
    await until_true(lambda: withheld(chips_of(pods[1])), deadline_s=20, what="two chips are free again")
    await bench.submit(a_volcano_job("third", 1, 4, run_for="600s"))
    await cell.until_pods(bench.namespace, {"Running": 2, "Succeeded": 1})
    assert await cell.check_chips(bench.namespace) == 6
    await cell.stop()


async def test_equal_pods_on_a_node_are_not_swapped(bench: Bench) -> None:
    cell = _shuffling(bench, one_at_a_time=True)
    await cell.start()
    await bench.submit(a_volcano_job("pairs", 4, 2))
    pods = await cell.until_pods(bench.namespace, {"Running": 4})
    assert {pod["spec"]["nodeName"] for pod in pods} == {"only"}
    assert (await cell.counts()).swapped == 0
    assert await cell.check_chips(bench.namespace) == 8
    assert len({pod["metadata"]["annotations"][RESOURCE] for pod in pods}) == 4
    await cell.stop()


async def test_without_the_setting_equal_pods_are_swapped(bench: Bench) -> None:
    cell = _shuffling(bench, one_at_a_time=False)
    await cell.start()
    # Kubelet looks at pods in an order of its own, which now and then is the order of the bindings.
    for number in range(TRIES):
        await bench.submit(a_volcano_job(f"pairs-{number}", 4, 2, run_for="0.5s"))
        await cell.until_pods(bench.namespace, {"Succeeded": 4 * (number + 1)})
        if (await cell.counts()).swapped:
            break
    assert (await cell.counts()).swapped > 0, "this is what the setting prevents"
    await cell.stop()


def _shuffling(bench: Bench, *, one_at_a_time: bool) -> KubeCell:
    """A cell whose kubelet takes pods as they come to its mind."""
    return bench.cell(
        binder={"one_at_a_time": one_at_a_time},
        nodesim={"agents": {"admit_s": 0.5, "shuffle_allocate": True, "seed": 3}},
    )


@pytest.mark.processes
async def test_every_service_is_killed_in_every_step(bench: Bench) -> None:
    """Every chip has one owner in the end, and every pod runs once."""
    topology = ONE_NODE.replace("name: only", "count: 3, name: 'n-{index}'")
    cell = bench.cell(topology)
    await cell.start()
    path = f"/api/v1/namespaces/{bench.namespace}/pods"

    async def made() -> bool:
        return len(await bench.api.items(path)) >= expected

    async def bound() -> bool:
        return sum(bool(pod["spec"].get("nodeName")) for pod in await bench.api.items(path)) >= expected

    async def some_bound() -> bool:
        return sum(bool(pod["spec"].get("nodeName")) for pod in await bench.api.items(path)) > expected - 2

    async def at_once() -> bool:
        return True

    expected = 0
    for step, reached in (("created", at_once), ("let in", made), ("binding", some_bound), ("bound", bound)):
        expected += 2
        await bench.submit(a_volcano_job(step.replace(" ", "-"), 2, 2, run_for="600s"))
        await until_true(reached, deadline_s=40, what=f"the job is {step}")
        for name in ORDER:
            await cell.restart(name)
        await cell.until_pods(bench.namespace, {"Running": expected}, deadline_s=60)
        assert await cell.check_chips(bench.namespace) == 2 * expected
    for step in ("created", "let-in", "binding", "bound"):
        status = await cell.until_status(bench.namespace, f"vcjob.{step}", "running")
        assert status.attempt == 1
    for name in ORDER:
        await cell.restart(name)
        await bench.api.delete(f"{JOBS}/{bench.namespace}/jobs/created")
    await cell.until_pods(bench.namespace, {"Running": 6}, deadline_s=60)
    await bench.submit(a_volcano_job("after", 1, 8, run_for="600s"))
    await cell.until_pods(bench.namespace, {"Running": 7}, deadline_s=60)
    assert await cell.check_chips(bench.namespace) == 20
    await cell.stop()
