"""New places of pods that leave a gang which is planned as a whole: leaf switches, SuperPoDs, racks, levels.

Longer than 400 lines because the kinds of gangs share their cells and the rules for what may leave.
"""

from collections.abc import Sequence

import msgspec
import pytest

from berth.core.placement.planned_pods import RoundParts
from berth.core.placement.replacements import NoPlaces, plan_backup, plan_replacements
from berth.core.topologies.leaving import LeavingPods
from berth.core.topologies.switches.occupancy.leaf_bits import EXCLUSIVE, SHARED, STATE
from berth.core.topologies.switches.occupancy.leaf_states import LeafOccupancy
from berth.core.topologies.switches.rounds.switch_round import SwitchRound
from berth.products.catalogue import NODE_PRODUCTS
from berth.schemas.columns import pack, unpack
from berth.schemas.facts import Leaf, NodeHealth, TopologySeen
from berth.schemas.intake import Task
from berth.schemas.ledger import Release
from berth.schemas.nodes import NodeCondition
from berth.schemas.placement import Placement, Run, placement_of
from tests.support.cells import a_job, a_node
from tests.support.core_cells import SUBJECTS, CoreCell, nodes_in_superpods
from tests.support.placed_parts import the_block, the_switch
from tests.support.replacements import holding_of, leaving_of, replaced, round_of

LARGE = {"tor-affinity": "large-model-schema"}
CONFIG = '{"default": {"level1": {"label": "rack"}, "level2": {"label": "row"}}}'


def placed(found: Placement | NoPlaces) -> Placement:
    assert isinstance(found, Placement), found
    return found


def refused(found: Placement | NoPlaces) -> NoPlaces:
    assert isinstance(found, NoPlaces), found
    return found


def names_of(cell: CoreCell, job: str = "j") -> list[str]:
    return holding_of(cell.state, job).placement.names()


def break_nodes(cell: CoreCell, *names: str) -> None:
    for name in names:
        cell.conditions[name] = NodeCondition(name, level=NodeHealth.NO_NEW_WORK)
    cell.publish()


def below_leaves(places: int = 4, leaves: int = 3, *, level: str = "double_layer", **settings: object) -> CoreCell:
    """Leaves ``a``, ``b``, ... with nodes ``a0``, ``a1``, ..."""
    rows = {"abcdef"[leaf]: [f"{'abcdef'[leaf]}{place}" for place in range(places)] for leaf in range(leaves)}
    nodes = [
        a_node(name, leaf=leaf, position=place) for leaf, names in rows.items() for place, name in enumerate(names)
    ]
    cell = CoreCell(nodes, **settings)  # type: ignore[arg-type]  # fields of the settings
    fact = TopologySeen("switch", [Leaf(leaf, leaf, names) for leaf, names in rows.items()], level=level, places=places)
    cell.fact(SUBJECTS.fact_topology("switch"), fact)
    return cell


def in_superpods(widths: Sequence[int], product: str = "superpod910a3x16", **settings: object) -> CoreCell:
    """See :func:`nodes_in_superpods`."""
    nodes = nodes_in_superpods(widths, product)
    return CoreCell(nodes, **{"reserve_nodes": 0, "resource_levels": CONFIG} | settings)  # type: ignore[arg-type]  # as above


def blocks(size: int, count: int, product: str = "superpod910a3x16", **annotations: str) -> dict[str, object]:
    chips = NODE_PRODUCTS[product].chips
    policy = {"superpod910a3x16": "chip2-node16-sp", "superpod850x8": "chip8-node8-sp"}.get(
        product, "chip8-node8-ra64-sp"
    )
    named = {key.replace("_", "-"): value for key, value in annotations.items()}
    return {
        "product": product,
        "chips": chips,
        "replicas": size * count,
        "annotations": {"huawei.com/schedule_policy": policy, "sp-block": str(size * chips)} | named,
    }


def levels(level1: int, level2: int, pods: int) -> dict[str, object]:
    sizes = f"level1={level1},level2={level2}"
    return {
        "chips": 16,
        "replicas": pods,
        "product": "superpod910a3x16",
        "annotations": {"huawei.com/schedule_policy": "multilevel", "huawei.com/affinity-config": sizes},
    }


def superpods_of(placement: Placement) -> list[str]:
    part = the_block(placement)
    return [part.superpods[index - 1] for index in unpack(part.superpod_index, 2)]


def blocks_of(placement: Placement) -> list[int]:
    part = the_block(placement)
    return [part.blocks[index - 1] for index in unpack(part.block_index, 2)]


