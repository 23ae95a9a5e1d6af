"""What happens to nodes and to what is above and on them: faults, labels, leaf switches, pods that do not end."""

from typing import Any, Final

import msgspec

from berth.formats.ascend.tor_config import CONFIG_MAP, NAMESPACE, TOR_INFO
from berth.lab.nodesim.agents.registration import leaves_body, leaves_data
from berth.runtime.errors import TransientError
from berth.schemas.envelope import encode
from berth.schemas.simulation import BreakNode
from tests.sim.kube import finished
from tests.sim.stage import Stage
from tests.sim.story import Event
from tests.sim.users import PODS
from tests.support.kube_rules import Tree

NODES: Final = "/api/v1/nodes"
CONFIG_MAPS: Final = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
HELD: Final = "sim/held"
"""Finalizer of pods that do not end."""
FAULTS: Final = (
    ("chip", ""), ("chip", "SeparateNPU"), ("network", ""), ("node", "PreSeparateFault"), ("node", "SeparateFault"),
    ("kubelet", ""), ("container", ""), ("plugin", ""), ("recovering", ""), ("gone", ""), ("chip", "SubHealthFault"),
    ("chip", "SubHealthFault"), ("chip", "RestartBusiness"), ("network", "SubHealthFault"), ("switch", ""),
    ("switch", "Separate"), ("relation", "Separate"), ("relation", "SubHealth"), ("relation", "software"),
)  # fmt: skip
_OF_CHIPS: Final = frozenset({"chip", "network", "recovering"})
_STUCK_S: Final = 25.0


class Nature(Stage):
    """See above."""

    def _do_break(self, event: Event) -> None:
        fault, level = FAULTS[event.two % len(FAULTS)]
        node = self.node_of(event)
        chips = [event.one // 7 % node.chips.bit_count()] if fault in _OF_CHIPS else []
        self._break_soon(
            BreakNode(node=node.name, fault=fault, chips=chips, level=level, lasts_ms=round(event.for_s * 1000) + 500)
        )

    def _break_soon(self, wish: BreakNode) -> None:
        self.loop.create_task(self._break(wish), context=self.loop.main.context)

    async def _break(self, wish: BreakNode) -> None:
        try:
            await self.user.request(self.user.subjects.sim("break"), encode(wish), timeout_s=5.0)
        except TransientError:
            return  # the cluster or the connection is away: nothing breaks

    def _do_cordon(self, event: Event) -> None:
        name = self.node_of(event).name
        self.patch_node(name, {"spec": {"unschedulable": True}})
        self.later(event.for_s, self.patch_node, name, {"spec": {"unschedulable": None}})

    def _do_relabel(self, event: Event) -> None:
        """A label of a node changes or goes, and comes back."""
        node = self.node_of(event)
        key = sorted(node.labels)[event.two % len(node.labels)]
        self.patch_node(node.name, {"metadata": {"labels": {key: "other" if event.two % 2 else None}}})
        self.later(event.for_s, self.patch_node, node.name, {"metadata": {"labels": {key: node.labels[key]}}})

    def patch_node(self, name: str, patch: Tree) -> None:
        """Change a node, if it is there."""
        if any(found["metadata"]["name"] == name for found in self.cell.kube.objects(NODES)):
            finished(self.cell.kube.patch(f"{NODES}/{name}", patch))

    def _do_leaves(self, event: Event) -> None:
        """The map of leaf switches changes, is wrong, or goes; and comes back."""
        data = leaves_data(self.cell.cluster)
        if not data:
            return
        info: dict[str, Any] = msgspec.json.decode(data[TOR_INFO])
        dice = event.dice
        leaves = info["server_list"]
        what = dice.choice(("gone", "wrong", "moved", "less", "empty"))
        if what == "gone":
            self.put_leaves({})
        elif what == "wrong":
            self.put_leaves({**data, TOR_INFO: dice.choice(("{", "[]", '{"server_list": 3}'))})
        else:
            if what == "moved" and len(leaves) > 1:
                leaves[0]["server"].append(leaves[1]["server"].pop())
            elif what == "empty":
                leaves.clear()
            else:
                leaves.pop()
            self.put_leaves({**data, TOR_INFO: msgspec.json.encode(info).decode()})
        self.later(event.for_s, self.put_leaves, data)

    def put_leaves(self, data: dict[str, str]) -> None:
        """Make the map of leaf switches say something, or take it away."""
        kube = self.cell.kube
        is_there = any(found["metadata"]["name"] == CONFIG_MAP for found in kube.objects(CONFIG_MAPS))
        if data:
            kube.put(CONFIG_MAPS, leaves_body(data))
        elif is_there:
            kube.confirm(f"{CONFIG_MAPS}/{CONFIG_MAP}")

    def _do_stuck(self, event: Event) -> None:
        """A pod does not end for long: its kubelet is dead, or something keeps the object."""
        kube, dice = self.cell.kube, event.dice
        pods = [found for found in kube.objects(PODS) if found["spec"].get("nodeName")]
        if not pods:
            return
        found = pods[event.one % len(pods)]
        path = f"{PODS}/{found['metadata']['name']}"
        if dice.random() < 0.5:
            self._break_soon(
                BreakNode(
                    node=found["spec"]["nodeName"], fault="kubelet", lasts_ms=round((_STUCK_S + event.for_s) * 1000)
                )
            )
        else:
            finished(kube.patch(path, {"metadata": {"finalizers": [HELD]}}))
            self.later(_STUCK_S + event.for_s, self.release, found["metadata"]["name"])
        if dice.random() < 0.5:
            self.later(1.0, self._delete, found["metadata"]["name"])

    def _delete(self, name: str) -> None:
        finished(self.cell.kube.delete(f"{PODS}/{name}"))

    def release(self, name: str) -> None:
        """Let a pod go that something keeps."""
        for found in self.cell.kube.objects(PODS):
            if found["metadata"]["name"] == name and found["metadata"].get("finalizers"):
                self.cell.kube.release(f"{PODS}/{name}")

    def _do_storage(self, event: Event) -> None:
        """The provisioner is late, or refuses everything, for a while."""
        if event.two % 2:
            self.storage.refuses = 1.0
        else:
            self.storage.late_s = event.for_s
        self.later(2 * event.for_s, self.repair_storage)

    def repair_storage(self) -> None:
        """The provisioner works."""
        self.storage.refuses, self.storage.late_s = 0.25, 0.0
