"""Hot switches of gangs that are planned as a whole: a backup pod stays near the pod of its rank."""

import pytest

from berth.schemas.recovery import Recovery
from tests.support.cells import a_job
from tests.support.fault_cells import FaultCell, Pod
from tests.support.placed_parts import the_block
from tests.support.replacements import holding_of
from tests.unit.core.scheduling.test_planned_recoveries import (
    below_leaves,
    blocks_of,
    in_superpods,
    names_of,
    of_blocks,
    of_levels,
)

LABELS = {"fault-scheduling": "grace", "pod-rescheduling": "on", "subHealthyStrategy": "hotSwitch"}
MARKS = {"backupNewPodName": "new", "fault-type": "SubHealth", "needVolcanoOpe": "delete"}


def running(cell: FaultCell, **fields: object) -> FaultCell:
    cell.run(a_job("j", **fields), labels=LABELS)  # type: ignore[arg-type]  # fields of the request
    return cell


def backed_up(cell: FaultCell, rank: int) -> list[Recovery]:
    cell.back_up("j", {rank: "backup-1"})
    return cell.turns()


def switched(cell: FaultCell, rank: int) -> str:
    """A whole hot switch; returns the node of the rank after it."""
    before = names_of(cell)
    (first,) = backed_up(cell, rank)
    assert (first.how, first.ranks) == ("backup", [rank])
    assert names_of(cell) == before
    cell.pods["j"][rank].marks = MARKS
    cell.say("j")
    (second,) = cell.turns()
    assert (second.how, second.ranks) == ("force", [rank]), "the others stay"
    assert first.placement is not None
    old, node = cell.pods["j"][rank], first.placement.names()[0]
    cell.pods["j"][rank] = Pod(node, old.mask, first.step)
    cell.say("j")
    assert cell.turns() == []
    after = names_of(cell)
    assert after == [*before[:rank], node, *before[rank + 1 :]]
    assert cell.state.held(before[rank]) == 0
    assert (holding_of(cell.state, "j").moves, cell.phase("j")) == ([], "placed")
    return node


def test_in_a_superpod_the_book_of_the_block_changes_from_the_old_node_to_the_new_one() -> None:
    cell = running(in_superpods(3, 3), **of_blocks(2, 2))
    before, blocks = names_of(cell), blocks_of(holding_of(cell.state, "j").placement)
    node = switched(cell, 3)
    assert node.partition("-")[0] == before[3].partition("-")[0], "the SuperPoD of its block"
    placement = holding_of(cell.state, "j").placement
    assert blocks_of(placement) == blocks
    assert the_block(placement).superpods == sorted({name.partition("-")[0] for name in names_of(cell)})


def test_without_room_in_its_superpod_it_waits_and_no_other_pod_moves() -> None:
    cell = running(in_superpods(2, 2, 2), **of_blocks(2, 2))
    before = names_of(cell)
    assert backed_up(cell, 3) == []
    assert (names_of(cell), cell.phase("j")) == (before, "placed")
    assert cell.wait(100_000) == []


def rack_of(cell: FaultCell, node: str) -> str:
    return cell.nodes[node].labels["rack"]


def test_with_levels_it_stays_in_the_group_of_level_1() -> None:
    cell = running(in_superpods(8), **of_levels(3, 3, 3))
    before = names_of(cell)
    node = switched(cell, 1)
    assert rack_of(cell, node) == rack_of(cell, before[1])


def test_with_levels_it_waits_when_the_group_of_level_1_is_full() -> None:
    cell = running(in_superpods(8), **of_levels(4, 4, 4))
    before = names_of(cell)
    assert backed_up(cell, 1) == []
    assert (names_of(cell), cell.phase("j")) == (before, "placed")


def test_below_leaves_it_gets_the_place_that_a_replacement_would_get() -> None:
    cell = running(below_leaves(), chips=8, replicas=6, labels={"tor-affinity": "large-model-schema"})
    before = names_of(cell)
    node = switched(cell, 1)
    assert node not in before
    assert node[0] in {name[0] for name in before}, "below a leaf that the gang has already"


@pytest.mark.parametrize(
    ("cell", "fields", "rank", "label"),
    [
        (in_superpods(6, 6), of_blocks(2, 2), 3, ""),
        (in_superpods(8), of_levels(2, 2, 2), 1, "rack"),
    ],
    ids=["superpods", "levels"],
)
def test_another_place_is_near_the_old_pod_too(
    cell: FaultCell, fields: dict[str, object], rank: int, label: str
) -> None:
    running(cell, **fields)
    before = names_of(cell)
    (first,) = backed_up(cell, rank)
    assert first.placement is not None
    (lost,) = first.placement.names()
    cell.break_chip(lost)
    (second,) = cell.turns()
    assert second.placement is not None
    (node,) = second.placement.names()
    assert (second.how, second.ranks, second.backups) == ("backup", [rank], ["backup-1"])
    assert node not in {*before, lost}
    assert cell.nodes[node].labels.get(label) == cell.nodes[before[rank]].labels.get(label)
    assert node.partition("-")[0] == before[rank].partition("-")[0]
    assert (cell.state.held(lost), names_of(cell)) == (0, before)
    assert cell.wait(100_000) == []
