"""A binder's view of a real cluster, as an ordinary user: three nodes of eight chips."""

from typing import Any

from berth.formats.kubernetes.events import Involved
from berth.formats.kubernetes.objects import Listed
from berth.runtime.clock import SystemClock
from berth.runtime.instruments import Instruments
from berth.runtime.kube.client import KubeApi as Client
from berth.services.binder.cluster import Gang
from berth.services.binder.config import BinderConfig
from berth.services.binder.kube_cluster import KubeCluster
from berth.services.binder.metrics import BinderMetrics
from berth.services.binder.node_cards import NodeLean
from tests.support.kube_api import KubeApi
from tests.support.kube_binder import a_gang, a_node, a_pod, members_of

USER = "binder"


class World:
    """Three nodes of eight chips, a namespace, and a binder's view of them as an ordinary user."""

    def __init__(self, api: KubeApi, client: Client, namespace: str) -> None:
        self.api = api
        self.client = client
        self.namespace = namespace
        self.told: list[tuple[str, str, str]] = []
        self.job_uids: set[str] = set()
        """Jobs that Events are about."""
        self.cluster = KubeCluster(
            client, SystemClock(), BinderConfig(), Instruments.make(BinderMetrics), report_event=self._tell
        )

    def _tell(self, involved: Involved, reason: str, message: str, job_uid: str) -> None:
        self.told.append((involved.name, reason, message))
        self.job_uids.add(job_uid)

    @property
    def pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    async def open(self) -> "World":
        for number in range(3):
            await self.api.post("/api/v1/nodes", a_node(self.node(number)))
        found = await self.client.get("/api/v1/nodes", Listed[NodeLean])
        self.cluster.nodes.replace(found.items or [])
        return self

    def node(self, number: int) -> str:
        return f"{self.namespace}-n{number}"

    def gang(self, name: str, *nodes: int, chips: int = 1, attempt: int = 1) -> Gang:
        used: dict[int, int] = {}
        picked = []
        for node in nodes:
            first = used.get(node, 0)
            used[node] = first + chips
            picked.append(tuple(range(first, first + chips)))
        return a_gang(name, [self.node(node) for node in nodes], picked, namespace=self.namespace, attempt=attempt)

    async def make(self, gang: Gang, *names: str, **changes: Any) -> list[str]:  # noqa: ANN401 - fields of the fact
        """Make pods and say that they stand for the ranks; returns their uids."""
        uids = [str((await self.api.post(self.pods, a_pod(name)))["metadata"]["uid"]) for name in names]
        self.say(gang, *zip(names, uids, strict=True), **changes)
        return uids

    def say(self, gang: Gang, *pods: tuple[str, str], **changes: Any) -> None:  # noqa: ANN401 - fields of the fact
        self.cluster.take_members(members_of(gang, [(rank, *pod) for rank, pod in enumerate(pods)], **changes))

    async def pod(self, name: str) -> dict[str, Any]:
        return await self.api.get(f"{self.pods}/{name}")

    async def node_of(self, name: str) -> str:
        return str((await self.pod(name))["spec"].get("nodeName", ""))
