"""A cluster with Berth on it, for ``kube``: API server, bus, the services as processes, and who creates the pods."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import aiohttp
import yaml

from bench.cluster import CHIPS, NAMESPACE, RESOURCE, USER, a_template, card
from bench.ends import nats_server
from bench.kube.gang import worked_s
from bench.kube.story import PodLean, Pods
from bench.limits.kube import make_and_bind
from bench.processes import Process, Program, until_ready
from berth.formats.ascend.bind_annotations import BoundPod, NodeCard, annotations
from berth.formats.ascend.pod_annotations import RANK_INDEX
from berth.lab.cells.fleet import EXAMPLES
from berth.lab.servers.kube_server import KubeServer
from berth.lab.servers.nats_server import EmbeddedServer
from berth.lab.servers.ports import free_ports
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.clock import SystemClock
from berth.runtime.kube.client import KubeApi
from berth.runtime.kube.config import KubeConfig
from berth.runtime.kube.port import Handler
from berth.schemas.envelope import decode
from berth.schemas.fault_facts import FAULT_SCHEDULING, POD_RESCHEDULING
from berth.schemas.status import JobStatus
from berth.schemas.subjects import StreamName
from berth.services.binder.pod_binding import PodBindRequest, binding_of

AT_ONCE: Final = 64
SERVICES: Final = ("dispatcher", "inventory", "binder", "summary")
"""All that work when pods come; ``health`` has no device plug-ins here that would report."""
WATCHED: Final = (
    *("/api/v1/nodes",) * 3,
    *("/api/v1/pods",) * 2,
    *("/apis/scheduling.volcano.sh/v1beta1/podgroups",) * 2,
    "/api/v1/configmaps",
)
"""What the services watch."""
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
GROUPS: Final = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{NAMESPACE}/podgroups"
_PODGROUPS: Final = ("scheduling.volcano.sh/v1beta1", "podgroups")
_NODES_PER_LEAF: Final = 32
_OVER: Final = frozenset({"succeeded", "failed", "cancelled", "rejected"})
_DEADLINE_S: Final = 300.0
_POLL_S: Final = 0.05
_READY_S: Final = 60.0
_QUIET_S: Final = 1.0


class World:
    """Servers, services and the watch of a bench.

    Args:
        folder: Folder for files.
        server: The API server.
        nats: The bus.
        bus: A connection to it.
        session: Creates objects as admin.
        seen: Pods as the watch of the bench sees them.
    """

    def __init__(
        self,
        folder: Path,
        server: KubeServer,
        nats: EmbeddedServer,
        bus: NatsBus,
        session: aiohttp.ClientSession,
        seen: Pods,
    ) -> None:
        self.server = server
        self.seen = seen
        self.bus = bus
        self.session = session
        self._folder = folder
        self._nats = nats
        self._kubeconfig = server.write_kubeconfig(folder / "services", user=USER)

    async def post(self, path: str, body: bytes) -> None:
        """Create an object."""
        await self.post_all([[(path, body)]])

    async def post_all(self, groups: Sequence[Sequence[tuple[str, bytes]]]) -> None:
        """Create objects: those of a group one after the other, 64 groups at once."""
        url = self.server.url
        requests = [[(url + path, body) for path, body in parts] for parts in groups]
        await make_and_bind(self.session, requests, at_once=AT_ONCE)

    async def remove_all(self, jobs: Sequence[str]) -> None:
        """Delete all pods and PodGroups of the bench, and wait until the chips of the jobs are free."""
        for path in (PODS, GROUPS):
            async with self.session.delete(self.server.url + path, params={"gracePeriodSeconds": "0"}) as answer:
                answer.raise_for_status()
        await self.seen.until_count(0)
        for job in jobs:
            await _until(partial(self._is_over, job))

    async def mark_faulty(self, pod: str) -> None:
        """Label a pod as ClusterD does when the network of its chips fails: it has to leave."""
        body = json.dumps({"metadata": {"labels": {"fault-type": "Separate"}}}).encode()
        headers = {"Content-Type": "application/merge-patch+json"}
        async with self.session.patch(f"{self.server.url}{PODS}/{pod}", data=body, headers=headers) as answer:
            answer.raise_for_status()

    async def until_recovered(self, job: str) -> None:
        """Wait until the newest recovery of a job is over."""
        await _until(partial(self._is_recovered, job))

    async def _is_recovered(self, job: str) -> bool:
        stored = await self.bus.last(StreamName.STATUS, self.bus.subjects.status(NAMESPACE, job))
        recovery = decode(stored.data, JobStatus).recovery if stored is not None else None
        return recovery is not None and not recovery.open

    async def _is_over(self, job: str) -> bool:
        stored = await self.bus.last(StreamName.STATUS, self.bus.subjects.status(NAMESPACE, job))
        return stored is None or decode(stored.data, JobStatus).phase in _OVER

    @asynccontextmanager
    async def services(self, *, dispatcher: Mapping[str, object] | None = None) -> AsyncIterator[dict[str, int]]:
        """The services of Berth, each in its own process; yields their pids when they are ready.

        Args:
            dispatcher: More settings of the dispatcher.
        """
        async with AsyncExitStack() as stack:
            started = {
                name: stack.enter_context(self._service(name, port, (dispatcher or {}) if name == "dispatcher" else {}))
                for name, port in zip(SERVICES, free_ports(len(SERVICES)), strict=True)
            }
            for _, port in started.values():
                await until_ready(port, deadline_s=_READY_S, poll_s=_POLL_S)
            yield {name: pid for name, (pid, _) in started.items()}

    @asynccontextmanager
    async def service(self, name: str, settings: Mapping[str, object]) -> AsyncIterator[None]:
        """One more service, with settings of its own."""
        with self._service(name, free_ports(1)[0], settings) as (_, port):
            await until_ready(port, deadline_s=_READY_S, poll_s=_POLL_S)
            yield

    @contextmanager
    def _service(self, name: str, port: int, settings: Mapping[str, object]) -> Iterator[tuple[int, int]]:
        """A service as a process; yields its pid and the port of its probes."""
        common: dict[str, object] = {"bus": {"url": self._nats.url, "cell": "bench"}, "probes": {"port": port}}
        if name != "dispatcher":
            common["kube"] = {"kubeconfig": self._kubeconfig}
        with _running(Process(self._folder, name, {**settings, **common})) as pid:
            yield pid, port

    @contextmanager
    def watches(self) -> Iterator[None]:
        """As many watches as Berth has, in a process of their own that reads and forgets."""
        urls = [self.server.url + path for path in WATCHED]
        arguments = [str(self.server.ca_file), self.server.admin_token, urls]
        with _running(Program(self._folder, "watches", ["-m", "bench.limits.kube", json.dumps(arguments)])):
            yield

    async def make_leaves(self, nodes: int) -> None:
        """Put the nodes below leaf switches."""
        leaves = [range(start, min(start + _NODES_PER_LEAF, nodes)) for start in range(0, nodes, _NODES_PER_LEAF)]
        listed = [
            {
                "tor_id": index,
                "tor_ip": f"10.9.{index // 250}.{index % 250}",
                "server": [
                    {"server_ip": f"10.1.{number // 250}.{number % 250}", "npu_count": 8, "slice_id": place}
                    for place, number in enumerate(numbers)
                ],
            }
            for index, numbers in enumerate(leaves)
        ]
        info = json.dumps({"version": "1.0", "tor_count": _NODES_PER_LEAF, "server_list": listed})
        body = {"metadata": {"name": "basic-tor-node-cm", "namespace": "kube-system"}, "data": {"tor_info": info}}
        await self.post("/api/v1/namespaces/kube-system/configmaps", json.dumps(body).encode())

    @asynccontextmanager
    async def watch_pods(self, handler: Handler[PodLean]) -> AsyncIterator[None]:
        """One more watch of the pods."""
        config = KubeConfig(kubeconfig=self.server.write_kubeconfig(self._folder / "more"))
        async with await KubeApi.connect(config, clock=SystemClock()) as api, asyncio.TaskGroup() as group:
            reflection = api.reflect(PODS, PodLean, handler)
            watching = group.create_task(reflection.run())
            await reflection.synced.wait()
            yield
            watching.cancel()

    async def quiet_s(self, pids: Mapping[str, int], before: Mapping[str, float]) -> dict[str, float]:
        """CPU seconds of processes since ``before``, when they have come to rest."""
        await asyncio.sleep(_QUIET_S)
        return {name: after - before[name] for name, after in worked_s(pids).items()}


async def _until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Ask until the answer is yes."""
    async with asyncio.timeout(_DEADLINE_S):
        while True:
            if await condition():
                return
            await asyncio.sleep(_POLL_S)


