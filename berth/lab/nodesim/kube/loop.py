"""The agents of all nodes on an API server: pods in, writes out."""

import asyncio
from collections.abc import Mapping
from functools import partial
from random import Random
from typing import Final, assert_never

from msgspec.structs import replace

from berth.formats.clusters.topology_file import Cluster
from berth.formats.kubernetes.paths import api_path, sub_path
from berth.lab.nodesim.accounts import Accounts
from berth.lab.nodesim.agents.device_report import FOR_CLUSTERD
from berth.lab.nodesim.agents.effects import (
    AgentEffect,
    AgentRules,
    Alarm,
    Annotate,
    Confirm,
    Report,
    SetNode,
    SetPresence,
    SetStatus,
    Tally,
)
from berth.lab.nodesim.agents.kubelet import NodeAgents
from berth.lab.nodesim.agents.pod_statuses import PodAddresses
from berth.lab.nodesim.agents.pods import AgentPod
from berth.lab.nodesim.agents.registration import config_map, node_body, places_of
from berth.lab.nodesim.breakage import OF_PODS, RELATION_LEVELS, WrongBreakError, breakage_of, breakages_of_file
from berth.lab.nodesim.config import NodesimConfig
from berth.lab.nodesim.fault_plan import FaultPlan
from berth.lab.nodesim.kube_writes import KubeWrites, OwnObjects
from berth.runtime.backoff import Backoff
from berth.runtime.clock import Clock
from berth.runtime.kube.port import Api, Change
from berth.runtime.logs import Logger
from berth.schemas.envelope import DecodeError, decode, encode
from berth.schemas.fault_facts import FAULT_TYPE
from berth.schemas.simulation import BreakNode, NodeBroken, SimCounts
from berth.schemas.units import UnixMs

NODES: Final = "/api/v1/nodes"
_MS: Final = 1000