def test_a_faulty_pod_of_a_gang_below_one_leaf_stays_below_it() -> None:
    cell = below_leaves(nslb_version="2.0")
    cell.place(a_job("other", chips=8, replicas=3), a_job("j", chips=8, replicas=2, labels=LARGE))
    assert names_of(cell) == ["b0", "b1"]
    found = placed(replaced(cell, leaving_of(cell, "j", [0])))
    assert found.names() == ["b2"]
    assert (the_switch(found).leaves, unpack(the_switch(found).leaf_index, 2), the_switch(found).states) == (
        ["b"],
        [1],
        b"\0",
    )
    break_nodes(cell, "b0", "b2", "b3")
    none = refused(replaced(cell, leaving_of(cell, "j", [0])))
    assert (none.refusal.code, none.refusal.pods_need) == ("no-leaves", 1)
    assert none.refusal.switch is not None
    assert none.refusal.switch.rule == "open-places"


def test_a_padding_job_is_placed_again_only_as_a_whole() -> None:
    cell = below_leaves(places=4, leaves=2, nslb_version="1.0")
    cell.place(a_job("j", chips=8, replicas=3, labels=LARGE))
    break_nodes(cell, names_of(cell)[1])
    none = refused(replaced(cell, leaving_of(cell, "j", [1])))
    assert none.refusal.switch is not None
    assert (none.refusal.switch.rule, list(none.ranks)) == ("open-places", [0, 2])
    found = placed(replaced(cell, leaving_of(cell, "j", [0, 1, 2], faulty=[1], scope="job")))
    assert len({name[0] for name in found.names()}) == 1
    # No leaf has room for all of it any more, and what is left has two positions.
    assert names_of(cell) == ["b0", "b1", "b2"]
    break_nodes(cell, "a1", "a2", "a3", "b3")
    assert not refused(replaced(cell, leaving_of(cell, "j", [1]))).ranks
    assert not refused(backup(cell, 1)).ranks


def test_a_pod_without_a_fault_returns_to_its_leaf_and_keeps_its_state() -> None:
    cell = below_leaves(nslb_version="2.0")
    cell.place(a_job("j", chips=8, replicas=6, labels=LARGE))
    before = holding_of(cell.state, "j").placement
    assert any(the_switch(before).states)
    leaving = leaving_of(cell, "j", [0, 5], faulty=[0])
    found = placed(replaced(cell, leaving))
    assert found.names()[1] == before.names()[5]
    assert the_switch(found).states[1] == the_switch(before).states[5]
    assert found.names()[0] not in before.names()


def test_nodes_of_faulty_pods_below_leaves_come_last() -> None:
    cell = below_leaves(places=3, leaves=2, nslb_version="2.0")
    cell.place(a_job("j", chips=8, replicas=2, labels=LARGE))
    assert names_of(cell) == ["a0", "a1"]
    leaving = leaving_of(cell, "j", [0])
    assert placed(replaced(cell, leaving)).names() == ["a2"]
    # The pod is healthy: its node takes it again, but only once there is no other.
    break_nodes(cell, "a2")
    assert placed(replaced(cell, leaving)).names() == ["a0"]
    break_nodes(cell, "a0")
    assert refused(replaced(cell, leaving)).refusal.pods_have == 0


def test_states_that_only_leaving_pods_report_do_not_count() -> None:
    cell = below_leaves(places=3, leaves=2, nslb_version="2.0")
    cell.place(a_job("j", chips=8, replicas=6, labels=LARGE))
    before = holding_of(cell.state, "j").placement
    assert before.names() == ["a0", "a1", "a2", "b0", "b1", "b2"]
    assert [state & STATE for state in the_switch(before).states] == [EXCLUSIVE] * 6
    # Leaf b is exclusive because of pods that leave, so it is open to them.
    found = placed(replaced(cell, leaving_of(cell, "j", [3, 4, 5])))
    assert found.names() == ["b0", "b1", "b2"]
    assert [state & STATE for state in the_switch(found).states] == [EXCLUSIVE] * 3


def occupancy_of(parts: RoundParts, leaving: LeavingPods) -> LeafOccupancy:
    demand = leaving.gang.demand
    assert demand is not None
    turn = parts.planned.of(demand)
    assert isinstance(turn, SwitchRound)
    return turn.leaves.occupancy()


