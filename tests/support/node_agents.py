"""The agents of one simulated node, for tests: what the API shows and times in, effects out."""

from random import Random
from typing import Any

from msgspec.structs import replace

from berth.formats.ascend.device_info import ChipLists, parse_device_info
from berth.formats.ascend.pod_annotations import PREDICATE_TIME, chip_names
from berth.formats.kubernetes.lean import Meta, OwnerReference
from berth.formats.kubernetes.objects import Condition
from berth.formats.kubernetes.pod_spec import Container, Requirements
from berth.lab.nodesim.accounts import Accounts
from berth.lab.nodesim.agents.device_report import Place
from berth.lab.nodesim.agents.effects import (
    AgentEffect,
    AgentRules,
    Annotate,
    Report,
    SetStatus,
    Tally,
)
from berth.lab.nodesim.agents.kubelet import NodeAgents
from berth.lab.nodesim.agents.pod_statuses import PodAddresses
from berth.lab.nodesim.agents.pods import AgentPod, AgentPodSpec, AgentPodStatus
from berth.products.catalogue import NODE_PRODUCTS
from berth.schemas.nodes import NodeDescription

RESOURCE = "huawei.com/Ascend910"
T0 = 1_763_640_000_000
RULES = AgentRules(admit_ms=100, start_ms=500, terminating_ms=500, run_default_ms=10_000, shuffle=False)


class World:
    """Agents of a node, and the effects of a step or a period."""

    def __init__(self, rules: AgentRules = RULES, *, seed: int = 0, product: str = "module910bx8") -> None:
        known = NODE_PRODUCTS[product]
        self.node = NodeDescription(
            "n",
            product,
            known.resource,
            (1 << known.chips) - 1,
            known.chips,
            8_000,
            4_096,
            labels=dict(known.labels),
            address="10.0.0.9",
        )
        self.tally = Tally()
        self.accounts = Accounts({"n": self.node})
        self.agents = NodeAgents(
            self.node,
            Place(),
            rules=rules,
            accounts=self.accounts,
            tally=self.tally,
            addresses=PodAddresses(),
            rng=Random(seed),  # noqa: S311 - kubelet's choices, repeatable
        )

    def see(self, *pods: AgentPod, at_ms: int = 0) -> None:
        for pod in pods:
            self.agents.see(pod, T0 + at_ms)

    def step(self, at_ms: int) -> list[AgentEffect]:
        return self.agents.step(T0 + at_ms)

    def statuses(self, at_ms: int) -> dict[str, dict[str, Any]]:
        return {item.pod.metadata.name: item.status for item in self.step(at_ms) if isinstance(item, SetStatus)}

    def report(self, at_ms: int) -> list[AgentEffect]:
        return self.agents.report(T0 + at_ms)

    def lists(self, at_ms: int) -> ChipLists:
        (found,) = [
            item.data["DeviceInfoCfg"]
            for item in self.report(at_ms)
            if isinstance(item, Report) and "DeviceInfoCfg" in item.data
        ]
        return parse_device_info(found).chips[RESOURCE]


def a_pod(
    name: str,
    chips: list[int],
    *,
    at: str = "100",
    asks: list[int] | None = None,
    phase: str = "Pending",
    leaving: bool = False,
    requests: dict[str, str | int | float] | None = None,
    annotations: dict[str, str] | None = None,
) -> AgentPod:
    found = {RESOURCE: chip_names(RESOURCE, chips), PREDICATE_TIME: at} if chips else {}
    wanted = asks if asks is not None else [len(chips)]
    return AgentPod(
        metadata=Meta(
            name=name,
            namespace="ns",
            uid=f"uid-{name}",
            annotations={**found, **(annotations or {})},
            deletion_timestamp="2026-01-01T00:00:00Z" if leaving else None,
        ),
        spec=AgentPodSpec(
            node_name="n",
            containers=[
                Container(name=f"c{n}", resources=Requirements(limits={RESOURCE: count} if count else {}, requests=requests))
                for n, count in enumerate(wanted)
            ],
        ),
        status=AgentPodStatus(phase=phase),
    )  # fmt: skip


def owned(pod: AgentPod, kind: str) -> AgentPod:
    owner = OwnerReference(kind=kind, name="o", uid="o", controller=True)
    return replace(pod, metadata=replace(pod.metadata, owner_references=[owner]))


def since(pod: AgentPod, moment: str) -> AgentPod:
    ready = Condition(type="Ready", status="True", last_transition_time=moment)
    return replace(pod, status=replace(pod.status, conditions=[ready]))


def annotated(effects: list[AgentEffect]) -> dict[str, dict[str, str]]:
    return {item.pod.metadata.name: item.annotations for item in effects if isinstance(item, Annotate)}
