"""Wiring of a cluster that is played on an API server: register its nodes, then let agents and controllers work."""

import asyncio
from collections.abc import Coroutine
from functools import partial
from random import Random
from typing import Any, Final

from berth.formats.ascend import cluster_info
from berth.formats.clusters.topology_file import Cluster
from berth.formats.kubernetes.objects import ConfigMap
from berth.formats.kubernetes.paths import api_path, sub_path
from berth.lab.nodesim.agents.clusterd import FOR_SCHEDULERS, ClusterD
from berth.lab.nodesim.agents.pods import AgentPod
from berth.lab.nodesim.agents.recovery_service import RecoveryService
from berth.lab.nodesim.agents.registration import (
    LEASE_NAMESPACE,
    config_map,
    lease_body,
    leaves_body,
    leaves_data,
)
from berth.lab.nodesim.config import NodesimConfig
from berth.lab.nodesim.controllers.gang_children import GROUP_VERSION, GROUPS
from berth.lab.nodesim.controllers.runner import controllers_of
from berth.lab.nodesim.kube.loop import KubeLoop
from berth.lab.nodesim.kube.recovery import RecoveryPlayer
from berth.lab.nodesim.kube_writes import Write, make_object, retry_until_answered
from berth.lab.nodesim.metrics import NodesimMetrics
from berth.runtime.backoff import Backoff
from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock
from berth.runtime.inboxes import CALLERS
from berth.runtime.instruments import Instruments
from berth.runtime.kube.port import Api, Change
from berth.runtime.logs import Logger

CLUSTERD_APART_S: Final = 0.2
"""ClusterD writes at most so often.

Source: docs/reference/kubernetes.md, "ConfigMaps".
"""
_PODS: Final = "/api/v1/pods"
_CONFIG_MAPS: Final = "/api/v1/configmaps"
_SHOW_S: Final = 1.0


async def play(
    api: Api,
    bus: Bus,
    clock: Clock,
    config: NodesimConfig,
    cluster: Cluster,
    instruments: Instruments[NodesimMetrics],
    stop: asyncio.Event,
) -> None:
    """Be the agents of a cluster's nodes, and the controllers that the settings name, until ``stop`` is set.

    Raises:
        RefusedError: The server rejects the registration of nodes.
    """
    instruments.readiness.wait("the nodes are registered")
    player = _Player(api, clock, config, cluster, instruments)
    await player.register()
    loop = player.loop
    pods = api.reflect(_PODS, AgentPod, loop, params={"fieldSelector": "spec.nodeName!="})
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(pods.run())]
        await pods.synced.wait()
        works: list[Coroutine[Any, Any, None]] = [loop.run(), player.show()]
        if config.agents.lease_s:
            works.append(player.renew())
        if config.agents.clusterd:
            works.append(player.be_clusterd())
        if config.agents.recovery and await api.serves(GROUP_VERSION, GROUPS):
            works.append(RecoveryPlayer(api, clock, player.recovery_service(), loop.writes).run())
        works += [
            controller.run() for controller in await controllers_of(api, clock, config, loop.writes, instruments.log)
        ]
        tasks += [group.create_task(work) for work in works]
        served = [
            await bus.serve(bus.subjects.sim("counts"), loop.counts, callers=CALLERS["nodesim"]),
            await bus.serve(bus.subjects.sim("break"), loop.break_node, callers=CALLERS["nodesim"]),
        ]
        instruments.log.info("cluster ready", nodes=len(loop.agents), faults=len(cluster.faults))
        instruments.readiness.ready()
        try:
            await stop.wait()
        finally:
            for handler in served:
                await handler.stop()
            for task in tasks:
                task.cancel()


