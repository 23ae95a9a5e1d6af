"""The inventory on a real API server and a real bus."""

from pathlib import Path

from berth.runtime.bus.nats_bus import NatsBus
from berth.schemas.columns import unpack
from berth.schemas.envelope import decode
from berth.schemas.facts import MembersSeen, PodsSeen, TopologySeen
from berth.schemas.status import JobStatus
from berth.schemas.subjects import StreamName
from tests.support.inventories import (
    DEADLINE_S,
    Heard,
    bind_pod,
    dispatcher,
    inventory,
    make_node,
    pod_of,
    set_phase,
)
from tests.support.kube_api import KubeApi
from tests.support.waiting import until_true

GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/{}/podgroups"
CHIPS = {"huawei.com__Ascend910": "Ascend910-0,Ascend910-1"}


async def test_nodes_and_bound_pods_are_told_of(
    nats_server: str, cell: str, real_bus: NatsBus, kube_api: KubeApi, namespace: str, kubeconfig: Path
) -> None:
    heard = Heard(real_bus)
    await make_node(kube_api, "n1", address="192.0.2.1")
    await make_node(kube_api, "n2", address="192.0.2.2")
    tor = '{"tor_count": 4, "server_list": [{"tor_ip": "198.51.100.1", "server": [{"server_ip": "192.0.2.2", "slice_id": 3}]}]}'  # fmt: skip
    config_map = {"metadata": {"name": "basic-tor-node-cm"}, "data": {"tor_info": tor}}
    await kube_api.post("/api/v1/namespaces/kube-system/configmaps", config_map)
    pods = f"/api/v1/namespaces/{namespace}/pods"
    await kube_api.post(pods, pod_of("other", scheduler="volcano"))
    await bind_pod(kube_api, namespace, "other", "n1", **CHIPS)
    await kube_api.post(pods, pod_of("plain", scheduler="volcano", chips=0))
    await bind_pod(kube_api, namespace, "plain", "n1")
    async with inventory(nats_server, cell, kubeconfig):

        async def told() -> bool:
            return sorted(await heard.nodes()) == ["n1", "n2"] and await heard.pods() == {"pod/other": ["PENDING"]}

        await until_true(told, deadline_s=DEADLINE_S, what="nodes and pods")
        nodes = await heard.nodes()
        assert (nodes["n1"].product, nodes["n1"].chips, nodes["n1"].allocatable) == ("module910bx8", 0xFF, 8)
        assert (nodes["n1"].cpu_milli, nodes["n1"].memory_mib) == (99_000, 101_376)
        assert (nodes["n2"].leaf, nodes["n2"].position, nodes["n2"].cpu_milli) == ("198.51.100.1", 3, 100_000)
        (switches,) = await heard.facts("topology", TopologySeen)
        assert [(leaf.address, leaf.nodes, leaf.positions) for leaf in switches.leaves] == [
            ("198.51.100.1", ["n2"], [3])
        ]
        await set_phase(kube_api, namespace, "other", "Running")

        async def runs() -> bool:
            return await heard.pods() == {"pod/other": ["RUNNING"]}

        await until_true(runs, deadline_s=DEADLINE_S, what="a running pod")
        count = await heard.quiet()
        condition = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "by a test"}
        beat = {**condition, "lastHeartbeatTime": "2026-11-20T08:00:00Z"}
        await kube_api.patch("/api/v1/nodes/n1/status", {"status": {"conditions": [beat]}})
        assert await heard.quiet() == count
        await kube_api.delete(f"{pods}/other")
        await kube_api.delete(f"{pods}/plain")

        async def gone() -> bool:
            return await heard.pods() == {"pod/other": []} and (await heard.nodes())["n1"].cpu_milli == 100_000

        await until_true(gone, deadline_s=DEADLINE_S, what="the end of the pods")
    assert await heard.requests() == []


