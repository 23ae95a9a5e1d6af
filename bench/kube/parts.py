"""Rows of ``kube`` for pods of two chips, four on a node: live device plug-ins give them their chips."""

import asyncio
import gc
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from bench.cluster import USER, admin_of, card
from bench.ends import kube_server
from bench.kube.gang import RULES
from bench.kube.story import PodLean
from bench.kube.world import PODS, World, a_pod, binding_body, world
from bench.limits.kube import Turns
from bench.report import Row, row
from berth.formats.ascend.pod_annotations import CONSUMED, PREDICATE_TIME
from berth.runtime.kube.port import Change
from berth.schemas.envelope import decode
from berth.schemas.simulation import SimCounts

_CHIPS: Final = 2
_TARGET_S: Final = 2.0
_DEADLINE_S: Final = 60.0
_POLL_S: Final = 0.1


class Size(NamedTuple):
    """Size of a run: nodes, pods, four for each node, and rounds."""

    nodes: int = 16
    pods: int = 64
    rounds: int = 3


FULL: Final = Size()
SMALL: Final = Size(nodes=2, pods=8, rounds=1)


async def measure_parts(size: Size = FULL) -> list[Row]:
    """Jobs of one pod of two chips, from the first creation to the last binding."""
    nodes, pods, rounds = size
    ours: list[float] = []
    bare: list[float] = []
    swapped = 0
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="berth-kube-")))
        server = await stack.enter_async_context(kube_server(folder / "kube", users=(USER,), controllers=()))
        admin = await stack.enter_async_context(admin_of(server))
        await admin.prepare(0, RULES)
        cell = await stack.enter_async_context(world(folder, server))
        topology = folder / "cluster.yaml"
        topology.write_text(
            "apiVersion: berth/v1\nkind: Cluster\nnodes:\n"
            f'  - {{product: module910bx8, count: {nodes}, name: "a2-{{index:02}}"}}\n'
        )
        settings = {"topology_file": topology, "agents": {"run_for_ever": True}}
        await stack.enter_async_context(cell.service("nodesim", settings))
        for number in range(rounds):
            for is_ours in (number % 2 == 0, number % 2 == 1):
                names = [f"part-{number}-{int(is_ours)}-{index}" for index in range(pods)]
                gc.collect()
                cell.seen.forget_times()
                if is_ours:
                    async with cell.services():
                        start_s = time.perf_counter()
                        await cell.post_all([[(PODS, a_pod(name, chips=_CHIPS))] for name in names])
                        await cell.seen.until_bound(pods)
                        ours.append(cell.seen.bound_s[-1] - start_s)
                        swapped = await _until_given(cell, (2 * number + 1 + (number % 2)) * pods)
                        await cell.remove_all([f"pod.{name}" for name in names])
                else:
                    bare.append(await _bare_s(cell, names, nodes))
                    await cell.remove_all([])
    case = f"{pods} pods of {_CHIPS} chips on {nodes} nodes with device plug-ins, {server.version}"
    return [
        row(case, "first creation to last binding", "s", ours, limits=bare, target=_TARGET_S),
        row(case, "pods with other chips than decided", "pods", [swapped], target=0, can_be_zero=True),
    ]


async def _bare_s(cell: World, names: Sequence[str], nodes: int) -> float:
    """Seconds for the same pods, bound in turns by a bare loop; the chips of each node are given in order."""
    waiting: dict[str, list[tuple[str, str, bytes]]] = {}
    for index, name in enumerate(names):
        node = msgspec.structs.replace(card(0), name=f"a2-{index % nodes:02}")
        first = _CHIPS * (index // nodes)
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
