"""A placement given rank by rank comes back rank by rank; a damaged one is refused before anybody reads it."""

import re

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from berth.core.state.ledger import pods_of
from berth.core.topologies.blocks.placed import BlockPlacement
from berth.core.topologies.switches.placed import SwitchPlacement
from berth.schemas.columns import pack, pack_names, unpack_names
from berth.schemas.envelope import DecodeError, decode, encode
from berth.schemas.ledger import Adoption, Round, Verdict
from berth.schemas.placement import Groups, Placement, Run, Share, placement_of
from tests.support.placed_parts import groups_of

NAMES = st.from_regex(r"\Anode-[0-9]{1,2}\Z")
names_tables = st.lists(NAMES, max_size=4).map(pack_names)


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


@given(
    st.binary(max_size=24) | names_tables,
    st.binary(max_size=24) | st.lists(st.integers(0, 2), max_size=4).map(lambda column: pack(column, 4)),
    st.binary(max_size=24) | st.binary(max_size=4).map(lambda chips: bytes(chip % 4 for chip in chips)),
    st.lists(st.builds(Run, st.integers(-1, 3) | st.just(1 << 62), st.integers(-1, 3), st.integers(-1, 1)), max_size=4),
)
def test_a_placement_is_refused_or_can_be_read_to_its_end(
    nodes: bytes, node_index: bytes, chips: bytes, runs: list[Run]
) -> None:
    try:
        placement = Placement(nodes=nodes, node_index=node_index, runs=runs, chips=chips)
    except ValueError:
        return
    assert len(placement.names()) == len(placement.chips_by_rank()) == placement.pods() == len(pods_of(placement))
    assert all(0 <= pod.mask < 1 << 64 and pod.mask.bit_count() == len(pod.chips) for pod in pods_of(placement))


SOUND = placement_of(
    ["a", "b", "a"],
    [(0, 1), (2, 3), ()],
    [Run(2, 2), Run(1, 0)],
    resource="r",
    groups=groups_of(
        SwitchPlacement("normal-schema", 2, leaves=["l"], leaf_index=pack([1, 1, 0], 2), states=bytes(3)),
        BlockPlacement(
            "a3", 1, [0], ["fits"], ["s"], block_index=pack([1, 0, 0], 2), superpod_index=pack([1, 0, 0], 2)
        ),
    ),
)
SHARED = placement_of(["a"], [(15,)], [Run(1, 1)], resource="r", share=Share(20, 1024, "elastic"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"nodes": b"\x00"}, "name table is cut off"),
        ({"nodes": pack_names(["a"])}, "node_index: 1 is outside its table of 1 names"),
        ({"nodes": b"\x00\x01\xff\x00\x01b"}, "entry 0 is not UTF-8"),
        ({"node_index": pack([0, 1], 4)}, "node_index: 2 ranks, the runs have 3"),
        ({"node_index": pack([0, 1, 0, 0], 4)}, "node_index: 4 ranks, the runs have 3"),
        ({"node_index": pack([0, 1, 0], 4)[:-1]}, "node_index: 11 bytes are no whole number of ranks"),
        ({"chips": b"\x00\x01\x02"}, "chips: 3 are held, the runs ask for 4"),
        ({"chips": b"\x00\x01\x02\x40"}, "chips: 64 is more than 63"),
        ({"chips": b"\x00\x01\x02\x02"}, "chips: [2, 2] of one pod, each may be there once"),
        ({"runs": [Run(-1, 2), Run(4, 1)]}, "runs[0]: expected numbers from 0, and at most 64 chips a pod"),
        ({"runs": [Run(2, -2), Run(1, 8)]}, "runs[0]: expected numbers"),
        ({"runs": [Run(1 << 62, 0), Run(1, 4)]}, f"node_index: 3 ranks, the runs have {(1 << 62) + 1}"),
        ({"runs": [Run(2, 2, -1), Run(1, 0)]}, "runs[0]: expected numbers"),
        ({"runs": [Run(2, 2), Run(1, 0, 0, -1)]}, "runs[1]: expected numbers"),
        ({"share": Share(20, 1024, "strange")}, "share: 20 percent, 1024 MiB, policy 'strange': expected"),
        ({"share": Share(101, 1024, "elastic")}, "share: 101 percent"),
        ({"share": Share(-1, 1024, "elastic")}, "share: -1 percent"),
        ({"share": Share(20, -1, "elastic")}, "share: 20 percent, -1 MiB"),
        ({"groups": [Groups("t", states=bytes(2))]}, "groups[0].states: 2 bytes, 3 ranks need 3 or none"),
        ({"groups": [Groups("t", name_index=bytes(4))]}, "groups[0].name_index: 4 bytes, 3 ranks need 6 or none"),
        ({"groups": [Groups("t", name_index=pack([1, 0, 0], 2))]}, "groups[0].name_index: 1 is outside its table"),
        ({"groups": [Groups("t", part_index=pack([1, 0, 0], 2))]}, "groups[0].part_index: 1 is outside its table"),
        ({"groups": [Groups("t", parts=[0], rules=[""], part_index=bytes(6))]}, "name_index: 0 bytes, part_index has 6"),
        ({"groups": [Groups("t", parts=[0])]}, "groups[0].rules: 0 for 1 parts"),
        ({"groups": [Groups("t"), Groups("u"), Groups("t")]}, "groups[2].topology: 't' is there twice"),
    ],
)  # fmt: skip
def test_each_damage_of_a_placement_is_told_with_its_column(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        msgspec.structs.replace(SOUND, **changes)


def test_a_shared_chip_is_one_that_can_be_shared() -> None:
    with pytest.raises(ValueError, match="chips: 16 is more than 15"):
        msgspec.structs.replace(SHARED, chips=bytes([16]))


def is_sound(column: int, damage: bytes) -> bool:
    """Whether a placement can have these bytes in a column: it may come out as another sound one."""
    field = msgspec.structs.fields(SOUND)[column].name
    if column == 2 and not damage:
        return False  # no list
    value = [Run(damage[0], damage[-1])] if column == 2 else damage
    try:
        msgspec.structs.replace(SOUND, **{field: value})
    except ValueError:
        return False
    return True


@example(column=3, damage=b"\0\1\1\0")
@given(column=st.integers(0, 3), damage=st.binary(max_size=12))
def test_a_message_with_a_damaged_placement_does_not_decode(column: int, damage: bytes) -> None:
    record = Round(
        1, 0, 0, 0, 1, verdicts=[Verdict("a", "b", "c", 1, SOUND)], adoptions=[Adoption("a", "b", "c", SOUND)]
    )
    tree = msgspec.msgpack.decode(msgspec.msgpack.encode(record))
    for part in (tree[5][0][4], tree[8][0][3]):
        was = part[column]
        part[column] = [[damage[0], damage[-1]]] if damage and column == 2 else damage
        data = msgspec.msgpack.encode((Round.KIND, Round.VERSION, tree))
        if is_sound(column, damage):  # such as the same chips in another order
            decode(data, Round)
        else:
            with pytest.raises(DecodeError, match=r" - at `\$\["):
                decode(data, Round)
        part[column] = was
    assert decode(msgspec.msgpack.encode((Round.KIND, Round.VERSION, tree)), Round) == record


def test_runs_that_do_not_add_up_are_a_value_error() -> None:
    with pytest.raises(ValueError, match="runs"):
        placement_of(["node-1"], [(0,)], [Run(pods=2, chips=1)], resource="npu")
