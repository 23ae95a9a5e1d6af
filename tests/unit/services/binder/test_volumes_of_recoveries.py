"""Claims of ranks that recover: those of the other ranks do not count, and each step has its own."""

import dataclasses

import msgspec
import pytest

from berth.schemas.placement import ClaimVolume
from berth.services.binder.cluster import Gang, NotYetError
from tests.support.binder_volumes import (
    CLAIMS,
    SELECTED,
    VOLUMES,
    a_claim,
    a_volume,
    bind_claim,
    claim,
    claiming,
    notes,
    wants,
)
from tests.support.binder_world import World, bound, made, replace, uid_of
from tests.support.kube_binder import members_of


@pytest.fixture
async def world() -> World:
    return await made(volumes_timeout_s=60.0, one_at_a_time=False)


def recovering(gang: Gang, step: int, *ranks: int, claims: tuple[ClaimVolume, ...]) -> Gang:
    """The gang after a step gave some ranks a place again."""
    return dataclasses.replace(
        gang,
        placement=msgspec.structs.replace(gang.placement, claims=list(claims)),
        step=step,
        steps={**gang.steps, **dict.fromkeys(ranks, step)},
        todo=ranks,
        recovers=True,
    )


def succeed(world: World, gang: Gang, rank: int) -> None:
    """A new pod takes a rank."""
    replace(world, f"p{rank}")
    world.cluster.take_members(members_of(gang, [(at, f"p{at}", uid_of(world, f"p{at}")) for at in range(2)]))


async def with_bound_claim(world: World) -> Gang:
    """A gang of two pods that is bound; rank 0 has a claim."""
    gang = claiming("job", ["n0", "n1"], wants("data"))
    world.pods(gang, "p0", "p1")
    world.kube.put(CLAIMS, a_claim("data"))
    with pytest.raises(NotYetError):
        await world.cluster.bind(gang)
    world.kube.put(VOLUMES, a_volume("made", claim="data", uid="uid-data", phase="Bound"))
    bind_claim(world, "data", "made")
    assert await world.cluster.bind(gang) == bound(2)
    return gang


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_claim_of_a_rank_that_stays_may_be_deleted(world: World, *, is_restarted: bool) -> None:
    gang = await with_bound_claim(world)
    now = claim(world, "data")
    now["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    world.kube.put(CLAIMS, now)
    if is_restarted:
        world.cluster.forget(gang.key)
    again = recovering(gang, 1, 1, claims=tuple(gang.placement.claims))
    succeed(world, again, 1)
    assert await world.cluster.bind(again) == bound(1)
    assert world.node_of("p1") == "n1"


async def test_a_claim_of_a_rank_that_recovers_must_be_there(world: World) -> None:
    gang = await with_bound_claim(world)
    now = claim(world, "data")
    now["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    world.kube.put(CLAIMS, now)
    again = recovering(gang, 1, 0, claims=tuple(gang.placement.claims))
    succeed(world, again, 0)
    assert await world.cluster.bind(again) == bound(0, (0, "claim data is being deleted"))
    assert world.node_of("p0") == ""


async def test_a_new_claim_of_a_step_is_bound_before_its_pod(world: World) -> None:
    gang = await with_bound_claim(world)
    again = recovering(gang, 1, 1, claims=(*gang.placement.claims, wants("more", rank=1)))
    world.kube.put(CLAIMS, a_claim("more"))
    succeed(world, again, 1)
    with pytest.raises(NotYetError, match="1 claim not bound yet"):
        await world.cluster.bind(again)
    assert (world.node_of("p1"), notes(claim(world, "more"))[SELECTED]) == ("", "n1")
    world.kube.put(VOLUMES, a_volume("second", claim="more", uid="uid-more", phase="Bound"))
    bind_claim(world, "more", "second")
    assert world.woken[-1] == gang.key
    assert await world.cluster.bind(again) == bound(1)
    assert world.node_of("p1") == "n1"
