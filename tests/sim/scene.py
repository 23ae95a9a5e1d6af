"""A scene: all services and the cluster below on virtual time, and a script of what its users and controllers do."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from berth.core.cluster.node_packing import unpack_health
from berth.core.explain.job_status import status_of
from berth.formats.ascend.pod_annotations import ASCEND_REAL, GROUP_NAME
from berth.formats.clusters.topology_file import parse_cluster
from berth.schemas.envelope import decode
from berth.schemas.facts import HealthSeen
from tests.sim.cell import CellSettings, SimCell
from tests.sim.kube import finished
from tests.sim.loop import SimLoop
from tests.sim.observer import Observer

CHIPS: Final = "huawei.com/Ascend910"
PRODUCT: Final = "module-910b-8"
"""Value of ``accelerator-type`` of the nodes of a topology."""
NAMESPACE: Final = "/api/v1/namespaces/ns"
PODS: Final = f"{NAMESPACE}/pods"
GROUPS: Final = "/apis/scheduling.volcano.sh/v1beta1/namespaces/ns/podgroups"
ALONE: Final[dict[str, list[str]]] = {"controllers": []}
"""Agents of nodes alone: the script plays the controllers."""
_FOREVER: Final = {"berth/run-for": "forever"}
_REJECT_S: Final = 0.02
"""Time in which a kubelet looks at a pod, before the simulated ones do."""
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
        rejects: Reason and message with which the kubelet of a node rejects each pod that is bound to it, by node.
    """

    def __init__(self, cluster: str, *, seed: int = 1, **settings: Any) -> None:  # noqa: ANN401 - fields of the settings
        self._loop = SimLoop(seed)
        self.cell = SimCell(self._loop, seed, parse_cluster(cluster), CellSettings(dispatchers=1, **settings))
        self.kube = self.cell.kube
        self.deleted: list[str] = []
        self.rejects: dict[str, tuple[str, str]] = {}
        self._observer = Observer(self.cell.ground.cell)
        self.cell.server.on_store = self._observer.stored
        self.kube.on_change = self._changed

    def play(self, script: Callable[["Scene"], Awaitable[None]], *, twice: bool = False) -> None:
        """Play a script once the services work; a failure of the cell or of its observer fails the test.

        Args:
            script: What happens.
            twice: The script lets two pods say that they have one chip.
        """

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
        seen = [one for one in self._observer.failures if not (twice and one.kind == "two live pods have one chip")]
        found = [*seen, *self.cell.failures]
        assert not found, [(one.kind, one.details) for one in found]

    @property
    def now_s(self) -> float:
        """Virtual time."""
        return self._loop.now_s

    async def after(self, seconds: float) -> None:
        """Let time pass."""
        await asyncio.sleep(seconds)

    def put(self, path: str, body: Tree) -> Tree:
        """Make or replace an object, as a controller does."""
        return self.kube.put(path, body)

    def patch(self, path: str, body: Tree) -> None:
        """Change an object."""
        finished(self.kube.patch(path, body))

    def pod(
        self,
        name: str,
        chips: int,
        *,
        owner: Tree | None = None,
        group: str = "",
        node: str = "",
        marks: Tree | None = None,
        spec: Tree | None = None,
        product: str = PRODUCT,
    ) -> None:
        """Make a pod that runs for ever.

        Args:
            name: Its name.
            chips: Chips that it asks for.
            owner: Its controller.
            group: Volcano PodGroup that it names; empty for none.
            node: Node on which another scheduler has put it; empty: it is for Berth.
            marks: More labels and annotations.
            spec: More fields of its spec.
            product: Value of ``accelerator-type`` of the nodes on which it may be.
        """
        given = marks or {}
        named = {GROUP_NAME: group} if group else {}
        annotations = {**_FOREVER, **named, **given.get("annotations", {})}
        metadata: Tree = {"name": name, "annotations": annotations, "labels": given.get("labels", {})}
        if owner is not None:
            metadata["ownerReferences"] = [owner]
        where = {"nodeName": node, "schedulerName": "default-scheduler"} if node else {}
        body = {"metadata": metadata, "spec": _spec(chips, product) | where | (spec or {})}
        finished(self.kube.create(PODS, body))

    def group(self, name: str, least: int, *, owner: Tree | None = None, spec: Tree | None = None) -> None:
        """Make a Volcano PodGroup; ``spec``: more fields of its spec."""
        metadata: Tree = {"name": name, "annotations": {}, "labels": {}}
        if owner is not None:
            metadata["ownerReferences"] = [owner]
        self.put(
            GROUPS, {"metadata": metadata, "spec": {"minMember": least} | (spec or {}), "status": {"phase": "Pending"}}
        )

    def node_of(self, pod: str) -> str:
        """Node of a pod; empty without one."""
        return str(self.kube.object(f"{PODS}/{pod}")["spec"].get("nodeName", ""))

    def why(self, pod: str) -> str:
        """Message of the condition that a pod is not scheduled; empty without one."""
        conditions = self.kube.object(f"{PODS}/{pod}")["status"].get("conditions", [])
        return next(
            (str(one["message"]) for one in conditions if one["type"] == "PodScheduled" and "message" in one), ""
        )

    def decided(self) -> list[str]:
        """Nodes of all ranks that have a place in the ledger, sorted."""
        self._observer.catch_up()
        holdings = self._observer.state.fold.holdings.values()
        return sorted(name for holding in holdings for name in holding.placement.names())

    def said_of(self, node: str) -> str:
        """Why a node is not well, as ``berth nodes`` says."""
        stored = self._observer.facts
        facts = {one.subject: one.data for one in stored if ".fact.health." in one.subject}
        rows = [row for data in facts.values() for row in unpack_health(decode(data, HealthSeen))]
        return next((row.reason for row in rows if row.name == node), "")

    def running(self) -> list[str]:
        """Pods that run on a node, sorted."""
        pods = self.kube.objects(PODS)
        return sorted(
            pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName") and _phase(pod) == "Running"
        )

    def chips_of(self, pod: str) -> str:
        """Chips that a pod has mounted, as its annotation says; before that those that were decided."""
        marks = self.kube.object(f"{PODS}/{pod}")["metadata"]["annotations"]
        return str(marks.get(ASCEND_REAL) or marks.get(CHIPS, ""))

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
        if place.plural != "pods" or old is None or new is None:
            return
        if "deletionTimestamp" in new["metadata"] and "deletionTimestamp" not in old["metadata"]:
            self.deleted.append(new["metadata"]["name"])
        if not old["spec"].get("nodeName") and new["spec"].get("nodeName") in self.rejects:
            self._loop.call_later(_REJECT_S, self._reject, new, context=self.cell.server.lane.context)

    def _reject(self, pod: Tree) -> None:
        reason, message = self.rejects[pod["spec"]["nodeName"]]
        status = {"phase": "Failed", "reason": reason, "message": message}
        self.patch(f"{PODS}/{pod['metadata']['name']}/status", {"status": status})


