"""Merging of shards' offers."""

from typing import Any

import msgspec
import pytest

from berth.core.cluster.node_packing import pack_nodes
from berth.core.cluster.node_table import NodeTable
from berth.core.placement.offers import OwnRows, candidates_of, check_possible, merge, offer_of
from berth.core.placement.scoring import Candidates
from berth.schemas.columns import pack_names
from berth.schemas.envelope import DecodeError
from berth.schemas.offers import ShapeOffer
from berth.schemas.refusal import NodeReason, ReasonCount
from tests.support.cells import a_node


def a_table() -> NodeTable:
    """Rows 0..4 are nodes e, d, c, b, a."""
    table = NodeTable()
    for name in "edcba":
        table.row(name)
    return table


def found(rows: dict[int, int], *, exhausted: bool = True, total: int = 10, **counts: int) -> Candidates:
    numbers = {int(NodeReason[name]): nodes for name, nodes in counts.items()}
    return Candidates(list(rows), list(rows.values()), exhausted, total, len(rows), numbers)


def test_the_better_score_comes_first_and_then_the_lower_name() -> None:
    merged = merge(a_table(), [found({4: 7, 2: 5}), found({3: 7, 0: 5, 1: 1})], missing_nodes=0)
    assert (merged.rows, merged.scores) == ([4, 3, 2, 0, 1], [7, 7, 5, 5, 1])
    assert merged.exhausted
    assert (merged.total, merged.fit) == (20, 5)


def test_nothing_is_believed_beyond_the_last_candidate_of_a_shard_that_has_more() -> None:
    part = found({3: 7, 2: 5}, exhausted=False)
    merged = merge(a_table(), [part, found({4: 7, 0: 5, 1: 1})], missing_nodes=0)
    assert merged.rows == [4, 3, 2], "e with 5 comes after c with 5, and a hidden node may be before it"
    assert not merged.exhausted


def test_the_nearest_of_several_horizons_counts() -> None:
    parts = [found({4: 3}, exhausted=False), found({3: 9}, exhausted=False), found({2: 8, 0: 1})]
    assert merge(a_table(), parts, missing_nodes=0).rows == [3]


def test_a_shard_that_has_more_and_showed_nothing_hides_everything() -> None:
    merged = merge(a_table(), [found({}, exhausted=False), found({4: 9})], missing_nodes=0)
    assert (merged.rows, merged.exhausted) == ([], False)


def test_reasons_are_added_and_nodes_of_missing_shards_are_counted() -> None:
    parts = [found({}, total=4, CPU=3, TAINT=1), found({0: 1}, total=3, CPU=2)]
    merged = merge(a_table(), parts, missing_nodes=6)
    assert merged.counts == {NodeReason.CPU: 5, NodeReason.TAINT: 1, NodeReason.SHARD_MISSING: 6}
    assert (merged.total, merged.fit) == (13, 1)
    assert merge(a_table(), [], missing_nodes=2).counts == {NodeReason.SHARD_MISSING: 2}


def test_an_offer_comes_back_as_the_candidates_that_it_was_made_of() -> None:
    table = a_table()
    candidates = found({4: 7, 3: 7, 0: -2}, exhausted=False, CPU=3, TAINT=5)
    offer = offer_of(table, candidates)
    assert offer.runs == [(7, 2), (-2, 1)]
    assert offer.counts == [ReasonCount(NodeReason.TAINT, 5), ReasonCount(NodeReason.CPU, 3)]
    assert candidates_of(table, offer) == candidates


GOOD = ShapeOffer(pack_names(["a", "b"]), [(7, 2)], exhausted=True, total=2, fit=2)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"names": pack_names(["a", "x"])}, "names: 'x'"),
        ({"names": b"\x09\x01a"}, "names: name table is damaged"),
        ({"runs": [(7, 1)]}, "runs: cover 1 of 2 names"),
        ({"runs": [(7, 2), (6, 1)]}, "runs: cover 3 of 2 names"),
        ({"runs": [(7, 3), (6, -1)]}, "runs: cover 2 of 2 names"),
        ({"runs": [(1 << 31, 2)]}, "runs: a score has more than 32 bits"),
        ({"runs": [((1 << 64) - 1, 2)]}, "runs: a score has more than 32 bits"),
        ({"names": pack_names(["a"]) + b"\x01\x00" * 5}, "names: name table has more than 5 names"),
    ],
)
def test_an_offer_that_does_not_agree_with_itself_or_the_table_does_not_count(
    changes: dict[str, object], words: str
) -> None:
    with pytest.raises(DecodeError, match=words):
        candidates_of(a_table(), msgspec.structs.replace(GOOD, **changes))


def test_the_error_of_a_shard_is_no_longer_than_a_part_of_a_record_may_be() -> None:
    reported = candidates_of(a_table(), msgspec.structs.replace(GOOD, error="e" * 1_000_000))
    assert len(str(reported.error)) == 200


def two_domains() -> NodeTable:
    """Nodes a, b and c of one shard, and d of another."""
    table = NodeTable()
    for leaf, names in (("own", "abc"), ("other", "d")):
        table.apply_nodes(pack_nodes(f"leaf-{leaf}", [a_node(name, leaf=leaf) for name in names]))
    return table


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ""),
        ({"total": 3, "counts": {}, "rows": [0, 1, 2], "fit": 3, "scores": [7, 7, -2], "exhausted": False}, "counts"),
        ({"total": (1 << 64) - 1, "counts": {int(NodeReason.CPU): (1 << 64) - 3}}, "counts"),
        ({"total": 4, "counts": {int(NodeReason.CPU): 2}}, "counts"),
        ({"counts": {int(NodeReason.CPU): 2, int(NodeReason.TAINT): -1}}, "counts"),
        ({"counts": {999: 1}}, "counts: a reason"),
        ({"counts": {int(NodeReason.SHARD_MISSING): 1}}, "counts: a reason"),
        ({"exhausted": False}, "counts"),
        ({"rows": [], "scores": [], "fit": 0, "exhausted": False, "counts": {int(NodeReason.CPU): 3}}, "counts"),
        ({"rows": [0], "scores": [7]}, "counts"),
        ({"rows": [0, 0], "scores": [7, 7]}, "names: a node is there twice"),
        ({"rows": [0, 0], "scores": [7, 6]}, "names: a node is there twice"),
        ({"rows": [1, 0], "scores": [7, 7]}, "names: nodes are not in total order"),
        ({"rows": [0, 1], "scores": [6, 7]}, "names: nodes are not in total order"),
        ({"rows": [0, 3], "scores": [7, 7]}, "names: a node is of another shard"),
    ],
)
def test_candidates_that_a_shard_cannot_have_do_not_count(changes: dict[str, Any], words: str) -> None:
    table = two_domains()
    assert [table.row_of[name] for name in "abcd"] == [0, 1, 2, 3]
    possible = found({0: 7, 1: 7}, total=3, CPU=1)._replace(**changes)
    own = OwnRows(lambda domain: domain == "leaf-own")
    if not words:
        check_possible(table, possible, count=2, own=own)
        return
    with pytest.raises(DecodeError, match=words):
        check_possible(table, possible, count=2, own=own)
