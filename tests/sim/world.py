"""What users do and what breaks: a story, told to a simulated cell."""

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import msgspec

from berth.formats.clusters.topology_file import parse_cluster
from berth.products.catalogue import NODE_PRODUCTS
from berth.schemas.envelope import encode
from berth.schemas.intake import JobCancel
from berth.schemas.simulation import BreakNode
from berth.schemas.subjects import StreamName
from tests.sim.bus import SimBus
from tests.sim.cell import CLUSTER, SimCell
from tests.sim.kube import Weather, finished
from tests.sim.loop import SimLoop
from tests.sim.observer import Observer
from tests.sim.story import PRODUCTS, SERVICES, SIZES, Event, Story
from tests.support.cells import a_job
from tests.support.kube_rules import Tree

JOBS: Final = "/apis/batch.volcano.sh/v1alpha1/namespaces/ns/jobs"
PODS: Final = "/api/v1/namespaces/ns/pods"
NODES: Final = "/api/v1/nodes"
FAULTS: Final = (
    ("chip", ""), ("chip", "SeparateNPU"), ("network", ""), ("node", "PreSeparateFault"), ("node", "SeparateFault"),
    ("kubelet", ""), ("container", ""), ("plugin", ""), ("recovering", ""), ("gone", ""),
)  # fmt: skip
STREAMS: Final = (StreamName.LEDGER, StreamName.FACTS, StreamName.STATUS, StreamName.LEASE, StreamName.INTAKE)
QUEUES: Final = ("skip", "fifo", "easy", "conservative")
_RETRY_S: Final = 0.5


