"""A whole cell on a real API server: its services as processes or as one, and a simulated cluster below."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from berth.core.cluster.node_packing import unpack_health, unpack_nodes
from berth.formats.ascend.device_list import chip_mask
from berth.formats.ascend.pod_annotations import ASCEND_REAL, RESOURCE_PREFIX
from berth.formats.clusters.topology_file import parse_cluster
from berth.lab.servers.kube_server import ADMIN, KubeServer
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.errors import TransientError
from berth.schemas.envelope import decode
from berth.schemas.facts import HealthSeen, NodesSeen
from berth.schemas.simulation import SimCounts
from berth.schemas.status import JobStatus
from berth.schemas.subjects import StreamName
from tests.support.kube_api import KubeApi
from tests.support.kube_rights import grant
from tests.support.processes import Services
from tests.support.waiting import until, until_true

ORDER: Final = ("nodesim", "dispatcher", "inventory", "health", "binder", "summary")
"""Services in the order in which they are started."""
ON_KUBERNETES: Final = frozenset({"nodesim", "inventory", "health", "binder", "summary"})
TOPOLOGY: Final = """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {product: module910bx8, count: 4, name: "a2-{index}", leaf: {size: 2}}
"""
READY_S: Final = 40.0
NO_REPORT: Final = "no report"
"""In the reason of a node of which the health service has read no report yet."""
M = TypeVar("M", NodesSeen, HealthSeen)
Tree = dict[str, Any]


class KubeCell:
    """The services of a cell, not started yet.

    Args:
        made: Makes processes.
        folder: Where files go.
        cell: Name of the cell.
        bus: A connection to the cell.
        server: The API server.
        api: Calls as admin.
        topology: The simulated cluster.
        settings: Settings of services, by name; they stand beside what the cell needs.
        users: User by whose rights a service calls the API server, by name. For those left out it is the user of the
            service's own name, who is given the rights that ``k8s/`` gives to the service; admin where the server has
            none.
    """

    def __init__(
        self,
        made: Services,
        *,
        folder: Path,
        cell: str,
        bus: NatsBus,
        api: KubeApi,
        topology: str = TOPOLOGY,
        settings: Mapping[str, Mapping[str, object]] | None = None,
        users: Mapping[str, str] | None = None,
    ) -> None:
        self.bus = bus
        self.api = api
        self.users = {name: name if name in api.server.users else ADMIN for name in ON_KUBERNETES} | dict(users or {})
        self._granted: set[str] = set()
        self.kubeconfigs = {name: _kubeconfig(api.server, folder, self.users[name]) for name in sorted(ON_KUBERNETES)}
        sections: dict[str, Mapping[str, object]] = {}
        self._nodes = frozenset(node.name for node in parse_cluster(topology).nodes)
        self._has_reports = (settings or {}).get("health", {}).get("source", "direct") == "direct"
        file = folder / f"{cell}.yaml"
        file.write_text(topology)
        for name in ORDER:
            own: dict[str, object] = dict((settings or {}).get(name, {}))
            if name in ON_KUBERNETES:
                own.setdefault("kube", {"kubeconfig": self.kubeconfigs[name]})
            if name == "dispatcher":
                own["decisions"] = {"needs_health": True, **_section(own.get("decisions"))}
            if name == "nodesim":
                own.setdefault("topology_file", file)
                own.setdefault("terminating_s", 0.1)
                own["agents"] = {
                    "report_s": 0.2,
                    "start_s": 0.05,
                    "admit_s": 0.05,
                    "controllers": ["volcano", "ascend"],
                    **_section(own.get("agents")),
                }
            sections[name] = own
        self.services = made.cell(cell, sections)

    async def start(self, *names: str) -> None:
        """Start services, all of them when none is named; then wait until the cell stands."""
        for name in names or ORDER:
            if self.users.get(name) == name and name not in self._granted:
                await grant(self.api, name, name)
                self._granted.add(name)
        for name in names or ORDER:
            self.services[name].start()
        if not names:
            await self.until_stands()

    async def until_stands(self) -> None:
        """Wait until all simulated nodes and the reports about them are facts, and somebody decides.

        A test that begins earlier finds a part of the cluster, and what it reports of a node itself is overwritten.

        Raises:
            AssertionError: They are not in time; shows the nodes that lack something, and logs.
        """
        lacking: set[str] = set()

        async def stand() -> bool:
            nonlocal lacking
            self.check()
            try:
                lacking = set(self._nodes - await self._known())
                return not lacking and (await self.bus.state(StreamName.LEDGER)).last_seq > 0
            except TransientError:
                return False

        try:
            await until_true(stand, deadline_s=READY_S, what=f"the cell stands with {len(self._nodes)} nodes")
        except AssertionError as error:
            raise AssertionError(f"{error}; without {sorted(lacking)}{self.logs()}") from error

    async def _known(self) -> set[str]:
        """Nodes with allocatable chips, and of whose health somebody has reported."""
        nodes = [node for fact in await self._facts("node", NodesSeen) for node in unpack_nodes(fact)]
        conditions = [one for fact in await self._facts("health", HealthSeen) for one in unpack_health(fact)]
        reported = {one.name for one in conditions if not self._has_reports or NO_REPORT not in one.reason}
        return {node.name for node in nodes if node.chips and node.allocatable} & reported

    async def _facts(self, kind: str, form: type[M]) -> list[M]:
        """Latest facts of a kind."""
        found = await self.bus.read(StreamName.LATEST, filters=(self.bus.subjects.facts(kind),))
        return [decode(stored.data, form) for stored in found]

    def check(self) -> None:
        """See that no service has ended by itself."""
        for name, service in self.services.items():
            assert service.returncode in {None, 0, -9}, f"{name} ended with {service.returncode}\n{service.log()}"

    async def stop(self) -> None:
        """Ask all services to end; each must do so well."""
        for name in reversed(ORDER):
            if self.services[name].is_running:
                await self.services[name].stop()

    async def restart(self, name: str) -> None:
        """Kill a service as a power cut would, and start it again."""
        await self.services[name].kill()
        self.services[name].start()

    def logs(self) -> str:
        """Ends of all logs, for messages of failed tests."""
        return "".join(f"\n--- {name}\n{service.log()}" for name, service in self.services.items())

    async def until_pods(
        self, namespace: str, phases: Mapping[str, int], *, deadline_s: float = READY_S, selector: str = ""
    ) -> list[Tree]:
        """Wait until the pods of a namespace are in these phases, as many in each; returns them by name.

        Raises:
            AssertionError: They are not in time; shows pods and logs.
        """
        found: list[Tree] = []

        async def there() -> bool:
            nonlocal found
            self.check()
            params = {"labelSelector": selector} if selector else {}
            found = await self.api.items(f"/api/v1/namespaces/{namespace}/pods", **params)
            seen: dict[str, int] = {}
            for pod in found:
                phase = "Terminating" if pod["metadata"].get("deletionTimestamp") else pod["status"]["phase"]
                seen[phase] = seen.get(phase, 0) + 1
            return seen == dict(phases)

        try:
            await until_true(there, deadline_s=deadline_s, what=f"pods {dict(phases)}")
        except AssertionError as error:
            lines = [
                f"{pod['metadata']['name']}: {pod['status'].get('phase')} {pod['status'].get('conditions')}"
                for pod in found
            ]
            raise AssertionError("\n".join([str(error), *lines, self.logs()])) from error
        return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))

    async def until_status(self, namespace: str, job: str, *phases: str, deadline_s: float = READY_S) -> JobStatus:
        """Wait until the status of a job is in one of the phases.

        Raises:
            AssertionError: It is not in time; shows status and logs.
        """
        found: JobStatus | None = None

        async def there() -> bool:
            nonlocal found
            stored = await self.bus.last(StreamName.STATUS, self.bus.subjects.status(namespace, job))
            found = decode(stored.data, JobStatus) if stored is not None else None
            return found is not None and found.phase in phases

        try:
            await until_true(there, deadline_s=deadline_s, what=f"{job} is {' or '.join(phases)}")
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {found}{self.logs()}") from error
        assert found is not None
        return found

    async def counts(self) -> SimCounts:
        """What the simulated cluster has seen, once it answers: it may just have started."""
        answer = b""

        async def answers() -> bool:
            nonlocal answer
            try:
                answer = await self.bus.request(self.bus.subjects.sim("counts"), b"", timeout_s=5)
            except TransientError:
                return False
            return True

        await until_true(answers, deadline_s=20, what="an answer of the simulated cluster")
        return decode(answer, SimCounts)

    async def check_chips(self, namespace: str = "") -> int:
        """See that no chip is held twice, by the annotations of live pods and by the simulated nodes' own accounts.

        Returns:
            Chips that are held.
        """
        path = f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"
        held: dict[str, int] = {}
        for pod in await self.api.items(path):
            node = pod["spec"].get("nodeName")
            if not node or pod["status"].get("phase") in {"Succeeded", "Failed"}:
                continue
            mask = chips_of(pod)
            assert not held.get(node, 0) & mask, f"{pod['metadata']['name']} shares a chip of {node}"
            held[node] = held.get(node, 0) | mask
        counts = await self.counts()
        assert counts.double_allocations == 0
        assert counts.overcommits == 0
        return sum(mask.bit_count() for mask in held.values())


def chips_of(pod: Tree) -> int:
    """Mask of the chips that a pod's annotations name."""
    annotations = pod["metadata"].get("annotations", {})
    requests = pod["spec"]["containers"][0].get("resources", {}).get("requests", {})
    resource = next((name for name in requests if name.startswith(RESOURCE_PREFIX)), "")
    return chip_mask(annotations.get(ASCEND_REAL) or annotations.get(resource, ""))


