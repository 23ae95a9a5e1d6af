"""``kube``: from the creation of pods to their bindings, with all services of Berth, on a real API server.

The limit of each row is a bare loop in the same run: it creates, or binds, the same pods with 64 hands, beside as many
watches as Berth has. Binding is compared with binding. Each kind of row can be run alone.
"""

import asyncio
import gc
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, NamedTuple

from bench.cluster import CHIPS, USER, admin_of
from bench.ends import kube_server, until_done
from bench.kube import parts
from bench.kube.gang import RULES, worked_s
from bench.kube.world import GROUPS, PODS, SERVICES, World, a_group, a_pod, binding_bodies, world
from bench.report import Report, Row, machine, row

ROWS: Final = ("lone", "many", "plain", "replaced", "gang", "switch", "part")
_TARGET_LONE_MS: Final = {1_000: 60.0, 5_000: 100.0}
_TARGET_TAIL: Final = 2.5
_TARGET_REPLACED_MS: Final = 300.0
_RECOVERING: Final = 8
"""Pods of a gang that recovers."""
_TARGET_MANY: Final = 2.5
_TARGET_PLAIN: Final = 0.5
_TARGET_RATE: Final = {1_000: 0.6, 5_000: 0.5}
_TARGET_CPU_MS: Final = 1.5
_LABEL: Final = "large-model-schema"


class Size(NamedTuple):
    """Size of a run.

    Attributes:
        nodes: Nodes of each cluster. On the last one gangs with switch affinity are measured too.
        gangs: Pods of the gangs; the first ones come in several rounds. No gang has more pods than there are nodes.
        lone: Pods one after another, after some that warm up.
        warm: Those.
        many: Pods at once.
        rounds: Rounds.
        part: Of the row with device plug-ins.
    """

    nodes: tuple[int, ...] = (1_000, 5_000)
    gangs: tuple[int, ...] = (1_000, 5_000)
    lone: int = 40
    warm: int = 3
    many: int = 200
    rounds: int = 3
    part: parts.Size = parts.FULL


FULL: Final = Size()
SMALL: Final = Size(nodes=(32,), gangs=(16,), lone=2, warm=1, many=8, rounds=1, part=parts.SMALL)


def run(size: Size = FULL, wanted: Sequence[str] = ()) -> Report:
    """Measure.

    Args:
        size: Size of the run.
        wanted: Kinds of rows; empty for all.
    """
    kinds = wanted or ROWS
    rows: list[Row] = []
    for nodes in size.nodes:
        if set(kinds) - {"part"}:
            rows += until_done(_measure(nodes, kinds, size))
    if "part" in kinds:
        rows += until_done(parts.measure_parts(size.part))
    return Report(bench="kube", machine=machine(), rows=rows)


async def _measure(nodes: int, kinds: Sequence[str], size: Size) -> list[Row]:
    rows: list[Row] = []
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="berth-kube-")))
        server = await stack.enter_async_context(kube_server(folder / "kube", users=(USER,), controllers=()))
        admin = await stack.enter_async_context(admin_of(server))
        await admin.prepare(nodes, RULES)
        cell = await stack.enter_async_context(world(folder, server))
        await cell.make_leaves(nodes)
        case = f"{nodes} nodes, {server.version}"
        if "lone" in kinds:
            rows += await _lone(cell, case, nodes, size)
        if "many" in kinds:
            rows += _many_rows(case, size.many, *await _many(cell, "many", nodes, len(CHIPS), size))
        if "plain" in kinds:
            rows += _plain_rows(case, size.many, *await _many(cell, "plain", nodes, 0, size))
        if "replaced" in kinds:
            # Recoveries are in the ledger of that cell, so that a dispatcher without them does not start on it.
            async with world(folder / "replaced", server) as recovering:
                rows += await _replaced(recovering, case, size)
        for kind, label in (("gang", ""), ("switch", _LABEL)):
            if kind in kinds:
                for pods in size.gangs:
                    if pods <= nodes and (nodes == size.nodes[-1] or kind == "gang"):
                        rounds = size.rounds if pods == size.gangs[0] else 1
                        rows += await _gang(cell, f"{case}, {kind} of {pods}", pods, label, rounds)
    return rows


