"""Nodes that kube-scheduler's default plug-ins allow for a pod are those that Berth allows.

Clusters are generated from seeds, with ten waiting pods each. kube-scheduler starts when all objects are there; it says by an
extender which nodes its filters leave for each pod, and binds none.
"""

import asyncio
from collections.abc import Iterator

import pytest

from berth.runtime.local.kube_server import KubeServer
from berth.schemas.ledger import Settings

ENFORCED = frozenset({"nodeSelector", "nodeAffinity", "tolerations", "sizes"})
SETTINGS = Settings(corrections=1)
CLUSTERS = 40


@pytest.fixture(scope="module")
def plain_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeServer]:
    """A server without controllers: nobody else changes claims, volumes and pods."""
    server = KubeServer(tmp_path_factory.mktemp("conformance"), controllers=(), start_deadline_s=50)
    asyncio.run(server.start())
    try:
        yield server
    finally:
        asyncio.run(server.stop())