def a_container(chips: int = 0, *, resource: str = "huawei.com/Ascend910", cpu: str = "1") -> Tree:
    """Container of a pod that asks for chips."""
    requests = {"cpu": cpu, "memory": "1Gi"} | ({resource: str(chips)} if chips else {})
    limits = {resource: str(chips)} if chips else {}
    return {"name": "main", "image": "registry.example/none:1", "resources": {"requests": requests, "limits": limits}}


def a_spec(chips: int, *, scheduler: str = "berth", policy: str = "Never") -> Tree:
    """Spec of a pod for Atlas 800T A2 nodes."""
    return {
        "schedulerName": scheduler,
        "restartPolicy": policy,
        "nodeSelector": {"accelerator-type": "module-910b-8"},
        "containers": [a_container(chips)],
    }


def a_volcano_job(
    name: str, replicas: int, chips: int, *, run_for: str = "60s", minimum: int = 0, **extra: object
) -> Tree:
    """A Volcano job of equal workers."""
    annotations = {"berth/run-for": run_for}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "annotations": annotations, "labels": {"framework": "pytorch"}},
        "spec": {
            "schedulerName": "berth",
            "minAvailable": minimum or replicas,
            "tasks": [
                {
                    "name": "worker",
                    "replicas": replicas,
                    "template": {"metadata": {"annotations": annotations}, "spec": a_spec(chips)},
                }
            ],
            **extra,
        },
    }


def _section(value: object) -> dict[str, object]:
    return dict(value) if isinstance(value, Mapping) else {}


def _kubeconfig(server: KubeServer, folder: Path, user: str) -> Path:
    path = folder / f"kubeconfig-{user}"
    return path if path.exists() else server.write_kubeconfig(path, user=user)


__all__ = ["KubeCell", "a_container", "a_spec", "a_volcano_job", "chips_of", "until"]
