"""``kube-gang``: one gang of 1,000 whole-node pods, from the creation of its Job to the last binding.

A real API server, the Job controller of kube-controller-manager, NATS, inventory, dispatcher and binder, all processes
of this machine. The parts follow one another: the controller makes the pods, the inventory asks, the dispatcher
decides, the binder binds. The limit of the last part is a bare loop of the same requests in the same run, for the pods
of a Job too: both run alternately, and no service runs during the loop. The CPU seconds of each process are reported
for both.
"""

import asyncio
import gc
import os
import statistics
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench.bind import TARGET, bare_s
from bench.cluster import NAMESPACE, USER, Admin, a_template, admin_of
from bench.ends import kube_server, nats_server, until_done
from bench.kube.story import PodLean, Pods, Story, now_ms
from bench.processes import Process, cpu_s, until_ready
from bench.report import Report, Row, machine, row
from berth.formats.kubernetes.objects import Listed
from berth.lab.servers.kube_server import KubeServer
from berth.lab.servers.nats_server import EmbeddedServer
from berth.lab.servers.ports import free_ports
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.clock import SystemClock
from berth.runtime.kube.client import KubeApi
from berth.runtime.kube.config import KubeConfig
from berth.services.binder.node_cards import NodeCards, NodeLean

SERVICES: Final = ("dispatcher", "inventory", "binder")
DECISION_TARGET_MS: Final = 1_000.0
_DEADLINE_S: Final = 60.0
_POLL_S: Final = 0.05
_OK: Final = 200
RULES: Final = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
_PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
_JOBS: Final = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"


class Gang(NamedTuple):
    """Durations of the parts from the Job to the last binding, in ms, and CPU seconds of each process.

    ``before_s`` is the CPU time until the placement, ``work_s`` the CPU time from there to the last binding.
    """

    made: float
    asked: float
    decided: float
    first: float
    bound: float
    total: float
    before_s: dict[str, float]
    work_s: dict[str, float]

    @property
    def to_decision(self) -> float:
        """From the last pod to the decision."""
        return self.asked + self.decided


class Bare(NamedTuple):
    """The same requests from a loop: ms to create the pods, ms for all bindings, and CPU seconds of each process."""

    made: float
    bound: float
    work_s: dict[str, float]


class Cell:
    """Servers and watches of the rounds.

    Args:
        folder: Folder for files.
        server: The API server.
        nats: The bus.
        admin: Creates Jobs.
        story: Events on the bus.
        pods: Events of a watch of pods.
    """

    def __init__(
        self, folder: Path, server: KubeServer, nats: EmbeddedServer, admin: Admin, story: Story, pods: Pods
    ) -> None:
        self._folder = folder
        self._server = server
        self._nats = nats
        self._admin = admin
        self._story = story
        self._pods = pods
        self._kubeconfig = server.write_kubeconfig(folder / "services", user=USER)

    async def gang(self, number: int, pods: int) -> Gang:
        """One gang from its Job to its last binding, with the services of Berth. Its pods stay."""
        name, story = f"job.gang-{number}", self._story
        async with self._services() as pids:
            self._pods.forget_times()
            start = worked_s(pids)
            began_ms = now_ms()
            await self._admin.post(_JOBS, _a_job(f"gang-{number}", pods))
            await story.until_placed(name)
            before_s, before = _since(start, pids), worked_s(pids)
            await story.until_bound(name)
            work_s = _since(before, pids)
            await self._pods.until_bound(pods)
        made_ms, asked_ms = self._pods.made_ms[pods - 1], story.asked[name]
        placed_ms, bound_ms = story.placed[name], story.bound[name]
        return Gang(
            made=made_ms - began_ms,
            asked=asked_ms - made_ms,
            decided=placed_ms - asked_ms,
            first=self._pods.bound_ms[0] - placed_ms,
            bound=bound_ms - placed_ms,
            total=bound_ms - began_ms,
            before_s=before_s,
            work_s=work_s,
        )

    async def bare(self, number: int, pods: int, book: NodeCards) -> Bare:
        """A Job whose pods a bare loop binds; it is deleted afterwards."""
        name, there = f"bare-{number}", self._pods.count
        self._pods.forget_times()
        began_ms = now_ms()
        await self._admin.post(_JOBS, _a_job(name, pods))
        await self._pods.until_count(there + pods)
        made = self._pods.made_ms[-1] - began_ms
        gang, members = await self._admin.gang_of_job(name)
        pids = {**self._server.pids, "binder": os.getpid()}  # the loop stands for the binder
        before = worked_s(pids)
        took_s = await bare_s(self._server, book, gang, members)
        work_s = _since(before, pids)
        await self._admin.delete(f"{_JOBS}/{name}")
        await self._pods.until_count(there)
        return Bare(made, 1000 * took_s, work_s)

    @asynccontextmanager
    async def _services(self) -> AsyncIterator[dict[str, int]]:
        """The services of Berth, each in its own process; yields all processes when the services are ready."""
        with ExitStack() as stack:
            services = []
            ports = free_ports(len(SERVICES))
            for service, port in zip(SERVICES, ports, strict=True):
                settings: dict[str, object] = {
                    "bus": {"url": self._nats.url, "cell": "bench"},
                    "probes": {"port": port},
                }
                if service != "dispatcher":
                    settings["kube"] = {"kubeconfig": self._kubeconfig}
                services.append(Process(self._folder, service, settings))
                services[-1].start()
                stack.callback(services[-1].kill)
            for port in ports:
                await until_ready(port, deadline_s=_DEADLINE_S, poll_s=_POLL_S)
            yield {**self._server.pids, **{one.name: one.pid for one in services}}


