"""Soft share: which nodes can take a gang, how good each is, and which chip a pod gets."""

import numpy as np
import pytest

from berth.core.chips.soft_share import OwnUse, ShareColumns, evaluate_share, pick_share
from berth.core.chips.soft_share_table import memory_of
from berth.core.cluster.shared_use import CHIP_IDS, POLICY_NUMBERS
from berth.schemas.ledger import Settings
from berth.schemas.placement import Share
from berth.schemas.refusal import NodeReason

PARITY = Settings(reference_parity=True)
GIB = 1024
Uses = dict[int, tuple[int, int, str]]
"""Chip id to percent of cores, MiB of memory, policy."""


def a_node(
    uses: Uses | None = None, *, free: int = 0b11, memory_mib: int = 64 * GIB, enabled: bool = True
) -> ShareColumns:
    core = np.zeros((1, CHIP_IDS), np.int16)
    hbm = np.zeros((1, CHIP_IDS), np.int32)
    policy = np.zeros((1, CHIP_IDS), np.uint8)
    for chip, (percent, mib, name) in (uses or {}).items():
        core[0, chip], hbm[0, chip], policy[0, chip] = percent, mib, POLICY_NUMBERS[name]
    return ShareColumns(
        core, hbm, policy, np.array([memory_mib], np.int32), np.array([enabled]), np.array([free], np.uint64)
    )


def judged(
    node: ShareColumns, share: Share, *, pods: int = 1, settings: Settings | None = None, own: OwnUse | None = None
) -> tuple[NodeReason, int]:
    reasons, scores = evaluate_share(node, share, gang_pods=pods, settings=settings or Settings(), own=own)
    assert (reasons.dtype.name, scores.dtype.name) == ("uint8", "int32")
    return NodeReason(reasons[0]), int(scores[0])


def picked(node: ShareColumns, share: Share) -> int | None:
    return pick_share(
        share,
        free=int(node.free[0]),
        core=node.core[0].tolist(),
        hbm=node.hbm[0].tolist(),
        policy=node.policy[0].tolist(),
        memory_mib=int(node.memory_mib[0]),
    )


def test_the_node_needs_both_labels_and_a_list() -> None:
    share = Share(20, GIB, "elastic")
    assert judged(a_node(enabled=False), share) == (NodeReason.NODE_LABEL, 0)
    assert judged(a_node(memory_mib=0), share) == (NodeReason.NODE_LABEL, 0)
    assert judged(a_node(free=0), share) == (NodeReason.NO_CHIP_LIST, 0)
    assert judged(a_node(free=(1 << 17) - 1), share) == (NodeReason.TOO_MANY_CHIPS, 0)
    assert judged(a_node(), share) == (NodeReason.FITS, 0)


def test_a_fuller_chip_of_the_same_policy_is_better() -> None:
    share = Share(20, GIB, "elastic")
    node = a_node({0: (40, GIB, "elastic"), 1: (60, GIB, "elastic")})
    assert judged(node, share) == (NodeReason.FITS, 16 * (200 - (100 - 60 - 20)))
    assert picked(node, share) == 1


def test_ties_go_to_the_lowest_id_and_unused_chips_come_last() -> None:
    share = Share(20, GIB, "elastic")
    assert picked(a_node({1: (40, GIB, "elastic"), 2: (40, GIB, "elastic")}, free=0b111), share) == 1
    assert picked(a_node({0: (90, GIB, "elastic"), 1: (40, GIB, "fixed-share")}, free=0b1110), share) == 2
    assert picked(a_node({0: (90, GIB, "elastic")}, free=0b1), share) is None


def test_chips_of_another_policy_count_for_the_reference_only() -> None:
    share = Share(20, GIB, "fixed-share")
    node = a_node({0: (60, GIB, "elastic")})
    assert judged(node, share, settings=PARITY) == (NodeReason.FITS, 16 * 180)
    assert judged(node, share) == (NodeReason.FITS, 16 * 1)
    assert picked(node, share) == 1


def test_without_a_chip_to_join_the_score_is_the_number_of_used_chips() -> None:
    node = a_node({0: (90, GIB, "elastic"), 1: (95, GIB, "elastic")}, free=0b111)
    assert judged(node, Share(20, GIB, "elastic")) == (NodeReason.FITS, 16 * 2)


def test_a_used_chip_outside_the_list_is_not_joined() -> None:
    node = a_node({0: (40, GIB, "elastic")}, free=0b10)
    assert judged(node, Share(20, GIB, "elastic")) == (NodeReason.FITS, 16 * 1)
    assert picked(node, Share(20, GIB, "elastic")) == 1


@pytest.mark.parametrize(
    ("aicore", "hbm", "pods", "expected"),
    [
        (60, GIB, 2, NodeReason.FITS),
        (60, GIB, 3, NodeReason.QUOTA),
        (50, GIB, 4, NodeReason.FITS),
        (50, GIB, 5, NodeReason.QUOTA),
        (5, GIB, 40, NodeReason.FITS),
        (5, GIB, 41, NodeReason.QUOTA),
        (1, 33 * GIB, 2, NodeReason.FITS),
        (1, 33 * GIB, 3, NodeReason.QUOTA),
        (1, 65 * GIB, 1, NodeReason.QUOTA),
        (100, 64 * GIB, 2, NodeReason.FITS),
        (1, 1 << 40, 1, NodeReason.QUOTA),
    ],
)
def test_a_node_must_have_whole_quotas_for_the_whole_gang(
    aicore: int, hbm: int, pods: int, expected: NodeReason
) -> None:
    assert judged(a_node(), Share(aicore, hbm, "elastic"), pods=pods)[0] is expected


def test_chips_of_another_policy_give_no_capacity() -> None:
    node = a_node({0: (10, GIB, "best-effort")})
    assert judged(node, Share(100, GIB, "elastic"), pods=1)[0] is NodeReason.FITS
    assert judged(node, Share(100, GIB, "elastic"), pods=2)[0] is NodeReason.QUOTA


def test_memory_given_away_twice_over_counts_against_the_node_in_whole_quotas() -> None:
    share = Share(10, 16 * GIB, "elastic")
    node = a_node({0: (10, 100 * GIB, "elastic")})
    assert judged(node, share, pods=2)[0] is NodeReason.FITS
    assert judged(node, share, pods=3)[0] is NodeReason.QUOTA


def test_the_gangs_own_pods_count_as_gone_for_capacity_only() -> None:
    share = Share(60, GIB, "elastic")
    node = a_node({0: (60, GIB, "elastic")})
    assert judged(node, share, pods=2)[0] is NodeReason.QUOTA
    own = OwnUse(node.core.copy(), node.hbm.copy(), node.free.copy())
    assert judged(node, share, pods=2, own=own) == (NodeReason.FITS, 16)
    assert judged(node, share, pods=3, own=own)[0] is NodeReason.QUOTA
    full = a_node({0: (60, GIB, "elastic"), 1: (60, GIB, "elastic")})
    own = OwnUse(full.core.copy(), full.hbm.copy(), full.free.copy())
    assert judged(full, share, pods=2, own=own)[0] is NodeReason.QUOTA


@pytest.mark.parametrize(
    ("label", "mib"), [("64G", 64 * GIB), ("2097151G", 2097151 * GIB), ("2097152G", 0), ("9" * 5000 + "G", 0)]
)
def test_a_label_of_memory_that_no_chip_can_have_says_nothing(label: str, mib: int) -> None:
    assert memory_of(label) == mib
