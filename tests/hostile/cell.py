"""A whole cell with two tenants: services as processes, and how long a job of one of them takes to be placed."""

import hashlib
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp

from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.bus.port import Gap, Stored
from berth.runtime.clock import SystemClock
from berth.schemas.envelope import DecodeError, decode
from berth.schemas.ledger import Epoch
from berth.schemas.status import JobStatus
from berth.schemas.subjects import StreamName
from tests.support.gateway_cells import Gateway, answering, gateway_of, token_of
from tests.support.processes import Service, services, until_started
from tests.support.programs import job_file
from tests.support.waiting import until, until_true

TENANT: Final = "tenant"
"""Identity and namespace of the tenant that sends much."""
BYSTANDER: Final = "bystander"
"""Identity and namespace of the other one."""
DECENT: Final = tuple(f"decent-{number}" for number in range(4))
"""Tenants that stay within their bounds together where one alone does not."""
CLUSTER: Final = """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {product: module910bx8, count: 24, name: "a2-{index:02}"}
  - {product: module910x8, count: 8, name: "a1-{index:02}"}
"""
"""Nodes for which the tenants ask, and those on which the bystander's jobs run: places are not what they lack."""
_NODES: Final = 32
_PLACED_S: Final = 60.0
_HAS_PLACE: Final = frozenset({"placed", "bound", "running", "succeeded"})


class HostileCell:
    """A cell that runs.

    Args:
        bus: A connection to the cell, with all rights.
        gateway: Its gateway.
        running: Its services.
    """

    def __init__(self, bus: NatsBus, gateway: Gateway, running: Mapping[str, Service]) -> None:
        self.bus = bus
        self.gateway = gateway
        self._running = running
        self._placed: dict[str, float] = {}
        self._number = 0
        self._clock = SystemClock()

    def note(self, stored: Stored) -> None:
        """Note when a job of the bystander has its place."""
        try:
            status = decode(stored.data, JobStatus)
        except DecodeError:
            return
        if status.phase in _HAS_PLACE:
            self._placed.setdefault(status.name, self._clock.monotonic_s())

    async def place_one(self) -> float:
        """Submit a job as the bystander does; seconds until it has its place."""
        self._number += 1
        name, began_s = f"job-{self._number}", self._clock.monotonic_s()
        file = job_file(name, namespace=BYSTANDER, uid="", product="module910x8", chips=1, runFor="1s")
        answer = await self.gateway.ask("POST", "/api/v1/jobs", identity=BYSTANDER, body=file)
        assert answer.json["ok"], answer.body
        await until(lambda: name in self._placed, deadline_s=_PLACED_S, what=f"{name} of the bystander has a place")
        return self._placed.pop(name) - began_s

    async def leaders(self) -> int:
        """How often a dispatcher became leader."""
        records = await self.bus.read(StreamName.LEDGER)
        return sum(1 for stored in records if b"ledger.epoch" in stored.data[:32] and _is_epoch(stored))

    def see_whole(self) -> None:
        """See that every service runs as it was started.

        Raises:
            AssertionError: One has ended; shows its log.
        """
        for name, service in self._running.items():
            assert service.is_running, f"{name} ended with {service.returncode}\n{service.log()}"


def _is_epoch(stored: Stored) -> bool:
    try:
        decode(stored.data, Epoch)
    except DecodeError:
        return False
    return True


@asynccontextmanager
async def hostile_cell(
    folder: Path, url: str, cell: str, *, api: Mapping[str, object], decisions: Mapping[str, object]
) -> AsyncIterator[HostileCell]:
    """A cell with dispatcher, a scorer, binder, simulated nodes, the service for programs and a gateway.

    Args:
        folder: For settings and logs.
        url: Of NATS.
        cell: Name of the cell.
        api: Settings of the service for programs, beside its grants.
        decisions: Settings of the dispatcher's decisions.
    """
    identities = (TENANT, BYSTANDER, *DECENT)
    grants = [{"identity": one, "role": "submit", "namespaces": [one]} for one in identities]
    tokens = [{"identity": one, "sha256": _digest(token_of(one))} for one in identities]
    topology = folder / "cluster.yaml"
    topology.write_text(CLUSTER)
    async with AsyncExitStack() as stack:
        made = stack.enter_context(services(folder, url))
        settings: dict[str, dict[str, Any]] = {
            "dispatcher": {"shards": 1, "decisions": dict(decisions)},
            "scorer": {"shard": 0, "shards": 1},
            "binder": {},
            "nodesim": {"topology_file": str(topology)},
            "api": {"access": "grants", "grants": grants, **api},
        }
        running = {name: made.service(name, cell, **own) for name, own in settings.items()}
        running["gateway"], port = gateway_of(made, cell, tokens=tokens)
        for one in running.values():
            one.start()
        session = await stack.enter_async_context(aiohttp.ClientSession())
        gateway = Gateway(running["gateway"], port, session)
        bus = await stack.enter_async_context(await NatsBus.connect(url, cell, name="hostile"))
        await answering(gateway, identity=BYSTANDER)
        await until_started(running.values())
        await until_true(lambda: _has_nodes(gateway), deadline_s=20, what="all nodes")
        found = HostileCell(bus, gateway, running)
        end = (await bus.state(StreamName.STATUS)).last_seq
        follower = bus.follow(
            StreamName.STATUS,
            on_message=found.note,
            on_gap=_fail,
            start_seq=end + 1,
            filters=[f"{bus.subjects.root}status.{BYSTANDER}.*"],
        )
        stack.push_async_callback(follower.stop)
        yield found


def _fail(gap: Gap) -> None:
    raise AssertionError(f"statuses were lost: {gap}")


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


async def _has_nodes(gateway: Gateway) -> bool:
    answer = await gateway.ask("GET", "/api/v1/nodes?limit=100", identity=BYSTANDER)
    return answer.status == 200 and len(answer.json["nodes"]) == _NODES
