"""The binder binds claims on a real API server: killed at any point it goes on, and it overwrites nobody."""

import dataclasses
from pathlib import Path
from typing import Any

import msgspec
import pytest

from berth.formats.kubernetes.storage import claim_of
from berth.formats.kubernetes.storage_objects import PersistentVolume, PersistentVolumeClaim
from berth.lab.servers.kube_server import KubeServer
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.fault_points import VOLUME_POINTS
from berth.runtime.kube.port import RefusedError
from berth.schemas.envelope import decode, encode
from berth.schemas.facts import OutcomeSeen
from berth.schemas.placement import ClaimVolume
from berth.schemas.subjects import StreamName
from berth.schemas.volume_facts import UnboundSeen
from berth.services.binder.cluster import Gang, NotYetError
from berth.services.binder.volumes.judgement import Wanted, claim_patch, volume_patch
from tests.support.binder_cluster import USER, World
from tests.support.binder_story import BinderLedger
from tests.support.binder_volumes import BOUND, MARK, SELECTED, notes
from tests.support.processes import Service, services
from tests.support.stand_in_provisioner import a_claim, local_volume
from tests.support.waiting import until, until_true

Tree = dict[str, Any]
VOLUMES = "/api/v1/persistentvolumes"
WHILE_BINDING = [("volume.before", 2), ("volume.after", 1)]
WHILE_TAKING_BACK = [("unbound.before", 1), ("unbound.after", 1), ("volume.after", 3)]


def test_every_point_is_tried() -> None:
    assert {point for point, _ in [*WHILE_BINDING, *WHILE_TAKING_BACK]} == set(VOLUME_POINTS)


