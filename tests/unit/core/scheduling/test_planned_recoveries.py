"""Recoveries of gangs that are planned as a whole: by leaf switch, in SuperPoDs, in racks, by levels."""

import pytest

from berth.products.catalogue import NODE_PRODUCTS
from berth.schemas.columns import unpack
from berth.schemas.facts import Leaf, TopologySeen
from berth.schemas.placement import Placement
from berth.schemas.recovery import Recovery
from tests.support.cells import a_job, a_node
from tests.support.core_cells import SUBJECTS, nodes_in_superpods
from tests.support.fault_cells import FaultCell
from tests.support.placed_parts import the_block
from tests.support.replacements import holding_of

CONFIG = '{"default": {"level1": {"label": "rack"}, "level2": {"label": "row"}}}'
A3 = "superpod910a3x16"
RACK = "superpod950x8"


def below_leaves() -> FaultCell:
    """Leaves ``a``, ``b``, ``c`` with four nodes each."""
    rows = {leaf: [f"{leaf}{place}" for place in range(4)] for leaf in "abc"}
    nodes = [a_node(name, leaf=leaf, position=at) for leaf, names in rows.items() for at, name in enumerate(names)]
    cell = FaultCell(nodes)
    leaves = [Leaf(leaf, leaf, names) for leaf, names in rows.items()]
    cell.fact(SUBJECTS.fact_topology("switch"), TopologySeen("switch", leaves, level="double_layer", places=4))
    return cell


def in_superpods(*widths: int, product: str = A3, **settings: object) -> FaultCell:
    """See :func:`nodes_in_superpods`."""
    nodes = nodes_in_superpods(widths, product)
    return FaultCell(nodes, reserve_nodes=0, resource_levels=CONFIG, **settings)


def of_blocks(size: int, count: int) -> dict[str, object]:
    chips = NODE_PRODUCTS[A3].chips
    annotations = {"huawei.com/schedule_policy": "chip2-node16-sp", "sp-block": str(size * chips)}
    return {"product": A3, "chips": chips, "replicas": size * count, "annotations": annotations}


def of_racks(size: int, count: int, part: int) -> dict[str, object]:
    """Blocks of nodes with parts of ``part`` nodes."""
    chips = NODE_PRODUCTS[RACK].chips
    annotations = {"sp-block": str(size * chips), "ra-block": str(part * chips)}
    annotations["huawei.com/schedule_policy"] = "chip8-node8-ra64-sp"
    return {"product": RACK, "chips": chips, "replicas": size * count, "annotations": annotations}


def of_levels(level1: int, level2: int, pods: int) -> dict[str, object]:
    sizes = f"level1={level1},level2={level2}"
    annotations = {"huawei.com/schedule_policy": "multilevel", "huawei.com/affinity-config": sizes}
    return {"product": A3, "chips": 16, "replicas": pods, "annotations": annotations}


def blocks_of(placement: Placement) -> list[int]:
    return [the_block(placement).blocks[index - 1] for index in unpack(the_block(placement).block_index, 2)]


def names_of(cell: FaultCell) -> list[str]:
    return holding_of(cell.state, "j").placement.names()


def broken(cell: FaultCell, rank: int) -> list[Recovery]:
    cell.break_chip(cell.node_of("j", rank), 0b1)
    return cell.turns()


def test_a_pod_of_a_switch_gang_moves_and_the_others_stay() -> None:
    cell = below_leaves()
    cell.run(a_job("j", chips=8, replicas=6, labels={"tor-affinity": "large-model-schema"}))
    before = names_of(cell)
    (step,) = broken(cell, 1)
    assert (step.scope, step.ranks) == ("pod", [1])
    assert step.placement is not None
    cell.remove("j")
    cell.turns()
    cell.bind("j")
    assert cell.turns() == []
    after = names_of(cell)
    assert [*after[:1], *after[2:]] == [*before[:1], *before[2:]]
    assert after[1] in {"b2", "b3"}, "below a leaf that the gang has already"


def test_escalation_at_each_step_for_superpods_in_turns() -> None:
    cell = in_superpods(2, 2)
    cell.run(a_job("j", **of_blocks(2, 2)))  # type: ignore[arg-type]  # fields of the request
    (first,) = broken(cell, 3)
    assert (first.scope, first.ranks, first.placement) == ("pod", [3], None)
    cell.remove("j")
    cell.turns()
    cell.wait_for_places("j", 3)
    assert cell.wait(5_999) == []
    (second,) = cell.wait(1)
    block = blocks_of(holding_of(cell.state, "j").placement)
    assert (second.scope, second.step) == ("superpod", 2)
    assert second.ranks == [rank for rank in range(4) if block[rank] == block[3]]
    cell.remove("j")
    cell.turns()
    cell.wait_for_places("j", *second.ranks)
    assert cell.wait(5_999) == []
    (third,) = cell.wait(1)
    assert (third.scope, third.step) == ("job", 3)


