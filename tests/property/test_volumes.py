"""Claims of gangs over whole histories: pods are bound after their claims, and what others wrote is never touched."""

import asyncio
from typing import Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.runtime.errors import AmbiguousError, TransientError
from berth.runtime.kube.port import RefusedError
from berth.schemas.placement import ClaimVolume
from berth.services.binder.cluster import Gang
from tests.support.binder_volumes import (
    BOUND,
    CLAIMS,
    MARK,
    SELECTED,
    VOLUMES,
    Tree,
    a_claim,
    a_volume,
    claim,
    claiming,
    notes,
    reference,
    refuse_claim,
    say_claim,
)
from tests.support.binder_world import World, made, uid_of
from tests.support.kube_binder import members_of

VERBS: Final = (
    ("turn",) * 8
    + ("provision",) * 4
    + ("refuse", "restart", "steal", "lose", "lose-landed", "conflict", "replace", "late", "cancel", "silent")
)
NAMES: Final = ("d0", "d1", "s0")
STEPS = st.lists(st.tuples(st.sampled_from(VERBS), st.integers(0, 5)), min_size=8, max_size=40)
OTHER: Final = {"namespace": "ns", "name": "other", "uid": "uid-other"}


class Life:
    """One gang of two pods with two claims for new volumes and one for a volume that exists, attempt after attempt."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.attempt = 0
        self.uids = 0
        self.gang: Gang | None = None
        for name in NAMES:
            self.make_claim(name)

    def make_claim(self, name: str) -> None:
        self.uids += 1
        self.world.kube.put(CLAIMS, a_claim(name, uid=f"u{self.uids}"))
        say_claim(self.world, name)

    def uid(self, name: str) -> str:
        return str(claim(self.world, name)["metadata"]["uid"])

    def is_bound(self, name: str) -> bool:
        return BOUND.items() <= notes(claim(self.world, name)).items()

    def place(self) -> Gang:
        """The next attempt, on other nodes and with another volume, for the claims that are not bound."""
        self.attempt += 1
        nodes = [f"n{(self.attempt + rank) % 3}" for rank in range(2)]
        volume = f"pv{self.attempt}"
        self.world.kube.put(VOLUMES, a_volume(volume))
        wanted = [("d0", 0, ""), ("d1", 1, ""), ("s0", 1, volume)]
        claims = [
            ClaimVolume(name, self.uid(name), rank, volume) for name, rank, volume in wanted if not self.is_bound(name)
        ]
        self.gang = claiming("job", nodes, *claims, attempt=self.attempt)
        self.world.pods(self.gang, f"p{self.attempt}-0", f"p{self.attempt}-1")
        return self.gang

    def pods(self) -> list[str]:
        return [f"p{self.attempt}-{rank}" for rank in range(2)]

    async def turn(self) -> None:
        gang = self.gang or self.place()
        try:
            result = await self.world.cluster.bind(gang)
            if result.failures:
                assert result.bound == 0
                await self.end(gang)
            else:
                assert all(self.is_bound(one.claim) for one in gang.placement.claims)
                assert all(map(self.world.node_of, self.pods()))
                self.over(gang)
        except TransientError:
            assert not any(map(self.world.node_of, self.pods())) or all(map(self.is_bound, NAMES))

    async def end(self, gang: Gang) -> None:
        """Take back, as before an outcome; nothing of the attempt may be left on what is not bound.

        Raises:
            TransientError: It has to be tried again.
        """
        await self.world.cluster.take_back(gang)
        mark = f"{gang.uid}/{gang.attempt}"
        for one in self.world.kube.objects(CLAIMS):
            if not one["spec"].get("volumeName"):
                assert notes(one).get(MARK) != mark, one
        for one in self.world.kube.objects(VOLUMES):
            assert notes(one).get(MARK) != mark or one["status"]["phase"] == "Bound", one
            if one["spec"].get("claimRef", {}).get("name") == "s0":
                assert one["status"]["phase"] == "Bound", one
        assert not any(map(self.world.node_of, self.pods()))
        self.over(gang)

    def over(self, gang: Gang) -> None:
        for fact in self.world.cluster.unbound_due():
            self.world.cluster.note_unbound(fact)
        self.world.cluster.forget(gang.key)
        self.gang = None

    async def live(self, verb: str, number: int) -> None:
        world, name = self.world, NAMES[number % 3]
        match verb:
            case "turn":
                await self.turn()
            case "provision":
                self.provision(name)
            case "refuse":
                refuse_claim(world, name)
            case "restart":
                await self.restart()
            case "steal":
                self.steal()
            case "replace":
                if not self.is_bound(name):
                    world.kube.confirm(f"{CLAIMS}/{name}")
                    self.make_claim(name)
            case "cancel":
                if self.gang is not None and not any(map(world.node_of, self.pods())):
                    await self.end(self.gang)
            case _:
                self.disturb(verb, number)

    def disturb(self, verb: str, number: int) -> None:
        """Let time go by, or let requests fail."""
        world = self.world
        if verb == "late":
            world.clock.advance(4.0 * number)
        elif verb == "silent":
            world.kube.fail(TransientError("busy", retry_after_s=0), times=1 + number)
        else:
            error = RefusedError("changed", status=409, cause="Conflict") if verb == "conflict" else None
            broken = error or AmbiguousError("broken")
            world.kube.fail(broken, method="PATCH", times=1 + number, landed=verb == "lose-landed")

    async def restart(self) -> None:
        self.world.restart()
        await self.world.sync()
        if self.gang is not None:
            rows = [(rank, pod, uid_of(self.world, pod)) for rank, pod in enumerate(self.pods())]
            self.world.cluster.take_members(members_of(self.gang, rows))

    def steal(self) -> None:
        """Another claim gets the volume that was decided."""
        found = self.world.kube.object(f"{VOLUMES}/pv{self.attempt}") if self.attempt else None
        if found is not None and found["status"]["phase"] != "Bound":
            self.world.kube.put(VOLUMES, found | {"spec": found["spec"] | {"claimRef": OTHER}})

    def provision(self, name: str) -> None:
        """Bind a claim, as the provisioner and the controller do for what the binder wrote."""
        world, now = self.world, claim(self.world, name)
        if self.is_bound(name):
            return
        volume = f"made-{self.uid(name)}"
        if name == "s0":
            volume = f"pv{self.attempt}"
            found = reference(world, volume) if self.attempt else None
            if found is None or found.get("uid") != self.uid(name):
                return
            whole = world.kube.object(f"{VOLUMES}/{volume}")
            world.kube.put(VOLUMES, whole | {"status": {"phase": "Bound"}})
        elif SELECTED not in notes(now):
            return
        else:
            world.kube.put(VOLUMES, a_volume(volume, claim=name, uid=self.uid(name), phase="Bound"))
        meta = now["metadata"] | {"annotations": notes(now) | BOUND}
        bound: Tree = now | {"metadata": meta, "spec": now["spec"] | {"volumeName": volume}}
        world.kube.put(CLAIMS, bound | {"status": {"phase": "Bound"}})
        say_claim(world, name)


def stolen(world: World) -> dict[str, Tree]:
    """Volumes that others have."""
    return {
        one["metadata"]["name"]: one["spec"]
        for one in world.kube.objects(VOLUMES)
        if one["spec"].get("claimRef") == OTHER
    }


async def live(steps: list[tuple[str, int]]) -> None:
    world = await made(volumes_timeout_s=30.0)
    life = Life(world)
    for verb, number in steps:
        before = stolen(world)
        try:
            await life.live(verb, number)
        except TransientError:
            continue  # the loop tries again
        finally:
            now = stolen(world)
            assert {name: now.get(name) for name in before} == before, "what others have stays theirs"
    world.kube.forgive()
    for _ in range(40):  # at last nothing is in the way, so the gang is bound
        if life.gang is None and all(map(life.is_bound, NAMES)):
            break
        await life.turn()
        for name in NAMES:
            life.provision(name)
        world.clock.advance(6.0)
    assert all(map(life.is_bound, NAMES))


@pytest.mark.timeout(120)
@given(steps=STEPS)
def test_pods_are_bound_behind_their_claims_and_what_failed_leaves_nothing(steps: list[tuple[str, int]]) -> None:
    asyncio.run(live(steps))


def test_a_claim_of_a_placement_is_of_one_of_its_ranks() -> None:
    gang = claiming("job", ["n0"], ClaimVolume("d0", "u1", 0))
    with pytest.raises(ValueError, match=r"claims\[0\].rank: 1, the placement has 1 ranks"):
        msgspec.structs.replace(gang.placement, claims=[ClaimVolume("d0", "u1", 1)])
