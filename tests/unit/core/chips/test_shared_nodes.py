"""Soft share on the state of nodes: what is full, what is left beside other work, and which changes help."""

import pytest

from berth.core.changes import ChangesBuilder
from berth.core.chips.soft_share_scoring import pick_chip, share_row
from berth.core.chips.soft_share_table import ENABLE_LABEL, MEMORY_LABEL, SoftShareTable
from berth.core.cluster.node_packing import pack_nodes
from berth.core.placement.scoring import Scorer
from berth.core.state.cell import State
from berth.schemas.envelope import encode
from berth.schemas.ledger import Settings
from berth.schemas.offers import Shape
from berth.schemas.placement import Share
from berth.schemas.refusal import NodeReason
from tests.support.cells import a_node

GIB = 1024
MEMORY = 64 * GIB
LABELS = {ENABLE_LABEL: "true", MEMORY_LABEL: "64G"}


class Node:
    """A node of two chips that pods may share."""

    def __init__(self, others: int = 0) -> None:
        self.state = State()
        node = a_node("a", "soft-share", labels=LABELS, chips=0b11, allocatable=2, chips_others=others)
        self.state.apply_fact("berth.c.fact.node.leaf-a", 1, encode(pack_nodes("leaf-a", [node], at_ms=1)))

    @property
    def soft_shares(self) -> SoftShareTable:
        return self.state.shares

    def asks(self, share: Share, *, pods: int = 1) -> tuple[NodeReason, int]:
        """Reason and score for a pod of a gang, as a round sees the node: one row and all rows say the same."""
        shape = Shape(form="", resource="", chips=1, gang_pods=pods, share=share)
        scorer = Scorer(self.state.table, self.soft_shares, Settings())
        one = scorer.evaluate_one(shape, 0, scorer.row_state(0))
        reasons, scores = scorer.evaluate(shape)
        assert one == (int(reasons[0]), int(scores[0]))
        return NodeReason(one[0]), one[1]


def test_a_pod_that_leaves_a_chip_to_others_makes_its_node_better() -> None:
    node = Node()
    half = Share(50, GIB, "elastic")
    for _ in range(2):
        node.soft_shares.hold(ChangesBuilder(), 0, 0, half)
    found, before = ChangesBuilder(), node.state.table.revision
    node.soft_shares.let_go(found, 0, 0, half)
    assert list(found.build().capacity_gained) == [0]
    assert node.state.table.changed_since(before).tolist() == [0]
    assert node.soft_shares.nodes[0].core[0] == 50


@pytest.mark.parametrize(
    ("share", "full"),
    [
        (Share(99, MEMORY - 1, "elastic"), 0),
        (Share(100, 1, "elastic"), 1),
        (Share(1, MEMORY, "elastic"), 1),
    ],
)
def test_a_chip_is_full_when_its_cores_or_its_memory_are_given_away(share: Share, full: int) -> None:
    node = Node()
    node.soft_shares.hold(ChangesBuilder(), 0, 0, share)
    assert node.soft_shares.nodes[0].full == full
    assert node.soft_shares.free_mask(0) == 0b11 & ~full


def test_unused_chips_are_left_to_pods_whose_chips_nobody_has_named() -> None:
    share = Share(10, GIB, "elastic")
    assert [Node(others).asks(share)[0] for others in (0, 1, 2)] == [*[NodeReason.FITS] * 2, NodeReason.NO_CHIP_LIST]
    node = Node(others=1)
    node.soft_shares.hold(ChangesBuilder(), 0, 0, share)
    assert node.soft_shares.free_mask(0) == 0b1


def test_cores_of_a_chip_without_memory_are_no_room_for_a_gang() -> None:
    node = Node()
    node.soft_shares.hold(ChangesBuilder(), 0, 0, Share(10, MEMORY, "elastic"))
    assert node.asks(Share(40, GIB, "elastic"), pods=2)[0] is NodeReason.FITS
    assert node.asks(Share(40, GIB, "elastic"), pods=3)[0] is NodeReason.QUOTA


def test_a_chip_without_room_for_the_memory_of_a_pod_is_not_joined() -> None:
    node = Node()
    node.soft_shares.hold(ChangesBuilder(), 0, 0, Share(40, MEMORY - GIB, "elastic"))
    assert node.asks(Share(20, GIB, "elastic")) == (NodeReason.FITS, 16 * 160)
    assert node.asks(Share(20, 2 * GIB, "elastic")) == (NodeReason.FITS, 16 * 1)


def test_chips_that_other_work_of_the_same_round_has_got_are_not_shared() -> None:
    node = Node()
    share = Share(20, GIB, "elastic")
    scorer = Scorer(node.state.table, node.soft_shares, Settings())
    now = scorer.row_state(0).share
    assert now is not None
    assert pick_chip(node.soft_shares, share, 0, now, name="a", free=0b11) == 0
    assert pick_chip(node.soft_shares, share, 0, now, name="a", free=0b10) == 1
    shape = Shape(form="", resource="", chips=1, gang_pods=1, share=share)
    for free, reason in ((0b10, NodeReason.FITS), (0, NodeReason.NO_CHIP_LIST)):
        found, _ = share_row(node.soft_shares, shape, 0, free=free, now=now, base=None, settings=Settings())
        assert found == reason