class KubeLoop:
    """Agents of a cluster's nodes.

    As a handler of a reflection of pods that have a node it passes them to their agents.

    Args:
        api: The API server.
        clock: Source of time.
        config: Settings.
        cluster: Nodes and faults; the faults' times count from now.
        log: Logger of the service.
    """

    def __init__(self, api: Api, clock: Clock, config: NodesimConfig, cluster: Cluster, log: Logger) -> None:
        self._api = api
        self._clock = clock
        self._config = config
        self._log = log
        rules = rules_of(config)
        start_ms = clock.now_ms()
        self.objects = OwnObjects(api, log)
        self.tally = Tally()
        self.accounts = Accounts({node.name: node for node in cluster.nodes})
        self.writes = KubeWrites(
            log=log,
            at_once=config.agents.writes_at_once,
            backoff=Backoff(first_s=config.retry_wait_s, max_s=config.retry_wait_max_s),
        )
        addresses = PodAddresses()
        places = places_of(cluster.nodes)
        self.agents = {
            node.name: NodeAgents(
                node,
                places[node.name],
                rules=rules,
                accounts=self.accounts,
                tally=self.tally,
                addresses=addresses,
                rng=Random(f"{config.agents.seed} {node.name}"),  # noqa: S311 - a simulation, repeatable
            )
            for node in cluster.nodes
        }
        for fault in cluster.faults:
            agents = self.agents[fault.node]
            for item in breakages_of_file(fault, agents.node, start_ms):
                agents.breakages.add(item)
        self._plan = FaultPlan(config.fault_plan, cluster.nodes, start_ms=start_ms)
        self._nodes: dict[str, str] = {}
        """Node by uid of the pod."""
        self._due: dict[str, UnixMs] = dict.fromkeys(self.agents, start_ms)
        self._to_report: dict[str, None] = dict.fromkeys(self.agents)
        self._wake = asyncio.Event()

    def replace(self, objects: list[AgentPod]) -> None:
        """Take all pods that have a node."""
        there = {pod.metadata.uid for pod in objects}
        for uid in [uid for uid in self._nodes if uid not in there]:
            self._gone(uid)
        for pod in objects:
            self._see(pod)
        self._wake.set()

    def change(self, changes: list[tuple[Change, AgentPod]]) -> None:
        """Take changes of pods that have a node."""
        for kind, pod in changes:
            if kind == "DELETED":
                self._gone(pod.metadata.uid)
            else:
                self._see(pod)
        self._wake.set()

    def _see(self, pod: AgentPod) -> None:
        agents = self.agents.get(pod.spec.node_name)
        if agents is None:
            return
        self._nodes[pod.metadata.uid] = pod.spec.node_name
        agents.see(pod, self._clock.now_ms())
        self._touch(pod.spec.node_name)

    def _gone(self, uid: str) -> None:
        node = self._nodes.pop(uid, None)
        if node is not None:
            self.agents[node].gone(uid)
            self._touch(node)

    def _touch(self, node: str) -> None:
        self._to_report[node] = None
        now_ms = self._clock.now_ms()
        due_ms = self.agents[node].next_due_ms(now_ms)
        if due_ms is None:
            self._due.pop(node, None)
        else:
            self._due[node] = due_ms

    async def register(self, name: str) -> None:
        """Create a node, or take over that of an earlier run; a node that another has made gets no agents.

        Of a node that is taken over labels, annotations and status are written again.

        Raises:
            RefusedError: The server refuses.
            TransientError: The server did not answer.
        """
        agents = self.agents[name]
        body = node_body(agents.node, agents.infos, agents.place, self._clock.now_ms())
        if await self.objects.make(NODES, body):
            return
        metadata = {key: body["metadata"][key] for key in ("labels", "annotations")}
        await self.objects.patch(sub_path(NODES, name), {"metadata": metadata})
        await self._set_status(name, body["status"])

    def _leave(self, name: str) -> None:
        """Have no agents on a node: it is that of another."""
        for uid in [uid for uid, node in self._nodes.items() if node == name]:
            self._gone(uid)
        del self.agents[name]
        self._due.pop(name, None)
        self._to_report.pop(name, None)

    async def run(self) -> None:
        """Let the agents work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.writes.run())
            group.create_task(self._steps())
            group.create_task(self._reports())
            group.create_task(self._break_as_planned())

    async def _steps(self) -> None:
        while True:
            now_ms = self._clock.now_ms()
            for node in [node for node, due_ms in self._due.items() if due_ms <= now_ms]:
                self._do(self.agents[node].step(now_ms))
                self._touch(node)
            self._wake.clear()
            due_ms = min(self._due.values(), default=None)
            seconds = self._config.tick_s
            if due_ms is not None:
                seconds = min(seconds, max(due_ms - self._clock.now_ms(), 1) / _MS)
            try:
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _reports(self) -> None:
        next_ms = self._clock.now_ms()
        while True:
            now_ms = self._clock.now_ms()
            if next_ms <= now_ms:
                repeats = [node for node, agents in self.agents.items() if agents.repeats_ms <= now_ms]
                for node in dict.fromkeys([*self._to_report, *repeats]):
                    self._do(self.agents[node].report(now_ms))
                self._to_report.clear()
                next_ms = now_ms + round(self._config.agents.report_s * _MS)
            await asyncio.sleep(min(self._config.tick_s, self._config.agents.report_s))

    async def _break_as_planned(self) -> None:
        while (due_ms := self._plan.next_ms()) is not None:
            await asyncio.sleep(max(due_ms - self._clock.now_ms(), 0) / _MS)
            for request in self._plan.take(self._clock.now_ms()):
                reason = self._break(request)
                if reason:
                    self._log.warning("fault left out", node=request.node, fault=request.fault, reason=reason)

    def _do(self, effects: list[AgentEffect]) -> None:
        for effect in effects:
            match effect:
                case Annotate(pod, annotations):
                    body = {"metadata": {"uid": pod.metadata.uid, "annotations": annotations}}
                    self._patch(pod.metadata.uid, pod.path, body)
                case SetStatus(pod, status):
                    body = {"metadata": {"uid": pod.metadata.uid}, "status": status}
                    self._patch(pod.metadata.uid, f"{pod.path}/status", body, is_strategic=True)
                    self._log_refusal(pod, status)
                case Confirm(pod):
                    write = partial(self._api.delete, pod.path, uid=pod.metadata.uid, grace_s=0)
                    self.writes.put(pod.metadata.uid, write)
                case SetNode(node, status):
                    self.writes.put(f"node {node}", partial(self._set_status, node, status))
                case SetPresence(node, is_there):
                    self._set_presence(node, is_there=is_there)
                case Report():
                    self._report(effect)
                case Alarm(pod, reason):
                    self._log.error("placement does not fit", pod=pod.key, node=pod.spec.node_name, reason=reason)
                case _:
                    assert_never(effect)

    def _set_presence(self, name: str, *, is_there: bool) -> None:
        write = partial(self.register, name) if is_there else partial(self.objects.delete, NODES, name)
        self.writes.put(f"node {name}", write)

    async def _set_status(self, name: str, status: Mapping[str, object]) -> None:
        """Write the status of a node, while it is the one that nodesim has made."""
        path = sub_path(NODES, name)
        await self.objects.patch(path, {"status": status}, part="status", how="strategic")
        if self.objects.is_left(path) and name in self.agents:
            self._leave(name)

    def _log_refusal(self, pod: AgentPod, status: dict[str, object]) -> None:
        if "message" in status:
            self._log.warning("pod refused", pod=pod.key, node=pod.spec.node_name, reason=status["message"])

    def _patch(self, key: str, path: str, body: Mapping[str, object], *, is_strategic: bool = False) -> None:
        async def write() -> None:
            await self._api.patch(path, body, how="strategic" if is_strategic else "merge")

        self.writes.put(key, write)

    def _report(self, report: Report) -> None:
        collection = api_path("v1", "namespaces", report.namespace, "configmaps")
        key = sub_path(collection, report.name)
        if not report.data:
            self.writes.put(key, partial(self.objects.delete, collection, report.name))
            return
        body = config_map(report.namespace, report.name, report.data, FOR_CLUSTERD)
        self.writes.put(key, partial(self.objects.put, collection, body), is_newest=True)

    async def break_node(self, data: bytes) -> bytes:
        """Answer a :class:`BreakNode`."""
        try:
            request = decode(data, BreakNode)
        except DecodeError as error:
            self._log.warning("request unreadable", reason=error.reason, kind=error.kind)
            return encode(NodeBroken(f"request unreadable: {error.reason}"))
        return encode(NodeBroken(self._break(request)))

    def _break(self, request: BreakNode) -> str:
        """Break or repair something; returns why not, or nothing."""
        names = [request.node] if request.node in self.agents and not request.leaf else []
        if request.leaf:
            names = [name for name, agents in self.agents.items() if request.node and agents.node.leaf == request.node]
        if not names:
            what = "leaf switch" if request.leaf else "node"
            return f"{what} is {request.node!r}, expected a {what} of the topology file"
        reasons = [reason for name in names if (reason := self._break_one(replace(request, node=name)))]
        return "; ".join(reasons) if len(reasons) == len(names) else ""

    def _break_one(self, request: BreakNode) -> str:
        agents = self.agents[request.node]
        if request.fault in OF_PODS:
            return self._break_pod(request, agents)
        try:
            item = breakage_of(request, agents.node, self._clock.now_ms())
        except WrongBreakError as error:
            return str(error)
        if not request.repair:
            agents.breakages.add(item)
        elif not agents.breakages.repair(item.kind, item.chips):
            return f"node {request.node} has no fault of kind {request.fault}" + (
                " of these chips" if request.chips else ""
            )
        self._log.info(
            "repaired" if request.repair else "broken", node=request.node, fault=request.fault, level=item.level
        )
        self._due[request.node] = self._clock.now_ms()
        self._to_report[request.node] = None
        self._wake.set()
        return ""

    def _break_pod(self, request: BreakNode, agents: NodeAgents) -> str:
        """Let a pod fail, or label it; returns why not, or nothing."""
        is_relation = request.fault == "relation"
        level = request.level or (RELATION_LEVELS[0] if is_relation else "")
        if request.repair or request.chips or request.code or request.lasts_ms or (level and not is_relation):
            return f"a fault of kind {request.fault} is of a pod, and has no chips, code, end or repair" + (
                "" if is_relation else ", and no level"
            )
        if is_relation and level not in RELATION_LEVELS:
            return f"level is {level!r}, expected one of {', '.join(RELATION_LEVELS)}"
        pod = agents.running(request.pod)
        if pod is None:
            return f"pod is {request.pod!r}, expected a running pod of node {request.node}"
        if is_relation:
            self._patch(pod.metadata.uid, pod.path, {"metadata": {"labels": {FAULT_TYPE: level}}})
        else:
            self._do(agents.fail(pod.key, request.exit_code or 1, self._clock.now_ms()))
        self._log.info("broken", node=request.node, fault=request.fault, pod=pod.key)
        self._touch(request.node)
        return ""

    def is_sub_healthy(self, node: str, uid: str) -> bool:
        """Whether a chip of a pod, or the switch of its node, is sub-healthy."""
        agents = self.agents.get(node)
        if agents is None:
            return False
        broken = agents.breakages.at(self._clock.now_ms())
        chips = [item.chips for item in broken.of("chip") if item.level == "SubHealthFault"]
        return any(mask >> chip & 1 for mask in chips for chip in agents.mounted(uid)) or any(
            item.level == "SubHealthFault" for item in broken.of("switch")
        )

    async def counts(self, _data: bytes) -> bytes:
        """Answer with the counts, whatever was asked."""
        return encode(self.counted())

    def counted(self) -> SimCounts:
        """What has been seen so far."""
        return SimCounts(
            nodes=len(self.agents),
            pods_live=sum(agents.pods_live for agents in self.agents.values()),
            chips_held=self.accounts.chips_held(),
            pods_bound=self.tally.bound,
            pods_failed=self.tally.failed,
            pods_ended=self.tally.ended,
            double_allocations=self.accounts.double_allocations,
            overcommits=self.accounts.overcommits,
            swapped=self.tally.swapped,
            admission_errors=self.tally.admission_errors,
        )


def rules_of(config: NodesimConfig) -> AgentRules:
    """Rules of the agents by the settings."""
    agents = config.agents
    return AgentRules(
        admit_ms=round(agents.admit_s * _MS),
        start_ms=round(agents.start_s * _MS),
        terminating_ms=round(config.terminating_s * _MS),
        run_default_ms=None if agents.run_for_ever else round(config.run_default_s * _MS),
        unchanged_ms=round(agents.unchanged_s * _MS),
        shuffle=agents.shuffle_allocate,
        preset_virtual_devices=agents.preset_virtual_devices,
        reversed_ids=agents.reversed_device_ids,
        other_releases=agents.other_releases,
    )
