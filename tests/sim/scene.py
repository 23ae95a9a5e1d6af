"""A scene: all services and the cluster below on virtual time, and a script of what its users and controllers do."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from berth.core.explain.job_status import status_of
from berth.formats.ascend.pod_annotations import GROUP_NAME
from berth.formats.clusters.topology_file import parse_cluster
from tests.sim.cell import CellSettings, SimCell
from tests.sim.kube import finished
from tests.sim.loop import SimLoop
from tests.sim.observer import Observer

CHIPS: Final = "huawei.com/Ascend910"
NAMESPACE: Final = "/api/v1/namespaces/ns"
PODS: Final = f"{NAMESPACE}/pods"
GROUPS: Final = "/apis/scheduling.volcano.sh/v1beta1/namespaces/ns/podgroups"
_FOREVER: Final = {"berth/run-for": "forever"}
_BEGIN_S: Final = 8.0
"""Time in which the services have started and know the cluster."""
Tree: TypeAlias = dict[str, Any]


def topology(count: int, product: str = "module910bx8") -> str:
    """A cluster of equal nodes, ``n0`` and so on."""
    return f"""
apiVersion: berth/v1
kind: Cluster
nodes:
  - {{product: {product}, count: {count}, name: "n{{index}}"}}
"""


class Scene:
    """A cell of one dispatcher.

    Args:
        cluster: The topology.
        seed: Of all choices.
        settings: Settings of the services.

    Attributes:
        deleted: Names of pods that somebody asked to end, in that order.
    """

    def __init__(self, cluster: str, *, seed: int = 1, **settings: Any) -> None:  # noqa: ANN401 - fields of the settings
        self._loop = SimLoop(seed)
        self.cell = SimCell(self._loop, seed, parse_cluster(cluster), CellSettings(dispatchers=1, **settings))
        self.kube = self.cell.kube
        self.deleted: list[str] = []
        self._observer = Observer(self.cell.ground.cell)
        self.cell.server.on_store = self._observer.stored
        self.kube.on_change = self._changed

    def play(self, script: Callable[["Scene"], Awaitable[None]]) -> None:
        """Play a script once the services work; a failure of the cell or of its observer fails the test."""

        async def go() -> None:
            self.kube.put("/api/v1/namespaces", {"metadata": {"name": "ns"}})
            for name in self.cell.names:
                self.cell.start(name)
            await asyncio.sleep(_BEGIN_S)
            await script(self)

        try:
            self._loop.run_until_complete(go())
        finally:
            for process in list(self.cell.processes.values()):
                process.die("the end")
            self._loop.kill(self._loop.main)
            self._loop.bury()
            self._loop.close()
        found = [*self._observer.failures, *self.cell.failures]
        assert not found, [(one.kind, one.details) for one in found]

    async def after(self, seconds: float) -> None:
        """Let time pass."""
        await asyncio.sleep(seconds)

    def put(self, path: str, body: Tree) -> Tree:
        """Make or replace an object, as a controller does."""
        return self.kube.put(path, body)

    def patch(self, path: str, body: Tree) -> None:
        """Change an object."""
        finished(self.kube.patch(path, body))

    def pod(self, name: str, chips: int, *, owner: Tree | None = None, group: str = "") -> None:
        """Make a pod that runs for ever, of a Volcano PodGroup if one is named."""
        marks = {GROUP_NAME: group} if group else {}
        metadata: Tree = {"name": name, "annotations": {**_FOREVER, **marks}, "labels": {}}
        if owner is not None:
            metadata["ownerReferences"] = [owner]
        finished(self.kube.create(PODS, {"metadata": metadata, "spec": _spec(chips)}))

    def group(self, name: str, least: int, *, owner: Tree | None = None) -> None:
        """Make a Volcano PodGroup."""
        metadata: Tree = {"name": name, "annotations": {}, "labels": {}}
        if owner is not None:
            metadata["ownerReferences"] = [owner]
        self.put(GROUPS, {"metadata": metadata, "spec": {"minMember": least}, "status": {"phase": "Pending"}})

    def node_of(self, pod: str) -> str:
        """Node of a pod; empty without one."""
        return str(self.kube.object(f"{PODS}/{pod}")["spec"].get("nodeName", ""))

    def running(self) -> list[str]:
        """Pods that run on a node, sorted."""
        pods = self.kube.objects(PODS)
        return sorted(
            pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName") and _phase(pod) == "Running"
        )

    def events(self, reason: str) -> list[tuple[str, str]]:
        """Names of the objects of Events with a reason, and the messages, sorted."""
        found = self.kube.objects(f"{NAMESPACE}/events")
        return sorted((one["involvedObject"]["name"], one["message"]) for one in found if one["reason"] == reason)

    def phases(self) -> dict[str, str]:
        """Phase of each job, by name."""
        self._observer.catch_up()
        state = self._observer.state
        found = {name: status_of(state, (namespace, name), at_ms=0) for namespace, name in sorted(state.jobs)}
        return {name: status.phase for name, status in found.items() if status is not None}

    def _changed(self, place: Any, old: Tree | None, new: Tree | None) -> None:  # noqa: ANN401 - as SimKube calls it
        self._observer.changed(place, old, new)
        is_asked = old is not None and new is not None and "deletionTimestamp" not in old["metadata"]
        if place.plural == "pods" and is_asked and new is not None and "deletionTimestamp" in new["metadata"]:
            self.deleted.append(new["metadata"]["name"])


def a_volcano_job(name: str, replicas: int, *, chips: int) -> Tree:
    """A Volcano Job of one task, ``worker``, all of whose pods start together and run for ever."""
    template = {"metadata": {"annotations": dict(_FOREVER)}, "spec": _spec(chips)}
    task = {"name": "worker", "replicas": replicas, "template": template}
    return {
        "metadata": {"name": name},
        "spec": {"schedulerName": "berth", "minAvailable": replicas, "maxRetry": 3, "tasks": [task]},
    }


def _spec(chips: int) -> Tree:
    resources = {"requests": {"cpu": "1", "memory": "1Gi", CHIPS: str(chips)}, "limits": {CHIPS: str(chips)}}
    return {
        "schedulerName": "berth",
        "restartPolicy": "Never",
        "nodeSelector": {"accelerator-type": "module-910b-8"},
        "containers": [{"name": "main", "image": "none:1", "resources": resources}],
    }


def owned_by(made: Tree, kind: str, version: str) -> Tree:
    """Reference to a controller."""
    metadata = made["metadata"]
    return {"apiVersion": version, "kind": kind, "name": metadata["name"], "uid": metadata["uid"], "controller": True}


def _phase(pod: Tree) -> str:
    return "" if "deletionTimestamp" in pod["metadata"] else str(pod.get("status", {}).get("phase", ""))