class VolumeWorld:
    """A gang of two pods: a volume is made for the first, and the second gets one that exists."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.api = world.api
        self.claims = f"/api/v1/namespaces/{world.namespace}/persistentvolumeclaims"
        self.volume = f"{world.namespace}-pv"

    async def gang(self) -> Gang:
        nodes = [self.world.node(0), self.world.node(1)]
        await self.api.post(VOLUMES, local_volume(self.volume, nodes[1]))
        uids = []
        for name in ("data", "static"):
            made = await self.api.post(self.claims, a_claim(name, "local"))
            uids.append(str(made["metadata"]["uid"]))
        claims = [ClaimVolume("data", uids[0], 0), ClaimVolume("static", uids[1], 1, self.volume)]
        gang = self.world.gang("job", 0, 1)
        return dataclasses.replace(gang, placement=msgspec.structs.replace(gang.placement, claims=claims))

    async def claim(self, name: str) -> Tree:
        return await self.api.get(f"{self.claims}/{name}")

    async def reference(self) -> Tree | None:
        found: Tree | None = (await self.api.get(f"{VOLUMES}/{self.volume}"))["spec"].get("claimRef")
        return found

    async def is_written(self) -> bool:
        return SELECTED in notes(await self.claim("data")) and await self.reference() is not None

    async def until_written(self) -> None:
        await until_true(self.is_written, deadline_s=20, what="both claims are written")

    async def bind(self) -> None:
        """Complete both bindings, as the controller does."""
        made = f"{self.volume}-made"
        tree = local_volume(made, self.world.node(0))
        tree["spec"]["claimRef"] = {"namespace": self.world.namespace, "name": "data"}
        await self.api.post(VOLUMES, tree)
        for name, volume in (("data", made), ("static", self.volume)):
            change = {"metadata": {"annotations": BOUND}, "spec": {"volumeName": volume}}
            await self.api.patch(f"{self.claims}/{name}", change)

    async def refuse(self, bus: NatsBus) -> None:
        """Take the selected node away, as the provisioner does, and publish that."""
        await self.api.patch(f"{self.claims}/data", {"metadata": {"annotations": {SELECTED: None}}})
        found = msgspec.convert(await self.claim("data"), PersistentVolumeClaim)
        await bus.publish(bus.subjects.fact_claim(self.world.namespace, "data"), encode(claim_of(found)))


async def restarted(binder: Service) -> None:
    assert await binder.ended() < 0
    binder.start()
    await until(
        lambda: "ledger folded" in binder.whole_log().partition("--- start 2")[2], deadline_s=20, what="a 2nd start"
    )


async def reported(made: BinderLedger, gang: Gang) -> OutcomeSeen:
    """The outcome of a gang, once it is reported."""

    async def is_reported() -> bool:
        return await made.outcome(gang) is not None

    await until_true(is_reported, deadline_s=20, what="an outcome")
    outcome = await made.outcome(gang)
    assert outcome is not None
    return outcome


def settings_of(kube_server: KubeServer, folder: Path) -> Tree:
    return {"kube": {"kubeconfig": str(kube_server.write_kubeconfig(folder / "own", user=USER))}}


@pytest.mark.parametrize(("point", "count"), WHILE_BINDING)
async def test_killed_while_it_asks_for_volumes_it_asks_once_for_each(
    world: World, kube_server: KubeServer, nats_server: str, real_bus: NatsBus, cell: str, tmp_path: Path,
    *, point: str, count: int,
) -> None:  # fmt: skip
    volumes = VolumeWorld(world)
    gang = await volumes.gang()
    made = BinderLedger(real_bus, world)
    with services(tmp_path, nats_server) as started:
        binder = started.service("binder", cell, **settings_of(kube_server, tmp_path))
        binder.start(fault_point=f"{point}:{count}")
        await made.place(gang, 2)
        await restarted(binder)
        await volumes.until_written()
        assert [await world.node_of(f"p{rank}") for rank in range(2)] == ["", ""]
        found = await volumes.reference()
        assert found is not None
        assert (found["name"], found["uid"]) == ("static", gang.placement.claims[1].uid)
        await volumes.bind()
        told = await reported(made, gang)
        assert (told.state, told.bound, told.failures) == ("bound", 2, [])
        await binder.stop()
    assert [await world.node_of(f"p{rank}") for rank in range(2)] == gang.placement.names()


@pytest.mark.parametrize(("point", "count"), WHILE_TAKING_BACK)
async def test_killed_while_it_takes_claims_back_it_takes_back_the_rest(
    world: World, kube_server: KubeServer, nats_server: str, real_bus: NatsBus, cell: str, tmp_path: Path,
    *, point: str, count: int,
) -> None:  # fmt: skip
    volumes = VolumeWorld(world)
    gang = await volumes.gang()
    made = BinderLedger(real_bus, world)
    with services(tmp_path, nats_server) as started:
        binder = started.service("binder", cell, **settings_of(kube_server, tmp_path))
        binder.start(fault_point=f"{point}:{count}")
        await made.place(gang, 2)
        await volumes.until_written()
        await volumes.refuse(real_bus)
        await restarted(binder)
        told = await reported(made, gang)
        reason = f"claim data: the provisioner cannot make a volume for node {world.node(0)}"
        assert (told.state, told.bound, told.failures[0].reason) == ("failed", 0, reason)
        stored = await real_bus.last(StreamName.FACTS, real_bus.subjects.fact_unbound(world.namespace, "data"))
        assert stored is not None
        fact = decode(stored.data, UnboundSeen)
        assert (fact.uid, fact.nodes) == (gang.placement.claims[0].uid, [world.node(0)])
        await binder.stop()
    assert {MARK, SELECTED}.isdisjoint(notes(await volumes.claim("data")))
    assert await volumes.reference() is None
    assert [await world.node_of(f"p{rank}") for rank in range(2)] == ["", ""]


async def test_a_write_on_what_has_changed_is_refused_by_the_server(world: World) -> None:
    volumes = VolumeWorld(world)
    gang = await volumes.gang()
    names = gang.placement.names()
    wanted = [Wanted(gang.namespace, one, names[one.rank], "uid-job/1") for one in gang.placement.claims]
    claim_path, volume_path = f"{volumes.claims}/data", f"{VOLUMES}/{volumes.volume}"
    claim = await world.client.get(claim_path, PersistentVolumeClaim)
    volume = await world.client.get(volume_path, PersistentVolume)
    for path in (claim_path, volume_path):
        await world.api.patch(path, {"metadata": {"labels": {"changed": "yes"}}})
    for path, patch in (
        (claim_path, claim_patch(claim, wanted[0])),
        (volume_path, volume_patch(volume, wanted[1])),
    ):
        with pytest.raises(RefusedError) as caught:
            await world.client.patch(path, patch)
        assert caught.value.is_conflict


async def test_a_volume_that_somebody_else_has_stays_with_them(world: World) -> None:
    volumes = VolumeWorld(world)
    gang = await volumes.gang()
    await world.make(gang, "p0", "p1")
    with pytest.raises(NotYetError, match="2 claims not bound yet"):
        await world.cluster.bind(gang)
    await volumes.until_written()
    other = {"namespace": "default", "name": "other", "uid": "3f0d"}
    await world.api.patch(f"{VOLUMES}/{volumes.volume}", {"spec": {"claimRef": None}})
    await world.api.patch(f"{VOLUMES}/{volumes.volume}", {"spec": {"claimRef": other}})
    found = msgspec.convert(await volumes.claim("static"), PersistentVolumeClaim)
    world.cluster.take_claim(claim_of(found))
    result = await world.cluster.bind(gang)
    reasons = {failure.rank: failure.reason for failure in result.failures}
    assert (result.bound, reasons[1]) == (0, f"claim static: volume {volumes.volume} was taken by claim default/other")
    await world.cluster.take_back(gang)
    assert {MARK, SELECTED}.isdisjoint(notes(await volumes.claim("data")))
    reference = await volumes.reference()
    assert reference is not None
    assert (reference["name"], reference["uid"]) == ("other", "3f0d")
