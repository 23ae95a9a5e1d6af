"""Rows of ``kube`` for pods of two chips, four on a node: live device plug-ins give them their chips."""

import asyncio
import gc
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import msgspec

from bench.cluster import USER, admin_of, card
from bench.kube.gang import RULES
from bench.kube.story import PodLean
from bench.kube.world import PODS, World, a_pod, binding_body, world
from bench.limits.kube import Turns
from bench.report import Row, row
from berth.formats.ascend.pod_annotations import CONSUMED, PREDICATE_TIME
from berth.runtime.kube.port import Change
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
    ours: list[float] = []
    bare: list[float] = []
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
            for is_ours in (number % 2 == 0, number % 2 == 1):
                names = [f"part-{number}-{int(is_ours)}-{index}" for index in range(_PODS)]
                gc.collect()
                cell.seen.forget_times()
                if is_ours:
                    async with cell.services():
                        start_s = time.perf_counter()
                        await cell.post_all([[(PODS, a_pod(name, chips=_CHIPS))] for name in names])
                        await cell.seen.until_bound(_PODS)
                        ours.append(cell.seen.bound_s[-1] - start_s)
                        swapped = await _until_given(cell, (2 * number + 1 + (number % 2)) * _PODS)
                        await cell.remove_all([f"pod.{name}" for name in names])
                else:
                    bare.append(await _bare_s(cell, names))
                    await cell.remove_all([])
    case = f"{_PODS} pods of {_CHIPS} chips on {_NODES} nodes with device plug-ins, {server.version}"
    return [
        row(case, "first creation to last binding", "s", ours, limits=bare, target=_TARGET_S),
        row(case, "pods with other chips than decided", "pods", [swapped], target=0),
    ]


async def _bare_s(cell: World, names: Sequence[str]) -> float:
    """Seconds for the same pods, bound in turns by a bare loop; the chips of each node are given in order."""
    waiting: dict[str, list[tuple[str, str, bytes]]] = {}
    for index, name in enumerate(names):
        node = msgspec.structs.replace(card(0), name=f"a2-{index % _NODES:02}")
        first = _CHIPS * (index // _NODES)
        body = binding_body(name, node, tuple(range(first, first + _CHIPS)), 0)
        waiting.setdefault(node.name, []).append((name, f"{cell.server.url}{PODS}/{name}/binding", body))
    turns = Turns(waiting)
    with cell.watches():
        start_s = time.perf_counter()
        await cell.post_all([[(PODS, a_pod(name, chips=_CHIPS))] for name in names])
        async with cell.watch_pods(_Served(turns)):
            await turns.bind(cell.session)
        return cell.seen.bound_s[-1] - start_s


class _Served:
    """Passes on which pods have their chips."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns

    def replace(self, pods: list[PodLean]) -> None:
        """All pods."""
        self.change([("ADDED", pod) for pod in pods])

    def change(self, changes: list[tuple[Change, PodLean]]) -> None:
        """Changes, oldest first."""
        for _, pod in changes:
            if pod.metadata.annotation(PREDICATE_TIME) == CONSUMED:
                self._turns.served(pod.metadata.name)


async def _until_given(cell: World, pods: int) -> int:
    """Wait until so many pods have chips; returns how many have others than decided."""
    async with asyncio.timeout(_DEADLINE_S):
        while True:
            answer = await cell.bus.request(cell.bus.subjects.sim("counts"), b"", timeout_s=_DEADLINE_S)
            counts = decode(answer, SimCounts)
            if counts.pods_bound >= pods:
                return counts.swapped
            await asyncio.sleep(_POLL_S)
