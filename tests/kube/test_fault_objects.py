"""ConfigMaps about faults on a real API server, by the rights that ``k8s/`` gives: foreign keys and other writers."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.clock import SystemClock
from berth.runtime.errors import FatalError
from berth.runtime.instruments import Instruments
from berth.runtime.kube.client import KubeApi as Client
from berth.runtime.kube.config import FaultObjectsConfig, KubeConfig
from berth.schemas.envelope import encode
from berth.schemas.recovery import RecoveryStatus
from berth.schemas.status import JobStatus
from berth.services.summary.app import write_on
from berth.services.summary.config import SummaryConfig
from berth.services.summary.metrics import SummaryMetrics
from tests.support.kube_api import MERGE_PATCH, KubeApi
from tests.support.kube_rights import FAULT_OBJECTS, grant, let_tell_agents
from tests.support.waiting import until_true

pytestmark = pytest.mark.timeout(120)
COUNTERS: Final = "/api/v1/namespaces/volcano-system/configmaps"
COUNTER: Final = f"{COUNTERS}/vcjob-fault-npu-cm"
REASON: Final = "/api/v1/namespaces/mindx-dl/configmaps/job-reschedule-reason"
SINCE_MS: Final = 1_763_640_001_000
OTHER: Final = "vc-scheduler"
_READS: Final = 2


@asynccontextmanager
async def writing(api: KubeApi, bus: NatsBus, folder: Path) -> AsyncIterator[None]:
    """Summary runs with its own rights while the block runs."""
    kubeconfig = api.server.write_kubeconfig(folder / "summary", user="summary")
    config = SummaryConfig(
        settle_s=0.05,
        tor_share_namespace="",
        fault_objects=FaultObjectsConfig(written_by="berth"),
    )
    stop, clock = asyncio.Event(), SystemClock()
    kube = KubeConfig(kubeconfig=kubeconfig)
    async with (
        await Client.connect(kube, clock=clock, user_agent="berth-summary") as client,
        asyncio.TaskGroup() as group,
    ):
        group.create_task(write_on(client, bus, clock, config, Instruments.make(SummaryMetrics), stop))
        try:
            yield
        finally:
            stop.set()


@asynccontextmanager
async def disturbed(api: KubeApi, path: str) -> AsyncIterator[None]:
    """Another client changes a ConfigMap all the time while the block runs, as the device plug-in does.

    Between two writes it reads as often as ``_READS`` says: a client that wrote again at once would let nobody else
    through, for whoever reads and writes needs two round trips without a foreign write in between.
    """
    stop = asyncio.Event()

    async def disturb() -> None:
        count = 0
        while not stop.is_set():
            count += 1
            await write_as_other(api, path, {"plugin": str(count)})
            for _ in range(_READS):
                await data(api, path)

    async with asyncio.TaskGroup() as group:
        group.create_task(disturb())
        try:
            yield
        finally:
            stop.set()


async def rights(api: KubeApi, namespace: str) -> None:
    """Give summary its rights, those in the namespace of the jobs included, as the guide says."""
    await grant(api, "summary", "summary")
    await grant(api, "summary", "summary", FAULT_OBJECTS)
    await let_tell_agents(api, namespace, "summary")


async def data(api: KubeApi, path: str) -> dict[str, str]:
    """Data of a ConfigMap; none where it does not exist."""
    folder, _, name = path.rpartition("/")
    found = await api.items(folder, fieldSelector=f"metadata.name={name}")
    told: dict[str, str] = found[0].get("data", {}) if found else {}
    return told


async def until_retries(api: KubeApi, key: str, times: int) -> None:
    async def told() -> bool:
        text = (await data(api, COUNTER)).get("remain-retry-times") or "{}"
        counters = json.loads(text)
        return list(counters) == [key] and counters[key]["Times"] == times and key.endswith(counters[key]["UUID"])

    await until_true(told, deadline_s=20, what=f"{times} retries of {key}")


async def until_told(api: KubeApi, key: str, pod: dict[str, str]) -> None:
    async def told() -> bool:
        reasons = json.loads((await data(api, REASON)).get("recent-reschedule-records") or "{}")
        records = reasons.get(key, {}).get("RescheduleRecords", [])
        return [record["ReasonOfTask"] for record in records] == [[pod]]

    await until_true(told, deadline_s=20, what=f"a restart because of {pod}")


async def until_no_counter(api: KubeApi) -> None:
    async def gone() -> bool:
        return (await data(api, COUNTER))["remain-retry-times"] == ""

    await until_true(gone, deadline_s=20, what="the counter goes with the job")


async def until_restarted(api: KubeApi, path: str, times: int) -> None:
    async def told() -> bool:
        return bool(json.loads((await data(api, path))["reset.json"])["RetryTime"] == times)

    await until_true(told, deadline_s=20, what=f"restart {times} is told to the agents")


async def write_as_other(api: KubeApi, path: str, values: dict[str, str]) -> None:
    await api.call("PATCH", path, {"data": values}, params={"fieldManager": OTHER}, content_type=MERGE_PATCH)


async def a_job(api: KubeApi, namespace: str) -> str:
    """Make the owner, without which the garbage collector deletes what it owns; returns its uid."""
    body = {"apiVersion": "mindxdl.gitee.com/v1", "kind": "AscendJob", "metadata": {"name": "llm"}, "spec": {}}
    made = await api.post(f"/apis/mindxdl.gitee.com/v1/namespaces/{namespace}/ascendjobs", body)
    return str(made["metadata"]["uid"])


def owner_of(uid: str) -> dict[str, object]:
    return {"apiVersion": "mindxdl.gitee.com/v1", "kind": "AscendJob", "name": "llm", "uid": uid, "controller": True}


def a_group(uid: str, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": f"llm-{uid}", "ownerReferences": [owner_of(uid)], "labels": labels},
        "spec": {"minMember": 2},
        "status": {"phase": "Running"},
    }


def a_pod(uid: str, name: str, rank: int) -> dict[str, Any]:
    annotations = {
        "scheduling.k8s.io/group-name": f"llm-{uid}",
        "hccl/rankIndex": str(rank),
        "berth/job": "acjob.llm",
        "berth/uid": "u1",
        "berth/attempt": "1",
        "berth/rank": str(rank),
    }
    return {
        "metadata": {"name": name, "annotations": annotations, "ownerReferences": [owner_of(uid)]},
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "none"}]},
    }


def recovering(step: int, *, is_over: bool, retries_left: int = -1) -> RecoveryStatus:
    return RecoveryStatus(
        step=step,
        scope="pod",
        how="force",
        kind="pod-failed",
        cause="pod of rank 1: it failed",
        ranks=[1],
        faulty=[1],
        since_ms=SINCE_MS + 1_000 * step,
        attempt=1,
        nodes=["n1"],
        retries_left=retries_left,
        placed=is_over,
        open=[] if is_over else [1],
    )


async def test_counters_reasons_and_agents_are_told_beside_keys_and_writes_of_others(
    kube_api: KubeApi, namespace: str, real_bus: NatsBus, tmp_path: Path
) -> None:
    await rights(kube_api, namespace)
    uid = await a_job(kube_api, namespace)
    bus, key = real_bus, f"{namespace}/llm-{uid}"
    await bus.ensure_streams()
    await kube_api.post(COUNTERS, {"metadata": {"name": "vcjob-fault-npu-cm"}, "data": {"foreign": "x"}})
    groups = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{namespace}/podgroups"
    await kube_api.post(groups, a_group(uid, **{"fault-retry-times": "3"}))
    await kube_api.post(f"/api/v1/namespaces/{namespace}/pods", a_pod(uid, "llm-worker-1", 1))
    reset = f"/api/v1/namespaces/{namespace}/configmaps/reset-config-llm"
    first = {"reset.json": '{"RetryTime":1,"status":"initializing"}', "foreign": "y"}
    await kube_api.post(reset.rpartition("/")[0], {"metadata": {"name": "reset-config-llm"}, "data": first})

    async def status(found: RecoveryStatus) -> None:
        told = JobStatus(namespace, "acjob.llm", "u1", "running", 1, 1, attempt=1, recovery=found)
        await bus.publish(bus.subjects.status(namespace, "acjob.llm"), encode(told))

    async with writing(kube_api, bus, tmp_path):
        await until_retries(kube_api, key, 3)
        await status(recovering(1, is_over=False, retries_left=2))
        pod = {"PodName": "llm-worker-1", "NodeName": "n1", "NodeRankIndex": "1"}
        await until_told(kube_api, key, {"RescheduleReason": "pod-failed", **pod})
        await kube_api.delete(f"/api/v1/namespaces/{namespace}/pods/llm-worker-1")
        await until_retries(kube_api, key, 2)
        async with disturbed(kube_api, reset):
            for step in range(2, 6):
                await status(recovering(step, is_over=True))
                await until_restarted(kube_api, reset, step)
        found = await kube_api.get(reset)
        assert found["metadata"]["labels"] == {"reset": "true"}
        assert found["data"]["restartType"] == "podReschedule"
        assert (found["data"]["foreign"], int(found["data"]["plugin"]) > 1) == ("y", True)
        assert json.loads(found["data"]["reset.json"])["status"] == "initializing"

        # Another scheduler's write is undone, and its own keys stay.
        await write_as_other(kube_api, COUNTER, {"remain-retry-times": "", "theirs": "z"})
        await until_retries(kube_api, key, 2)
        counters = await data(kube_api, COUNTER)
        assert (counters["foreign"], counters["theirs"], counters["fault-node"]) == ("x", "z", "")
    async with writing(kube_api, bus, tmp_path):  # its own writes are newer than those of the other
        await kube_api.delete(f"{groups}/llm-{uid}")
        await until_no_counter(kube_api)


async def test_a_start_is_refused_while_another_scheduler_writes(
    kube_api: KubeApi, namespace: str, real_bus: NatsBus, tmp_path: Path
) -> None:
    await rights(kube_api, namespace)
    await real_bus.ensure_streams()
    body = {"metadata": {"name": "vcjob-fault-npu-cm"}, "data": {"foreign": "x"}}
    await kube_api.post(COUNTERS, body)
    async with writing(kube_api, real_bus, tmp_path):

        async def written() -> bool:
            return "remain-retry-times" in await data(kube_api, COUNTER)

        await until_true(written, deadline_s=20, what="a client that wrote other keys is no other writer")
    await write_as_other(kube_api, COUNTER, {"fault-node": "[]"})
    with pytest.raises(ExceptionGroup) as caught:
        async with writing(kube_api, real_bus, tmp_path):
            await asyncio.Event().wait()
    (error,) = caught.value.exceptions
    assert isinstance(error, FatalError)
    assert f"{OTHER} wrote fault-node of ConfigMap volcano-system/vcjob-fault-npu-cm" in error.reason
    assert (await data(kube_api, COUNTER))["fault-node"] == "[]"
