"""What can be broken on a simulated node, how, and for how long."""

import pytest

from berth.formats.clusters.topology_file import Fault
from berth.lab.nodesim.breakage import Breakage, Breakages, WrongBreakError, breakage_of, breakages_of_file
from berth.products.catalogue import NODE_PRODUCTS
from berth.schemas.facts import NodeHealth
from berth.schemas.nodes import NodeDescription
from berth.schemas.simulation import BreakNode


def a_node(product: str = "module910bx8") -> NodeDescription:
    known = NODE_PRODUCTS[product]
    return NodeDescription("n", product, known.resource, (1 << known.chips) - 1, known.chips)


@pytest.mark.parametrize(
    ("wish", "reason"),
    [
        (BreakNode("n", "fire"), "fault is 'fire', expected one of chip, network"),
        (BreakNode("n", "chip"), "chips are missing"),
        (BreakNode("n", "chip", [8]), r"chips are \[8\], expected some of 0, 1"),
        (BreakNode("n", "chip", [-1]), r"chips are \[-1\]"),
        (BreakNode("n", "node", [1]), "expected none"),
        (BreakNode("n", "switch"), "has no switch reports"),
        (
            BreakNode("n", "chip", [1], level="SeparateFault"),
            "level is 'SeparateFault', expected one of NotHandleFault",
        ),
        (
            BreakNode("n", "node", level="SeparateNPU"),
            "expected one of NotHandleFault, PreSeparateFault, SeparateFault",
        ),
        (BreakNode("n", "kubelet", level="x"), "a fault of kind kubelet has no level"),
        (BreakNode("n", "chip", [1], code="xyz"), "code is 'xyz'"),
    ],
)
def test_what_cannot_be_broken_so_is_refused_with_what_is_right(wish: BreakNode, reason: str) -> None:
    with pytest.raises(WrongBreakError, match=reason):
        breakage_of(wish, a_node(), 0)


def test_a_breakage_has_the_usual_level_and_code_unless_they_are_named() -> None:
    found = breakage_of(BreakNode("n", "chip", [3, 1, 3], lasts_ms=50), a_node(), 100)
    assert found == Breakage("chip", 0b1010, "RestartNPU", "80E24E00", from_ms=100, until_ms=150)
    named = breakage_of(BreakNode("n", "switch", level="Reset", code="AB"), a_node("superpod910a3x16"), 0)
    assert (named.level, named.code, named.until_ms) == ("Reset", "AB", None)


def test_breakages_come_and_go_and_are_repaired_by_chip() -> None:
    found = Breakages()
    found.add(Breakage("chip", 0b11, "RestartNPU", "A", from_ms=10, until_ms=20))
    found.add(Breakage("chip", 0b1100, "SeparateNPU", "B", from_ms=15))
    assert [found.at(now).unhealthy(0) for now in (9, 10, 15, 20)] == [0, 0b11, 0b1111, 0b1100]
    assert [found.next_turn_ms(now) for now in (0, 10, 15, 20)] == [10, 15, 20, None]
    assert found.repair("chip", 0b0100) == 1
    assert found.at(15).unhealthy(0) == 0b1011
    assert found.repair("network") == 0
    assert found.repair("chip") == 2
    assert found.at(15).items == ()


def test_the_same_thing_broken_again_gets_a_new_end() -> None:
    found = Breakages()
    for until in (20, 40):
        found.add(Breakage("chip", 1, "RestartNPU", "A", from_ms=10, until_ms=until))
    assert len(found.items) == 1
    assert found.at(30).unhealthy(0) == 1


@pytest.mark.parametrize(
    ("fault", "product", "expected"),
    [
        (Fault("n", kind="unhealthy", chips=1, from_ms=5), "module910bx8", ("chip", 1, "RestartNPU", 105)),
        (Fault("n", kind="network-unhealthy", chips=2), "module910bx8", ("network", 2, "PreSeparateNPU", 100)),
        (Fault("n", kind="recovering", chips=2), "module910bx8", ("recovering", 2, "", 100)),
        (Fault("n", level=NodeHealth.EVICT), "module910bx8", ("node", 0, "SeparateFault", 100)),
        (Fault("n", level=NodeHealth.NO_NEW_WORK), "module910bx8", ("node", 0, "PreSeparateFault", 100)),
        (Fault("n", level=NodeHealth.SUB_HEALTHY), "module910bx8", ("chip", 0xFF, "SubHealthFault", 100)),
        (Fault("n", level=NodeHealth.SUB_HEALTHY), "superpod910a3x16", ("switch", 0, "SubHealthFault", 100)),
    ],
)
def test_faults_of_the_file(fault: Fault, product: str, expected: tuple[str, int, str, int]) -> None:
    (found,) = breakages_of_file(fault, a_node(product), 100)
    assert (found.kind, found.chips, found.level, found.from_ms) == expected
