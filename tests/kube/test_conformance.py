"""Nodes that kube-scheduler's default plug-ins allow for a pod are those that Berth allows.

Clusters are generated from seeds, with some waiting pods each; see ``tests/support/constraint_clusters.py``.
kube-scheduler starts when all objects are there, says by an extender which nodes its filters leave for each pod, and
binds none. Berth reads the same objects as the server keeps them.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from berth.lab.servers.kube_server import KubeServer
from berth.services.dispatcher.config import DecisionConfig
from tests.support.allowed_nodes import AllowedNodes
from tests.support.constraint_clusters import FEATURES, ClusterObjects, cluster_of
from tests.support.constraint_world import ConstraintWorld, Seen
from tests.support.kube_api import KubeApi
from tests.support.kube_scheduler import KubeScheduler
from tests.support.prepared_server import served

SETTINGS: Final = DecisionConfig().to_settings()
SEEDS: Final = range(4, 24)
"""Of the clusters; three of them are large."""
PODS: Final = 16
"""Waiting pods of each: a cluster, and a start of kube-scheduler, cost more than some pods."""
CLUSTERS_A_TEST: Final = 4
SCENARIOS_MIN: Final = 300
Allowed = dict[str, frozenset[str]]


@pytest.fixture(scope="module")
def plain_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeServer]:
    """A server without controllers: nobody else changes claims, volumes and pods."""
    server = KubeServer(tmp_path_factory.mktemp("conformance"), controllers=(), start_deadline_s=50)
    yield from served(server)


async def asked(server: KubeServer, api: KubeApi, cluster: ClusterObjects, folder: Path) -> tuple[Seen, Allowed]:
    """The cluster as the server keeps it, and what kube-scheduler allows."""
    async with ConstraintWorld(api, cluster) as world:
        await world.add_waiting()
        async with KubeScheduler(server, folder) as scheduler:
            allowed = await scheduler.allowed(api, world.waiting_pods, [waiting.name for waiting in cluster.waiting])
        return await world.seen(), allowed


async def answers(seen: Seen, cluster: ClusterObjects) -> tuple[Allowed, dict[str, str]]:
    """What Berth allows, and why no request is made for a pod."""
    berth = AllowedNodes(seen, SETTINGS)
    await berth.read()
    names = [waiting.name for waiting in cluster.waiting]
    return {name: berth.of(name) for name in names}, {name: berth.hold(name) for name in names}


def test_there_are_enough_scenarios_of_every_feature() -> None:
    scenarios = [waiting for seed in SEEDS for waiting in cluster_of(seed, pods=PODS).waiting]
    found = Counter(feature for waiting in scenarios for feature in waiting.features)
    assert len(scenarios) >= SCENARIOS_MIN
    assert {feature for feature in (*FEATURES, "volumes") if found[feature] < SCENARIOS_MIN // 10} == set()
    assert Counter(len(waiting.features) for waiting in scenarios).keys() == {1, 2, 3}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", SEEDS[::CLUSTERS_A_TEST])
async def test_berth_allows_the_nodes_that_kube_scheduler_allows(
    plain_server: KubeServer, tmp_path: Path, first: int
) -> None:
    outcomes: Counter[str] = Counter()
    async with KubeApi(plain_server) as api:
        for seed in range(first, first + CLUSTERS_A_TEST):
            cluster = cluster_of(seed, pods=PODS)
            seen, expected = await asked(plain_server, api, cluster, tmp_path / str(seed))
            found, holds = await answers(seen, cluster)
            for waiting in cluster.waiting:
                name = waiting.name
                more, less = found[name] - expected[name], expected[name] - found[name]
                assert not more | less, (
                    f"seed {seed}, pod {name} with {', '.join(waiting.features)}: Berth also allows {sorted(more)}, "
                    f"and does not allow {sorted(less)}; {holds[name] or 'the request was judged'}; pod: {waiting.pod}"
                )
                outcomes["none" if not found[name] else "some"] += 1
    assert 3 * outcomes["some"] > outcomes.total() > outcomes["some"], outcomes
