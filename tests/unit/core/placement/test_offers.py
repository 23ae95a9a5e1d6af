"""Merging of shards' offers."""

import msgspec
import pytest

from berth.core.cluster.node_table import NodeTable
from berth.core.placement.offers import candidates_of, merge, offer_of
from berth.core.placement.scoring import Candidates
from berth.schemas.columns import pack_names
from berth.schemas.envelope import DecodeError
from berth.schemas.offers import ShapeOffer
from berth.schemas.refusal import NodeReason, ReasonCount


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
    ],
)
def test_an_offer_that_does_not_agree_with_itself_or_the_table_does_not_count(
    changes: dict[str, object], words: str
) -> None:
    with pytest.raises(DecodeError, match=words):
        candidates_of(a_table(), msgspec.structs.replace(GOOD, **changes))
