"""The part of ``watch`` that is measured: the inventory's reflections of nodes and pods, with what it keeps of them.

A program of its own: ``python -m bench.watching API_URL FOLDER NATS_URL`` prints what it measured as JSON. The
folder holds the token and the certificate, as in a pod.
"""

import asyncio
import gc
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import uvloop

from bench.limits.watch import Measured, memory_mb, quiet_collector
from berth.formats.kubernetes.objects import Node, Pod
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.clock import SystemClock
from berth.runtime.instruments import Instruments
from berth.runtime.kube.client import KubeApi
from berth.runtime.kube.port import Change, Reflection
from berth.services.inventory.config import InventoryConfig
from berth.services.inventory.loop import Loop
from berth.services.inventory.metrics import InventoryMetrics


class _Nodes:
    def __init__(self, loop: Loop) -> None:
        self.count = 0
        self._loop = loop

    def replace(self, objects: list[Node]) -> None:
        self.count = len(objects)
        self._loop.replace_nodes(objects)

    def change(self, changes: list[tuple[Change, Node]]) -> None:
        self._loop.change_nodes(changes)


class _Pods:
    def __init__(self, loop: Loop) -> None:
        self.count = 0
        self._loop = loop

    def replace(self, objects: list[Pod]) -> None:
        self.count = len(objects)
        self._loop.replace_pods(objects)

    def change(self, changes: list[tuple[Change, Pod]]) -> None:
        self._loop.change_pods(changes)


async def _measure(api_url: str, folder: Path, nats_url: str) -> Measured:
    clock = SystemClock()
    config = InventoryConfig()
    url = urlsplit(api_url)
    environ = {"KUBERNETES_SERVICE_HOST": str(url.hostname), "KUBERNETES_SERVICE_PORT": str(url.port)}
    async with await NatsBus.connect(nats_url, "bench", name="inventory") as bus:
        start = time.perf_counter()
        async with await KubeApi.connect(config.kube, clock=clock, service_account=folder, environ=environ) as api:
            loop = Loop(bus, api, clock, config, Instruments.make(InventoryMetrics))
            nodes, pods = _Nodes(loop), _Pods(loop)
            reflections: list[Reflection] = [
                api.reflect("/api/v1/nodes", Node, nodes),
                api.reflect("/api/v1/pods", Pod, pods),
            ]
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(reflection.run()) for reflection in reflections]
                for reflection in reflections:
                    await reflection.synced.wait()
                took_s = time.perf_counter() - start
                gc.collect()
                kept_mb, peak_mb = memory_mb()
                for task in tasks:
                    task.cancel()
    return Measured(took_s, nodes.count, pods.count, kept_mb, peak_mb)


if __name__ == "__main__":
    quiet_collector()
    sys.stdout.buffer.write(msgspec.json.encode(uvloop.run(_measure(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))))
