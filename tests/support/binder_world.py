"""A binder's view of a cluster on an API server in memory: three nodes of eight chips."""

from typing import Any

from berth.formats.ascend.mark_proofs import UNCHECKED
from berth.formats.kubernetes.events import Involved
from berth.formats.kubernetes.objects import Listed
from berth.runtime.instruments import Instruments
from berth.schemas.facts import RankFailure
from berth.services.binder.cluster import BindResult, Gang
from berth.services.binder.config import BinderConfig
from berth.services.binder.kube_cluster import KubeCluster
from berth.services.binder.metrics import BinderMetrics
from berth.services.binder.node_cards import NodeLean
from berth.services.binder.work import AttemptKey
from tests.support.clock import ManualClock
from tests.support.fake_kube import FakeKube
from tests.support.kube_binder import a_node, a_pod, members_of

PODS = "/api/v1/namespaces/ns/pods"


class World:
    """A cluster with three nodes of eight chips, and a binder's view of it."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - fields of the settings
        self.clock = ManualClock()
        self.kube = FakeKube(clock=self.clock)
        self.config = BinderConfig(**settings)
        self.marks = UNCHECKED
        self.told: list[tuple[str, str, str]] = []
        self.job_uids: set[str] = set()
        """Jobs that Events are about."""
        self.woken: list[AttemptKey] = []
        self.cluster = self.restart()
        for number in range(3):
            self.kube.put("/api/v1/nodes", a_node(f"n{number}"))

    def restart(self) -> KubeCluster:
        self.instruments = Instruments.make(BinderMetrics)
        self.cluster = KubeCluster(
            self.kube, self.clock, self.config, self.instruments, marks=self.marks, report_event=self._tell
        )
        self.cluster.wake = self.woken.extend
        return self.cluster

    def _tell(self, involved: Involved, reason: str, message: str, job_uid: str) -> None:
        self.told.append((involved.name, reason, message))
        self.job_uids.add(job_uid)

    def counted(self, name: str, **labels: str) -> float | None:
        """Value of a metric of the binder."""
        return self.instruments.registry.collectors.get_sample_value(f"berth_binder_{name}", labels)

    async def sync(self) -> None:
        """Let the binder see the nodes as they are."""
        found = await self.kube.get("/api/v1/nodes", Listed[NodeLean])
        self.cluster.nodes.replace(found.items or [])

    def pods(self, gang: Gang, *names: str, chips: int = 1, **changes: object) -> None:
        """Make a pod for each rank, and say so."""
        rows = []
        for rank, name in enumerate(names):
            made = self.kube.put(PODS, a_pod(name, chips=chips))
            rows.append((rank, name, made["metadata"]["uid"]))
        self.cluster.take_members(members_of(gang, rows, **changes))  # type: ignore[arg-type]  # fields of the fact

    def pod(self, name: str) -> dict[str, Any]:
        return self.kube.object(f"{PODS}/{name}")

    def node_of(self, name: str) -> str:
        return str(self.pod(name)["spec"].get("nodeName", ""))

    def annotations(self, name: str) -> dict[str, str]:
        found: dict[str, str] = self.pod(name)["metadata"].get("annotations", {})
        return found

    def bindings(self) -> int:
        return sum(call.method == "POST" and call.path.endswith("/binding") for call in self.kube.calls)


async def made(**settings: Any) -> World:  # noqa: ANN401 - fields of the settings
    found = World(**settings)
    await found.sync()
    return found


def bound(count: int, *failures: tuple[int, str]) -> BindResult:
    return BindResult(count, [RankFailure(rank, reason) for rank, reason in failures])


def uid_of(world: World, name: str) -> str:
    return str(world.pod(name)["metadata"]["uid"])


def replace(world: World, name: str) -> str:
    """Another pod gets the name."""
    world.kube.confirm(f"{PODS}/{name}")
    return str(world.kube.put(PODS, a_pod(name))["metadata"]["uid"])
