"""A whole cell with two tenants: services as processes, and how long a job of one of them takes to be placed."""

import hashlib
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp

from berth.runtime.bus.nats_bus import NatsBus
from tests.hostile.measured_cell import BYSTANDER, CLUSTER, DECENT, TENANT, MeasuredCell
from tests.support.gateway_cells import Gateway, answering, gateway_of, token_of
from tests.support.processes import Service, services, until_started
from tests.support.programs import job_file
from tests.support.waiting import until_true

_NODES: Final = 32


class HostileCell(MeasuredCell):
    """A cell whose tenants send jobs to its gateway.

    Args:
        bus: A connection to the cell, with all rights.
        gateway: Its gateway.
        running: Its services.
    """

    def __init__(self, bus: NatsBus, gateway: Gateway, running: Mapping[str, Service]) -> None:
        super().__init__(bus, running)
        self.gateway = gateway

    async def submit(self, name: str) -> str:
        """Submit a job as the bystander does; returns the name of its request."""
        file = job_file(name, namespace=BYSTANDER, uid="", product="module910x8", chips=1, runFor="1s")
        answer = await self.gateway.ask("POST", "/api/v1/jobs", identity=BYSTANDER, body=file)
        assert answer.json["ok"], answer.body
        return name


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
        stack.push_async_callback((await found.follow()).stop)
        yield found


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


async def _has_nodes(gateway: Gateway) -> bool:
    answer = await gateway.ask("GET", "/api/v1/nodes?limit=100", identity=BYSTANDER)
    return answer.status == 200 and len(answer.json["nodes"]) == _NODES
