"""What a placement says of blocks and SuperPoDs becomes annotations of the pods."""

from dataclasses import replace
from typing import Any, Final

import msgspec
import pytest

from berth.core.topologies.annotations import annotations_of
from berth.core.topologies.blocks.placed import BlockPlacement
from berth.core.topologies.switches.placed import SwitchPlacement
from berth.formats.ascend.block_annotations import block_of
from berth.runtime.errors import PoisonError
from berth.schemas.columns import pack
from berth.schemas.placement import Run, placement_of
from berth.services.binder.cluster import Gang
from tests.support.binder_world import bound, made, uid_of
from tests.support.kube_binder import RESOURCE, a_gang, a_pod, members_of
from tests.support.placed_parts import groups_of

PODS: Final = "/api/v1/namespaces/ns/pods"
NAMES: Final = ("super-pod-id", "super-pod-rank")
PART: Final = BlockPlacement(
    variant="a3",
    size=2,
    blocks=[0, 7],
    phases=["fits", "pieces"],
    superpods=["12", "3"],
    block_index=pack([1, 1, 2], 2),
    superpod_index=pack([2, 2, 1], 2),
    annotated=True,
)
SWITCH: Final = SwitchPlacement(
    "normal-schema", 3, leaves=["sw"], leaf_index=pack([1, 1, 1], 2), states=bytes(3), annotated=True
)


def placed(part: BlockPlacement | None = PART, switch: SwitchPlacement | None = None) -> Gang:
    gang = a_gang("job", ["n0", "n1", "n1"], [(0,), (0,), (1,)])
    return replace(gang, placement=msgspec.structs.replace(gang.placement, groups=groups_of(switch, part)))


def test_each_rank_has_its_block_and_the_blocks_superpod() -> None:
    assert annotations_of(placed().placement) == [
        {"super-pod-id": "3", "super-pod-rank": "0"},
        {"super-pod-id": "3", "super-pod-rank": "0"},
        {"super-pod-id": "12", "super-pod-rank": "7"},
    ]


def test_nothing_is_written_for_other_jobs_for_pods_without_chips_or_block_and_where_the_variant_writes_none() -> None:
    silent = msgspec.structs.replace(PART, annotated=False)
    assert annotations_of(placed(silent).placement) == annotations_of(placed(None).placement) == [{}, {}, {}]
    plain = msgspec.structs.replace(PART, block_index=pack([0, 1, 2], 2), superpod_index=pack([0, 1, 2], 2))
    mixed = placement_of(
        ["n0", "n1", "n1"], [(), (), (3,)], [Run(2, 0), Run(1, 1)], resource=RESOURCE, groups=[plain.groups]
    )
    assert annotations_of(mixed) == [{}, {}, {"super-pod-id": "3", "super-pod-rank": "7"}]


async def test_a_part_without_a_block_for_each_rank_binds_nothing_and_says_what_is_wrong() -> None:
    world = await made()
    gang = placed(msgspec.structs.replace(PART, block_index=b"", superpod_index=b""))
    world.pods(gang, "p0", "p1", "p2")
    with pytest.raises(PoisonError, match="blocks of 0 ranks and SuperPoDs of 0: expected 3"):
        await world.cluster.bind(gang)
    assert world.bindings() == 0


async def test_a_binding_carries_them_beside_those_of_leaf_switches() -> None:
    world = await made(one_at_a_time=False)
    gang = placed(switch=SWITCH)
    world.pods(gang, "p0", "p1", "p2")
    assert await world.cluster.bind(gang) == bound(3)
    notes = [world.annotations(pod) for pod in ("p0", "p1", "p2")]
    assert [{name: found[name] for name in NAMES} for found in notes] == annotations_of(placed().placement)
    assert [found["isSharedTor"] for found in notes] == ["0", "0", "0"]


async def test_those_of_an_attempt_that_was_rolled_back_are_removed_first() -> None:
    world = await made()
    gang = a_gang("job", ["n0"], [(0,)], attempt=2)
    old: dict[str, Any] = {RESOURCE: "Ascend910-7", "super-pod-id": "1", "super-pod-rank": "2"}
    world.kube.put(PODS, a_pod("p0", **old))
    world.cluster.take_members(members_of(gang, [(0, "p0", uid_of(world, "p0"))], stale=[0]))
    assert await world.cluster.bind(gang) == bound(1)
    assert not set(NAMES) & set(world.annotations("p0"))


@pytest.mark.parametrize(
    ("text", "block"),
    [("0", 0), ("65534", 65_534), ("65535", None), ("-1", None), ("x", None), ("", None), ("9" * 5_000, None)],
)
def test_a_block_is_read_back_from_annotations(text: str, block: int | None) -> None:
    assert block_of({"super-pod-rank": text}) == block
    if block is not None:
        part = msgspec.structs.replace(PART, blocks=[0, block])
        assert block_of(annotations_of(placed(part).placement)[2]) == block
