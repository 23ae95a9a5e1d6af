"""What a placement says of leaf switches becomes annotations of the pods."""

from dataclasses import replace
from typing import Any, Final

import msgspec
import pytest

from berth.core.topologies.annotations import annotations_of
from berth.core.topologies.switches.placed import SwitchPlacement
from berth.runtime.errors import PoisonError
from berth.schemas.columns import pack
from berth.schemas.placement import Run, placement_of
from berth.services.binder.cluster import Gang
from tests.support.binder_world import bound, made, uid_of
from tests.support.kube_binder import RESOURCE, a_gang, a_pod, members_of
from tests.support.placed_parts import groups_of

PODS: Final = "/api/v1/namespaces/ns/pods"
NAMES: Final = ("isSharedTor", "isHealthy", "sharedTorIp")
PART: Final = SwitchPlacement(
    tor_affinity="large-model-schema",
    pods=4,
    policy="2.0",
    rule="drained-and-shared",
    leaves=["198.51.100.2", "198.51.100.1"],
    leaf_index=pack([1, 2, 2], 2),
    states=bytes([2, 1, 5]),
    annotated=True,
)


def placed(part: SwitchPlacement | None = PART) -> Gang:
    gang = a_gang("job", ["n0", "n1", "n1"], [(0,), (0,), (1,)])
    return replace(gang, placement=msgspec.structs.replace(gang.placement, groups=groups_of(part)))


def test_each_rank_has_the_state_of_its_leaf_and_the_leafs_name_where_it_is_shared() -> None:
    assert annotations_of(placed().placement) == [
        {"isSharedTor": "2", "isHealthy": "0"},
        {"isSharedTor": "1", "isHealthy": "0", "sharedTorIp": "198.51.100.1"},
        {"isSharedTor": "1", "isHealthy": "1", "sharedTorIp": "198.51.100.1"},
    ]


def test_nothing_is_written_for_other_jobs_for_pods_without_chips_and_where_the_policy_writes_none() -> None:
    silent = msgspec.structs.replace(PART, annotated=False)
    assert annotations_of(placed(silent).placement) == annotations_of(placed(None).placement) == [{}, {}, {}]
    plain = msgspec.structs.replace(PART, leaf_index=pack([0, 1], 2), states=bytes([0, 0]))
    mixed = placement_of(["n0", "n1"], [(), (3,)], [Run(1, 0), Run(1, 1)], resource=RESOURCE, groups=[plain.groups])
    assert annotations_of(mixed) == [{}, {"isSharedTor": "0", "isHealthy": "0"}]
    assert annotations_of(
        msgspec.structs.replace(mixed, groups=[msgspec.structs.replace(plain, leaf_index=pack([1, 1], 2)).groups])
    ) == [
        {},
        {"isSharedTor": "0", "isHealthy": "0"},
    ]


async def test_a_part_without_a_state_for_each_rank_binds_nothing_and_says_what_is_wrong() -> None:
    world = await made()
    gang = placed(msgspec.structs.replace(PART, states=b""))
    world.pods(gang, "p0", "p1", "p2")
    with pytest.raises(PoisonError, match="leaves of 3 ranks and states of 0: expected 3"):
        await world.cluster.bind(gang)
    assert world.bindings() == 0


async def test_a_binding_carries_them() -> None:
    world = await made(one_at_a_time=False)
    gang = placed()
    world.pods(gang, "p0", "p1", "p2")
    assert await world.cluster.bind(gang) == bound(3)
    notes = [{name: world.annotations(pod).get(name) for name in NAMES} for pod in ("p0", "p1", "p2")]
    assert notes == [{name: wanted.get(name) for name in NAMES} for wanted in annotations_of(gang.placement)]


async def test_those_of_an_attempt_that_was_rolled_back_are_removed_first() -> None:
    world = await made()
    gang = a_gang("job", ["n0"], [(0,)], attempt=2)
    old: dict[str, Any] = {RESOURCE: "Ascend910-7", "isSharedTor": "1", "isHealthy": "1", "sharedTorIp": "leaf"}
    world.kube.put(PODS, a_pod("p0", **old))
    world.cluster.take_members(members_of(gang, [(0, "p0", uid_of(world, "p0"))], stale=[0]))
    assert await world.cluster.bind(gang) == bound(1)
    assert not set(NAMES) & set(world.annotations("p0"))
    assert world.annotations("p0")[RESOURCE] == "Ascend910-0"