def a_volcano_job(name: str, replicas: int, *, chips: int) -> Tree:
    """A Volcano Job of one task, ``worker``, all of whose pods start together and run for ever."""
    template = {"metadata": {"annotations": dict(_FOREVER)}, "spec": _spec(chips)}
    task = {"name": "worker", "replicas": replicas, "template": template}
    return {
        "metadata": {"name": name},
        "spec": {"schedulerName": "berth", "minAvailable": replicas, "maxRetry": 3, "tasks": [task]},
    }


def _spec(chips: int, product: str = PRODUCT) -> Tree:
    asked = {CHIPS: str(chips)} if chips else {}
    resources = {"requests": {"cpu": "1", "memory": "1Gi", **asked}, "limits": asked}
    return {
        "schedulerName": "berth",
        "restartPolicy": "Never",
        "nodeSelector": {"accelerator-type": product},
        "containers": [{"name": "main", "image": "none:1", "resources": resources}],
    }


def owned_by(made: Tree, kind: str, version: str) -> Tree:
    """Reference to a controller."""
    metadata = made["metadata"]
    return {"apiVersion": version, "kind": kind, "name": metadata["name"], "uid": metadata["uid"], "controller": True}


def _phase(pod: Tree) -> str:
    return "" if "deletionTimestamp" in pod["metadata"] else str(pod.get("status", {}).get("phase", ""))
