"""A NATS cluster of servers on this machine."""

import asyncio
from pathlib import Path

from berth.lab.servers.nats_server import EmbeddedServer
from berth.lab.servers.ports import free_ports
from berth.lab.servers.processes import LocalProcesses


class EmbeddedCluster(LocalProcesses):
    """A NATS cluster of servers on the loopback interface.

    As an async context manager it starts and stops. Each server may be killed and restarted separately.

    Args:
        root: Folder of their files.
        size: Number of servers; streams with three replicas need three.
        more: Lines to append to the configuration of each server.
        between: Lines for the connections between the servers.
    """

    def __init__(self, root: Path, *, size: int = 3, more: str = "", between: str = "") -> None:
        ports = free_ports(size)
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports)
        self.servers = [
            EmbeddedServer(
                root / f"server-{number}",
                more=f'server_name: "server-{number}"\n'
                f'cluster {{ name: "{root.name}", listen: "127.0.0.1:{port}", routes: [{routes}]\n{between} }}\n{more}',
            )
            for number, port in enumerate(ports)
        ]

    @property
    def url(self) -> str:
        """URLs for clients, separated by commas; valid after the first start."""
        return ",".join(server.url for server in self.servers)

    async def start(self) -> None:
        """Start the servers that do not run, and wait until they listen; the cluster may have no leader yet."""
        async with asyncio.TaskGroup() as group:
            for number, server in enumerate(self.servers):
                group.create_task(server.start(), name=f"start server {number}")

    async def stop(self) -> None:
        """Stop all servers."""
        async with asyncio.TaskGroup() as group:
            for number, server in enumerate(self.servers):
                group.create_task(server.stop(), name=f"stop server {number}")