def test_new_places_count_for_gangs_that_come_behind_them_in_the_round() -> None:
    cell = below_leaves(places=3, leaves=3, nslb_version="2.0")
    cell.place(a_job("j", chips=8, replicas=6, labels=LARGE))
    break_nodes(cell, "a0")
    leaving = leaving_of(cell, "j", [0])
    parts = round_of(cell.state, cell.scheduler.scorer, [leaving]).parts()
    found = placed(plan_replacements(parts, leaving))
    assert found.names() == ["c0"]
    parts.nodes.begin_gang()
    occupancy = occupancy_of(parts, leaving)
    job = occupancy.job(("uid-j", 1))
    assert job is not None
    assert job.nodes == [*names_of(cell), "c0"]
    assert job.states[-1:] == the_switch(found).states
    assert occupancy.bits()[2] & STATE == the_switch(found).states[0] & STATE == SHARED


def test_places_that_are_taken_back_do_not_count() -> None:
    cell = below_leaves(places=2, leaves=2, nslb_version="2.0")
    cell.place(a_job("j", chips=8, replicas=1, labels=LARGE))
    parts = round_of(cell.state, cell.scheduler.scorer, [leaving_of(cell, "j", [0])]).parts()
    first = placed(plan_replacements(parts, leaving_of(cell, "j", [0])))
    parts.nodes.roll_back_gang()
    assert placed(plan_replacements(parts, leaving_of(cell, "j", [0]))) == first
    parts.nodes.roll_back_gang()
    parts.nodes.begin_gang()
    job = occupancy_of(parts, leaving_of(cell, "j", [0])).job(("uid-j", 1))
    assert job is not None
    assert job.nodes == names_of(cell)


def test_without_leaves_there_is_no_topology() -> None:
    cell = below_leaves(nslb_version="2.0")
    cell.place(a_job("j", chips=8, replicas=2, labels=LARGE))
    leaving = leaving_of(cell, "j", [0])
    cell.fact(SUBJECTS.fact_topology("switch"), TopologySeen("switch", []))
    assert refused(replaced(cell, leaving)).refusal.code == "no-topology"


@pytest.mark.parametrize("product", ["superpod910a3x16", "superpod850x8"])
def test_a_block_with_pods_that_stay_gets_nodes_of_its_superpod(product: str) -> None:
    cell = in_superpods((5, 8), product)
    cell.place(a_job("j", **blocks(4, 1, product)))  # type: ignore[arg-type]  # fields of a request
    assert names_of(cell) == ["0-0", "0-1", "0-2", "0-3"]
    found = placed(replaced(cell, leaving_of(cell, "j", [2])))
    assert (found.names(), superpods_of(found), blocks_of(found)) == (["0-4"], ["0"], [0])
    assert the_block(found).phases == ["replaced"]


def test_a_block_that_lacks_nodes_in_its_superpod_names_the_ranks_that_would_have_to_leave() -> None:
    cell = in_superpods((4, 8))
    cell.place(a_job("j", **blocks(4, 1)))  # type: ignore[arg-type]  # fields of a request
    break_nodes(cell, "0-1")
    none = refused(replaced(cell, leaving_of(cell, "j", [1])))
    assert (none.refusal.code, list(none.ranks)) == ("no-blocks", [0, 2, 3])
    assert none.refusal.blocks is not None
    assert (none.refusal.blocks.rule, none.refusal.blocks.nodes_need, none.refusal.blocks.nodes_have) == ("home", 1, 0)
    wider = leaving_of(cell, "j", [0, 1, 2, 3], faulty=[1], scope="superpod")
    found = placed(replaced(cell, wider))
    assert (found.names(), superpods_of(found)) == (["1-0", "1-1", "1-2", "1-3"], ["1"] * 4)


def test_pods_that_leave_with_their_block_return_if_the_superpod_has_a_node_for_the_faulty_one() -> None:
    cell = in_superpods((5, 8))
    cell.place(a_job("j", **blocks(4, 1)))  # type: ignore[arg-type]  # fields of a request
    found = placed(replaced(cell, leaving_of(cell, "j", [0, 1, 2, 3], faulty=[1], scope="superpod")))
    assert found.names() == ["0-0", "0-4", "0-2", "0-3"]


