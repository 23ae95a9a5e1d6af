"""``berth superpods``: SuperPoDs with their nodes drawn, the blocks on them, and what is left."""

import msgspec
import pytest

from berth.cli.cluster.superpods import drawing, heading, job_words, letters_of, only, show, shown_of
from berth.cli.output import CommandError
from berth.core.state.cell import State
from berth.core.topologies.layouts import SuperpodUser
from berth.core.topologies.maps import SuperpodsShown
from berth.runtime.history import state_now
from berth.schemas.facts import NodeHealth, PodPhase
from berth.schemas.nodes import NodeCondition
from tests.support.cells import Cell, a_job, a_node
from tests.unit.core.explain.test_superpod_explanation import on
from tests.unit.services.dispatcher.test_superpods import A3, a_cell, in_blocks, nodes_of

SIGNS = {"free": ".", "reserved": ":", "part": "+", "used": "#", "unusable": "x"}


async def shown(cell: Cell) -> SuperpodsShown:
    """From what is stored, and the same as from the dispatcher's own state."""
    found = shown_of(await state_now(cell.user, cell.clock))
    assert found == shown_of(cell.dispatcher.state)
    return found


def drawings(found: SuperpodsShown) -> dict[str, str]:
    lines = {row.id: drawing(row, SIGNS) for row in found.superpods}  # type: ignore[arg-type]  # signs of all kinds
    return {name: "|".join("".join(span.text for span in line) for line in drawn) for name, drawn in lines.items()}


async def test_superpods_are_drawn_rack_by_rack_with_their_blocks_and_reserve() -> None:
    cell = await a_cell(nodes_of({"2": 8, "10": 7, "0": 4, "1": 6}))
    await cell.submit(in_blocks("big", 8, 4))
    await cell.turns(2)
    await cell.submit(on("p2-n01"))
    await cell.turns(2)
    found = await shown(cell)
    assert heading(found) == "4 SuperPoDs of up to 48 nodes (super_pod_size), 2 of them in reserve (reserve_nodes)."
    assert drawings(found) == {"0": "..::", "1": "aaaa ::", "2": ".#.. ..::", "10": "aaaa .::"}
    assert [(row.id, row.free, row.nodes, row.above, row.used) for row in found.superpods] == [
        ("0", 4, 4, 2, 0),
        ("1", 2, 6, 0, 4),
        ("2", 7, 8, 5, 1),
        ("10", 3, 7, 1, 4),
    ]
    assert [row.jobs for row in found.superpods] == [
        [],
        [SuperpodUser("default/big", 4, 8, [0])],
        [SuperpodUser("default/on-p2-n01", 1, 1, blocks=[])],
        [SuperpodUser("default/big", 4, 8, [1])],
    ]
    place = found.superpods[3].places[0]
    assert (place.node, place.rack, place.kind, place.job, place.block) == ("p10-n00", "0", "used", "default/big", 1)
    assert [row.warning for row in found.superpods] == [""] * 4
    await cell.close()


async def test_each_block_of_a_superpod_has_its_letter() -> None:
    cell = await a_cell(nodes_of({"0": 8}), reserve_nodes=0)
    await cell.submit(in_blocks("two", 4, 2))
    await cell.turns(2)
    half = {"huawei.com/schedule_policy": "chip2-node16-sp", "sp-block": "8"}
    await cell.submit(in_blocks("one", 2, 2), a_job("half", product=A3, chips=8, annotations=half))
    await cell.turns(3)
    found = await shown(cell)
    row = found.superpods[0]
    assert drawings(found) == {"0": "bbcc aa+."}
    assert [job_words(job, letters_of(row)) for job in row.jobs] == [
        "default/half (1 pod, block 0)",
        "a default/one (2 pods, block 0)",
        "bc default/two (4 pods, blocks 0,1)",
    ]
    await cell.close()


