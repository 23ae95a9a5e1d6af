"""Chips that more than one live pod names, by node, with the pods."""

from berth.core.explain.chips_twice import named_twice
from berth.core.explain.evidence import NamedTwice
from berth.schemas.columns import pack, pack_names
from berth.schemas.facts import PodPhase, PodsSeen
from tests.support.cells import a_node
from tests.support.core_cells import SUBJECTS, CoreCell


def said(cell: CoreCell, gang: str, *chips: int, foreign: bool = False, phase: PodPhase = PodPhase.RUNNING) -> None:
    """Pods of a gang on node a name chips, as masks."""
    count = len(chips)
    fact = PodsSeen(
        "default", gang, f"uid-{gang}", 0 if foreign else 1, pack(range(count), 4), pack_names(["a"]),
        pack([0] * count, 4), bytes([phase] * count), pack(chips, 8), foreign=foreign,
    )  # fmt: skip
    cell.fact(SUBJECTS.fact_pod("default", gang), fact)


def test_each_chip_is_there_once_with_all_pods_that_name_it() -> None:
    cell = CoreCell([a_node("a"), a_node("b")])
    said(cell, "j", 0b0011, 0b0110)
    said(cell, "pod/f", 0b0100, foreign=True)
    said(cell, "over", 0b1111, phase=PodPhase.SUCCEEDED)
    assert named_twice(cell.state) == {
        "a": [
            NamedTwice(1, ["default/j rank 0", "default/j rank 1"]),
            NamedTwice(2, ["default/f", "default/j rank 1"]),
        ]
    }


def test_without_such_chips_no_node_is_named() -> None:
    cell = CoreCell([a_node("a")])
    said(cell, "j", 0b0011, 0b1100)
    assert named_twice(cell.state) == {}