def test_a_block_without_a_fault_keeps_its_nodes_when_all_pods_leave() -> None:
    cell = in_superpods((8, 4))
    cell.place(a_job("other", **blocks(4, 1)))  # type: ignore[arg-type]  # fields of a request
    cell.place(a_job("j", **blocks(4, 2)))  # type: ignore[arg-type]  # as above
    assert names_of(cell) == [f"0-{index}" for index in range(8)]
    cell.release(Release("uid-other", 1, "succeeded"))
    break_nodes(cell, "0-1")
    found = placed(replaced(cell, leaving_of(cell, "j", list(range(8)), faulty=[1], scope="superpod")))
    assert found.names() == ["1-0", "1-1", "1-2", "1-3", "0-4", "0-5", "0-6", "0-7"]


def test_a_pod_never_gets_the_node_of_another_one_that_can_return_to_it() -> None:
    cell = in_superpods((4, 3))
    cell.place(a_job("j", **blocks(2, 2)))  # type: ignore[arg-type]  # fields of a request
    assert names_of(cell) == ["0-0", "0-1", "0-2", "0-3"]
    break_nodes(cell, "0-0", "0-1")
    found = placed(replaced(cell, leaving_of(cell, "j", [0, 1, 2, 3], faulty=[0, 1], scope="superpod")))
    assert found.names() == ["1-0", "1-1", "0-2", "0-3"]


def test_after_their_release_pods_return_to_the_nodes_that_are_free() -> None:
    cell = in_superpods((5, 8))
    cell.place(a_job("j", **blocks(4, 1)))  # type: ignore[arg-type]  # fields of a request
    cell.release(Release("uid-j", 1, "failed", ranks=[0, 1, 2, 3]))
    leaving = leaving_of(cell, "j", [0, 1, 2, 3], faulty=[1])
    assert leaving.released == [0, 1, 2, 3]
    # The node of the faulty pod is free as well; it comes after the others of its SuperPoD.
    assert placed(replaced(cell, leaving)).names() == ["0-0", "0-4", "0-2", "0-3"]
    break_nodes(cell, "0-4")
    assert placed(replaced(cell, leaving)).names() == ["0-0", "0-1", "0-2", "0-3"]


def racks(**annotations: str) -> CoreCell:
    cell = in_superpods((12,), "superpod950x8")
    cell.place(a_job("j", **blocks(4, 2, "superpod950x8", **annotations)))  # type: ignore[arg-type]  # fields of a request
    assert names_of(cell) == [f"0-{index}" for index in range(8)]
    return cell


def test_a_faulty_pod_stays_in_its_rack_or_names_its_part() -> None:
    cell = racks(ra_block="16")
    break_nodes(cell, "0-1")
    none = refused(replaced(cell, leaving_of(cell, "j", [1])))
    assert (none.refusal.code, list(none.ranks)) == ("no-blocks", [0])
    part = leaving_of(cell, "j", [0, 1], faulty=[1], scope="rank-block")
    found = placed(replaced(cell, part))
    assert (found.names(), blocks_of(found)) == (["0-8", "0-9"], [0, 0])


def test_a_part_that_finds_no_rack_names_its_block() -> None:
    cell = racks(ra_block="16")
    break_nodes(cell, "0-1", "0-8", "0-9", "0-10")
    none = refused(replaced(cell, leaving_of(cell, "j", [0, 1], faulty=[1], scope="rank-block")))
    assert none.refusal.blocks is not None
    assert none.refusal.blocks.rule == "rack"


def test_a_rack_with_a_free_node_keeps_the_other_pods_of_a_part() -> None:
    cell = in_superpods((6,), "superpod950x8")
    part = blocks(2, 1, "superpod950x8", ra_block="16")
    cell.place(a_job("other", **part), a_job("j", **part))  # type: ignore[arg-type]  # fields of a request
    assert (names_of(cell, "other"), names_of(cell)) == (["0-4", "0-5"], ["0-0", "0-1"])
    cell.release(Release("uid-other", 1, "succeeded"))
    # The other rack is smaller now, and would be first for a part that moves.
    found = placed(replaced(cell, leaving_of(cell, "j", [0, 1], faulty=[1], scope="superpod")))
    assert found.names() == ["0-0", "0-2"]


def test_under_parity_no_place_in_racks_is_chosen_while_pods_still_own_theirs() -> None:
    cell = in_superpods((12,), "superpod950x8", reference_parity=True)
    cell.place(a_job("j", **blocks(4, 1, "superpod950x8", ra_block="16")))  # type: ignore[arg-type]  # fields of a request
    none = refused(replaced(cell, leaving_of(cell, "j", [1])))
    assert none.refusal.blocks is not None
    assert none.refusal.blocks.rule == "wait"
    cell.release(Release("uid-j", 1, "failed", ranks=[1]))
    assert not isinstance(replaced(cell, leaving_of(cell, "j", [1])), NoPlaces)


