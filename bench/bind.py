"""``bind``: pods bound in a second by the binder's own path, on a real API server and as an ordinary user.

The gang has one pod a node, each taking the whole node, with all annotations; the time runs from the placement to the last
binding. The limit is the same requests from a bare loop. Both take turns on the same server.
"""

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import uvloop

from bench.limits.bind import seconds_for
from bench.report import Report, Row, machine, row
from berth.formats.bind_annotations import BoundPod, annotations
from berth.runtime.clock import SystemClock
from berth.runtime.kube import KubeApi
from berth.runtime.kube_config import KubeConfig
from berth.runtime.kube_server import KubeServer
from schemas.columns import pack
from schemas.facts import MembersSeen
from schemas.placement import Run, placement_of
from services.binder.cluster import Gang
from services.binder.config import BinderConfig
from services.binder.kube_cluster import KubeCluster
from services.binder.node_book import NodeLean
from services.binder.pod_binding import Wish, binding_of

PODS = 2_000
ROUNDS = 5
AT_ONCE = 64
TARGET = 0.85
RESOURCE = "huawei.com/Ascend910"
NAMESPACE = "bench"
USER = "berth"
CHIPS = tuple(range(8))
_POD_BYTES = 5_000
_HANDS = 32
_RULES = [
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "patch", "delete"]},
    {"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]},
]


def run() -> Report:
    """Measure."""
    rows = uvloop.run(_measure(PODS, ROUNDS))
    return Report(bench="bind", machine=machine(), rows=rows)


async def _measure(pods: int, rounds: int) -> list[Row]:
    ours: list[float] = []
    bare: list[float] = []
    with tempfile.TemporaryDirectory(prefix="berth-bind-") as root:
        server = KubeServer(Path(root), users={USER: ()}, controllers=())
        async with server, _admin(server) as admin:
            await admin.prepare(pods)
            config = KubeConfig(kubeconfig=server.write_kubeconfig(Path(root) / "kubeconfig", user=USER))
            api = await KubeApi.connect(config, clock=SystemClock(), user_agent="berth-binder")
            async with api, _binder(api) as cluster:
                await _ours(cluster, await admin.gang("warm", AT_ONCE * 4))
                for number in range(rounds):
                    for turn in (number % 2, 1 - number % 2):
                        gang, members = await admin.gang(f"g{number}-{turn}", pods)
                        if turn:
                            ours.append(pods / await _ours(cluster, (gang, members)))
                        else:
                            bare.append(pods / await _bare(server, cluster, gang, members))
            version = server.version
    ratios = [one / other for one, other in zip(ours, bare, strict=True)]
    case = f"{pods} pods of {_POD_BYTES // 1000} KB, {AT_ONCE} at once, {version}"
    return [
        row(case, "bound", "pods/s", ours, limits=bare),
        row(case, "against bare requests", "ratio", [statistics.median(ratios)], target=TARGET, better="more"),
    ]


async def _ours(cluster: KubeCluster, made: tuple[Gang, MembersSeen]) -> float:
    """Seconds from a placement to its last binding.

    Raises:
        RuntimeError: Not all pods were bound.
    """
    gang, members = made
    cluster.take_members(members)
    start = time.perf_counter()
    bound = await cluster.bind(gang)
    took_s = time.perf_counter() - start
    if bound.failures or bound.bound != gang.placement.pods():
        raise RuntimeError(f"{bound.bound} pods bound, {bound.failures[:1]}")
    return took_s


async def _bare(server: KubeServer, cluster: KubeCluster, gang: Gang, members: MembersSeen) -> float:
    """Seconds for the same requests, made beforehand.

    Raises:
        RuntimeError: A node was not seen, or the server refused a request.
    """
    requests = []
    for rank, (node, pod, uid) in enumerate(zip(gang.placement.names(), members.pods, members.pod_uids, strict=True)):
        card = cluster.nodes.get(node)
        if card is None:
            raise RuntimeError(f"node {node} was not seen")
        described = BoundPod(
            name=pod, uid=uid, resource=RESOURCE, chips=CHIPS, predicate_ns=time.time_ns(), distributed=True,
            rank_index=str(rank), job=gang.name, job_uid=gang.uid, attempt=1, rank=rank,
        )  # fmt: skip
        wish = Wish(NAMESPACE, pod, uid, node, annotations(described, card, card.devices()))
        requests.append((f"{wish.path}/binding", binding_of(wish)))
    return await seconds_for(server.url, server.ssl_context(), server.token(USER), requests, at_once=AT_ONCE)


