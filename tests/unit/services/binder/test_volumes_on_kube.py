"""Claims of gangs with the binder as a service: what is published in which order, and who waits for whom."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from berth.formats.kubernetes.storage import claim_of
from berth.formats.kubernetes.storage_objects import PersistentVolumeClaim
from berth.runtime.errors import TransientError
from berth.schemas.envelope import decode, encode
from berth.schemas.ledger import Epoch, Eviction, Settings
from berth.schemas.placement import ClaimVolume
from berth.schemas.subjects import StreamName
from berth.schemas.volume_facts import UnboundSeen
from berth.services.binder.cluster import Gang
from tests.support.binder_volumes import CLAIMS, MARK, SELECTED, VOLUMES, a_claim, a_volume, claiming, notes, wants
from tests.support.waiting import until
from tests.unit.services.binder.test_on_kube import PODS, World


class VolumeWorld(World):
    """A cell and a cluster with claims."""

    async def placed(self, name: str, node: str, *claims: ClaimVolume) -> Gang:
        """A gang of one pod is placed, and its pod is there."""
        gang = claiming(name, [node], *claims)
        await self.members(gang, f"{name}-0")
        await self.place(name, gang.placement)
        return gang

    def claim(self, name: str) -> dict[str, Any]:
        return self.kube.object(f"{CLAIMS}/{name}")

    async def say(self, name: str) -> None:
        """Publish the fact of a claim as it is now."""
        fact = claim_of(await self.kube.get(f"{CLAIMS}/{name}", PersistentVolumeClaim))
        await self.bus.publish(self.bus.subjects.fact_claim("ns", name), encode(fact))

    async def refuse(self, name: str) -> None:
        now = self.claim(name)
        left = {key: value for key, value in notes(now).items() if key != SELECTED}
        self.kube.put(CLAIMS, now | {"metadata": now["metadata"] | {"annotations": left}})
        await self.say(name)

    async def bind(self, name: str, volume: str) -> None:
        now = self.claim(name)
        done = notes(now) | {"pv.kubernetes.io/bind-completed": "yes"}
        self.kube.put(VOLUMES, a_volume(volume, claim=name, uid=f"uid-{name}", phase="Bound"))
        changed = now | {"metadata": now["metadata"] | {"annotations": done}}
        self.kube.put(CLAIMS, changed | {"spec": now["spec"] | {"volumeName": volume}})
        await self.say(name)

    def published(self) -> list[str]:
        """Kinds of the binder's facts in their order."""
        facts = self.server.stream(self.bus.subjects.stream(StreamName.FACTS)).messages.values()
        kinds = (stored.subject.split(".")[3] for stored in facts)
        return [kind for kind in kinds if kind in {"outcome", "unbound"}]

    def unbound(self) -> list[UnboundSeen]:
        facts = self.server.stream(self.bus.subjects.stream(StreamName.FACTS)).messages.values()
        return [decode(one.data, UnboundSeen) for one in facts if ".fact.unbound." in one.subject]

    async def asked(self, name: str) -> None:
        """Wait until the binder has asked for the volume of a claim."""
        await until(lambda: SELECTED in notes(self.claim(name)), deadline_s=5, what=f"{name} is asked for")


@pytest.fixture
async def world() -> AsyncIterator[VolumeWorld]:
    found = VolumeWorld()
    await found.bus.ensure_streams()
    await found.append(Epoch(1, 0, 0, 0, "me", Settings()))
    yield found
    await found.bus.close()


async def test_a_gang_that_waits_for_a_provisioner_holds_up_no_other(world: VolumeWorld) -> None:
    world.kube.put(CLAIMS, a_claim("slow"))
    async with world.binder(gangs_at_once=1):
        await world.placed("first", "n0", wants("slow"))
        await world.asked("slow")
        await world.placed("second", "n1")
        await world.has(("second", "bound"))
        assert world.node_of("first-0") == ""
        await world.bind("slow", "made")
        await world.has(("first", "bound"), ("second", "bound"))
    assert (world.node_of("first-0"), world.published()) == ("n0", ["outcome", "outcome"])


