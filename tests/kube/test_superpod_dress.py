"""SuperPoD affinity on a real API server: annotations of Bindings, SuperPoDs from reports, and adopted pods."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from berth.core.topologies.blocks.placed import BlockPlacement, block_of
from berth.lab.servers.kube_server import KubeServer
from berth.runtime.bus.nats_bus import NatsBus
from berth.schemas.columns import pack
from berth.schemas.envelope import decode, encode, open_envelope
from berth.schemas.facts import PodsSeen
from berth.schemas.ledger import Adoption, Round
from berth.schemas.subjects import StreamName
from tests.support.binder_cluster import USER, World
from tests.support.inventories import DEADLINE_S, Heard, bind_pod, dispatcher, inventory, make_node, pod_of
from tests.support.kube_api import MERGE_PATCH, KubeApi
from tests.support.kube_binder import RESOURCE, a_pod, members_of
from tests.support.kube_rights import grant
from tests.support.leaf_ledger import LeafLedger
from tests.support.processes import services
from tests.support.waiting import until_true

pytestmark = pytest.mark.timeout(150)
NAMES: Final = ("super-pod-id", "super-pod-rank")
MAPS: Final = "/api/v1/namespaces/kube-system/configmaps"
LABEL: Final = {"mx-consumer-cim": "true"}


async def place(world: World, bus: NatsBus, ledger: LeafLedger, name: str, part: BlockPlacement) -> None:
    """Make a pod a node, with all chips of it, and place them as a part says."""
    gang = world.gang(name, 0, 1, 2, chips=8)
    gang = replace(gang, placement=msgspec.structs.replace(gang.placement, groups=[part.groups]))
    made = [await world.api.post(world.pods, a_pod(f"{name}-{rank}", chips=8)) for rank in range(3)]
    rows = [(rank, str(it["metadata"]["name"]), str(it["metadata"]["uid"])) for rank, it in enumerate(made)]
    await bus.publish(bus.subjects.fact_member(gang.namespace, name), encode(members_of(gang, rows, distributed=True)))
    await ledger.place(gang.namespace, name, gang.uid, gang.placement)


async def notes(world: World, name: str) -> list[tuple[str | None, ...]]:
    """What the pods of a job say, by rank, once all are bound."""

    async def all_bound() -> bool:
        return all([await world.node_of(f"{name}-{rank}") for rank in range(3)])

    await until_true(all_bound, deadline_s=30, what=f"the pods of {name} are bound")
    found = [(await world.pod(f"{name}-{rank}"))["metadata"]["annotations"] for rank in range(3)]
    assert all(it[RESOURCE] for it in found)
    return [tuple(it.get(key) for key in NAMES) for it in found]


async def test_bindings_say_in_which_superpod_and_block_each_pod_is(
    world: World, kube_server: KubeServer, nats_server: str, real_bus: NatsBus, cell: str, tmp_path: Path
) -> None:
    part = BlockPlacement(
        variant="a3",
        size=2,
        blocks=[0, 1],
        phases=["fits", "pieces"],
        superpods=["7", "30"],
        block_index=pack([1, 1, 2], 2),
        superpod_index=pack([2, 2, 1], 2),
        annotated=True,
    )
    ledger = LeafLedger(real_bus)
    await ledger.epoch()
    with services(tmp_path, nats_server) as made:
        kubeconfig = str(kube_server.write_kubeconfig(tmp_path / "b", user=USER))
        binder = made.service("binder", cell, kube={"kubeconfig": kubeconfig})
        binder.start()
        await place(world, real_bus, ledger, "job", part)
        assert await notes(world, "job") == [("30", "0"), ("30", "0"), ("7", "1")]
        for rank in range(3):
            await world.api.delete(f"{world.pods}/job-{rank}")
        await ledger.release("uid-job")
        await place(world, real_bus, ledger, "racks", msgspec.structs.replace(part, variant="rack", annotated=False))
        assert await notes(world, "racks") == [(None, None)] * 3
        await binder.stop()


def a_report(node: str, **numbers: Any) -> dict[str, Any]:  # noqa: ANN401 - numbers, good and bad
    text = json.dumps({"DeviceInfo": {"DeviceList": {}, "UpdateTime": 1}, **numbers, "CheckCode": "any"})
    return {
        "metadata": {"name": f"mindx-dl-deviceinfo-{node}", "labels": LABEL},
        "data": {"DeviceInfoCfg": text, "SwitchInfoCfg": "{}"},
    }


async def adoptions(bus: NatsBus) -> list[Adoption]:
    """All adoptions of the ledger."""
    records = [stored.data for stored in await bus.read(StreamName.LEDGER)]
    rounds = [decode(data, Round) for data in records if open_envelope(data).kind == Round.KIND]
    return [adoption for record in rounds for adoption in record.adoptions]


async def test_superpods_come_from_reports_and_adopted_pods_keep_their_block_and_service_when_a_node_moves(
    nats_server: str,
    cell: str,
    real_bus: NatsBus,
    kube_server: KubeServer,
    kube_api: KubeApi,
    namespace: str,
    tmp_path: Path,
) -> None:
    heard = Heard(real_bus)
    await grant(kube_api, "inventory", "inventory")
    kubeconfig = kube_server.write_kubeconfig(tmp_path / "kubeconfig", user="inventory")
    for name, address in (("n1", "192.0.2.1"), ("n2", "192.0.2.2"), ("n3", "192.0.2.3")):
        await make_node(kube_api, name, address=address)
    told = {"metadata": {"annotations": {"superPodID": "5", "serverIndex": "1"}}}
    await kube_api.patch("/api/v1/nodes/n3", told, content_type=MERGE_PATCH)
    await kube_api.post(MAPS, a_report("n1", SuperPodID=3, ServerIndex=4, RackID=1))
    await kube_api.post(MAPS, a_report("n2", SuperPodID="three", ServerIndex=0))
    await kube_api.post(MAPS, a_report("n3", SuperPodID=3, ServerIndex=0))
    pod = pod_of("served", scheduler="volcano", chips=8)
    pod["metadata"]["labels"] = {"inferserviceid": "llama"}
    await kube_api.post(f"/api/v1/namespaces/{namespace}/pods", pod)
    chips = ",".join(f"Ascend910-{chip}" for chip in range(8))
    words = {"super-pod-id": "3", "super-pod-rank": "2", "huawei.com__Ascend910": chips}
    await bind_pod(kube_api, namespace, "served", "n1", **words)

    async def places() -> dict[str, tuple[str, str, int]]:
        return {name: (node.superpod, node.rack, node.position) for name, node in (await heard.nodes()).items()}

    async with inventory(nats_server, cell, kubeconfig), dispatcher(nats_server, cell):

        async def are_placed() -> bool:
            return await places() == {"n1": ("3", "1", 4), "n2": ("", "", 0), "n3": ("5", "", 1)}

        await until_true(are_placed, deadline_s=DEADLINE_S, what="nodes in their SuperPoDs")

        async def is_adopted() -> bool:
            return bool(await adoptions(real_bus))

        await until_true(is_adopted, deadline_s=DEADLINE_S, what="the pod is adopted")
        (seen,) = await heard.facts("pod", PodsSeen)
        assert (seen.service, seen.blocks) == ("llama", pack([3], 2))
        part = BlockPlacement(
            variant="",
            size=0,
            blocks=[2],
            phases=[""],
            superpods=["3"],
            block_index=pack([1], 2),
            superpod_index=pack([1], 2),
            service="llama",
        )
        assert [block_of(adoption.placement) for adoption in await adoptions(real_bus)] == [part]

        async def is_told() -> bool:
            events = await kube_api.items("/api/v1/namespaces/default/events")
            return any("DeviceInfoCfg.SuperPodID is 'three'" in event["message"] for event in events)

        await until_true(is_told, deadline_s=DEADLINE_S, what="an Event about the report")

        # The node moves under the pod: it is there at once, and the pod keeps what it has.
        moved = a_report("n1", SuperPodID=4, ServerIndex=0)
        await kube_api.patch(f"{MAPS}/mindx-dl-deviceinfo-n1", {"data": moved["data"]}, content_type=MERGE_PATCH)
        fixed = a_report("n2", SuperPodID=4, ServerIndex=1)
        await kube_api.patch(f"{MAPS}/mindx-dl-deviceinfo-n2", {"data": fixed["data"]}, content_type=MERGE_PATCH)

        async def has_moved() -> bool:
            return await places() == {"n1": ("4", "", 0), "n2": ("4", "", 1), "n3": ("5", "", 1)}

        await until_true(has_moved, deadline_s=DEADLINE_S, what="the node in another SuperPoD")
        await heard.quiet()
        assert len(await adoptions(real_bus)) == 1
        assert len(await heard.facts("pod", PodsSeen)) == 1