def scopes_without_room(cell: FaultCell, rank: int, first: list[Recovery]) -> list[tuple[str, list[int], int]]:
    """Scope and ranks of each step of a job that finds no place, and how long the step before it stood."""
    (step,) = first
    found: list[tuple[str, list[int], int]] = [(step.scope, step.ranks, 0)]
    unplaced = {rank}
    while step.scope != "job":
        assert step.placement is None
        cell.remove("j")
        cell.turns()
        cell.wait_for_places("j", *sorted(unplaced))
        began_ms = cell.now_ms
        steps: list[Recovery] = []
        while not steps:
            steps = cell.wait(500)
            assert cell.now_ms - began_ms <= 60_000, "it never grows"
        (step,) = steps
        unplaced |= set(step.ranks)
        found.append((step.scope, step.ranks, cell.now_ms - began_ms))
    return found


def test_escalation_at_each_step_for_plain_in_turns() -> None:
    cell = FaultCell([a_node("a"), a_node("b")])
    cell.run(a_job("j", chips=8, replicas=2))
    assert scopes_without_room(cell, 1, broken(cell, 1)) == [("pod", [1], 0), ("job", [0, 1], 12_000)]


def test_escalation_at_each_step_for_950_with_ra_block_1_in_turns() -> None:
    cell = in_superpods(4, 4, product=RACK)
    cell.run(a_job("j", **of_racks(4, 2, 1)))  # type: ignore[arg-type]  # fields of the request
    assert scopes_without_room(cell, 5, broken(cell, 5)) == [
        ("pod", [5], 0), ("superpod", [4, 5, 6, 7], 6_000), ("job", [*range(8)], 6_000)
    ]  # fmt: skip


def test_escalation_at_each_step_for_950_with_ra_block_4_in_turns() -> None:
    cell = in_superpods(8, 8, product=RACK)
    cell.run(a_job("j", **of_racks(8, 2, 4)))  # type: ignore[arg-type]  # fields of the request
    assert scopes_without_room(cell, 9, broken(cell, 9)) == [
        ("pod", [9], 0),
        ("rank-block", [8, 9, 10, 11], 3_000),
        ("superpod", [*range(8, 16)], 3_000),
        ("job", [*range(16)], 6_000),
    ]


def test_escalation_at_each_step_for_three_levels_in_turns() -> None:
    nodes = nodes_in_superpods((8,), A3)
    cell = FaultCell(nodes, resource_levels=CONFIG.replace("}}}", '}, "level3": {"label": "superpod"}}}'))
    for node in nodes:
        cell.change(node.name, labels=dict(node.labels) | {"superpod": "one"})
    request = of_levels(2, 4, 8)
    request["annotations"] |= {"huawei.com/affinity-config": "level1=2,level2=4,level3=8"}  # type: ignore[operator]  # texts
    cell.run(a_job("j", **request))  # type: ignore[arg-type]  # fields of the request
    assert scopes_without_room(cell, 5, broken(cell, 5)) == [
        ("pod", [5], 0), ("level", [4, 5], 6_000), ("job", [*range(8)], 6_000)
    ]  # fmt: skip


def test_a_block_gets_a_place_together() -> None:
    cell = in_superpods(2, 2, 2)
    cell.run(a_job("j", **of_blocks(2, 2)))  # type: ignore[arg-type]  # fields of the request
    before = names_of(cell)
    block = blocks_of(holding_of(cell.state, "j").placement)
    lost = [rank for rank in range(4) if block[rank] == block[3]]
    (first,) = broken(cell, 3)
    assert first.placement is None, "no third node is in its SuperPoD"
    cell.remove("j")
    cell.turns()
    cell.wait_for_places("j", 3)
    (second,) = cell.wait(6_000)
    assert second.placement is not None
    cell.remove("j")
    cell.turns()
    cell.bind("j")
    assert cell.wait(100_000) == []
    after = names_of(cell)
    assert [name for rank, name in enumerate(after) if rank not in lost] == [
        name for rank, name in enumerate(before) if rank not in lost
    ]
    assert len({after[rank].partition("-")[0] for rank in lost}) == 1
    assert not {after[rank] for rank in lost} & set(before)


def test_escalation_at_each_step_for_levels_in_turns() -> None:
    cell = in_superpods(8)
    cell.run(a_job("j", **of_levels(2, 4, 8)))  # type: ignore[arg-type]  # fields of the request
    (first,) = broken(cell, 5)
    assert (first.scope, first.ranks) == ("pod", [5])
    cell.remove("j")
    cell.turns()
    cell.wait_for_places("j", 5)
    (second,) = cell.wait(6_000)
    assert (second.scope, second.ranks) == ("level", [4, 5])
    cell.remove("j")
    cell.turns()
    cell.wait_for_places("j", 4, 5)
    (third,) = cell.wait(6_000)
    assert third.scope == "job"


@pytest.mark.parametrize("replicas", [2, 4])
def test_a_gang_by_leaf_that_restarts_leaves_out_the_node_that_failed(replicas: int) -> None:
    cell = below_leaves()
    request = a_job("j", chips=8, replicas=replicas, labels={"tor-affinity": "large-model-schema"})
    cell.run(request, labels={"fault-scheduling": "force"})
    failed = cell.node_of("j", 0)
    (step,) = broken(cell, 0)
    assert (step.scope, step.how) == ("job", "force")
    cell.conditions.clear()
    cell.publish()
    cell.remove("j")
    cell.turns()
    assert cell.phase("j") == "placed"
    assert failed not in names_of(cell)
