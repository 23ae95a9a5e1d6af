"""Switch affinity on a real API server: annotations of Bindings and ``tor-share-cm``, with each service's rights."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from berth.core.topologies.switches.summary import KEY
from berth.lab.servers.kube_server import KubeServer
from berth.runtime.bus.nats_bus import NatsBus
from berth.schemas.envelope import encode
from berth.services.binder.cluster import Gang
from berth.services.summary.leaf_share import MANAGED, NAME
from tests.support.binder_cluster import USER, World
from tests.support.kube_api import MERGE_PATCH, KubeApi
from tests.support.kube_binder import a_pod, members_of
from tests.support.kube_rights import grant
from tests.support.leaf_ledger import LeafLedger, leaf, switch_placement
from tests.support.processes import Service, Services, services
from tests.support.waiting import until, until_true

pytestmark = pytest.mark.timeout(150)
FIRST: Final = "198.51.100.1"
SECOND: Final = "198.51.100.2"
NAMES: Final = ("isSharedTor", "isHealthy", "sharedTorIp")
TOLD: Final = "leaf switch facts written"
Tree = dict[str, Any]


@pytest.fixture
async def world(world: World, kube_api: KubeApi) -> World:
    """With the rights of summary too."""
    await grant(kube_api, "summary", "summary")
    return world


class Cell:
    """A ledger that the test writes, for services that run as processes of their own."""

    def __init__(self, bus: NatsBus, world: World) -> None:
        self.bus = bus
        self.world = world
        self.ledger = LeafLedger(bus)
        self.maps = f"/api/v1/namespaces/{world.namespace}/configmaps"

    async def begin(self) -> None:
        """One node below the first leaf, two below the second; policy 2.0."""
        node = self.world.node
        await self.ledger.topology(
            leaf(FIRST, {"192.0.2.21": node(0)}), leaf(SECOND, {"192.0.2.31": node(1), "192.0.2.32": node(2)})
        )
        await self.ledger.epoch()

    async def place(self, name: str, *ranks: tuple[int, str, int]) -> None:
        """Make pods and place them: number of the node, leaf and state byte of each rank."""
        made = [await self.world.api.post(self.world.pods, a_pod(f"{name}-{rank}")) for rank in range(len(ranks))]
        rows = [(rank, str(it["metadata"]["name"]), str(it["metadata"]["uid"])) for rank, it in enumerate(made)]
        placement = switch_placement([(self.world.node(node), above, state) for node, above, state in ranks])
        gang = Gang(self.world.namespace, name, f"uid-{name}", 1, placement)
        subject = self.bus.subjects.fact_member(gang.namespace, name)
        await self.bus.publish(subject, encode(members_of(gang, rows, distributed=True)))
        await self.ledger.place(gang.namespace, name, gang.uid, placement)

    async def notes(self, name: str, count: int) -> list[tuple[str | None, ...]]:
        """What pods say of their leaves, by rank."""
        pods = [(await self.world.pod(f"{name}-{rank}"))["metadata"]["annotations"] for rank in range(count)]
        return [tuple(pod.get(key) for key in NAMES) for pod in pods]

    async def config_map(self) -> Tree | None:
        """The ConfigMap; None without one."""
        return next((it for it in await self.world.api.items(self.maps) if it["metadata"]["name"] == NAME), None)

    async def until_told(self, service: Service, wanted: dict[str, tuple[int, int, list[list[str]]]] | None) -> None:
        """Wait until the ConfigMap tells of leaves: state, health, and jobs of each node; None: until there is none.

        Raises:
            AssertionError: It does not in time; shows what it tells, and the log.
        """
        found: object = None

        async def is_told() -> bool:
            nonlocal found
            there = await self.config_map()
            leaves = json.loads(there["data"][KEY]) if there is not None else None
            found = leaves and {
                name: (it["IsSharedTor"], it["IsHealthy"], [node["JobName"] for node in it["nodes"]])
                for name, it in leaves.items()
            }
            return found == wanted

        try:
            await until_true(is_told, deadline_s=30, what=f"leaves are told as {wanted}")
        except AssertionError as error:
            raise AssertionError(f"{error}; they are {found}\n{service.log()}") from error


def started(
    made: Services,
    cell: str,
    name: str,
    kubeconfig: Path,
    **settings: Any,  # noqa: ANN401 - fields of the settings
) -> Service:
    service = made.service(name, cell, kube={"kubeconfig": str(kubeconfig)}, **settings)
    service.start()
    return service


async def test_bindings_say_what_leaves_are_and_the_table_follows_jobs_restarts_and_other_hands(
    world: World, kube_server: KubeServer, nats_server: str, real_bus: NatsBus, cell: str, tmp_path: Path
) -> None:
    it = Cell(real_bus, world)
    await it.begin()
    with services(tmp_path, nats_server) as made:
        binder = started(made, cell, "binder", kube_server.write_kubeconfig(tmp_path / "b", user=USER))
        own = kube_server.write_kubeconfig(tmp_path / "s", user="summary")
        settings: Tree = {"tor_share_namespace": world.namespace}
        summary = started(made, cell, "summary", own, **settings)
        await it.until_told(summary, {FIRST: (0, 0, [[]]), SECOND: (0, 0, [[], []])})

        await it.place("job", (0, FIRST, 2), (1, SECOND, 1), (2, SECOND, 5))

        async def all_bound() -> bool:
            return all([await world.node_of(f"job-{rank}") for rank in range(3)])

        await until_true(all_bound, deadline_s=30, what="the pods are bound")
        assert await it.notes("job", 3) == [("2", "0", None), ("1", "0", SECOND), ("1", "1", SECOND)]
        placed = {FIRST: (2, 0, [["job-0"]]), SECOND: (1, 1, [["job-1"], ["job-2"]])}
        await it.until_told(summary, placed)
        found = await it.config_map()
        assert found is not None
        assert found["metadata"]["labels"] == {MANAGED[0]: MANAGED[1]}

        # Somebody alters it, somebody deletes it.
        await world.api.patch(f"{it.maps}/{NAME}", {"data": {KEY: "{}"}}, content_type=MERGE_PATCH)
        await it.until_told(summary, placed)
        await world.api.delete(f"{it.maps}/{NAME}")
        await it.until_told(summary, placed)

        # A new run finds it as it should be, and writes only what changes then.
        await summary.kill()
        summary.start()
        await until(
            lambda: "ready" in summary.whole_log().partition("--- start 2")[2], deadline_s=30, what="a second start"
        )
        await it.ledger.release("uid-job")
        await it.until_told(summary, {FIRST: (0, 0, [["job-0"]]), SECOND: (0, 0, [["job-1"], ["job-2"]])})

        def said() -> int:
            return summary.whole_log().partition("--- start 2")[2].count(TOLD)

        await until(lambda: said() > 0, deadline_s=30, what="the log says so")  # just after the server has it
        assert said() == 1

        await it.ledger.epoch("1.0")
        await it.until_told(summary, None)
        await summary.stop()
        await binder.stop()


async def test_a_namespace_that_is_not_there_yet_is_said_once_and_filled_when_it_comes(
    world: World, kube_server: KubeServer, nats_server: str, real_bus: NatsBus, cell: str, tmp_path: Path
) -> None:
    it = Cell(real_bus, world)
    late = f"{world.namespace}-late"
    it.maps = f"/api/v1/namespaces/{late}/configmaps"
    await it.begin()
    with services(tmp_path, nats_server) as made:
        own = kube_server.write_kubeconfig(tmp_path / "s", user="summary")
        summary = started(made, cell, "summary", own, tor_share_namespace=late, retry_wait_max_s=0.2)
        await until(lambda: "leaf switch facts not written" in summary.whole_log(), deadline_s=30, what="it is said")
        await world.api.post("/api/v1/namespaces", {"metadata": {"name": late}})
        await it.until_told(summary, {FIRST: (0, 0, [[]]), SECOND: (0, 0, [[], []])})
        assert summary.whole_log().count("leaf switch facts not written") == 1
        assert f'namespaces "{late}" not found' in summary.whole_log()
        await summary.stop()
    await world.api.delete(f"/api/v1/namespaces/{late}")
