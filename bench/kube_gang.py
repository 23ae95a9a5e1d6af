"""``kube-gang``: one gang of 1,000 whole-node pods, from the creation of its Job to the last binding.

A real API server, the Job controller of kube-controller-manager, NATS, inventory, dispatcher and binder, all processes of
this machine. The parts follow one another: the controller makes the pods and the inventory asks, the dispatcher decides, the
binder binds. The server's own share of the last is what the same requests take from a bare loop in the same run.
"""

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import uvloop

from bench.bind import bare_s
from bench.cluster import NAMESPACE, USER, a_template, admin_of
from bench.report import Report, Row, machine, row
from berth.formats.kube_objects import Listed
from berth.runtime.bus import NatsBus
from berth.runtime.clock import SystemClock
from berth.runtime.kube import KubeApi
from berth.runtime.kube_config import KubeConfig
from berth.runtime.kube_server import KubeServer
from berth.runtime.port import Stored
from berth.runtime.server import EmbeddedServer
from schemas.columns import unpack_names
from schemas.envelope import DecodeError, body_of, open_envelope
from schemas.facts import NodesSeen, OutcomeSeen
from schemas.intake import JobRequest
from schemas.ledger import Round
from schemas.subjects import StreamName
from services.binder.node_book import NodeBook, NodeLean

PODS = 1_000
ROUNDS = 3
_DEADLINE_S = 150.0
_RULES = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]


class Times(NamedTuple):
    """When what happened, in ms since 1970."""

    asked: int
    placed: int
    bound: int


class Story:
    """What the bus says of jobs."""

    def __init__(self, bus: NatsBus) -> None:
        self.nodes: set[str] = set()
        self._asked: dict[str, int] = {}
        self._placed: dict[str, int] = {}
        self.told: dict[str, Times] = {}
        self.changed = asyncio.Event()
        for stream in (StreamName.INTAKE, StreamName.LEDGER, StreamName.FACTS):
            bus.follow(stream, on_message=self._take, on_gap=_fail)

    def _take(self, stored: Stored) -> None:
        try:
            envelope = open_envelope(stored.data)
            match envelope.kind:
                case JobRequest.KIND:
                    self._asked[body_of(envelope, JobRequest).name] = stored.at_ms
                case Round.KIND:
                    verdicts = body_of(envelope, Round).verdicts
                    self._placed.update((one.name, stored.at_ms) for one in verdicts if one.placement is not None)
                case OutcomeSeen.KIND:
                    self._bound(body_of(envelope, OutcomeSeen))
                case NodesSeen.KIND:
                    self.nodes.update(unpack_names(body_of(envelope, NodesSeen).names))
                case _:
                    return
        except DecodeError:
            return
        self.changed.set()

    def _bound(self, outcome: OutcomeSeen) -> None:
        if outcome.state != "bound" or outcome.failures:
            raise RuntimeError(f"{outcome.name}: {outcome.state}, {outcome.failures[:1]}")
        self.told[outcome.name] = Times(self._asked[outcome.name], self._placed[outcome.name], outcome.at_ms)

    async def until_nodes(self, count: int) -> None:
        """Wait until so many nodes are known."""
        async with asyncio.timeout(_DEADLINE_S):
            while len(self.nodes) < count:
                self.changed.clear()
                await self.changed.wait()

    async def of(self, job: str) -> Times:
        """Wait until a job is bound."""
        async with asyncio.timeout(_DEADLINE_S):
            while job not in self.told:
                self.changed.clear()
                await self.changed.wait()
        return self.told[job]


def _fail(gap: object) -> None:
    raise RuntimeError(f"history broke: {gap}")


def run() -> Report:
    """Measure."""
    return Report(bench="kube-gang", machine=machine(), rows=uvloop.run(_measure(PODS, ROUNDS)))


async def _measure(pods: int, rounds: int) -> list[Row]:
    made: list[float] = []
    decided: list[float] = []
    bound: list[float] = []
    bare: list[float] = []
    total: list[float] = []
    with tempfile.TemporaryDirectory(prefix="berth-kube-gang-") as root:
        folder = Path(root)
        server = KubeServer(folder / "kube", users={USER: ()})
        async with server, admin_of(server) as admin, EmbeddedServer(folder / "nats") as nats:
            await admin.prepare(pods * rounds, _RULES)
            kubeconfig = server.write_kubeconfig(folder / "kubeconfig", user=USER)
            book = await _nodes(kubeconfig)
            async with await NatsBus.connect(nats.url, "bench", name="bench") as bus:
                await bus.ensure_streams()
                story = Story(bus)
                async with _services(folder, nats.url, kubeconfig):
                    await story.until_nodes(pods * rounds)
                    for number in range(rounds):
                        began_ms = time.time_ns() // 1_000_000
                        await admin.post(f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs", _a_job(f"gang-{number}", pods))
                        times = await story.of(f"job.gang-{number}")
                        made.append(times.asked - began_ms)
                        decided.append(times.placed - times.asked)
                        bound.append(times.bound - times.placed)
                        total.append(times.bound - began_ms)
                for number in range(rounds):
                    gang, members = await admin.gang(f"bare-{number}", pods)
                    bare.append(1000 * await bare_s(server, book, gang, members))
            case = f"a Job of {pods} pods, {server.version}"
    return [
        row(case, "Job to request: pods made and seen", "ms", made),
        row(case, "request to placement: decided", "ms", decided),
        row(case, "placement to last binding: bound", "ms", bound, limits=bare),
        row(case, "bindings alone: the server's own share", "ms", bare),
        row(case, "Job to last binding", "ms", total),
    ]


async def _nodes(kubeconfig: Path) -> NodeBook:
    book = NodeBook()
    async with await KubeApi.connect(KubeConfig(kubeconfig=kubeconfig), clock=SystemClock()) as api:
        book.replace((await api.get("/api/v1/nodes", Listed[NodeLean])).items or [])
    return book


@asynccontextmanager
async def _services(folder: Path, url: str, kubeconfig: Path) -> AsyncIterator[None]:
    """Dispatcher, inventory and binder, each a process."""
    children = []
    for service in ("dispatcher", "inventory", "binder"):
        kube = "" if service == "dispatcher" else f'[kube]\nkubeconfig = "{kubeconfig}"\n'
        path = folder / f"{service}.toml"
        path.write_text(f'[bus]\nurl = "{url}"\ncell = "bench"\n[log]\nlevel = "warning"\n{kube}')
        command = [sys.executable, "-m", f"services.{service}", "--config", str(path)]
        children.append(subprocess.Popen(command))  # noqa: ASYNC220, S603  # our own service, and nothing else runs yet
    try:
        yield
    finally:
        for child in children:
            child.kill()
            child.wait()


def _a_job(name: str, pods: int) -> dict[str, object]:
    return {
        "metadata": {"name": name},
        "spec": {"parallelism": pods, "completions": pods, "completionMode": "Indexed", "template": a_template({})},
    }