async def _lone(cell: World, case: str, nodes: int, size: Size) -> list[Row]:
    """Pods one after another: alone, and with a PodGroup of one that is not admitted yet."""
    rows: list[Row] = []
    async with cell.services():
        for grouped in (False, True):
            took: list[float] = []
            names = []
            for number in range(size.warm + size.lone):
                name = f"lone-{int(grouped)}-{number}"
                names.append(name)
                cell.seen.forget_times()
                parts = [(GROUPS, a_group(name, 1))] if grouped else []
                await cell.post_all([[*parts, (PODS, a_pod(name, group=name if grouped else ""))]])
                await cell.seen.until_bound(1)
                took.append(cell.seen.bound_s[0] - cell.seen.made_s[0])
            await cell.remove_all([f"{'podgroup' if grouped else 'pod'}.{name}" for name in names])
            found_ms = sorted(1000 * one for one in took[size.warm :])
            what = "lone pod with a PodGroup" if grouped else "lone pod"
            target = _TARGET_LONE_MS.get(nodes)
            tail = found_ms[int(0.95 * len(found_ms))]
            rows.append(row(case, f"{what}: created to bound, p50", "ms", found_ms, target=target))
            most = None if target is None else _TARGET_TAIL * target
            rows.append(row(case, f"{what}: created to bound, p95", "ms", [tail], target=most))
    return rows


async def _replaced(cell: World, case: str, size: Size) -> list[Row]:
    """Pods of a gang leave one after another for a fault, and a controller makes others."""
    job, names = "replaced", [f"replaced-{rank}" for rank in range(_RECOVERING)]
    took: list[float] = []
    async with cell.services():
        cell.seen.forget_times()
        await cell.post(GROUPS, a_group(job, len(names)))
        await cell.post_all([[(PODS, a_pod(one, group=job, recovers_as=rank))] for rank, one in enumerate(names)])
        await cell.seen.until_bound(len(names))
        for number in range(size.warm + size.lone):
            rank = 1 + number % (len(names) - 1)  # a fault of rank 0 is one of the whole job
            await cell.mark_faulty(names[rank])
            await cell.seen.until_count(len(names) - 1)
            cell.seen.forget_times()
            await cell.post(PODS, a_pod(names[rank], group=job, recovers_as=rank))
            await cell.seen.until_bound(1)
            took.append(1000 * (cell.seen.bound_s[0] - cell.seen.made_s[0]))
            await cell.until_recovered(f"podgroup.{job}")
        await cell.remove_all([f"podgroup.{job}"])
    found_ms = sorted(took[size.warm :])
    what = "pod that replaces one with a fault: created to bound"
    return [
        row(case, f"{what}, p50", "ms", found_ms, target=_TARGET_REPLACED_MS),
        row(case, f"{what}, p95", "ms", [found_ms[int(0.95 * len(found_ms))]]),
    ]


async def _many(cell: World, kind: str, nodes: int, chips: int, size: Size) -> tuple[list[float], list[float]]:
    """Pods without a group, all at once: seconds from the first creation to the last binding, and of a bare loop."""
    ours: list[float] = []
    bare: list[float] = []
    for number in range(size.rounds):
        for is_ours in (number % 2 == 0, number % 2 == 1):
            names = [f"{kind}-{number}-{int(is_ours)}-{index}" for index in range(size.many)]
            gc.collect()
            cell.seen.forget_times()
            if is_ours:
                async with cell.services():
                    start_s = time.perf_counter()
                    await cell.post_all([[(PODS, a_pod(name, chips=chips))] for name in names])
                    await cell.seen.until_bound(size.many)
                    ours.append(cell.seen.bound_s[-1] - start_s)
                    await cell.remove_all([f"pod.{name}" for name in names])
            else:
                requests = binding_bodies(names, nodes)
                groups = [
                    [(PODS, a_pod(name, chips=chips)), (f"{PODS}/{name}/binding", body)]
                    for name, body in zip(names, requests, strict=True)
                ]
                with cell.watches():
                    start_s = time.perf_counter()
                    await cell.post_all(groups)
                    await cell.seen.until_bound(size.many)
                    bare.append(cell.seen.bound_s[-1] - start_s)
                await cell.remove_all([])
    return ours, bare