@contextmanager
def _running(program: Program) -> Iterator[int]:
    """A program that runs while the block does; yields its pid."""
    program.start()
    try:
        yield program.pid
    finally:
        program.kill()


@asynccontextmanager
async def world(folder: Path, server: KubeServer) -> AsyncIterator[World]:
    """A world on a server, with the definition of PodGroups and a watch of all pods."""
    headers = {"Authorization": f"Bearer {server.admin_token}", "Content-Type": "application/json"}
    connector = aiohttp.TCPConnector(ssl=server.ssl_context(), limit=AT_ONCE)
    config = KubeConfig(kubeconfig=server.write_kubeconfig(folder / "bench"))
    async with (
        nats_server(folder / "nats") as nats,
        await NatsBus.connect(nats.url, "bench", name="bench", inbox="_INBOX.person.bench") as bus,
        await KubeApi.connect(config, clock=SystemClock()) as api,
        aiohttp.ClientSession(connector=connector, headers=headers) as session,
        asyncio.TaskGroup() as group,
    ):
        await bus.ensure_streams()
        seen = Pods()
        reflecting = api.reflect(PODS, PodLean, seen)
        found = World(folder, server, nats, bus, session, seen)
        if not await api.serves(*_PODGROUPS):  # another world on this server may have defined them
            crd = yaml.safe_load((EXAMPLES / "crds" / "podgroup.scheduling.volcano.sh.yaml").read_text("utf-8"))
            await found.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", json.dumps(crd).encode())
            await _until(partial(api.serves, *_PODGROUPS))
        watching = group.create_task(reflecting.run())
        await reflecting.synced.wait()
        yield found
        watching.cancel()