async def test_what_is_wrong_is_said_on_the_object_and_the_rest_goes_on(
    nats_server: str, cell: str, real_bus: NatsBus, kube_api: KubeApi, namespace: str, kubeconfig: Path
) -> None:
    heard = Heard(real_bus)
    await make_node(kube_api, "good", address="192.0.2.1")
    await make_node(kube_api, "one", address="192.0.2.2")
    await make_node(kube_api, "two", address="192.0.2.2")
    await make_node(kube_api, "bare", address="192.0.2.4")
    await kube_api.patch("/api/v1/nodes/bare", {"metadata": {"annotations": {"baseDeviceInfos": None}}})
    servers = ", ".join(f'{{"server_ip": "192.0.2.{index}", "slice_id": {index}}}' for index in range(1, 5))
    tor = f'{{"tor_count": 5, "server_list": [{{"tor_ip": "198.51.100.1", "server": [{servers}]}}]}}'
    maps = "/api/v1/namespaces/kube-system/configmaps"
    await kube_api.post(maps, {"metadata": {"name": "basic-tor-node-cm"}, "data": {"tor_info": tor}})
    pods = f"/api/v1/namespaces/{namespace}/pods"
    await kube_api.post(pods, pod_of("stray", scheduler="volcano"))
    await bind_pod(kube_api, namespace, "stray", "good", **{"huawei.com__Ascend910": "Ascend910-1,Ascend910-11"})

    async def events(space: str) -> dict[str, tuple[str, int]]:
        found = await kube_api.items(f"/api/v1/namespaces/{space}/events")
        return {
            one["involvedObject"]["name"]: (one["message"], one["count"])
            for one in found
            if one["reportingComponent"] == "berth"
        }

    async def all_told() -> bool:
        return sorted(await events("default")) == ["bare", "one", "two"] and list(await events(namespace)) == ["stray"]

    async with inventory(nats_server, cell, kubeconfig):
        await until_true(all_told, deadline_s=DEADLINE_S, what="events on three nodes and a pod")
        nodes = await heard.nodes()
        assert {name: (node.leaf, node.chips) for name, node in nodes.items()} == {
            "good": ("198.51.100.1", 0xFF),
            "one": ("", 0xFF),
            "two": ("", 0xFF),
            "bare": ("198.51.100.1", 0),
        }
        (foreign,) = await heard.facts("pod", PodsSeen)
        assert unpack(foreign.chips, 8) == [0b10]
        words = await events("default")
        assert words["bare"][0].startswith("node bare: annotation baseDeviceInfos is missing")
        assert words["one"][0].startswith("node one: status.addresses InternalIP is '192.0.2.2', as on two")
        assert "its chips 11 do not exist on node good" in (await events(namespace))["stray"][0]
        await kube_api.patch(f"{maps}/basic-tor-node-cm", {"data": {"tor_info": tor[:-9]}})

        async def map_told() -> bool:
            return "basic-tor-node-cm" in await events("kube-system")

        await until_true(map_told, deadline_s=DEADLINE_S, what="an event on the ConfigMap")
        assert (await heard.nodes())["good"].leaf == "198.51.100.1"
    async with inventory(nats_server, cell, kubeconfig):

        async def counted() -> bool:
            return (await events("default"))["bare"][1] == 2

        await until_true(counted, deadline_s=DEADLINE_S, what="the event counted once more")
        await heard.quiet()
        assert (await heard.nodes())["good"].leaf == "198.51.100.1"


async def until_let_in(api: KubeApi, heard: Heard, group: str) -> None:
    """Wait until a group is let in, and the four pods of its request are told of."""

    async def is_let_in() -> bool:
        told = [len(fact.pods) for fact in await heard.facts("member", MembersSeen) if fact.uid][-1:]
        return told == [4] and bool((await api.get(group))["status"]["phase"] == "Inqueue")

    await until_true(is_let_in, deadline_s=DEADLINE_S, what="the group is let in")


async def test_a_group_with_bare_pods_is_placed_as_one(
    nats_server: str, cell: str, real_bus: NatsBus, kube_api: KubeApi, namespace: str, kubeconfig: Path
) -> None:
    heard = Heard(real_bus)
    await make_node(kube_api, "n1")
    groups = GROUPS.format(namespace)
    spec = {"minMember": 4, "queue": "default", "minResources": {"huawei.com/Ascend910": "8"}}
    await kube_api.post(
        groups,
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": "g"},
            "spec": spec,
            "status": {"phase": "Pending"},
        },
    )
    for index in range(4):
        await kube_api.post(f"/api/v1/namespaces/{namespace}/pods", pod_of(f"p{index}", group="g"))

    async def status() -> JobStatus | None:
        stored = await real_bus.last(StreamName.STATUS, real_bus.subjects.status(namespace, "podgroup.g"))
        return decode(stored.data, JobStatus) if stored is not None else None

    async def is_placed() -> bool:
        found = await status()
        return found is not None and found.phase == "placed"

    async with dispatcher(nats_server, cell):
        async with inventory(nats_server, cell, kubeconfig):
            await until_true(is_placed, deadline_s=DEADLINE_S, what="a placement")
            (request,) = await heard.requests()
            assert sum(task.replicas for task in request.tasks) == 4
            await until_let_in(kube_api, heard, f"{groups}/g")
        placed = await status()
        assert placed is not None
        assert placed.placement is not None
        assert placed.placement.names() == ["n1"] * 4
        chips = placed.placement.chips_by_rank()
        assert sorted(chip for mine in chips for chip in mine) == list(range(8))
        (members,) = [fact for fact in await heard.facts("member", MembersSeen) if fact.uid][-1:]
        assert sorted(members.pods) == ["p0", "p1", "p2", "p3"]

        for rank, name in enumerate(members.pods):
            names = ",".join(f"Ascend910-{chip}" for chip in chips[rank])
            own = {"berth__job": placed.name, "berth__uid": placed.uid, "berth__attempt": "1", "berth__rank": str(rank)}
            await bind_pod(kube_api, namespace, name, "n1", **own, **{"huawei.com__Ascend910": names})

        async with inventory(nats_server, cell, kubeconfig):

            async def is_told() -> bool:
                return (await heard.pods()).get("podgroup.g") == ["PENDING"] * 4

            await until_true(is_told, deadline_s=DEADLINE_S, what="the bound pods")
            for name in members.pods:
                await set_phase(kube_api, namespace, name, "Running")

            async def runs() -> bool:
                found = await status()
                return found is not None and found.phase == "running"

            await until_true(runs, deadline_s=DEADLINE_S, what="a running job")

            async def group_runs() -> bool:
                return bool((await kube_api.get(f"{groups}/g"))["status"]["phase"] == "Running")

            await until_true(group_runs, deadline_s=DEADLINE_S, what="a running group")
        assert [one.uid for one in await heard.requests()] == [request.uid]
        assert {fact.uid for fact in await heard.facts("pod", PodsSeen)} == {request.uid}