class World:
    """A cell, its users and its bad luck.

    Args:
        loop: The simulation.
        seed: Of all choices.
        story: What happens.

    Attributes:
        told: What has happened, by verb.
        jobs: Names of the Volcano jobs that were made.
    """

    def __init__(self, loop: SimLoop, seed: int, story: Story) -> None:
        self.loop = loop
        self.story = story
        self.cell = SimCell(loop, seed, parse_cluster(story.topology), story.settings)
        self.observer = Observer(self.cell.ground.cell)
        self.cell.server.on_store = self.observer.stored
        self.cell.kube.on_change = self.observer.changed
        self.told: Counter[str] = Counter()
        self.jobs = 0
        self.pods = 0
        self.requests = 0
        self.user: SimBus
        self._nodes = [node.name for node in self.cell.cluster.nodes]
        self._product = NODE_PRODUCTS[PRODUCTS[story.kind]]
        self._acts: dict[str, Callable[[Event], object]] = {
            verb.removeprefix("_do_").replace("_", "-"): getattr(self, verb)
            for verb in dir(self)
            if verb.startswith("_do_")
        }

    async def begin(self) -> None:
        """Start everything."""
        self.user = SimBus(self.cell.server, self.cell.ground.cell, self.loop.main, self.cell.chance("user"))
        self.cell.kube.put("/api/v1/namespaces", {"metadata": {"name": "ns"}})
        for name in self.cell.names:
            self.cell.start(name)
        for event in self.story.events:
            self.loop.call_at(event.at_s, self.act, event, context=self.cell.server.lane.context)

    def act(self, event: Event) -> None:
        """Let something happen."""
        self.told[event.verb] += 1
        self.loop.trace(f"event {event}")
        self._acts[event.verb](event)

    def later(self, delay_s: float, callback: Callable[..., object], *args: object) -> None:
        """Let something happen after some time."""
        self.loop.call_later(delay_s, callback, *args, context=self.cell.server.lane.context)

    def mend(self) -> None:
        """Everything that is broken works again."""
        cell = self.cell
        cell.kube.weather, cell.kube.is_down = Weather(), False
        cell.server.is_down, cell.server.lag_s = False, 0.0
        cell.server.silent_until_s.clear()
        for process in cell.processes.values():
            process.resume()
            process.faults.fatal = None
            process.lane.fuse = 0
            for connection in process.connections:
                connection.outgoing.held_until_s = connection.incoming.held_until_s = 0.0
                connection.lose_replies = 0
        for name in self._nodes:
            self._patch_node(name, {"spec": {"unschedulable": None}})
        for name in cell.names:
            cell.start(name)

    # Users.

    def _do_job(self, event: Event) -> None:
        """A Volcano job; some have label that let them recover from faults."""
        number, self.jobs = self.jobs, self.jobs + 1
        sizes = SIZES[self.story.kind]
        chips = sizes[event.two % len(sizes)]
        replicas = (1, 1, 2, 3, 4)[event.one % 5]
        labels = ({}, {"fault-scheduling": "grace"}, {"fault-scheduling": "force", "pod-rescheduling": "on"})[
            event.two // 7 % 3
        ]
        annotations = {"berth/run-for": f"{(3, 10, 30)[event.one // 5 % 3]}s"}
        body = {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "metadata": {
                "name": f"j{number}",
                "annotations": annotations,
                "labels": {"framework": "pytorch", **labels},
            },
            "spec": {
                "schedulerName": "berth",
                "minAvailable": replicas,
                "tasks": [
                    {
                        "name": "worker",
                        "replicas": replicas,
                        "template": {
                            "metadata": {"annotations": annotations, "labels": dict(self._product.job_labels)},
                            "spec": self._spec(chips),
                        },
                    }
                ],
            },
        }
        self.cell.kube.put(JOBS, body)

    def _spec(self, chips: int) -> Tree:
        resources: Tree = {"requests": {"cpu": "1", "memory": "1Gi"}}
        if chips:
            resources = {
                "requests": {**resources["requests"], self._product.resource: str(chips)},
                "limits": {self._product.resource: str(chips)},
            }
        return {
            "schedulerName": "berth",
            "restartPolicy": "Never",
            "nodeSelector": dict(self._product.selector),
            "containers": [{"name": "main", "image": "registry.example/none:1", "resources": resources}],
        }

    def _do_pod(self, event: Event) -> None:
        """A pod of its own, with or without chips."""
        number, self.pods = self.pods, self.pods + 1
        sizes = (0, *SIZES[self.story.kind])
        metadata = {
            "name": f"p{number}",
            "annotations": {"berth/run-for": "8s"},
            "labels": dict(self._product.job_labels),
        }
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": self._spec(sizes[event.one % len(sizes)]),
        }
        finished(self.cell.kube.create(PODS, body))

    def _do_end(self, event: Event) -> None:
        """A user deletes a job."""
        if self.jobs and (name := f"j{event.one % self.jobs}") in {
            found["metadata"]["name"] for found in self.cell.kube.objects(JOBS)
        }:
            self.cell.kube.confirm(f"{JOBS}/{name}")

    def _do_cancel(self, event: Event) -> None:
        """A user cancels a job by the command line."""
        if self.jobs:
            name = f"vcjob.j{event.one % self.jobs}"
            self._say(self.user.subjects.intake_cancel("ns", name), encode(JobCancel("ns", name, "")))

    def _do_request(self, event: Event) -> None:
        """A request without pods, as the command line makes it."""
        number, self.requests = self.requests, self.requests + 1
        sizes = SIZES[self.story.kind]
        product = PRODUCTS[self.story.kind]
        job = a_job(f"r{number}", chips=sizes[event.one % len(sizes)], replicas=1 + event.two % 3, product=product)
        job = msgspec.structs.replace(job, namespace="ns")
        self._say(self.user.subjects.intake_request("ns", job.name), encode(job))

    def _do_rubbish(self, event: Event) -> None:
        """Something that is no request."""
        self._say(self.user.subjects.intake_request("ns", f"x{event.one}"), b"no request at all")

    def _say(self, subject: str, data: bytes) -> None:
        future = self.user.submit(subject, data)

        def again(_: object) -> None:
            if future.exception() is not None:
                self.later(_RETRY_S, self._say, subject, data)

        future.add_done_callback(again, context=self.cell.server.lane.context)

    # The cluster.

    def _do_break(self, event: Event) -> None:
        fault, level = FAULTS[event.two % len(FAULTS)]
        chips = [event.one // 7 % self._product.chips] if fault in {"chip", "network", "recovering"} else []
        wish = BreakNode(
            node=self._nodes[event.one % len(self._nodes)],
            fault=fault,
            chips=chips,
            level=level,
            lasts_ms=round(event.for_s * 1000) + 500,
        )
        self.loop.create_task(self._break(wish), context=self.loop.main.context)

    async def _break(self, wish: BreakNode) -> None:
        await self.user._ask({0: self.user.subjects.sim("break")}, encode(wish), 5.0)

    def _do_cordon(self, event: Event) -> None:
        name = self._nodes[event.one % len(self._nodes)]
        self._patch_node(name, {"spec": {"unschedulable": True}})
        self.later(event.for_s, self._patch_node, name, {"spec": {"unschedulable": None}})

    def _do_relabel(self, event: Event) -> None:
        """A label of a node goes, and comes back."""
        name = self._nodes[event.one % len(self._nodes)]
        labels = dict(self._product.labels) | dict(self._product.selector)
        key = sorted(labels)[event.two % len(labels)]
        self._patch_node(name, {"metadata": {"labels": {key: "other"}}})
        self.later(event.for_s, self._patch_node, name, {"metadata": {"labels": {key: labels[key]}}})

    def _patch_node(self, name: str, patch: dict[str, Any]) -> None:
        if any(found["metadata"]["name"] == name for found in self.cell.kube.objects(NODES)):
            finished(self.cell.kube.patch(f"{NODES}/{name}", patch))

    # Processes.

    def _name(self, event: Event) -> str:
        names = [*SERVICES, *(f"scorer-{number}" for number in range(self.cell.settings.shards))]
        name = names[event.one % len(names)]
        return name if name in self.cell.names else "dispatcher-0"

    def _do_kill(self, event: Event) -> None:
        name = self._name(event)
        self.cell.kill(name)
        self.later(event.for_s, self.cell.start, name)

    def _do_fuse(self, event: Event) -> None:
        """A process dies after some callbacks, at whatever it awaits then."""
        process = self.cell.processes.get(self._name(event))
        if process is not None:
            process.lane.fuse = 1 + event.two % 60

    def _do_point(self, event: Event) -> None:
        """A process dies at a fault point."""
        is_binder = event.one % 3 == 0
        names = (
            ("bind", "outcome") if is_binder else ("lease", "epoch", "fact", "append", "status", "snapshot", "purge")
        )
        point = f"{names[event.two % len(names)]}.{('before', 'after')[event.one // 3 % 2]}"
        for name, process in list(self.cell.processes.items()):
            if name.startswith("binder" if is_binder else "dispatcher"):
                process.faults.fatal = (point, 1 + event.two // 7 % 3)

    def _do_restart(self, event: Event) -> None:
        """A process is asked to end, and started again."""
        name = self._name(event)
        self.cell.stop(name)
        self.later(event.for_s + 1, self.cell.start, name)

    def _do_pause(self, event: Event) -> None:
        process = self.cell.processes.get(self._name(event))
        if process is not None:
            process.pause()
            self.later(event.for_s, process.resume)

    def _do_settings(self, event: Event) -> None:
        """Dispatchers and scorers are started again with other settings and another number of shards."""
        cell = self.cell
        old = [name for name in cell.names if name.startswith(("dispatcher", "scorer"))]
        decisions = {**cell.settings.decisions, "queue_policy": QUEUES[event.two % len(QUEUES)]}
        cell.settings = msgspec.structs.replace(cell.settings, shards=event.one % 4, decisions=decisions)
        for name in old:
            cell.kill(name, "other settings")
        for name in cell.names:
            if name.startswith(("dispatcher", "scorer")):
                self.later(0.2, cell.start, name)

    # Networks and servers.

    def _do_cut(self, event: Event) -> None:
        process = self.cell.processes.get(self._name(event))
        if process is not None:
            for connection in process.connections:
                connection.cut(event.for_s)

    def _do_hold(self, event: Event) -> None:
        """What a process sends arrives later."""
        self._hold(event, "outgoing")

    def _do_deafen(self, event: Event) -> None:
        """What a process is sent arrives later."""
        self._hold(event, "incoming")

    def _hold(self, event: Event, direction: str) -> None:
        process = self.cell.processes.get(self._name(event))
        if process is not None:
            connections = [*process.buses, *(process.apis if event.two % 2 else ())]
            for connection in connections:
                getattr(connection, direction).held_until_s = self.loop.now_s + event.for_s

    def _do_unheard(self, event: Event) -> None:
        """Answers to some writes are lost."""
        process = self.cell.processes.get(self._name(event))
        if process is not None:
            for connection in process.connections:
                connection.lose_replies = 1 + event.two % 3

    def _do_consumers(self, event: Event) -> None:
        process = self.cell.processes.get(self._name(event))
        if process is not None:
            for bus in process.buses:
                bus.lose_consumers()

    def _do_lag(self, event: Event) -> None:
        self.cell.server.lag_s = event.for_s
        self.later(3 * event.for_s, setattr, self.cell.server, "lag_s", 0.0)

    def _do_leaderless(self, event: Event) -> None:
        """The stream's leader is elected anew."""
        name = self.user.subjects.stream(STREAMS[event.one % len(STREAMS)])
        self.cell.server.silent_until_s[name] = self.loop.now_s + min(event.for_s, 7.0)

    def _do_server(self, event: Event) -> None:
        """The bus's server is killed and comes back."""
        server = self.cell.server
        server.is_down = True
        for process in self.cell.processes.values():
            for bus in process.buses:
                bus.cut(event.for_s)
        self.user.cut(event.for_s)

        def back() -> None:
            server.is_down = False
            server.forget_views(1 + event.two % 8)

        self.later(event.for_s, back)

    def _do_busy(self, event: Event) -> None:
        self._weather(event, busy=0.3 + event.two % 7 / 10)

    def _do_failing(self, event: Event) -> None:
        self._weather(event, failing=0.2 + event.two % 4 / 10)

    def _do_conflicts(self, event: Event) -> None:
        self._weather(event, conflicting=0.5)

    def _do_denying(self, event: Event) -> None:
        self._weather(event, denying=0.3 + event.two % 7 / 10)

    def _do_hanging(self, event: Event) -> None:
        self._weather(event, hanging=1.0)

    def _weather(self, event: Event, **shares: float) -> None:
        kube = self.cell.kube
        kube.weather = msgspec.structs.replace(kube.weather, **shares)
        self.later(event.for_s, self._clear, tuple(shares))

    def _clear(self, names: tuple[str, ...]) -> None:
        kube = self.cell.kube
        kube.weather = msgspec.structs.replace(kube.weather, **dict.fromkeys(names, 0.0))

    def _do_expire(self, event: Event) -> None:
        process = self.cell.processes.get((CLUSTER, "inventory", "binder", "summary", "health")[event.one % 5])
        if process is not None:
            for api in process.apis:
                api.expire_watches()

    def _do_kube_down(self, event: Event) -> None:
        self.cell.kube.is_down = True
        self.later(event.for_s, self._kube_up)

    def _kube_up(self) -> None:
        self.cell.kube.is_down = False

    def _do_clock(self, event: Event) -> None:
        """The clock of a machine is set."""
        names = [name for name in self.cell.clocks if name not in {"bus", "kube", CLUSTER}]
        step_s = (-30.0, -1.0, 1.0, 30.0, 600.0)[event.two % 5]
        if names:
            self.cell.clocks[names[event.one % len(names)]].advance(step_s)