def test_a_faulty_pod_of_a_level_stays_in_its_group_or_names_the_part_that_would_move() -> None:
    cell = in_superpods((16,))
    cell.place(a_job("j", **levels(2, 4, 4)))  # type: ignore[arg-type]  # fields of a request
    assert names_of(cell) == ["0-0", "0-1", "0-2", "0-3"]
    break_nodes(cell, "0-0")
    none = refused(replaced(cell, leaving_of(cell, "j", [0])))
    assert none.refusal.blocks is not None
    assert (none.refusal.blocks.rule, list(none.ranks)) == ("level", [1])
    part = leaving_of(cell, "j", [0, 1], faulty=[0], scope="level", steps=1)
    found = placed(replaced(cell, part))
    assert (found.names(), superpods_of(found), blocks_of(found)) == (["0-4", "0-5"], ["r0-1"] * 2, [0, 0])
    assert the_block(found).phases == ["level"]


def test_a_group_with_a_free_node_keeps_the_other_pods_of_a_level() -> None:
    cell = in_superpods((16,))
    cell.place(a_job("j", **levels(3, 3, 3)))  # type: ignore[arg-type]  # fields of a request
    found = placed(replaced(cell, leaving_of(cell, "j", [0, 1, 2], faulty=[0], scope="level", steps=2)))
    assert found.names() == ["0-3", "0-1", "0-2"]


def backup(cell: CoreCell, rank: int) -> Placement | NoPlaces:
    leaving = leaving_of(cell, "j", [rank])
    return plan_backup(round_of(cell.state, cell.scheduler.scorer, [leaving]).parts(), leaving)


def test_a_backup_pod_gets_another_node_and_never_that_of_its_pod() -> None:
    cell = CoreCell([a_node("a"), a_node("b")])
    cell.place(a_job("j", chips=4))
    assert placed(backup(cell, 0)).names() == ["b"]
    break_nodes(cell, "b")
    assert refused(backup(cell, 0)).refusal.code == "no-room"


def test_a_backup_pod_stays_in_the_superpod_of_its_pod() -> None:
    cell = in_superpods((3, 8))
    cell.place(a_job("j", **blocks(1, 2)))  # type: ignore[arg-type]  # fields of a request
    assert names_of(cell) == ["0-0", "0-1"]
    assert placed(backup(cell, 0)).names() == ["0-2"]
    break_nodes(cell, "0-2")
    assert refused(backup(cell, 0)).refusal.code == "no-blocks"


def test_a_backup_pod_stays_in_the_rack_and_in_the_group_of_level_1() -> None:
    cell = in_superpods((8,), "superpod950x8")
    cell.place(a_job("j", **blocks(3, 1, "superpod950x8", ra_block="8")))  # type: ignore[arg-type]  # fields of a request
    assert placed(backup(cell, 0)).names() == ["0-3"]
    break_nodes(cell, "0-3")
    assert refused(backup(cell, 0)).refusal.code == "no-blocks"
    cell = in_superpods((8,))
    cell.place(a_job("j", **levels(3, 3, 3)))  # type: ignore[arg-type]  # fields of a request
    assert placed(backup(cell, 0)).names() == ["0-3"]
    break_nodes(cell, "0-3")
    assert refused(backup(cell, 0)).refusal.code == "no-blocks"


def test_a_backup_pod_of_a_gang_below_one_leaf_stays_below_it() -> None:
    cell = below_leaves(places=3, leaves=2, nslb_version="2.0")
    cell.place(a_job("j", chips=8, replicas=2, labels=LARGE))
    assert placed(backup(cell, 0)).names() == ["a2"]
    break_nodes(cell, "a2")
    assert refused(backup(cell, 0)).refusal.code == "no-leaves"


def test_a_pod_without_chips_of_a_planned_gang_goes_near_it() -> None:
    cell = in_superpods((5, 8))
    fields = blocks(2, 2)
    job = a_job("j", **fields)  # type: ignore[arg-type]  # fields of a request
    cell.place(msgspec.structs.replace(job, tasks=[Task("leader", 1, 0, cpu_milli=1_000), *job.tasks]))
    before = names_of(cell)
    assert before[0] in before[1:]
    found = placed(replaced(cell, leaving_of(cell, "j", [0, 1], faulty=[0, 1])))
    assert found.names()[0] in before[1:] or found.names()[0].startswith("0-")
    assert found.names()[0] != before[0]
    assert unpack(the_block(found).block_index, 2)[0] == 0


