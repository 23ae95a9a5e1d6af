"""What the binder wrote for claims is taken back where it is its own, and failures are forgotten when they are over."""

import pytest

from berth.schemas.volume_facts import ClaimSeen, UnboundSeen
from tests.support.binder_volumes import (
    BY_CONTROLLER,
    CLAIMS,
    MARK,
    SELECTED,
    VOLUMES,
    Tree,
    a_claim,
    a_volume,
    claim,
    notes,
    reference,
    refuse_claim,
    wants,
)
from tests.support.binder_world import World, made
from tests.unit.services.binder.test_volumes import due, fails, one, waits


@pytest.fixture
async def world() -> World:
    return await made()


@pytest.mark.parametrize(
    "found",
    [
        a_claim("data", annotations={SELECTED: "n0", MARK: "other/1"}),
        a_claim("data", annotations={SELECTED: "n0"}),
        a_claim("data", volume="made", annotations={SELECTED: "n0", MARK: "uid-job/1"}),
        a_claim("data", uid="u9", annotations={SELECTED: "n0", MARK: "uid-job/1"}),
    ],
)
async def test_what_others_wrote_on_a_claim_and_what_is_bound_stays(world: World, found: Tree) -> None:
    world.kube.put(CLAIMS, found)
    before = claim(world, "data")
    await world.cluster.take_back(one(world))
    assert claim(world, "data") == before


async def test_a_node_that_another_has_selected_since_stays(world: World) -> None:
    world.kube.put(CLAIMS, a_claim("data", annotations={SELECTED: "n2", MARK: "uid-job/1"}))
    await world.cluster.take_back(one(world))
    assert notes(claim(world, "data")) == {SELECTED: "n2"}


OURS = {MARK: "uid-job/1", BY_CONTROLLER: "yes"}


@pytest.mark.parametrize(
    ("found", "left"),
    [
        (a_volume("pv", claim="data", uid="uid-data", annotations=OURS), None),
        (a_volume("pv", claim="data", uid="uid-data", annotations={MARK: "uid-job/1"}), "reserved"),
        (a_volume("pv", claim="data", uid="uid-data", annotations=OURS, phase="Bound"), "same"),
        (a_volume("pv", claim="data", uid="uid-data", annotations={**OURS, MARK: "other/1"}), "same"),
        (a_volume("pv", claim="data", uid="uid-data"), "same"),
        (a_volume("pv", claim="other", uid="u2", annotations=OURS), "same"),
    ],
)
async def test_only_the_own_claim_is_taken_off_a_volume(world: World, found: Tree, left: str | None) -> None:
    world.kube.put(CLAIMS, a_claim("data"))
    world.kube.put(VOLUMES, found)
    await world.cluster.take_back(one(world, wants("data", volume="pv")))
    now = reference(world, "pv")
    if left is None:
        assert now is None
    else:
        expected = dict(found["spec"]["claimRef"])
        if left == "reserved":
            del expected["uid"]
        assert now == expected


async def test_a_volume_that_a_user_reserved_for_the_claim_gets_its_uid_and_loses_it_again(world: World) -> None:
    gang = one(world, wants("data", volume="pv"))
    world.kube.put(CLAIMS, a_claim("data"))
    world.kube.put(VOLUMES, a_volume("pv", claim="data"))
    await waits(world, gang)
    found = reference(world, "pv")
    assert found is not None
    assert found["uid"] == "uid-data"
    assert BY_CONTROLLER not in notes(world.kube.object(f"{VOLUMES}/pv"))
    await world.cluster.take_back(gang)
    assert reference(world, "pv") == {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "ns", "name": "data",
    }  # fmt: skip


async def test_a_failure_is_forgotten_when_its_claim_is_bound_gone_or_replaced(world: World) -> None:
    fact = UnboundSeen("ns", "data", "uid-data", ["n0"], reason="claim data: no room")
    over = [
        ClaimSeen("ns", "data", "uid-data", gone=True),
        ClaimSeen("ns", "data", "uid-data", phase="bound", volume="pv"),
        ClaimSeen("ns", "data", "another"),
    ]
    for claim_fact in over:
        world.cluster.take_claim(ClaimSeen("ns", "data", "uid-data"))
        world.cluster.take_unbound(fact)
        assert due(world) == []
        world.cluster.take_claim(claim_fact)
        assert due(world) == [("data", [], [])]
        world.cluster.take_unbound(UnboundSeen("ns", "data", "uid-data"))  # the echo
        assert due(world) == []
        world.cluster.take_unbound(fact)  # at a start the order is any
        assert due(world) == [("data", [], [])]


async def test_an_echo_of_an_older_failure_changes_nothing(world: World) -> None:
    gang = one(world)
    world.kube.put(CLAIMS, a_claim("data"))
    older = UnboundSeen("ns", "data", "uid-data", ["n1"], reason="claim data: no room")
    world.cluster.take_unbound(older)
    await waits(world, gang)
    refuse_claim(world, "data")
    await fails(world, gang)
    world.cluster.take_unbound(older)
    assert due(world) == [("data", ["n0", "n1"], [])]


async def test_at_the_start_failures_of_claims_that_are_not_there_are_forgotten(world: World) -> None:
    for name in ("gone", "there"):
        world.cluster.take_unbound(UnboundSeen("ns", name, f"uid-{name}", ["n0"], reason="no room"))
    world.cluster.take_claim(ClaimSeen("ns", "there", "uid-there"))
    assert due(world) == []
    await world.cluster.begin([], after_ms=0, wake=world.woken.extend)
    assert due(world) == [("gone", [], [])]
