"""``berth switches``: leaves with their nodes drawn, what switch affinity sees of them, and who is there."""

import msgspec
import pytest

from berth.cli.cluster.switches import drawing, heading, only, show, switches_of
from berth.cli.output import CommandError
from berth.core.state.cell import State
from berth.core.topologies.layouts import LeafUser
from berth.core.topologies.maps import SwitchesShown
from berth.runtime.history import state_now
from berth.schemas.facts import Leaf, NodeHealth
from berth.schemas.nodes import NodeCondition
from tests.support.cells import Cell, a_job, a_node
from tests.unit.core.explain.test_explainer import on
from tests.unit.services.dispatcher.test_switches import NORMAL, a_cell, a_topology, by_leaf, say

SIGNS = {"free": ".", "part": "+", "used": "#", "unusable": "x", "none": "_"}


async def shown(cell: Cell) -> SwitchesShown:
    """From what is stored, and the same as from the dispatcher's own state."""
    found = switches_of(await state_now(cell.user, cell.clock))
    assert found == switches_of(cell.dispatcher.state)
    return found


def drawings(found: SwitchesShown) -> list[str]:
    return ["".join(span.text for span in drawing(leaf, SIGNS)) for leaf in found.leaves]  # type: ignore[arg-type]  # signs of all kinds


async def test_leaves_are_drawn_place_by_place_with_their_state_and_jobs() -> None:
    cell = await a_cell(leaves=3, nslb_version="2.0")
    await cell.submit(by_leaf("large", 6), a_job("small", chips=2, node_selector=on("n13")))
    await cell.turns(2)
    found = await shown(cell)
    assert heading(found) == "Switch affinity 2.0, at most 2 shared leaves a job; 3 leaves of 4 places."
    assert drawings(found) == ["####", "##.+", "...."]
    assert [(leaf.name, leaf.free, leaf.nodes, leaf.state, leaf.healthy, leaf.cross) for leaf in found.leaves] == [
        ("leaf0", 0, 4, "exclusive", True, True),
        ("leaf1", 1, 4, "shared", True, True),
        ("leaf2", 4, 4, "free", True, False),
    ]
    assert [leaf.words for leaf in found.leaves] == ["exclusive, cross jobs", "shared, cross jobs", "free"]
    assert [leaf.jobs for leaf in found.leaves] == [
        [LeafUser("default/large", 4, 6)],
        [LeafUser("default/large", 2, 6), LeafUser("default/small", 1, 1)],
        [],
    ]
    await cell.close()


async def test_leaves_that_a_common_job_uses_beside_the_limit_are_unhealthy() -> None:
    cell = await a_cell(leaves=4, nslb_version="2.0", shared_tor_num=1)
    await cell.submit(by_leaf("one", 6, NORMAL), by_leaf("two", 7, NORMAL))
    await cell.turns(2)
    assert [leaf.healthy for leaf in (await shown(cell)).leaves] == [True] * 4
    await cell.submit(by_leaf("three", 3, NORMAL))
    await cell.turns(2)
    found = await shown(cell)
    assert heading(found) == "Switch affinity 2.0, at most 1 shared leaf a job; 4 leaves of 4 places."
    assert [(leaf.state, leaf.healthy, leaf.words) for leaf in found.leaves] == [
        ("exclusive", True, "exclusive, cross jobs"),
        ("shared", False, "unhealthy shared, cross jobs"),
        ("exclusive", True, "exclusive, cross jobs"),
        ("shared", False, "unhealthy shared, cross jobs"),
    ]
    await cell.close()


async def test_policy_1_keeps_no_states_and_tells_cross_jobs() -> None:
    cell = await a_cell(leaves=3)
    await cell.submit(by_leaf("common", 6, NORMAL))
    await cell.turns(2)
    found = await shown(cell)
    assert heading(found) == "Switch affinity 1.0; 3 leaves of 4 places."
    assert [(leaf.state, leaf.words, leaf.only_common) for leaf in found.leaves] == [
        ("", "cross jobs, all common", True),
        ("", "cross jobs, all common", True),
        ("", "", True),
    ]
    await cell.submit(a_job("plain", chips=1, node_selector=on("n12")))
    await cell.turns(2)
    assert [leaf.words for leaf in (await shown(cell)).leaves] == ["cross jobs, all common", "cross jobs", ""]
    await cell.close()


async def test_nodes_that_are_missing_or_take_no_work_are_drawn_so() -> None:
    cell = await Cell().open()
    await cell.nodes([a_node("a"), a_node("b", cordoned=True), a_node("c", ready=False), a_node("d"), a_node("e")])
    conditions = [NodeCondition("d", level=NodeHealth.NO_NEW_WORK), NodeCondition("e", unhealthy=0b1)]
    await cell.health("bucket-all", conditions)
    topology = msgspec.structs.replace(
        a_topology(0),
        leaves=[Leaf("172.16.0.1", "", ["a", "", "b", "c", "unknown", "d", "e"]), Leaf("172.16.0.2", "", ["", ""])],
        places=8,
        level="single_layer",
        reason="server_list[1].tor_ip is '172.16.0.1': expected one that no other leaf has",
    )
    await say(cell, topology)
    await cell.turns(2)
    found = await shown(cell)
    assert drawings(found) == ["._xx_x+", "__"]
    assert [(leaf.free, leaf.nodes) for leaf in found.leaves] == [(1, 5), (0, 0)]
    assert [place.node for place in found.leaves[0].places] == ["a", "", "b", "c", "unknown", "d", "e"]
    assert (found.policy, found.reason) == ("single-layer", topology.reason)
    assert heading(found) == "Switch affinity of a single layer; 2 leaves of 8 places."
    await cell.close()


async def test_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    cell = await a_cell(leaves=2)
    await cell.submit(by_leaf("job", 2))
    await cell.turns(2)
    found = await shown(cell)
    await cell.close()
    capsys.readouterr()
    show(found)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[:2] == ["Switch affinity 1.0; 2 leaves of 4 places.", "LEAF   NODES  FREE  KNOWN  STATE  JOBS"]
    assert lines[3].split()[0] == "leaf1"
    assert lines[3].endswith("2     4/4           default/job (2 pods)")
    assert "all chips free" in lines[4]


async def test_an_older_word_on_the_leaves_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    cell = await a_cell(leaves=1, topology=msgspec.structs.replace(a_topology(1), reason="tor_info is not JSON"))
    found = await shown(cell)
    await cell.close()
    capsys.readouterr()
    show(found)
    assert "tor_info is not JSON" in capsys.readouterr().out


def test_without_leaves_the_source_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    show(switches_of(State()))
    assert capsys.readouterr().out == (
        "the leaf switches are not known: ConfigMap basic-tor-node-cm is not read yet, or has no leaf\n"
    )


async def test_one_leaf_is_picked_by_name_and_a_wrong_name_is_answered_with_near_ones() -> None:
    cell = await a_cell(leaves=2)
    found = await shown(cell)
    await cell.close()
    assert [leaf.name for leaf in only(found, "leaf1").leaves] == ["leaf1"]
    assert only(found, None) == found
    with pytest.raises(CommandError, match="no leaf is named leaf7; near names: leaf1, leaf0"):
        only(found, "leaf7")
    with pytest.raises(CommandError, match="no leaf is named x; 2 leaves known"):
        only(found, "x")