def worked_s(pids: Mapping[str, int]) -> dict[str, float]:
    """CPU seconds of each process so far."""
    return {name: cpu_s(pid) for name, pid in pids.items()}


def _since(before: Mapping[str, float], pids: Mapping[str, int]) -> dict[str, float]:
    return {name: after - before[name] for name, after in worked_s(pids).items()}


class Size(NamedTuple):
    """Size of a run: pods of the gang, and gangs."""

    pods: int = 1_000
    rounds: int = 5


FULL: Final = Size()
SMALL: Final = Size(pods=20, rounds=1)


def run(size: Size = FULL) -> Report:
    """Measure."""
    return Report(bench="kube-gang", machine=machine(), rows=until_done(_measure(*size)))


async def _measure(pods: int, rounds: int) -> list[Row]:
    gangs: list[Gang] = []
    bares: list[Bare] = []
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="berth-kube-gang-")))
        server = await stack.enter_async_context(kube_server(folder / "kube", users=(USER,)))
        admin = await stack.enter_async_context(admin_of(server))
        nats = await stack.enter_async_context(nats_server(folder / "nats"))
        await admin.prepare(pods * rounds, RULES)
        config = KubeConfig(kubeconfig=server.write_kubeconfig(folder / "bench", user=USER))
        api = await stack.enter_async_context(await KubeApi.connect(config, clock=SystemClock()))
        bus = await stack.enter_async_context(
            await NatsBus.connect(nats.url, "bench", name="bench", inbox="_INBOX.person.bench")
        )
        book = NodeCards()
        book.replace((await api.get("/api/v1/nodes", Listed[NodeLean])).items or [])
        await bus.ensure_streams()
        seen = Pods()
        reflecting = api.reflect(_PODS, PodLean, seen)
        group = await stack.enter_async_context(asyncio.TaskGroup())
        watching = group.create_task(reflecting.run())
        cell = Cell(folder, server, nats, admin, Story(bus), seen)
        for number in range(rounds):
            for is_ours in (number % 2 == 0, number % 2 == 1):
                gc.collect()
                if is_ours:
                    gangs.append(await cell.gang(number, pods))
                else:
                    bares.append(await cell.bare(number, pods, book))
        watching.cancel()
    return _rows(f"a Job of {pods} pods, {server.version}", gangs, bares)


def _rows(case: str, gangs: list[Gang], bares: list[Bare]) -> list[Row]:
    limits = [bare.bound for bare in bares]
    ratios = [bare.bound / gang.bound for gang, bare in zip(gangs, bares, strict=True)]
    rows = [
        row(
            case,
            "Job to last pod: the Job controller",
            "ms",
            [one.made for one in gangs],
            limits=[one.made for one in bares],
        ),
        # The inventory may see the last pod before the watch of this bench does, and what is fast takes 0 whole ms.
        row(case, "last pod to request", "ms", [one.asked for one in gangs], can_be_zero=True),
        row(case, "request to placement", "ms", [one.decided for one in gangs], can_be_zero=True),
        row(
            case,
            "last pod to placement",
            "ms",
            [one.to_decision for one in gangs],
            target=DECISION_TARGET_MS,
            can_be_zero=True,
        ),
        row(case, "placement to first binding", "ms", [one.first for one in gangs], can_be_zero=True),
        row(case, "placement to last binding", "ms", [one.bound for one in gangs], limits=limits),
        row(case, "bindings against a bare loop", "ratio", [statistics.median(ratios)], target=TARGET, better="more"),
        row(case, "Job to last binding", "ms", [one.total for one in gangs]),
    ]
    for name in SERVICES:
        worked = [one.before_s[name] for one in gangs]
        rows.append(row(case, f"work of {name} until the placement", "s of a core", worked))
    for name in gangs[0].work_s:
        alone = [one.work_s[name] for one in bares if name in one.work_s]
        worked = [one.work_s[name] for one in gangs]
        rows.append(row(case, f"work of {name} while pods are bound", "s of a core", worked, limits=alone))
    worked, alone = ([sum(one.work_s.values()) for one in some] for some in (gangs, bares))
    rows.append(row(case, "work of all while pods are bound", "s of a core", worked, limits=alone))
    return rows


def _a_job(name: str, pods: int) -> dict[str, object]:
    template = a_template({})
    template["spec"]["terminationGracePeriodSeconds"] = 0  # no kubelet ends the pods of a bare loop
    return {
        "metadata": {"name": name},
        "spec": {"parallelism": pods, "completions": pods, "completionMode": "Indexed", "template": template},
    }
