"""Rows of ``kube`` for pods of two chips, four on a node: live device plug-ins give them their chips."""

import asyncio
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from bench.cluster import USER, admin_of
from bench.kube_gang import RULES
from bench.kube_world import PODS, World, a_pod, world
from bench.report import Row, row
from berth.runtime.local.kube_server import KubeServer
from berth.schemas.envelope import decode
from berth.schemas.simulation import SimCounts

_NODES: Final = 16
_PODS: Final = 64
_CHIPS: Final = 2
_ROUNDS: Final = 3
_TARGET_S: Final = 2.0
_DEADLINE_S: Final = 60.0
_POLL_S: Final = 0.1
_TOPOLOGY: Final = f"""
apiVersion: berth/v1
kind: Cluster
nodes:
  - {{product: module910bx8, count: {_NODES}, name: "a2-{{index:02}}"}}
"""


async def measure_parts() -> list[Row]:
    """64 jobs of one pod of two chips on 16 nodes, from the first creation to the last binding."""
    took: list[float] = []
    swapped = 0
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="berth-kube-")))
        server = await stack.enter_async_context(KubeServer(folder / "kube", users={USER: ()}, controllers=()))
        admin = await stack.enter_async_context(admin_of(server))
        await admin.prepare(0, RULES)
        cell = await stack.enter_async_context(world(folder, server))
        topology = folder / "cluster.yaml"
        topology.write_text(_TOPOLOGY, encoding="utf-8")
        settings = f'topology_file = "{topology}"\n[agents]\nrun_for_ever = true\n'
        await stack.enter_async_context(cell.service("nodesim", settings))
        for number in range(_ROUNDS):
            names = [f"part-{number}-{index}" for index in range(_PODS)]
            async with cell.services():
                cell.seen.forget_times()
                start_s = time.perf_counter()
                await cell.post_all([[(PODS, a_pod(name, chips=_CHIPS))] for name in names])
                await cell.seen.until_bound(_PODS)
                took.append(cell.seen.bound_s[-1] - start_s)
                swapped = await _until_given(cell, (number + 1) * _PODS)
                await cell.remove_all([f"pod.{name}" for name in names])
    case = f"{_PODS} pods of {_CHIPS} chips on {_NODES} nodes with device plug-ins, {server.version}"
    return [
        row(case, "first creation to last binding", "s", took, target=_TARGET_S),
        row(case, "pods with other chips than decided", "pods", [swapped], target=0),
    ]


async def _until_given(cell: World, pods: int) -> int:
    """Wait until so many pods have chips; returns how many have others than decided."""
    async with asyncio.timeout(_DEADLINE_S):
        while True:
            answer = await cell.bus.request(cell.bus.subjects.sim("counts"), b"", timeout_s=_DEADLINE_S)
            counts = decode(answer, SimCounts)
            if counts.pods_bound >= pods:
                return counts.swapped
            await asyncio.sleep(_POLL_S)
