"""``bind``: pods bound per second by the code of the binder, on a real API server and as an ordinary user.

The gang has one whole-node pod on each node, with all annotations. The time runs from the placement to the last
binding. The limit is a bare loop with the same requests. Both run alternately on the same server.
"""

import asyncio
import gc
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench.cluster import CHIPS, NAMESPACE, POD_BYTES, RESOURCE, USER, admin_of
from bench.ends import kube_server, until_done
from bench.limits.bind import seconds_for
from bench.report import Report, Row, machine, row
from berth.formats.ascend.bind_annotations import BoundPod, annotations
from berth.lab.servers.kube_server import KubeServer
from berth.runtime.clock import SystemClock
from berth.runtime.instruments import Instruments
from berth.runtime.kube.client import KubeApi
from berth.runtime.kube.config import KubeConfig
from berth.runtime.process import GC_THRESHOLDS
from berth.schemas.facts import MembersSeen
from berth.services.binder.cluster import Gang
from berth.services.binder.config import BinderConfig
from berth.services.binder.kube_cluster import KubeCluster
from berth.services.binder.metrics import BinderMetrics
from berth.services.binder.node_cards import NodeCards, NodeLean
from berth.services.binder.pod_binding import PodBindRequest, binding_of

AT_ONCE = 64
TARGET = 0.85
_RULES = [
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "patch", "delete"]},
    {"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]},
]


class Size(NamedTuple):
    """Size of a run: pods of the gang, and how often it is bound."""

    pods: int = 2_000
    rounds: int = 5


FULL: Final = Size()
SMALL: Final = Size(pods=256, rounds=1)


def run(size: Size = FULL) -> Report:
    """Measure."""
    gc.set_threshold(*GC_THRESHOLDS)  # as in a service
    rows = until_done(_measure(*size))
    return Report(bench="bind", machine=machine(), rows=rows)


async def _measure(pods: int, rounds: int) -> list[Row]:
    ours: list[float] = []
    bare: list[float] = []
    with tempfile.TemporaryDirectory(prefix="berth-bind-") as root:
        async with kube_server(Path(root), users=(USER,), controllers=()) as server, admin_of(server) as admin:
            await admin.prepare(pods, _RULES)
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
                            bare.append(pods / await bare_s(server, cluster.nodes, gang, members))
            version = server.version
    ratios = [one / other for one, other in zip(ours, bare, strict=True)]
    case = f"{pods} pods of {POD_BYTES // 1000} KB, {AT_ONCE} at once, {version}"
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


async def bare_s(server: KubeServer, nodes: NodeCards, gang: Gang, members: MembersSeen) -> float:
    """Seconds for the same requests, prepared in advance.

    Raises:
        RuntimeError: A node was not seen, or the server refused a request.
    """
    requests = []
    for rank, (node, pod, uid) in enumerate(zip(gang.placement.names(), members.pods, members.pod_uids, strict=True)):
        card = nodes.get(node)
        if card is None:
            raise RuntimeError(f"node {node} was not seen")
        described = BoundPod(
            name=pod, uid=uid, resource=RESOURCE, chips=CHIPS, predicate_ns=time.time_ns(), distributed=True,
            rank_index=str(rank), job=gang.name, job_uid=gang.uid, attempt=1, rank=rank,
        )  # fmt: skip
        wish = PodBindRequest(NAMESPACE, pod, uid, node, annotations(described, card, card.devices()))
        requests.append((f"{wish.path}/binding", binding_of(wish)))
    return await seconds_for(server.url, server.ssl_context(), server.token(USER), requests, at_once=AT_ONCE)


@asynccontextmanager
async def _binder(api: KubeApi) -> AsyncIterator[KubeCluster]:
    """The cluster of the binder, with a watch of its nodes."""
    cluster = KubeCluster(api, SystemClock(), BinderConfig(binds_at_once=AT_ONCE), Instruments.make(BinderMetrics))
    nodes = api.reflect("/api/v1/nodes", NodeLean, cluster.nodes)
    async with asyncio.TaskGroup() as group:
        reflecting = group.create_task(nodes.run())
        await nodes.synced.wait()
        yield cluster
        reflecting.cancel()