@asynccontextmanager
async def _binder(api: KubeApi) -> AsyncIterator[KubeCluster]:
    """The binder's cluster with its nodes, kept up to date."""
    cluster = KubeCluster(api, SystemClock(), BinderConfig(binds_at_once=AT_ONCE))
    nodes = api.reflect("/api/v1/nodes", NodeLean, cluster.nodes)
    async with asyncio.TaskGroup() as group:
        reflecting = group.create_task(nodes.run())
        await nodes.synced.wait()
        yield cluster
        reflecting.cancel()


class _Admin:
    """Makes what is bound."""

    def __init__(self, server: KubeServer, session: aiohttp.ClientSession) -> None:
        self._url = server.url
        self._session = session

    async def prepare(self, nodes: int) -> None:
        """Nodes of eight chips, a namespace, and the rights of the user."""
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": USER}
        who = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}]
        named = {"metadata": {"name": USER}}
        await self._post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        await self._post(f"{rbac}/clusterroles", {**named, "rules": _RULES})
        await self._post(f"{rbac}/clusterrolebindings", {**named, "roleRef": role, "subjects": who})
        await self._post_all("/api/v1/nodes", [_a_node(number) for number in range(nodes)])

    async def gang(self, name: str, pods: int) -> tuple[Gang, MembersSeen]:
        """A gang of whole-node pods, and the fact of its members."""
        made = await self._post_all(
            f"/api/v1/namespaces/{NAMESPACE}/pods", [_a_pod(f"{name}-{rank}") for rank in range(pods)]
        )
        placement = placement_of(
            [_node_name(rank) for rank in range(pods)], [CHIPS] * pods, [Run(pods, len(CHIPS))], resource=RESOURCE
        )
        gang = Gang(NAMESPACE, name, f"uid-{name}", 1, placement)
        members = MembersSeen(
            NAMESPACE,
            name,
            gang.uid,
            rank=pack(range(pods), 4),
            pods=[one["metadata"]["name"] for one in made],
            pod_uids=[one["metadata"]["uid"] for one in made],
            rank_index=[str(rank) for rank in range(pods)],
            distributed=True,
        )
        return gang, members

    async def _post_all(self, path: str, bodies: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        made: list[dict[str, Any]] = [{}] * len(bodies)
        left = iter(enumerate(bodies))

        async def hand() -> None:
            for index, body in left:
                made[index] = await self._post(path, body)

        async with asyncio.TaskGroup() as group:
            for _ in range(_HANDS):
                group.create_task(hand())
        return made

    async def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        async with self._session.post(self._url + path, data=json.dumps(body)) as answer:
            answer.raise_for_status()
            made: dict[str, Any] = await answer.json()
            return made


@asynccontextmanager
async def _admin(server: KubeServer) -> AsyncIterator[_Admin]:
    headers = {"Authorization": f"Bearer {server.admin_token}", "Content-Type": "application/json"}
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=server.ssl_context()), headers=headers
    ) as session:
        yield _Admin(server, session)


def _node_name(number: int) -> str:
    return f"node-{number:05d}"


def _a_node(number: int) -> dict[str, Any]:
    base = {f"Ascend910-{chip}": {"IP": f"10.20.{number % 250}.{chip}", "SuperDeviceID": chip} for chip in CHIPS}
    return {
        "metadata": {"name": _node_name(number), "annotations": {"baseDeviceInfos": json.dumps(base)}},
        "status": {"addresses": [{"type": "InternalIP", "address": f"10.1.{number // 250}.{number % 250}"}]},
    }


def _a_pod(name: str) -> dict[str, Any]:
    """A pod of about 5 KB, as training pods are: the bulk is environment."""
    container = {
        "name": "main",
        "image": "none",
        "resources": {"limits": {RESOURCE: len(CHIPS)}},
        "env": [{"name": f"SETTING_{index}", "value": "x" * 80} for index in range(30)],
    }
    pod: dict[str, Any] = {
        "metadata": {"name": name, "labels": {"app": "bench"}},
        "spec": {"schedulerName": "berth", "containers": [container]},
    }
    pod["metadata"]["annotations"] = {"note": "x" * (_POD_BYTES - len(json.dumps(pod)))}
    return pod
