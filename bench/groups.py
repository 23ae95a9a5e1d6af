"""``groups``: PodGroups of Volcano that queues admit, as the inventory tells of them and writes them.

A dispatcher decides on them. The limit of the writes is a bare loop in the same run: it patches as many other PodGroups
in the same way, with as many hands, before and after the inventory does. How fast they are decided says ``queues``.
"""

import asyncio
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import msgspec
import yaml

from bench.cluster import RESOURCE, SELECTOR
from bench.ends import kube_server, nats_server, until_done
from bench.processes import Process
from bench.report import Report, Row, machine, row
from berth.formats.kubernetes.objects import Pod, PodGroup
from berth.lab.cells.kube_fleet import CRDS
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.clock import SystemClock
from berth.runtime.config import LogConfig
from berth.runtime.instruments import Instruments
from berth.runtime.kube.client import KubeApi
from berth.runtime.kube.config import KubeConfig
from berth.runtime.kube.port import Api, Body, PatchKind
from berth.runtime.logs import configure
from berth.schemas.envelope import encode
from berth.services.inventory.app import serve_on
from berth.services.inventory.config import InventoryConfig
from berth.services.inventory.effects import PublishMembers, PublishRequest
from berth.services.inventory.gang_collection import Gangs
from berth.services.inventory.gangs.settings import GangSettings
from berth.services.inventory.metrics import InventoryMetrics
from berth.services.inventory.publishing.api_tasks import CALLS_AT_ONCE

_VOLCANO: Final = "/apis/scheduling.volcano.sh/v1beta1"
_PODS: Final = 8
"""Pods of each PodGroup."""
_NAMESPACES: Final = 20
_BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
_NOW_MS: Final = 1_800_000_000_000
_SETTINGS: Final = GangSettings(groups_without_scheduler=True)
_HANDS: Final = 48
_CHIPS: Final = "1000000"
"""Of each queue: all are admitted."""
_POLL_S: Final = 0.05


class Size(NamedTuple):
    """Size of a run: PodGroups that are written, queues of the API server, and repeats."""

    written: int = 3_000
    queues: int = 100
    repeats: int = 3


FULL: Final = Size()
SMALL: Final = Size(written=60, queues=5, repeats=1)


def run(size: Size = FULL) -> Report:
    """Measure."""
    configure("bench", LogConfig(level="warning"))  # the inventory works in this process, and reports are on stdout
    found = row("a PodGroup that waits with its pods", "facts and request", "bytes", [_facts_bytes()], target=1_000)
    return Report(bench="groups", machine=machine(), rows=[found, *until_done(_written(size))])


def _facts_bytes() -> int:
    """Bytes of what is published of a PodGroup with pods that wait."""
    gangs = Gangs(_SETTINGS)
    gangs.set_group(msgspec.convert(a_group(0, "q000", phase="Inqueue"), PodGroup))
    for rank in range(_PODS):
        gangs.set_pod(msgspec.convert(_a_pod(rank), Pod))
    found = gangs.settle(_NOW_MS)
    facts = [one.members for one in found if isinstance(one, PublishMembers)]
    requests = [one.request for one in found if isinstance(one, PublishRequest)]
    return sum(len(encode(one)) for one in (*facts, *requests))


async def _written(size: Size) -> list[Row]:
    """Rate of the inventory's patches and of a bare loop."""
    queues = [f"q{number}" for number in range(size.queues)]
    with tempfile.TemporaryDirectory(prefix="berth-groups-") as root, ExitStack() as stack:
        async with (
            kube_server(Path(root) / "kube", controllers=()) as server,
            nats_server(Path(root) / "nats") as nats,
            await KubeApi.connect(
                KubeConfig(kubeconfig=server.write_kubeconfig(Path(root) / "kubeconfig")), clock=SystemClock()
            ) as api,
            await NatsBus.connect(nats.url, "bench", name="inventory") as bus,
        ):
            settings = {"shards": 0, "bus": {"url": nats.url, "cell": "bench"}, "decisions": {"queues": 1}}
            dispatcher = Process(Path(root), "dispatcher", settings)
            dispatcher.start()
            stack.callback(dispatcher.kill)
            await _prepare(api, queues)
            bare: list[float] = []
            ours: list[float] = []
            for number in range(size.repeats):
                first = number * 3 * size.written
                bare.append(await _bare(api, await _made(api, first, size.written, queues)))
                ours.append(await _ours(api, bus, first + size.written, size.written, queues))
                bare.append(await _bare(api, await _made(api, first + 2 * size.written, size.written, queues)))
            version = server.version
    case = f"{size.written:,} PodGroups in {size.queues} queues, {version}"
    rates = row(case, "admissions written", "1/s", ours, limits=bare)
    return [rates, row(case, "against a bare loop", "ratio", [rates.ratio or 0.0], target=0.6, better="more")]


