"""Owners that change while their pods wait or run, on a real API server with the controllers of Kubernetes.

Owners are read again after an hour here: where no pod comes or goes, only watches can show a change in time.
"""

from pathlib import Path
from typing import Any, Final

import pytest

from berth.runtime.bus.nats_bus import NatsBus
from berth.schemas.envelope import decode, encode
from berth.schemas.facts import OutcomeSeen
from berth.schemas.intake import JobCancel
from berth.schemas.status import JobStatus
from berth.schemas.subjects import StreamName
from berth.services.inventory.gangs.settings import GangSettings
from tests.support.inventories import DEADLINE_S, Heard, bind_pod, dispatcher, inventory, make_node, pod_of, set_phase
from tests.support.kube_api import KubeApi
from tests.support.kube_cells import a_volcano_job
from tests.support.waiting import until_true

SEEN_S: Final = 10.0
"""An owner that changed is seen long before; the machine may be busy."""
SETTINGS: Final = GangSettings(scheduler_names=("berth",), look_again_s=3_600)
QUEUE: Final = "scheduling.volcano.sh/queue-name"
JOBS: Final = "/apis/batch/v1/namespaces/{}/jobs"
DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/{}/deployments"
VOLCANO_JOBS: Final = "/apis/batch.volcano.sh/v1alpha1/namespaces/{}/jobs"
PODS: Final = "/api/v1/namespaces/{}/pods"


class Owners:
    """A namespace with owners of pods, and what an inventory says of them."""

    def __init__(self, api: KubeApi, bus: NatsBus, namespace: str) -> None:
        self.api = api
        self.bus = bus
        self.namespace = namespace
        self.heard = Heard(bus)

    async def make(self, collection: str, body: dict[str, Any]) -> dict[str, Any]:
        return await self.api.post(collection.format(self.namespace), body)

    async def change(self, collection: str, name: str, patch: dict[str, Any]) -> None:
        await self.api.patch(f"{collection.format(self.namespace)}/{name}", patch)

    async def requested(self, *wanted: tuple[int, str], deadline_s: float = SEEN_S) -> None:
        """Wait until the requests so far have these numbers of pods and these queues."""

        async def are_there() -> bool:
            found = await self.heard.requests()
            return [(sum(task.replicas for task in one.tasks), one.queue) for one in found] == list(wanted)

        await until_true(are_there, deadline_s=deadline_s, what=f"requests {wanted}")

    async def cancelled(self, reason: str) -> None:
        """Wait until a request is cancelled for a reason."""
        subjects = (f"{self.bus.subjects.root}intake.cancel.>",)

        async def is_there() -> bool:
            found = await self.heard.all(StreamName.INTAKE, JobCancel, subjects)
            return reason in [one.reason for one in found]

        await until_true(is_there, deadline_s=SEEN_S, what=f"a cancellation: {reason}")

    async def has_phase(self, job: str, phase: str) -> JobStatus:
        found: list[JobStatus] = []

        async def is_so() -> bool:
            stored = await self.bus.last(StreamName.STATUS, self.bus.subjects.status(self.namespace, job))
            found[:] = [decode(stored.data, JobStatus)] if stored is not None else []
            return [one.phase for one in found] == [phase]

        await until_true(is_so, deadline_s=DEADLINE_S, what=f"{job} is {phase}")
        return found[0]


@pytest.fixture
def owners(kube_api: KubeApi, real_bus: NatsBus, namespace: str) -> Owners:
    return Owners(kube_api, real_bus, namespace)


def a_template(policy: str) -> dict[str, Any]:
    spec = pod_of("any")["spec"]
    return {"metadata": {"labels": {"app": "a"}}, "spec": {**spec, "restartPolicy": policy}}