KINDS: dict[str, tuple[CoreCell, dict[str, object]]] = {
    "A3": (in_superpods((5, 5)), blocks(2, 2)),
    "850": (in_superpods((5, 5), "superpod850x8"), blocks(2, 2, "superpod850x8")),
    "racks": (in_superpods((16, 16), "superpod950x8"), blocks(4, 2, "superpod950x8", ra_block="8")),
    "levels": (in_superpods((16,)), levels(2, 4, 4)),
}
"""A cell with a gang of each kind, and its request."""
for _cell, _fields in KINDS.values():
    _cell.place(a_job("j", **_fields))  # type: ignore[arg-type]  # fields of a request


@pytest.mark.parametrize("kind", KINDS)
def test_a_gang_that_was_found_without_its_blocks_gets_the_places_that_it_would_get_with_them(kind: str) -> None:
    cell, _ = KINDS[kind]
    placement = holding_of(cell.state, "j").placement
    pods = range(placement.pods())
    bare = msgspec.structs.replace(placement, groups=[])
    for scope, ranks, ended in (("pod", [1], False), ("job", list(pods), False), ("job", list(pods), True)):
        leaving = leaving_of(cell, "j", ranks, faulty=[1], scope=scope, have_ended=ended)
        found = [replaced(cell, leaving._replace(placement=one)) for one in (placement, bare)]
        if isinstance(found[0], NoPlaces):
            assert found[1] == found[0]
        else:
            first, second = map(placed, found)
            assert (second.names(), blocks_of(second)) == (first.names(), blocks_of(first))
            assert superpods_of(second) == superpods_of(first)


def ranks_of_blocks(placement: Placement) -> list[list[int]]:
    blocks = blocks_of(placement)
    return [[rank for rank, one in enumerate(blocks) if one == block] for block in sorted(set(blocks))]


@pytest.mark.parametrize("lost", [[0], [1], [0, 1], [0, 1, 2]])
@pytest.mark.parametrize("is_bare", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_rank_that_was_lost_has_no_place_to_return_to(kind: str, lost: list[int], *, is_bare: bool) -> None:
    """Its row is that of another pod, without chips. The gang fares as if the nodes of these ranks had failed."""
    cell, _ = KINDS[kind]
    placement = holding_of(cell.state, "j").placement
    names, chips, count = placement.names(), placement.chips_by_rank(), placement.pods()
    live = next(name for rank, name in enumerate(names) if rank not in lost)
    runs = [Run(1, 0) if rank in lost else Run(1, len(chips[rank])) for rank in range(count)]
    part = the_block(placement)
    index, superpods = (
        pack([0 if rank in lost else one for rank, one in enumerate(unpack(column, 2))], 2)
        for column in (part.block_index, part.superpod_index)
    )
    found = placement_of(
        [live if rank in lost else name for rank, name in enumerate(names)],
        [() if rank in lost else one for rank, one in enumerate(chips)],
        runs,
        resource=placement.resource,
        groups=[] if is_bare else [msgspec.structs.replace(part, block_index=index, superpod_index=superpods).groups],
    )
    leaving = leaving_of(cell, "j", range(count), faulty=[], scope="job")
    again = placed(replaced(cell, leaving._replace(placement=found, released=lost)))
    known = placed(replaced(cell, leaving._replace(faulty=lost)))
    assert blocks_of(again) == blocks_of(known)
    if all(set(block) - set(lost) for block in ranks_of_blocks(placement)):  # else its SuperPoD is not known
        assert again.names() == known.names()
    assert len(set(again.names())) == count
    assert not {names[rank] for rank in lost} & set(again.names())


def test_a_gang_whose_placement_lacks_a_rank_is_refused_as_an_error() -> None:
    cell = in_superpods((5,))
    cell.place(a_job("j", **blocks(2, 1)))  # type: ignore[arg-type]  # fields of a request
    holding = holding_of(cell.state, "j")
    names, chips = holding.placement.names(), holding.placement.chips_by_rank()
    one = placement_of(names[:1], chips[:1], [Run(1, len(chips[0]))], resource=holding.placement.resource)
    leaving = leaving_of(cell, "j", [0])._replace(placement=one)
    placement_round = round_of(cell.state, cell.scheduler.scorer, [leaving])
    assert refused(plan_replacements(placement_round.parts(), leaving)).refusal.code == "internal"
    (error,) = placement_round.choose([]).set_aside
    assert error.subject == "default/j"