async def test_nodes_that_take_no_work_or_are_sub_healthy() -> None:
    cell = await Cell().open()
    nodes = [a_node(f"n{at}", A3, superpod="7", rack="1") for at in range(5)]
    nodes[1] = msgspec.structs.replace(nodes[1], cordoned=True)
    await cell.nodes([*nodes, a_node("n9", A3, superpod="7"), a_node("m0", A3, superpod="east")])
    conditions = [NodeCondition("n0", level=NodeHealth.SUB_HEALTHY), NodeCondition("n2", level=NodeHealth.NO_NEW_WORK)]
    await cell.health("superpod-7", conditions)
    await cell.turns(2)
    found = await shown(cell)
    assert [row.id for row in found.superpods] == ["7", "east"]
    assert drawings(found) == {"7": ". xx.::", "east": ":"}
    assert [(place.node, place.rack) for place in found.superpods[0].places] == [
        ("n9", ""), ("n1", "1"), ("n2", "1"), ("n3", "1"), ("n4", "1"), ("n0", "1"),
    ]  # fmt: skip
    await cell.close()


async def test_freed_nodes_are_free_again() -> None:
    cell = await a_cell(nodes_of({"0": 4}), reserve_nodes=0)
    await cell.submit(in_blocks("job", 4, 4))
    await cell.turns(2)
    assert drawings(await shown(cell)) == {"0": "aaaa"}
    await cell.pods("job", PodPhase.RUNNING)
    await cell.turns(2)
    await cell.cancel("job")
    await cell.turns(2)
    await cell.pods("job", PodPhase.TERMINATING)
    await cell.turns(2)
    ending = (await shown(cell)).superpods[0]  # the chips stay taken until the pods are gone
    assert (ending.free, ending.used, [place.kind for place in ending.places]) == (0, 4, ["used"] * 4)
    await cell.pods("job", PodPhase.SUCCEEDED)
    await cell.turns(2)
    found = await shown(cell)
    assert drawings(found) == {"0": "...."}
    assert found.superpods[0].jobs == []
    await cell.close()


async def test_a_superpod_with_more_nodes_than_said_is_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    cell = await a_cell(nodes_of({"0": 12}), super_pod_size=8)
    await cell.submit(in_blocks("job", 4, 4))
    await cell.turns(2)
    found = await shown(cell)
    await cell.close()
    assert found.superpods[0].warning == "it has 12 nodes, more than the 8 of super_pod_size"
    capsys.readouterr()
    show(found)
    out = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert out[0] == "1 SuperPoD of up to 8 nodes (super_pod_size), 2 of them in reserve (reserve_nodes)."
    assert out[1].split() == ["SUPERPOD", "NODES", "FREE", "ABOVE", "RESERVE", "USED", "JOBS"]
    assert out[2].endswith("8/12  6              4     a default/job (4 pods, block 0)")
    assert "in reserve" in out[3]
    assert out[4] == "SuperPoD 0: it has 12 nodes, more than the 8 of super_pod_size."


async def test_long_drawings_are_broken_at_racks() -> None:
    nodes = [a_node(f"n{at:03}", A3, superpod="0", rack=str(at // 8)) for at in range(100)]
    loose = [a_node(f"m{at:03}", A3, superpod="1") for at in range(100)]
    cell = await a_cell([*nodes, *loose], super_pod_size=128, reserve_nodes=0)
    found = await shown(cell)
    await cell.close()
    assert drawings(found) == {
        "0": " ".join(["." * 8] * 8) + "|" + " ".join([*["." * 8] * 4, "...."]),
        "1": "." * 72 + "|" + "." * 28,
    }


def test_without_superpods_the_reason_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    show(shown_of(State()))
    assert capsys.readouterr().out == "no SuperPoD is known: no node has a SuperPoD\n"


async def test_one_superpod_is_picked_by_id_and_a_wrong_id_is_answered_with_near_ones() -> None:
    cell = await a_cell(nodes_of({"10": 1, "11": 1}))
    found = await shown(cell)
    await cell.close()
    assert [row.id for row in only(found, "11").superpods] == ["11"]
    assert only(found, None) == found
    with pytest.raises(CommandError, match="no SuperPoD has the id 12; near ids: 11, 10"):
        only(found, "12")
    with pytest.raises(CommandError, match="no SuperPoD has the id x; 2 SuperPoDs known"):
        only(found, "x")