def _plain_rows(case: str, many: int, ours: Sequence[float], bare: Sequence[float]) -> list[Row]:
    ratios = [other / one for one, other in zip(ours, bare, strict=True)]
    what = f"{many} pods without chips"
    return [
        row(case, f"{what}: first creation to last binding", "s", ours, limits=bare),
        row(case, f"{what}: rate against the loop", "ratio", ratios, target=_TARGET_PLAIN, better="more"),
    ]


def _many_rows(case: str, many: int, ours: Sequence[float], bare: Sequence[float]) -> list[Row]:
    ratios = [one / other for one, other in zip(ours, bare, strict=True)]
    return [
        row(case, f"{many} jobs of one pod: first creation to last binding", "s", ours, limits=bare),
        row(case, f"{many} jobs of one pod against the loop", "ratio", ratios, target=_TARGET_MANY),
    ]


async def _gang(cell: World, case: str, pods: int, label: str, rounds: int) -> list[Row]:
    """One gang, from the creation of its last pod to its last binding."""
    ours: list[float] = []
    bare: list[float] = []
    cpu_ms: list[dict[str, float]] = []
    for number in range(rounds):
        for is_ours in (number % 2 == 0, number % 2 == 1):
            name = f"gang-{len(label)}-{pods}-{number}"
            names = [f"{name}-{index}" for index in range(pods)]
            gc.collect()
            cell.seen.forget_times()
            if is_ours:
                async with cell.services() as pids:
                    await asyncio.sleep(1)
                    before = worked_s(pids)
                    await cell.post(GROUPS, a_group(name, pods, label=label))
                    await cell.post_all([[(PODS, a_pod(one, group=name, label=label))] for one in names])
                    await cell.seen.until_bound(pods)
                    ours.append(cell.seen.bound_s[-1] - cell.seen.made_s[-1])
                    worked = await cell.quiet_s(pids, before)
                    cpu_ms.append({name: 1000 * value / pods for name, value in worked.items()})
                    await cell.remove_all([f"podgroup.{name}"])
            else:
                await cell.post_all([[(PODS, a_pod(one, group=name, label=label))] for one in names])
                await cell.seen.until_count(pods)
                bodies = binding_bodies(names, pods)
                with cell.watches():
                    await asyncio.sleep(1)
                    start_s = time.perf_counter()
                    await cell.post_all(
                        [[(f"{PODS}/{one}/binding", body)] for one, body in zip(names, bodies, strict=True)]
                    )
                    await cell.seen.until_bound(pods)
                    bare.append(cell.seen.bound_s[-1] - start_s)
                await cell.remove_all([])
    rates = [pods / took for took in ours]
    limits = [pods / took for took in bare]
    ratios = [one / other for one, other in zip(rates, limits, strict=True)]
    return [
        row(case, "last pod created to last binding", "s", ours, limits=bare),
        row(case, "rate against the loop", "ratio", ratios, target=_TARGET_RATE.get(pods), better="more"),
        row(case, "CPU of all services", "ms a pod", [sum(one.values()) for one in cpu_ms], target=_TARGET_CPU_MS),
        *(row(case, f"CPU of {name}", "ms a pod", [one[name] for one in cpu_ms]) for name in SERVICES),
    ]
