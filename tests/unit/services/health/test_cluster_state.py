import msgspec
import pytest

from berth.core.cluster.node_packing import pack_nodes
from berth.schemas.columns import pack, pack_names
from berth.schemas.facts import PodPhase, PodsSeen
from berth.schemas.nodes import NodeDescription
from berth.services.health.cluster_state import ClusterState


def node(name: str, allocatable: int = 8) -> NodeDescription:
    return NodeDescription(name=name, chips=0xFF, allocatable=allocatable)


def pods(*rows: tuple[str, PodPhase, int]) -> PodsSeen:
    names = sorted({row[0] for row in rows})
    return PodsSeen(
        namespace="ns",
        gang="g",
        uid="u",
        attempt=1,
        rank=pack(range(len(rows)), 4),
        nodes=pack_names(names),
        node_index=pack([names.index(row[0]) for row in rows], 4),
        phase=pack([row[1] for row in rows], 1),
        chips=pack([row[2] for row in rows], 8),
    )


def test_nodes_come_leave_and_move() -> None:
    ground = ClusterState()
    assert ground.apply_nodes(pack_nodes("one", [node("a"), node("b")])) == ["one"]
    assert ground.apply_nodes(pack_nodes("two", [node("b")])) == ["one", "two"]
    assert ground.domains == {"one": {"a"}, "two": {"b"}}
    assert ground.domain_of == {"a": "one", "b": "two"}
    assert ground.apply_nodes(pack_nodes("one", [])) == ["one"]
    assert ground.domains == {"two": {"b"}}
    assert sorted(ground.nodes) == ["b"]
    assert ground.apply_nodes(pack_nodes("three", [])) == ["three"]


def test_idle_is_what_is_allocatable_less_what_live_pods_hold() -> None:
    ground = ClusterState()
    ground.apply_nodes(pack_nodes("one", [node("a"), node("b", 7)]))
    fact = pods(("a", PodPhase.RUNNING, 0b11), ("a", PodPhase.TERMINATING, 0b100), ("b", PodPhase.SUCCEEDED, 1))
    assert ground.apply_pods("s1", fact) == ["a"]
    assert ground.apply_pods("s2", pods(("a", PodPhase.PENDING, 0b1000))) == ["a"]
    assert (ground.held("a"), ground.idle("a"), ground.idle("b"), ground.idle("c")) == (0b1111, 4, 7, 0)
    assert ground.apply_pods("s1", fact) == []
    assert ground.apply_pods("s1", pods(("b", PodPhase.RUNNING, 1))) == ["a", "b"]
    assert (ground.idle("a"), ground.idle("b")) == (7, 6)
    assert ground.apply_pods("s1", pods()) == ["b"]
    assert ground.apply_pods("s2", pods()) == ["a"]
    assert (ground.held("a"), ground.held("b")) == (0, 0)
    ground.apply_nodes(pack_nodes("one", [msgspec.structs.replace(node("a"), chips_others=3)]))
    assert ground.idle("a") == 5, "without those of pods whose chips nobody has named"


def test_a_fact_whose_columns_do_not_belong_together_changes_nothing() -> None:
    ground = ClusterState()
    ground.apply_pods("s", pods(("a", PodPhase.RUNNING, 1)))
    broken = PodsSeen(
        "ns", "g", "u", 1, nodes=pack_names(["a"]), node_index=pack([3], 4), phase=b"\1", chips=pack([1], 8)
    )
    with pytest.raises(IndexError):
        ground.apply_pods("s", broken)
    assert ground.held("a") == 1