class _Player:
    """What is done besides the agents' loop."""

    def __init__(
        self, api: Api, clock: Clock, config: NodesimConfig, cluster: Cluster, instruments: Instruments[NodesimMetrics]
    ) -> None:
        self._log = instruments.log
        self._metrics = instruments.metrics
        self._api = api
        self._clock = clock
        self._config = config
        self._cluster = cluster
        self.loop = KubeLoop(api, clock, config, cluster, instruments.log)

    async def register(self) -> None:
        """Make what nodes and leaf switches lack.

        Raises:
            RefusedError: The server refuses.
        """
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": cluster_info.NAMESPACE}}
        await self._retry_until_answered(partial(make_object, self._api, "/api/v1/namespaces", body))
        async with asyncio.TaskGroup() as group:
            waiting = iter(list(self.loop.agents))

            async def work() -> None:
                for name in waiting:
                    await self._retry_until_answered(partial(self.loop.register, name))

            for _ in range(self._config.agents.writes_at_once):
                group.create_task(work())
        data = leaves_data(self._cluster)
        if data:
            leaves = leaves_body(data)
            collection = api_path("v1", "namespaces", leaves["metadata"]["namespace"], "configmaps")
            await self._retry_until_answered(partial(self.loop.objects.put, collection, leaves))

    async def _retry_until_answered(self, write: Write) -> None:
        backoff = Backoff(first_s=self._config.retry_wait_s, max_s=self._config.retry_wait_max_s)
        await retry_until_answered(write, backoff=backoff, log=self._log)

    async def show(self) -> None:
        """Keep the metrics up to date until cancelled."""
        while True:
            self._metrics.show(self.loop.counted())
            await asyncio.sleep(_SHOW_S)

    async def renew(self) -> None:
        """Renew the Leases of all nodes whose kubelet is alive, spread over the period, until cancelled."""
        lease_s = self._config.agents.lease_s
        while True:
            names = list(self.loop.agents)
            began_s = self._clock.monotonic_s()
            for name in names:
                agents = self.loop.agents.get(name)
                if agents is not None and agents.node.ready and not agents.breakages.at(self._clock.now_ms()).kubelet:
                    self.loop.writes.put(f"lease {name}", partial(self._renew, name), is_newest=True)
                if (rest_s := lease_s / len(names) - (self._clock.monotonic_s() - began_s)) > 0:
                    await asyncio.sleep(rest_s)
                began_s = self._clock.monotonic_s()
            if not names:
                await asyncio.sleep(lease_s)

    async def _renew(self, name: str) -> None:
        collection = api_path("coordination.k8s.io/v1", "namespaces", LEASE_NAMESPACE, "leases")
        await self.loop.objects.put(collection, lease_body(name, self._clock.now_ms()), is_patch=True)

    async def be_clusterd(self) -> None:
        """Be ClusterD until cancelled."""
        rng = Random(f"{self._config.agents.seed} clusterd")  # noqa: S311 - a simulation, repeatable
        known = _Reports(ClusterD(self._is_used, rng), self._clock, self._log)
        reflection = self._api.reflect(_CONFIG_MAPS, ConfigMap, known, params={"labelSelector": "mx-consumer-cim=true"})
        async with asyncio.TaskGroup() as group:
            group.create_task(reflection.run())
            await reflection.synced.wait()
            while True:
                known.changed.clear()
                for name, text in known.clusterd.written().items():
                    self._write_chunk(name, text)
                await asyncio.sleep(CLUSTERD_APART_S)
                try:
                    async with asyncio.timeout(self._config.agents.clusterd_s - CLUSTERD_APART_S):
                        await known.changed.wait()
                except TimeoutError:
                    continue

    def recovery_service(self) -> RecoveryService:
        """The recovery service of ClusterD."""
        agents = self._config.agents
        return RecoveryService(
            wait_ms=round(agents.recovery_wait_s * 1000),
            switch_ms=round(agents.hot_switch_wait_s * 1000),
            is_sub_healthy=lambda pod: self.loop.is_sub_healthy(pod.spec.node_name, pod.metadata.uid),
        )

    def _is_used(self, node: str) -> bool:
        agents = self.loop.agents.get(node)
        return agents is not None and bool(agents.used)

    def _write_chunk(self, name: str, text: str) -> None:
        collection = api_path("v1", "namespaces", cluster_info.NAMESPACE, "configmaps")
        body = config_map(cluster_info.NAMESPACE, name, {name: text}, FOR_SCHEDULERS)
        self.loop.writes.put(
            sub_path(collection, name), partial(self.loop.objects.put, collection, body), is_newest=True
        )


class _Reports:
    """Hands the reports of the nodes to ClusterD."""

    def __init__(self, clusterd: ClusterD, clock: Clock, log: Logger) -> None:
        self._log = log
        self.clusterd = clusterd
        self.changed = asyncio.Event()
        self._clock = clock

    def replace(self, objects: list[ConfigMap]) -> None:
        there = {found.metadata.name for found in objects}
        for name in self.clusterd.names():
            if name not in there:
                self.clusterd.drop(name)
        for found in objects:
            self._take(found)
        self.changed.set()

    def change(self, changes: list[tuple[Change, ConfigMap]]) -> None:
        for kind, found in changes:
            if kind == "DELETED":
                self.clusterd.drop(found.metadata.name)
            else:
                self._take(found)
        self.changed.set()

    def _take(self, found: ConfigMap) -> None:
        reason = self.clusterd.take(found, self._clock.now_ms())
        if reason:
            self._log.warning("report dropped", reason=reason)
