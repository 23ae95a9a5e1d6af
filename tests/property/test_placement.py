"""A placement given rank by rank comes back rank by rank."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.columns import unpack_names
from schemas.envelope import decode, encode
from schemas.ledger import Round, Verdict
from schemas.placement import Placement, Run, placement_of

NAMES = st.from_regex(r"\Anode-[0-9]{1,2}\Z")


@st.composite
def gangs(draw: st.DrawFn) -> tuple[list[str], list[tuple[int, ...]], list[Run]]:
    """Node and chips of each rank, and the runs of equal pods."""
    runs = draw(
        st.lists(st.builds(Run, pods=st.integers(0, 4), chips=st.sampled_from([0, 1, 2, 4, 8, 16])), max_size=4)
    )
    names, chips = [], []
    for run in runs:
        for _ in range(run.pods):
            names.append(draw(NAMES))
            chips.append(tuple(draw(st.permutations(range(64)))[: run.chips]))
    return names, chips, runs


@given(gangs())
def test_nodes_and_chips_of_each_rank_come_back(gang: tuple[list[str], list[tuple[int, ...]], list[Run]]) -> None:
    names, chips, runs = gang
    placement = placement_of(names, chips, runs, resource="npu")
    assert placement.names() == names
    assert placement.chips_by_rank() == chips
    assert placement.pods() == len(names)
    table = unpack_names(placement.nodes)
    assert table == sorted(set(names))


@given(gangs())
def test_a_placement_comes_back_from_a_ledger_record(gang: tuple[list[str], list[tuple[int, ...]], list[Run]]) -> None:
    placement = placement_of(*gang, resource="npu")
    verdict = Verdict(namespace="a", name="b", uid="c", attempt=1, placement=placement)
    record = Round(epoch=1, base_seq=0, facts_seq=0, at_ms=0, number=1, verdicts=[verdict])
    assert decode(encode(record), Round) == record


@given(st.binary(max_size=24), st.binary(max_size=24), st.binary(max_size=24), st.lists(st.integers(0, 3), max_size=4))
def test_a_damaged_placement_is_a_value_error(nodes: bytes, node_index: bytes, chips: bytes, counts: list[int]) -> None:
    runs = [Run(pods=count, chips=count) for count in counts]
    placement = Placement(nodes=nodes, node_index=node_index, runs=runs, chips=chips)
    for read in (placement.names, placement.chips_by_rank):
        try:
            ranks = read()
        except ValueError:
            continue
        assert len(ranks) in {placement.pods(), sum(counts)}


def test_runs_that_do_not_add_up_are_a_value_error() -> None:
    with pytest.raises(ValueError, match="runs"):
        placement_of(["node-1"], [(0,)], [Run(pods=2, chips=1)], resource="npu")