async def _prepare(api: KubeApi, queues: Iterable[str]) -> None:
    """Define the kinds, and make queues and namespaces."""
    for path in sorted(CRDS.glob("*.scheduling.volcano.sh.yaml")):
        definition = yaml.safe_load(path.read_text("utf-8"))
        await api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        plural = definition["spec"]["names"]["plural"]
        while not await api.serves("scheduling.volcano.sh/v1beta1", plural):  # noqa: ASYNC110  # nothing tells when
            await asyncio.sleep(_POLL_S)
    for number in range(_NAMESPACES):
        await api.create("/api/v1/namespaces", {"metadata": {"name": f"team-{number}"}})
    for name in queues:
        body = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}}
        await api.create(f"{_VOLCANO}/queues", body | {"spec": {"capability": {RESOURCE: _CHIPS}}})


async def _made(api: KubeApi, first: int, count: int, queues: Sequence[str]) -> list[PodGroup]:
    """Make PodGroups."""
    found: list[PodGroup] = []

    async def make(number: int) -> None:
        body = a_group(number, queues[number % len(queues)])
        del body["metadata"]["uid"], body["metadata"]["resourceVersion"], body["metadata"]["creationTimestamp"]
        named = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", **body}
        answer = await api.create(f"{_VOLCANO}/namespaces/{body['metadata']['namespace']}/podgroups", named)
        found.append(msgspec.json.decode(answer, type=PodGroup))

    await _each(range(first, first + count), make, _HANDS)
    return found


async def _bare(api: KubeApi, groups: Sequence[PodGroup]) -> float:
    """Rate of patches as the inventory's, without anything else."""

    async def admit(group: PodGroup) -> None:
        meta = group.metadata
        annotations = {"huawei.com/schedule_enqueue_time": str(SystemClock().now_ms())}
        metadata = {"resourceVersion": meta.resource_version, "annotations": annotations}
        path = f"{_VOLCANO}/namespaces/{meta.namespace}/podgroups/{meta.name}"
        await api.patch(path, {"metadata": metadata, "status": {"phase": "Inqueue"}})

    begin = time.perf_counter()
    await _each(groups, admit, CALLS_AT_ONCE)
    return len(groups) / (time.perf_counter() - begin)


async def _ours(api: KubeApi, bus: NatsBus, first: int, count: int, queues: Sequence[str]) -> float:
    """Rate of the inventory's patches of PodGroups that were there when it started, from the first to the last."""
    await _made(api, first, count, queues)
    clocked = _Clocked(api, count)
    config = InventoryConfig(queues=True, gangs=_SETTINGS)
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        serving = serve_on(bus, cast(Api, clocked), SystemClock(), config, Instruments.make(InventoryMetrics), stop)
        group.create_task(serving)
        await clocked.are_written.wait()
        stop.set()
    return count / (clocked.last_s - clocked.first_s)


class _Clocked:
    """An API server whose patches are clocked.

    Args:
        api: The server.
        count: Patches after which :attr:`are_written` is set.
    """

    def __init__(self, api: KubeApi, count: int) -> None:
        self.are_written = asyncio.Event()
        self.first_s = self.last_s = 0.0
        self._api = api
        self._left = count

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the server has
        return getattr(self._api, name)

    async def patch(self, path: str, body: Body, *, how: PatchKind = "merge", field_manager: str = "") -> bytes:
        """Patch an object."""
        self.first_s = self.first_s or time.perf_counter()
        answer = await self._api.patch(path, body, how=how, field_manager=field_manager)
        self._left -= "/podgroups/" in path
        self.last_s = time.perf_counter()
        if self._left <= 0:
            self.are_written.set()
        return answer


async def _each(items: Iterable[Any], do: Any, hands: int) -> None:  # noqa: ANN401 - a coroutine function
    """Do something with each item, some of them at once."""
    left = iter(items)

    async def work() -> None:
        for one in left:
            await do(one)

    async with asyncio.TaskGroup() as group:
        for _ in range(hands):
            group.create_task(work())


def a_group(number: int, queue: str, *, phase: str = "Pending") -> dict[str, Any]:
    """A PodGroup of eight pods of eight chips."""
    created = (_BEGIN + timedelta(seconds=number)).strftime("%Y-%m-%dT%H:%M:%SZ")
    metadata = {
        "name": f"group-{number:06}",
        "namespace": f"team-{number % _NAMESPACES}",
        "uid": f"uid-{number}",
        "resourceVersion": str(number + 1),
        "creationTimestamp": created,
    }
    resources = {RESOURCE: str(8 * _PODS), "cpu": str(16 * _PODS), "memory": f"{64 * _PODS}Gi"}
    spec = {"minMember": _PODS, "queue": queue, "minResources": resources}
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase}}


def _a_pod(rank: int) -> dict[str, Any]:
    """A pod of the first PodGroup."""
    limits = {RESOURCE: "8", "cpu": "16", "memory": "64Gi"}
    return {
        "metadata": {
            "name": f"group-000000-{rank}",
            "namespace": "team-0",
            "uid": f"0b7b1c7e-6f0e-4c53-8c3e-0d8d1f2f3a0{rank}",
            "annotations": {"scheduling.k8s.io/group-name": "group-000000"},
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {
            "schedulerName": "berth",
            "nodeSelector": SELECTOR,
            "containers": [{"name": "main", "resources": {"limits": limits, "requests": limits}}],
        },
    }