def a_pod(
    name: str, *, group: str = "", label: str = "", chips: int = len(CHIPS), recovers_as: int | None = None
) -> bytes:
    """A pod of about 5 KB; one of a job that recovers has a rank and the labels for it."""
    pod = a_template({"app": "bench"} | ({"tor-affinity": label} if label else {}))
    pod["metadata"]["name"] = name
    if recovers_as is not None:
        pod["metadata"]["labels"] |= {FAULT_SCHEDULING: "force", POD_RESCHEDULING: "on"}
        pod["metadata"]["annotations"][RANK_INDEX] = str(recovers_as)
    if group:
        pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] = group
    pod["spec"]["terminationGracePeriodSeconds"] = 0
    resources = {"limits": {RESOURCE: chips}} if chips else {"requests": {"cpu": "1", "memory": "1Gi"}}
    pod["spec"]["containers"][0]["resources"] = resources
    return json.dumps(pod).encode()


def a_group(name: str, pods: int, *, label: str = "") -> bytes:
    """A PodGroup."""
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "labels": {"tor-affinity": label} if label else {}},
        "spec": {"minMember": pods},
    }
    return json.dumps(group).encode()


def binding_bodies(names: Sequence[str], nodes: int) -> list[bytes]:
    """Bodies of the bindings of whole-node pods, as the binder sends them, one after the other on the nodes."""
    return [binding_body(name, card(rank % nodes), CHIPS, rank) for rank, name in enumerate(names)]


def binding_body(name: str, node: NodeCard, chips: tuple[int, ...], rank: int) -> bytes:
    """Body of the binding of a pod, as the binder sends it."""
    described = BoundPod(
        name=name, uid="", resource=RESOURCE, chips=chips, predicate_ns=time.time_ns(), distributed=True,
        rank_index=str(rank), job=f"podgroup.{name}", job_uid=f"uid-{name}", attempt=1, rank=rank,
    )  # fmt: skip
    return binding_of(PodBindRequest(NAMESPACE, name, "", node.name, annotations(described, node, node.devices())))
