"""Rows of ``restart`` on a real API server: all services killed, their memory, and their end after SIGTERM."""

import asyncio
import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.cluster import NAMESPACE, USER, Admin, a_template, admin_of
from bench.ends import kube_server, nats_server
from bench.kube.story import PodLean, Pods
from bench.processes import Process
from bench.report import Row, row
from berth.runtime.clock import SystemClock
from berth.runtime.kube.client import KubeApi
from berth.runtime.kube.config import KubeConfig


class Size(NamedTuple):
    """Size of a run: nodes, how often all services are killed and stopped, seconds of rest before memory is read."""

    nodes: int = 1_000
    repeats: int = 5
    settle_s: float = 10.0


FULL: Final = Size()
SMALL: Final = Size(nodes=20, repeats=1, settle_s=1.0)
_RULES: Final[list[dict[str, Any]]] = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
_SERVICES: Final = ("dispatcher", "scorer", "inventory", "binder", "health", "summary", "nodesim")
_SIMULATED: Final = frozenset({"nodesim"})
"""Not a service of a real cluster: it keeps running when the others are killed."""
_WITHOUT_KUBE: Final = frozenset({"dispatcher", "scorer"})
_PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
_JOBS: Final = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
_FREE_MIB: Final = 380.0


async def kube_rows(code: Path, size: Size = FULL) -> list[Row]:
    """Measure.

    Args:
        code: Tree from which the services run.
        size: Size of the run.
    """
    bound_s: list[float] = []
    stopped_s: list[float] = []
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="berth-restart-")))
        server = await stack.enter_async_context(kube_server(folder / "kube", users=(USER,)))
        admin = await stack.enter_async_context(admin_of(server))
        nats = await stack.enter_async_context(nats_server(folder / "nats"))
        await admin.prepare(0, _RULES)
        await admin.post("/api/v1/namespaces", {"metadata": {"name": "mindx-dl"}})
        kubeconfig = server.write_kubeconfig(folder / "bench", user=USER)
        api = await stack.enter_async_context(
            await KubeApi.connect(KubeConfig(kubeconfig=kubeconfig), clock=SystemClock())
        )
        (folder / "cluster.yaml").write_text(
            "apiVersion: berth/v1\nkind: Cluster\nnodes:\n"
            f'  - {{product: module910bx8, count: {size.nodes}, name: "node-{{index}}"}}\n'
        )
        all_processes = {
            name: Process(folder, name, _settings(name, folder, nats.url, kubeconfig), code=code) for name in _SERVICES
        }
        for one in all_processes.values():
            stack.callback(one.kill)
        seen = Pods()
        group = await stack.enter_async_context(asyncio.TaskGroup())
        watching = group.create_task(api.reflect(_PODS, PodLean, seen).run())
        for one in all_processes.values():
            one.start()
        count = await _bind_one(admin, seen, 0)
        await asyncio.sleep(size.settle_s)
        memory = {name: one.pss_mib() for name, one in all_processes.items()}
        services = [one for name, one in all_processes.items() if name not in _SIMULATED]
        for _ in range(size.repeats):
            for one in services:
                one.kill()
            began_s = time.perf_counter()
            for one in services:
                one.start()
            count = await _bind_one(admin, seen, count)
            bound_s.append(time.perf_counter() - began_s)
            await asyncio.sleep(1)
        for _ in range(size.repeats):
            began_s = time.perf_counter()
            for one in services:
                one.ask_to_stop()
            for one in services:
                await asyncio.to_thread(one.wait)
            stopped_s.append(time.perf_counter() - began_s)
            for one in services:
                one.start()
            count = await _bind_one(admin, seen, count)
        watching.cancel()
    case = f"{size.nodes:,} nodes, {server.version}"
    return [
        row(
            case,
            "start of all services, which were killed, to the first new job that is bound, p50",
            "s",
            bound_s,
            target=3.5,
        ),
        row(case, "SIGTERM to the end of all services, most", "s", [max(stopped_s)], target=1.0),
        row(case, "SIGTERM to the end of all services, p50", "s", [statistics.median(stopped_s)]),
        row(case, "proportional memory of all services", "MiB", [sum(memory.values())], target=_FREE_MIB),
        *(row(case, f"proportional memory of {name}", "MiB", [value]) for name, value in memory.items()),
    ]


def _settings(name: str, folder: Path, url: str, kubeconfig: Path) -> dict[str, object]:
    found: dict[str, object] = {"bus": {"url": url, "cell": "bench"}}
    if name not in _WITHOUT_KUBE:
        found["kube"] = {"kubeconfig": kubeconfig}
    if name in {"dispatcher", "scorer"}:
        found["shards"] = 1
    if name == "nodesim":
        found["topology_file"] = folder / "cluster.yaml"
    return found


async def _bind_one(admin: Admin, seen: Pods, count: int) -> int:
    """Create a Job of one pod and wait until its pod is bound; returns the pods that were made so far."""
    seen.forget_times()
    template = a_template({})
    template["spec"]["terminationGracePeriodSeconds"] = 0
    spec = {"parallelism": 1, "completions": 1, "completionMode": "Indexed", "template": template}
    await admin.post(_JOBS, {"metadata": {"name": f"lone-{count}"}, "spec": spec})
    await seen.until_bound(1)
    return count + 1