async def test_a_job_is_scaled_and_suspended_while_it_waits(
    nats_server: str, cell: str, owners: Owners, kubeconfig: Path
) -> None:
    await make_node(owners.api, "n1")
    spec = {"parallelism": 2, "completions": 3, "completionMode": "Indexed", "template": a_template("Never")}
    await owners.make(JOBS, {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": spec})
    async with inventory(nats_server, cell, kubeconfig, gangs=SETTINGS):
        await owners.requested((2, "default"), deadline_s=DEADLINE_S)
        await owners.heard.quiet()
        await owners.change(JOBS, "j", {"spec": {"parallelism": 3}})
        await owners.requested((2, "default"), (3, "default"))
        await owners.change(JOBS, "j", {"spec": {"suspend": True}})
        await owners.cancelled("its job is suspended")
        await owners.heard.quiet()
        await owners.change(JOBS, "j", {"spec": {"suspend": False}})
        await owners.requested((2, "default"), (3, "default"), (3, "default"))


async def test_a_deployment_that_waits_is_scaled_and_named_another_queue(
    nats_server: str, cell: str, owners: Owners, kubeconfig: Path
) -> None:
    """Its queue comes to its ReplicaSet, and no pod shows it."""
    await make_node(owners.api, "n1")
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "a"}}, "template": a_template("Always")}
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}
    await owners.make(DEPLOYMENTS, body)
    async with inventory(nats_server, cell, kubeconfig, gangs=SETTINGS):
        await owners.requested((2, "default"), deadline_s=DEADLINE_S)
        await owners.heard.quiet()
        await owners.change(DEPLOYMENTS, "d", {"spec": {"replicas": 3}})
        await owners.requested((2, "default"), (3, "default"))
        await owners.heard.quiet()
        await owners.change(DEPLOYMENTS, "d", {"metadata": {"annotations": {QUEUE: "gold"}}})
        await owners.requested((2, "default"), (3, "default"), (3, "gold"))


async def test_the_minimum_of_a_volcano_job_is_changed_while_its_pods_run(
    nats_server: str, cell: str, owners: Owners, kubeconfig: Path
) -> None:
    """A rank that it has lost comes before other work only as long as the job is below its minimum."""
    api, pods = owners.api, PODS.format(owners.namespace)
    await make_node(api, "n1", chips=8)
    made = await owners.make(VOLCANO_JOBS, a_volcano_job("v", 3, 2))

    async def make_pod(name: str, index: int) -> None:
        pod = pod_of(name)
        owner = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "v", "controller": True}
        pod["metadata"] |= {
            "labels": {"volcano.sh/task-index": str(index)},
            "annotations": {"volcano.sh/task-spec": "worker"},
            "ownerReferences": [owner | {"uid": made["metadata"]["uid"]}],
        }
        await api.post(pods, pod)

    async def is_fragile(wanted: list[bool]) -> None:
        async def is_so() -> bool:
            return [one.is_fragile for one in await owners.heard.requests()] == wanted

        await until_true(is_so, deadline_s=SEEN_S, what=f"requests with precedence {wanted}")
        await owners.heard.quiet()

    for index in range(3):
        await make_pod(f"v-worker-{index}", index)
    async with dispatcher(nats_server, cell), inventory(nats_server, cell, kubeconfig, gangs=SETTINGS):
        placed = await owners.has_phase("vcjob.v", "placed")
        assert placed.placement is not None
        for rank, chips in enumerate(placed.placement.chips_by_rank()):
            names = ",".join(f"Ascend910-{chip}" for chip in chips)
            own = {"berth__job": placed.name, "berth__uid": placed.uid, "berth__attempt": "1", "berth__rank": str(rank)}
            name = f"v-worker-{rank}"
            await bind_pod(api, owners.namespace, name, "n1", **own, **{"huawei.com__Ascend910": names})
            await set_phase(api, owners.namespace, name, "Running")
        bound = OutcomeSeen(owners.namespace, placed.name, placed.uid, 1, "bound", bound=3)
        await owners.bus.publish(owners.bus.subjects.fact_outcome(owners.namespace, placed.name), encode(bound))
        await owners.has_phase("vcjob.v", "running")
        await owners.heard.quiet()
        await api.post(pods, pod_of("other", scheduler="volcano", chips=4))
        await bind_pod(api, owners.namespace, "other", "n1")
        await owners.heard.quiet()
        await api.delete(f"{pods}/v-worker-2")
        await make_pod("v-worker-2", 2)
        await is_fragile([False, True])
        await owners.change(VOLCANO_JOBS, "v", {"spec": {"minAvailable": 2}})
        await is_fragile([False, True, False])
