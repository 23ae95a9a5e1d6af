"""The ConfigMap of leaf switches on a real API server: which value of it counts, and what is said of the others."""

import json
from pathlib import Path
from typing import Any

from berth.runtime.bus.nats_bus import NatsBus
from berth.schemas.facts import TopologySeen
from tests.support.inventories import DEADLINE_S, Heard, bind_pod, inventory, make_node, pod_of, set_phase
from tests.support.kube_api import KubeApi
from tests.support.waiting import until_true

MAPS = "/api/v1/namespaces/kube-system/configmaps"
MAP = f"{MAPS}/basic-tor-node-cm"
FIRST = {"198.51.100.9": ["192.0.2.1", "192.0.2.2"], "198.51.100.1": ["192.0.2.3"]}
CHIPS = {"huawei.com__Ascend910": "Ascend910-0,Ascend910-1"}
LESS = {"198.51.100.1": ["192.0.2.3", "192.0.2.1"]}


def data(leaves: dict[str, list[str]], *, level: str = "double_layer") -> dict[str, Any]:
    """The ConfigMap's data for leaves and the addresses below each."""
    tors = [
        {
            "tor_id": index,
            "tor_ip": leaf,
            "server": [{"server_ip": one, "slice_id": at} for at, one in enumerate(below)],
        }
        for index, (leaf, below) in enumerate(leaves.items())
    ]
    info = json.dumps({"version": "1.0", "tor_count": 2, "server_list": tors})
    return {"data": {"tor_info": info, "tor_level": level}}


class Told:
    """What was told of the switches, and what is waited for."""

    def __init__(self, heard: Heard, api: KubeApi) -> None:
        self._heard = heard
        self._api = api

    async def until_fact(self, leaves: dict[str, list[str]], reason: str) -> TopologySeen:
        """Wait until the newest fact has leaves with nodes, and a reason; without, none at all."""
        found: list[TopologySeen] = []

        async def is_told() -> bool:
            found[:] = (await self._heard.facts("topology", TopologySeen))[-1:]
            return bool(
                found
                and {leaf.name: leaf.nodes for leaf in found[0].leaves} == leaves
                and (reason in found[0].reason if reason else not found[0].reason)
            )

        await until_true(is_told, deadline_s=DEADLINE_S, what=f"switches {leaves} with reason {reason!r}")
        return found[0]

    async def until_event(self, words: str) -> None:
        """Wait for an Event on the ConfigMap."""

        async def is_there() -> bool:
            events = await self._api.items("/api/v1/namespaces/kube-system/events")
            return any(
                (event["reason"], event["involvedObject"]["name"]) == ("SwitchesInvalid", "basic-tor-node-cm")
                and words in event["message"]
                for event in events
            )

        await until_true(is_there, deadline_s=DEADLINE_S, what=f"an event with {words!r}")


async def test_a_value_that_cannot_count_changes_nothing_and_is_told_of(
    nats_server: str, cell: str, real_bus: NatsBus, kube_api: KubeApi, namespace: str, kubeconfig: Path
) -> None:
    heard = Heard(real_bus)
    told = Told(heard, kube_api)
    await make_node(kube_api, "n1", address="192.0.2.1")
    await make_node(kube_api, "n3", address="192.0.2.3")
    await kube_api.post(MAPS, {"metadata": {"name": "basic-tor-node-cm"}, **data(FIRST)})
    await kube_api.post(f"/api/v1/namespaces/{namespace}/pods", pod_of("busy", scheduler="volcano"))
    await bind_pod(kube_api, namespace, "busy", "n1", **CHIPS)
    await set_phase(kube_api, namespace, "busy", "Running")
    async with inventory(nats_server, cell, kubeconfig):
        first = await told.until_fact({"198.51.100.9": ["n1", ""], "198.51.100.1": ["n3"]}, "")
        assert [leaf.name for leaf in first.leaves] == ["198.51.100.9", "198.51.100.1"]
        assert (first.places, first.level) == (2, "double_layer")
        assert first.leaves[0].addresses == FIRST["198.51.100.9"]
        await make_node(kube_api, "n2", address="192.0.2.2")
        full = {"198.51.100.9": ["n1", "n2"], "198.51.100.1": ["n3"]}
        await told.until_fact(full, "")

        await kube_api.patch(MAP, data(FIRST | {"198.51.100.5": ["192.0.2.2"]}))
        entry = "tor_info server_list[2].server[0].server_ip is '192.0.2.2': expected an address of its own"
        await told.until_fact(full, entry)
        await told.until_event(entry)

        await kube_api.patch(MAP, data(LESS, level="single_layer"))
        held = await told.until_fact(full, "tor_info server_list is without leaf '198.51.100.9'")
        assert f"{namespace}/busy on node n1" in held.reason
        assert held.level == "double_layer"
    count = await heard.quiet()
    async with inventory(nats_server, cell, kubeconfig):
        assert await heard.quiet() == count, "a restart lets nothing go and says nothing twice"
        await set_phase(kube_api, namespace, "busy", "Succeeded")
        taken = await told.until_fact({"198.51.100.1": ["n3", "n1"]}, "")
        assert taken.level == "single_layer"
        assert {name: (node.leaf, node.position) for name, node in (await heard.nodes()).items()} == {
            "n1": ("198.51.100.1", 1),
            "n2": ("", 0),
            "n3": ("198.51.100.1", 0),
        }
        await kube_api.delete(MAP)
        await told.until_fact({}, "")
