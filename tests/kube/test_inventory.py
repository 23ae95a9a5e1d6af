"""The inventory on a real API server and a real bus."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from berth.cli.local.fleet import EXAMPLES
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.clock import SystemClock
from berth.runtime.config import BusConfig
from berth.runtime.instruments import Instruments
from berth.runtime.local.kube_server import KubeServer
from berth.schemas.columns import unpack
from berth.schemas.envelope import decode
from berth.schemas.facts import JobSeen, MembersSeen, PodsSeen, TopologySeen
from berth.schemas.status import JobStatus
from berth.schemas.subjects import StreamName
from berth.services.dispatcher.app import serve as dispatch
from berth.services.dispatcher.config import DispatcherConfig
from berth.services.dispatcher.metrics import DispatcherMetrics
from tests.support.inventories import (
    DEADLINE_S,
    Heard,
    bind_pod,
    inventory,
    make_node,
    pod_of,
    set_phase,
)
from tests.support.kube_api import KubeApi, apply_crds, crds_in
from tests.support.kube_rights import grant
from tests.support.processes import services
from tests.support.waiting import until, until_true

GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/{}/podgroups"
CHIPS = {"huawei.com__Ascend910": "Ascend910-0,Ascend910-1"}


@pytest.fixture
async def kubeconfig(kube_server: KubeServer, kube_api: KubeApi, tmp_path: Path) -> Path:
    """Of an ordinary user with the rights that ``k8s/`` gives to the inventory."""
    await grant(kube_api, "inventory", "inventory")
    return kube_server.write_kubeconfig(tmp_path / "kubeconfig", user="inventory")


@asynccontextmanager
async def dispatcher(url: str, cell: str) -> AsyncIterator[None]:
    """A dispatcher that scores by itself."""
    stop = asyncio.Event()
    config = DispatcherConfig(shards=0, lease_s=2, bus=BusConfig(url=url, cell=cell))
    async with await NatsBus.connect(url, cell, name="dispatcher") as bus, asyncio.TaskGroup() as group:
        group.create_task(
            dispatch(bus, SystemClock(), config, Instruments.make(DispatcherMetrics), stop), name="dispatcher"
        )
        try:
            yield
        finally:
            stop.set()


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


async def test_a_restart_says_nothing_twice(
    nats_server: str, cell: str, real_bus: NatsBus, kube_api: KubeApi, namespace: str, kubeconfig: Path
) -> None:
    heard = Heard(real_bus)
    await make_node(kube_api, "n1")
    pods = f"/api/v1/namespaces/{namespace}/pods"
    await kube_api.post(pods, pod_of("waits"))
    await kube_api.post(pods, pod_of("other", scheduler="volcano"))
    await bind_pod(kube_api, namespace, "other", "n1", **CHIPS)
    async with dispatcher(nats_server, cell):
        async with inventory(nats_server, cell, kubeconfig):

            async def told() -> bool:
                jobs = await heard.facts("job", JobSeen)
                return bool(jobs and await heard.pods() and await heard.nodes())

            await until_true(told, deadline_s=DEADLINE_S, what="a request and its verdict")
            count = await heard.quiet()
        async with inventory(nats_server, cell, kubeconfig):
            assert await heard.quiet() == count
            await kube_api.delete(f"{pods}/other")

            async def gone() -> bool:
                return await heard.pods() == {"pod/other": []}

            await until_true(gone, deadline_s=DEADLINE_S, what="the end of the pod")
    assert len(await heard.requests()) == 1


@pytest.mark.timeout(120)
async def test_a_process_that_is_killed_again_and_again_ends_with_the_same_facts(
    nats_server: str, cell: str, real_bus: NatsBus, kube_api: KubeApi, namespace: str, kubeconfig: Path, tmp_path: Path
) -> None:
    """Chips of foreign pods and requests of own ones: each once, whatever was under way when the process died."""
    heard = Heard(real_bus)
    pods = f"/api/v1/namespaces/{namespace}/pods"
    with services(tmp_path, nats_server) as made:
        process = made.service("inventory", cell, kube={"kubeconfig": str(kubeconfig)}, settle_s=0.02)
        async with dispatcher(nats_server, cell):
            for turn in range(4):
                process.start()
                await make_node(kube_api, f"n{turn}", address=f"192.0.2.{turn}")
                await kube_api.post(pods, pod_of(f"own{turn}"))
                await kube_api.post(pods, pod_of(f"other{turn}", scheduler="volcano"))
                await bind_pod(kube_api, namespace, f"other{turn}", f"n{turn}", **CHIPS)
                if turn:
                    await kube_api.delete(f"{pods}/other{turn - 1}")
                want = await heard.count() + turn

                async def something_was_said(want: int = want) -> bool:
                    return await heard.count() > want

                await until_true(something_was_said, deadline_s=DEADLINE_S, what="a word before it is killed")
                await process.kill()
            process.start()

            async def all_said() -> bool:
                live = {gang: phases for gang, phases in (await heard.pods()).items() if phases}
                return (
                    sorted(await heard.nodes()) == ["n0", "n1", "n2", "n3"]
                    and live == {"pod/other3": ["PENDING"]}
                    and len({one.name for one in await heard.facts("job", JobSeen)}) == 4
                )

            await until_true(all_said, deadline_s=DEADLINE_S, what="everything")
            await until(
                lambda: "cluster listed" in process.whole_log().rpartition("--- start")[2],
                deadline_s=DEADLINE_S,
                what="the last start to have listed the cluster",
            )
            await heard.quiet()
            await process.stop()
            members = {fact.job: fact.uid for fact in await heard.facts("member", MembersSeen)}
            assert members == {one.name: one.uid for one in await heard.requests()}
            jobs = {fact.name: fact for fact in await heard.facts("job", JobSeen)}
            assert {name: (job.uid, job.state) for name, job in jobs.items()} == {
                name: (uid, "accepted") for name, uid in members.items()
            }
            assert sorted(members) == [f"pod.own{turn}" for turn in range(4)]


@pytest.mark.timeout(180)
async def test_a_server_that_dies_and_comes_back_loses_nothing_and_repeats_nothing(
    nats_server: str, cell: str, real_bus: NatsBus, tmp_path: Path
) -> None:
    heard = Heard(real_bus)
    async with KubeServer(tmp_path / "own", start_deadline_s=60) as server:
        kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
        async with KubeApi(server) as api:
            await make_node(api, "n1")
            await api.post("/api/v1/namespaces", {"metadata": {"name": "team"}})
            await api.post("/api/v1/namespaces/team/pods", pod_of("before"))
            async with inventory(nats_server, cell, kubeconfig) as task:

                async def told() -> bool:
                    return len(await heard.requests()) == 1 and bool(await heard.nodes())

                await until_true(told, deadline_s=DEADLINE_S, what="the first request")
                count = await heard.quiet()
                await server.kill_api()
                await server.start_api()
                await make_node(api, "n2")
                await api.post("/api/v1/namespaces/team/pods", pod_of("after"))

                async def told_of_both() -> bool:
                    names = sorted(one.name for one in await heard.requests())
                    return names == ["pod.after", "pod.before"] and sorted(await heard.nodes()) == ["n1", "n2"]

                await until_true(told_of_both, deadline_s=60, what="what came while the server was away")
                assert await heard.quiet() > count
                assert not task.done()
                members = await heard.facts("member", MembersSeen)
                assert sorted(fact.job for fact in members) == ["pod.after", "pod.before"]


@pytest.mark.timeout(180)
async def test_groups_are_found_once_the_server_knows_them(
    nats_server: str, cell: str, real_bus: NatsBus, tmp_path: Path
) -> None:
    heard = Heard(real_bus)
    async with KubeServer(tmp_path / "own", start_deadline_s=60) as server:
        kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
        async with KubeApi(server) as api:
            await make_node(api, "n1")
            await api.post("/api/v1/namespaces", {"metadata": {"name": "team"}})
            await api.post("/api/v1/namespaces/team/pods", pod_of("member", group="g"))
            await api.post("/api/v1/namespaces/team/pods", pod_of("alone"))
            async with inventory(nats_server, cell, kubeconfig):

                async def told() -> bool:
                    return [one.name for one in await heard.requests()] == ["pod.alone"]

                await until_true(told, deadline_s=DEADLINE_S, what="the pod that stands alone")
                crds = crds_in(EXAMPLES / "crds")
                wanted = [crd for crd in crds if crd["spec"]["group"] == "scheduling.volcano.sh"]
                await apply_crds(api, wanted)
                spec = {"minMember": 1, "minResources": {"huawei.com/Ascend910": "2"}}
                await api.post(
                    GROUPS.format("team"),
                    {
                        "apiVersion": "scheduling.volcano.sh/v1beta1",
                        "kind": "PodGroup",
                        "metadata": {"name": "g"},
                        "spec": spec,
                        "status": {"phase": "Pending"},
                    },
                )

                async def both() -> bool:
                    return len(await heard.requests()) == 2

                await until_true(both, deadline_s=DEADLINE_S, what="the pod of the group")
