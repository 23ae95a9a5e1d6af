"""Three nats-servers of one cluster."""

import asyncio
from pathlib import Path

from berth.lab.servers.nats_server import EmbeddedServer
from berth.lab.servers.ports import free_ports


def three_servers(folder: Path) -> list[EmbeddedServer]:
    """Servers of one cluster that sync each write."""
    ports = free_ports(3)
    routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports)
    return [
        EmbeddedServer(
            folder / f"server-{number}",
            sync="always",
            more=f'server_name: "server-{number}"\n'
            f'cluster {{ name: "disks", listen: "127.0.0.1:{port}", routes: [{routes}] }}',
        )
        for number, port in enumerate(ports)
    ]


async def start(servers: list[EmbeddedServer]) -> None:
    """Start servers together: one alone would wait for the others."""
    async with asyncio.TaskGroup() as group:
        for number, server in enumerate(servers):
            group.create_task(server.start(), name=f"start server {number}")