async def test_a_failure_is_published_and_taken_back_before_the_outcome(world: VolumeWorld) -> None:
    world.kube.put(CLAIMS, a_claim("data"))
    world.kube.put(CLAIMS, a_claim("other"))
    async with world.binder():
        await world.placed("job", "n0", wants("data"), wants("other"))
        await world.asked("other")
        await world.refuse("data")
        await world.has(("job", "failed"))
    assert world.published() == ["unbound", "outcome"]
    (fact,) = world.unbound()
    assert (fact.name, fact.uid, fact.nodes, fact.volumes) == ("data", "uid-data", ["n0"], [])
    (outcome,) = world.outcomes()
    reason = "claim data: the provisioner cannot make a volume for node n0"
    assert (outcome.state, outcome.bound, outcome.failures[0].reason) == ("failed", 0, reason)
    assert (notes(world.claim("data")), notes(world.claim("other"))) == ({}, {})


async def test_without_an_answer_the_outcome_waits_until_all_is_taken_back(world: VolumeWorld) -> None:
    world.kube.put(CLAIMS, a_claim("data"))
    world.kube.put(CLAIMS, a_claim("other"))
    async with world.binder():
        await world.placed("job", "n0", wants("data"), wants("other"))
        await world.asked("other")
        world.kube.fail(TransientError("busy", retry_after_s=0), method="PATCH", times=10_000)
        await world.refuse("data")
        await until(world.unbound, deadline_s=5, what="what failed is stored first")
        assert (world.outcomes(), MARK in notes(world.claim("other"))) == ([], True)
        world.kube.forgive()
        await world.has(("job", "failed"))
    assert (notes(world.claim("data")), notes(world.claim("other"))) == ({}, {})
    assert world.published() == ["unbound", "outcome"]


async def test_a_job_that_is_cancelled_while_its_claims_wait_takes_them_back(world: VolumeWorld) -> None:
    world.kube.put(CLAIMS, a_claim("data"))
    world.kube.put(VOLUMES, a_volume("pv"))
    world.kube.put(CLAIMS, a_claim("static"))
    async with world.binder():
        await world.placed("job", "n0", wants("data"), wants("static", volume="pv"))
        await world.asked("data")
        await until(
            lambda: world.kube.object(f"{VOLUMES}/pv")["spec"].get("claimRef"), deadline_s=5, what="pv is given"
        )
        await world.round(evictions=[Eviction("uid-job", 1, "cancelled")])
        await world.has(("job", "evicted"))
    assert notes(world.claim("data")) == {}
    assert "claimRef" not in world.kube.object(f"{VOLUMES}/pv")["spec"]
    assert world.kube.object(f"{PODS}/job-0")["spec"].get("nodeName") is None
    assert world.published() == ["outcome"]


async def test_a_later_run_knows_what_failed_and_says_when_that_is_over(world: VolumeWorld) -> None:
    for name in ("data", "gone"):
        fact = UnboundSeen("ns", name, f"uid-{name}", ["n0"], reason=f"claim {name}: no room")
        await world.bus.publish(world.bus.subjects.fact_unbound("ns", name), encode(fact))
    world.kube.put(CLAIMS, a_claim("data"))
    await world.say("data")
    world.kube.put(CLAIMS, a_claim("gone", uid="another"))
    await world.say("gone")
    async with world.binder():
        await world.placed("job", "n0", wants("data"))
        await world.has(("job", "failed"))
    (outcome,) = world.outcomes()
    assert outcome.failures[0].reason == "claim data: no room"
    assert notes(world.claim("data")) == {}
    assert [(fact.name, fact.nodes) for fact in world.unbound()[2:]] == [("gone", [])]
