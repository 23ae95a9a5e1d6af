"""A cell on a real API server that recovers jobs from faults, and what tests see of the jobs."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from berth.core.cluster.node_packing import unpack_health
from berth.runtime.bus.nats_bus import NatsBus
from berth.schemas.envelope import body_of, decode, encode, open_envelope
from berth.schemas.facts import HealthSeen
from berth.schemas.ledger import Round
from berth.schemas.nodes import NodeCondition
from berth.schemas.recovery import Recovery
from berth.schemas.simulation import BreakNode, NodeBroken
from berth.schemas.status import JobStatus
from berth.schemas.subjects import StreamName
from tests.support.kube_api import KubeApi
from tests.support.kube_cells import KubeCell, Tree, a_spec, a_volcano_job, chips_of
from tests.support.kube_rights import FAULT_OBJECTS, grant
from tests.support.processes import services
from tests.support.waiting import until_true

JOBS: Final = "/apis/batch.volcano.sh/v1alpha1/namespaces/{}/jobs"
ASCEND_JOBS: Final = "/apis/mindxdl.gitee.com/v1/namespaces/{}/ascendjobs"
GROUPS: Final = "/apis/scheduling.volcano.sh/v1beta1/namespaces/{}/podgroups"
COUNTERS: Final = "/api/v1/namespaces/volcano-system/configmaps"
REASONS: Final = "/api/v1/namespaces/mindx-dl/configmaps"
DEADLINE_S: Final = 30.0
FAULTS: Final = {
    "escalate_block_ms": 1_000,
    "escalate_superpod_ms": 2_000,
    "escalate_job_ms": 4_000,
}
"""Settings of decisions."""
TOPOLOGY: Final = """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {product: module910bx8, count: 12, name: "a2-{index:02}", leaf: {size: 4, name: "leaf-{index}"}}
"""


def a2_nodes(count: int) -> str:
    """Topology with so many Atlas 800T A2 nodes below leaf switches of four."""
    return TOPOLOGY.replace("count: 12", f"count: {count}")


Ask = Callable[..., Awaitable[Any]]
"""Calls the command line with these words; returns the document that it prints."""


class Seat(NamedTuple):
    """A bound pod."""

    uid: str
    node: str
    chips: int


def settings(**agents: object) -> dict[str, Mapping[str, object]]:
    """Settings of the services: faults are handled, and told to others.

    Args:
        agents: Settings ``agents`` of nodesim.
    """
    return {
        "dispatcher": {"decisions": FAULTS},
        "summary": {"fault_objects": {"written_by": "berth"}, "settle_s": 0.05},
        "nodesim": {"agents": agents, "run_default_s": 3_600},
    }


class RunningCell(Protocol):
    """A cell that runs while the block does, on the API server and the bus of the test; it must end well."""

    def __call__(
        self, topology: str = TOPOLOGY, own: Mapping[str, Mapping[str, object]] | None = None
    ) -> AbstractAsyncContextManager[KubeCell]:
        """The cell.

        Args:
            topology: The simulated cluster.
            own: Settings of the services; None for those of :func:`settings`.
        """


def running_cell(api: KubeApi, bus: NatsBus, *, url: str, cell: str, folder: Path) -> RunningCell:
    """What makes a cell of all services run."""

    @asynccontextmanager
    async def running(
        topology: str = TOPOLOGY, own: Mapping[str, Mapping[str, object]] | None = None
    ) -> AsyncIterator[KubeCell]:
        with services(folder, url) as made:
            world = KubeCell(
                made,
                folder=folder,
                cell=cell,
                bus=bus,
                api=api,
                topology=topology,
                settings=settings() if own is None else own,
            )
            await start(world)
            yield world
            await world.stop()

    return running


async def start(world: KubeCell) -> None:
    """Start a cell; summary may write the ConfigMaps about faults."""
    await grant(world.api, "summary", "summary", FAULT_OBJECTS)
    await world.start()


async def submit(world: KubeCell, namespace: str, name: str, replicas: int, **labels: str) -> str:
    """Make a Volcano job of pods with all chips of a node, which run for an hour.

    Args:
        world: The cell.
        namespace: Of the job.
        name: Of the job.
        replicas: Its pods.
        labels: More labels of it; ``_`` stands for ``-``, and a label with an empty value is left out.

    Returns:
        Its uid.
    """
    job = a_volcano_job(name, replicas, 8, run_for="3600s")
    job["metadata"]["labels"] |= {key.replace("_", "-"): value for key, value in labels.items() if value}
    return str((await world.api.post(JOBS.format(namespace), job))["metadata"]["uid"])


async def submit_pod(world: KubeCell, namespace: str, name: str) -> None:
    """Make a pod that stands alone, with all chips of a node: unlike a PodGroup it asks even if no chip is free."""
    metadata = {"name": name, "annotations": {"berth/run-for": "3600s"}}
    await world.api.post(f"/api/v1/namespaces/{namespace}/pods", {"metadata": metadata, "spec": a_spec(8)})


def ascend_job(name: str, workers: int, *, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Tree:
    """An AscendJob with a master and workers, each with all chips of a node."""
    specs = {
        kind: {"replicas": count, "restartPolicy": "Never", "template": {"spec": a_spec(8)}}
        for kind, count in (("Master", 1), ("Worker", workers))
    }
    return {
        "apiVersion": "mindxdl.gitee.com/v1",
        "kind": "AscendJob",
        "metadata": {"name": name, "labels": dict(labels), "annotations": dict(annotations)},
        "spec": {
            "schedulerName": "berth",
            "runPolicy": {"schedulingPolicy": {"minAvailable": workers + 1}},
            "replicaSpecs": specs,
        },
    }


async def pods_of(api: KubeApi, namespace: str, job: str) -> list[Tree]:
    """Pods of a job, by name; the pod of this name, if it stands alone."""
    found = await api.items(f"/api/v1/namespaces/{namespace}/pods")
    return [pod for pod in found if (pod["metadata"].get("ownerReferences") or [pod["metadata"]])[0]["name"] == job]


def seats_of(pods: list[Tree]) -> dict[int, Seat]:
    """Running pods by rank."""
    return {
        int(pod["metadata"]["annotations"]["berth/rank"]): Seat(
            pod["metadata"]["uid"], pod["spec"]["nodeName"], chips_of(pod)
        )
        for pod in pods
        if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
    }


async def until_seats(
    world: KubeCell, namespace: str, job: str, count: int, *, without: frozenset[str] = frozenset()
) -> dict[int, Seat]:
    """Wait until so many pods of a job run, and none of the pods named (uid) is there; returns them by rank.

    Raises:
        AssertionError: They do not in time; shows pods, status and logs.
    """
    found: dict[int, Seat] = {}
    pods: list[Tree] = []

    async def there() -> bool:
        nonlocal found, pods
        world.check()
        pods = await pods_of(world.api, namespace, job)
        found = seats_of(pods)
        return len(found) == len(pods) == count and not without & {seat.uid for seat in found.values()}

    try:
        await until_true(there, deadline_s=DEADLINE_S, what=f"{count} pods of {job} run")
    except AssertionError as error:
        lines = [f"{pod['metadata']['name']}: {pod['status']} {pod['metadata'].get('annotations')}" for pod in pods]
        statuses = [one for one in await statuses_of(world) if one.name.endswith(job)]
        raise AssertionError("\n".join([str(error), *lines, str(statuses), world.logs()])) from error
    return found


async def statuses_of(world: KubeCell) -> list[JobStatus]:
    """Statuses of all jobs."""
    return [decode(stored.data, JobStatus) for stored in await world.bus.read(StreamName.STATUS)]


async def steps_of(world: KubeCell, job: str) -> list[Recovery]:
    """Steps of all recoveries of a job (its name in Berth) in the ledger, oldest first."""
    return [step for record in await rounds_of(world) for step in record.recoveries if step.name == job]


async def rounds_of(world: KubeCell) -> list[Round]:
    """All rounds of the ledger, oldest first."""
    envelopes = [open_envelope(stored.data) for stored in await world.bus.read(StreamName.LEDGER)]
    return [body_of(one, Round) for one in envelopes if one.kind == Round.KIND]


async def break_node(world: KubeCell, wish: BreakNode) -> None:
    """Break or repair something of the simulated cluster."""
    answer = await world.bus.request(world.bus.subjects.sim("break"), encode(wish), timeout_s=5)
    assert decode(answer, NodeBroken).reason == ""


async def conditions_of(world: KubeCell) -> dict[str, NodeCondition]:
    """Conditions of nodes by the newest facts, by name."""
    stored = await world.bus.read(StreamName.LATEST, filters=(world.bus.subjects.facts("health"),))
    return {one.name: one for fact in stored for one in unpack_health(decode(fact.data, HealthSeen))}


async def unusable_chips(world: KubeCell, node: str) -> int:
    """Mask of the chips of a node that the newest facts call unhealthy or withheld."""
    condition = (await conditions_of(world)).get(node)
    return condition.unhealthy | condition.withheld if condition is not None else 0


async def sub_healthy_chips(world: KubeCell, node: str) -> int:
    """Mask of the chips of a node that the newest facts call sub-healthy."""
    condition = (await conditions_of(world)).get(node)
    return condition.sub_healthy if condition is not None else 0


async def told(api: KubeApi, folder: str, name: str, key: str) -> dict[str, Any]:
    """JSON in a key of a ConfigMap; nothing where it is missing or empty."""
    for item in await api.items(folder, fieldSelector=f"metadata.name={name}"):
        found: dict[str, Any] = json.loads(item.get("data", {}).get(key) or "{}")
        return found
    return {}
