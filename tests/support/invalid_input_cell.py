"""A cell on a real API server that gets invalid input, and what is reported about it."""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import aiohttp

from berth.core.cluster.node_packing import unpack_health, unpack_nodes
from berth.lab.servers.ports import free_ports
from berth.runtime.bus.nats_bus import NatsBus
from berth.schemas.envelope import decode
from berth.schemas.facts import HealthSeen, MembersSeen, NodesSeen
from berth.schemas.nodes import NodeCondition, NodeDescription
from berth.schemas.status import JobStatus
from berth.schemas.subjects import StreamName
from tests.support.cell_mode import CELLS
from tests.support.command import berth
from tests.support.kube_api import KubeApi
from tests.support.kube_cells import KubeCell
from tests.support.processes import Services
from tests.support.waiting import until_true

Tree = dict[str, Any]
M = TypeVar("M", NodesSeen, HealthSeen)
COUNTED: Final = ("inventory", "health", "binder")
"""Services whose metrics can be read."""
VOLCANO: Final = "/apis/scheduling.volcano.sh/v1beta1/namespaces"
_DEADLINE_S: Final = 25.0


class InvalidInputCell:
    """A cell, its services as processes, and a namespace for jobs.

    Args:
        made: Makes processes.
        api: Calls as admin.
        bus: A connection to the cell.
        url: Of the bus.
        namespace: Where jobs are made.
        folder: Where files go.
        topology: The simulated cluster.
        settings: Settings of services, by name.
    """

    def __init__(
        self,
        made: Services,
        api: KubeApi,
        bus: NatsBus,
        *,
        url: str,
        namespace: str,
        folder: Path,
        topology: str,
        settings: Mapping[str, Mapping[str, object]] | None = None,
    ) -> None:
        ports = free_ports(1) * len(COUNTED) if CELLS.shares_process else free_ports(len(COUNTED))
        self._ports = dict(zip(COUNTED, ports, strict=True))
        own = {name: dict(table) for name, table in (settings or {}).items()}
        for name, port in self._ports.items():
            own.setdefault(name, {})["probes"] = {"port": port}
        self.cell = KubeCell(
            made, folder=folder, cell=bus.subjects.cell, bus=bus, api=api, topology=topology, settings=own
        )
        self.api = api
        self.bus = bus
        self.namespace = namespace
        self._url = url

    # What is made.

    async def pod(self, name: str, spec: Tree, **meta: object) -> Tree:
        """Make a pod."""
        body = {"metadata": {"name": name, **meta}, "spec": spec}
        return await self.api.post(f"/api/v1/namespaces/{self.namespace}/pods", body)

    async def group(self, name: str, spec: Tree, *, annotations: dict[str, str] | None = None) -> Tree:
        """Make a Volcano PodGroup in phase Pending."""
        body = {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": name, "annotations": annotations or {}},
            "spec": spec,
            "status": {"phase": "Pending"},
        }
        return await self.api.post(f"{VOLCANO}/{self.namespace}/podgroups", body)

    async def drop_pod(self, name: str) -> None:
        """Delete a pod."""
        await self.api.delete(f"/api/v1/namespaces/{self.namespace}/pods/{name}")

    async def put_map(self, namespace: str, name: str, labels: dict[str, str], data: Mapping[str, str]) -> None:
        """Make a ConfigMap, or replace what it holds."""
        path = f"/api/v1/namespaces/{namespace}/configmaps"
        body = {"metadata": {"name": name, "labels": labels}, "data": dict(data)}
        if await self.api.status_of("GET", f"{path}/{name}") == 200:
            await self.api.call("PUT", f"{path}/{name}", body)
        else:
            await self.api.post(path, body)

    # What is said.

    async def metric(self, service: str, name: str, **labels: str) -> float:
        """Value of a metric of a service; 0 while it has never been touched."""
        text = ""
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{self._ports[service]}/metrics") as answer,
        ):
            text = await answer.text()
        wanted = ",".join(f'{key}="{value}"' for key, value in labels.items())
        start = f"berth_{name}{{{wanted}}} " if wanted else f"berth_{name} "
        return next((float(line.removeprefix(start)) for line in text.splitlines() if line.startswith(start)), 0.0)

    async def events(self, kind: str, name: str, *, namespace: str | None = None) -> list[tuple[str, str, int]]:
        """Reason, message and count of Berth's Events about an object; those on nodes are in ``default``."""
        space = self.namespace if namespace is None else namespace
        about = {"kind": kind, "name": name}
        return [
            (one["reason"], one["message"], one["count"])
            for one in await self.api.items(f"/api/v1/namespaces/{space}/events")
            if one.get("reportingComponent") == "berth" and about.items() <= one["involvedObject"].items()
        ]

    async def until_event(self, kind: str, name: str, reason: str, words: str) -> None:
        """An Event of Berth about the object has the reason and the words; Events come behind what they tell of."""

        async def is_told() -> bool:
            return any(reason == why and words in message for why, message, _ in await self.events(kind, name))

        await self.until(f"an Event {reason} on {kind} {name}: {words}", is_told)

    async def nodes(self) -> list[NodeDescription]:
        """Nodes as the latest facts have them."""
        return [node for fact in await self._newest("node", NodesSeen) for node in unpack_nodes(fact)]

    async def health(self, node: str) -> NodeCondition | None:
        """Health of a node as the latest fact has it."""
        conditions = [one for fact in await self._newest("health", HealthSeen) for one in unpack_health(fact)]
        return next((one for one in conditions if one.name == node), None)

    async def _newest(self, kind: str, form: type[M]) -> list[M]:
        """Newest fact of each domain. The stream of the latest facts may lack one that is being replaced."""
        found = await self.bus.read(StreamName.FACTS, filters=(self.bus.subjects.facts(kind),))
        return list({stored.subject: decode(stored.data, form) for stored in found}.values())

    async def members(self, job: str) -> MembersSeen | None:
        """Pods of a request, or why there is none."""
        stored = await self.bus.last(StreamName.LATEST, self.bus.subjects.fact_member(self.namespace, job))
        return decode(stored.data, MembersSeen) if stored is not None else None

    async def hold(self, job: str) -> str:
        """Why a gang is held; empty when it is not."""
        found = await self.members(job)
        return found.hold if found is not None else ""

    async def status(self, job: str) -> JobStatus | None:
        """Status of a request."""
        stored = await self.bus.last(StreamName.STATUS, self.bus.subjects.status(self.namespace, job))
        return decode(stored.data, JobStatus) if stored is not None else None

    async def condition(self, pod: str) -> tuple[str, str, str]:
        """Status, reason and message of a pod's condition PodScheduled."""
        found = await self.api.get(f"/api/v1/namespaces/{self.namespace}/pods/{pod}")
        for one in found["status"].get("conditions", ()):
            if one["type"] == "PodScheduled":
                return (one["status"], one.get("reason", ""), one.get("message", ""))
        return ("", "", "")

    async def podgroup(self, name: str) -> Tree:
        """A Volcano PodGroup as it is now; one that is not there yet says nothing."""
        found = await self.api.items(f"{VOLCANO}/{self.namespace}/podgroups")
        return next((one for one in found if one["metadata"]["name"] == name), {"metadata": {}, "status": {}})

    async def berth(self, *words: str) -> Any:  # noqa: ANN401 - JSON of any form
        """What a command of ``berth`` prints as JSON."""
        code, out, err = await berth(*words, "--json", url=self._url, cell=self.bus.subjects.cell)
        assert code == 0, err
        return json.loads(out)

    # Waiting.

    async def until(self, what: str, fits: Callable[[], Awaitable[object]], *, deadline_s: float = _DEADLINE_S) -> None:
        """Wait until something holds.

        Raises:
            AssertionError: It does not in time; shows the logs of all services.
        """
        try:
            await until_true(fits, deadline_s=deadline_s, what=what)
        except AssertionError as error:
            said = [decode(one.data, JobStatus) for one in await self.bus.read(StreamName.STATUS)]
            lines = [f"{one.name}: {one.phase} {one.sentence}" for one in said]
            raise AssertionError("\n".join([str(error), *lines, self.cell.logs()])) from error

    async def until_is(self, what: str, found: Callable[[], Awaitable[object]], wanted: object) -> None:
        """Wait until something is found to be equal to ``wanted``.

        Raises:
            AssertionError: It is not in time; shows what it is, and the logs.
        """
        seen: object = None

        async def fits() -> bool:
            nonlocal seen
            seen = await found()
            return seen == wanted

        try:
            await until_true(fits, deadline_s=_DEADLINE_S, what=what)
        except AssertionError as error:
            raise AssertionError(f"{error}: it is {seen!r}, not {wanted!r}{self.cell.logs()}") from error

    async def until_running(self, *pods: str) -> None:
        """Wait until pods run."""

        async def run() -> bool:
            found = await self.api.items(f"/api/v1/namespaces/{self.namespace}/pods")
            phases = {pod["metadata"]["name"]: pod["status"]["phase"] for pod in found}
            return all(phases.get(pod) == "Running" for pod in pods)

        await self.until(f"{', '.join(pods)} run", run, deadline_s=40)

    async def until_told(self, pods: Iterable[str], sentence: str) -> None:
        """Wait until the conditions of pods say that they are not scheduled, and why."""
        for pod in pods:
            wanted = ("False", "Unschedulable", sentence)
            await self.until_is(f"condition of {pod}", partial(self.condition, pod), wanted)


class TargetOf(Protocol):
    """Makes the cell of a test from a topology and from settings by service; its processes end with the test."""

    def __call__(
        self, topology: str, settings: Mapping[str, Mapping[str, object]] | None = None
    ) -> InvalidInputCell: ...
