"""Pods without chips: the score of nodes for them, and the nodes near their gang."""

import msgspec
import pytest

from berth.core.cluster.domains import domains, shard_of
from berth.core.cluster.node_packing import pack_nodes
from berth.core.gangs import Gang
from berth.core.scheduling.turn import MissingShards
from berth.products.catalogue import NODE_PRODUCTS
from berth.schemas.columns import pack, pack_names
from berth.schemas.facts import JobSeen, PodPhase, PodsSeen
from berth.schemas.intake import JobRequest, Task
from berth.schemas.nodes import NodeDescription
from berth.schemas.offers import Shape
from berth.schemas.refusal import NodeReason
from tests.support.cells import a_job, a_node
from tests.unit.core.placement.test_chooser import nodes_by_job, on
from tests.unit.core.scheduling.test_scheduler import Seat, restarted


def bare(name: str, **changes: object) -> NodeDescription:
    """A node without chips, with the labels of nodes with them."""
    return msgspec.structs.replace(a_node(name), chips=0, allocatable=0, resource="", product="", **changes)


def seat_of(*nodes: NodeDescription, **settings: object) -> Seat:
    seat = Seat(**settings)
    by_name = {node.name: node for node in nodes}
    for domain, names in domains(nodes).items():
        seat.fact(f"node.{domain}", pack_nodes(domain, [by_name[name] for name in names], at_ms=1))
    return seat


def mixed(
    name: str, *, cpu: int = 1_000, masters: int = 1, workers: int = 1, chips: int = 8, **changes: object
) -> JobRequest:
    tasks = [Task("master", masters, 0, cpu), Task("worker", workers, chips)]
    return a_job(name, tasks=tasks, **changes)  # type: ignore[arg-type]  # fields of a request


def gang_from(seat: Seat, request: JobRequest) -> Gang:
    seen = JobSeen("default", request.name, request.uid, "accepted", 1, 1, 1, request)
    return seat.scheduler.gang(seen, request, 1)


def scores(seat: Seat, shape: Shape) -> dict[str, int]:
    """Scores of the nodes that fit; scored at once and one by one alike."""
    scorer, table = seat.scheduler.scorer, seat.state.table
    reasons, found = scorer.evaluate(shape)
    for name, row in table.row_of.items():
        assert scorer.evaluate_one(shape, row, scorer.row_state(row)) == (reasons[row], found[row]), name
    return {name: int(found[row]) for name, row in table.row_of.items() if reasons[row] == NodeReason.FITS}


def plain(seat: Seat, *, cpu: int = 0, memory: int = 0) -> Shape:
    request = a_job("p", tasks=[Task("p", 1, 0, cpu, memory)])
    return gang_from(seat, request).request_class[0][0]


def test_the_score_is_which_part_of_cpu_and_memory_stays_free() -> None:
    nodes = [
        bare("a", cpu_milli=10_000, memory_mib=10_000),
        bare("b", cpu_milli=2_000, memory_mib=40_000),
        bare("none", cpu_milli=0, memory_mib=0),
    ]
    seat = seat_of(*nodes)
    assert scores(seat, plain(seat, cpu=1_000, memory=1_000)) == {
        "a": (9_000 + 9_000) // 2,
        "b": (5_000 + 9_750) // 2,
    }
    # A pod that requests nothing counts 100 m and 200 MiB.
    assert scores(seat, plain(seat)) == {"a": (9_900 + 9_800) // 2, "b": (9_500 + 9_950) // 2, "none": 0}


def test_what_pods_of_others_use_counts_as_allocated() -> None:
    nodes = [
        bare("a", cpu_milli=4_000, memory_mib=10_000, cpu_others=60_000, memory_others=30_000),
        bare("b", cpu_milli=10_000, memory_mib=10_000),
    ]
    seat = seat_of(*nodes)
    found = scores(seat, plain(seat, cpu=1_000, memory=2_000))
    assert found == {"a": (3_000 * 10_000 // 64_000 + 2_000) // 2, "b": (9_000 + 8_000) // 2}
    other = restarted(seat)
    assert scores(other, plain(other, cpu=1_000, memory=2_000)) == found


def test_pods_that_request_nothing_spread_also_over_rounds_and_leave_when_they_end() -> None:
    seat = seat_of(*(bare(name) for name in "ab"))
    for number in range(3):
        seat.job(a_job(f"j{number}", chips=0, node_selector={}))
        seat.round()
    assert nodes_by_job(seat) == {"j0": ["a"], "j1": ["b"], "j2": ["a"]}
    seat.ended("j0")
    seat.ended("j2")
    seat.round()
    assert [int(seat.state.table.no_cpu[row]) for row in range(2)] == [0, 1]
    seat.job(a_job("j3", chips=0, node_selector={}, tasks=[Task("p", 3, 0)]))
    seat.round()
    assert nodes_by_job(seat)["j3"] == ["a", "a", "b"]


def test_a_rank_that_ended_counts_no_more_and_not_twice() -> None:
    seat = seat_of(bare("a"))
    seat.job(a_job("j", tasks=[Task("p", 2, 0)]))
    seat.round()
    table = seat.state.table
    assert (table.no_cpu[0], table.no_memory[0]) == (2, 2)
    for phases, left in (((PodPhase.RUNNING, PodPhase.SUCCEEDED), 1), ((PodPhase.SUCCEEDED,) * 2, 0)):
        fact = PodsSeen(
            "default", "j", "uid-j", 1, pack([0, 1], 4), pack_names(["a"]), pack([0, 0], 4), pack(phases, 1), bytes(16)
        )
        seat.fact("pod.default.j", fact)
        seat.round()
        assert (table.no_cpu[0], table.no_memory[0]) == (left, left)
        other = restarted(seat).state.table
        assert (other.no_cpu[0], other.no_memory[0]) == (left, left)


@pytest.mark.parametrize("leaf", ["", "1"])
def test_pods_without_chips_are_on_nodes_of_their_gang_before_others(leaf: str) -> None:
    # The node with chips has the least free, and comes last by name.
    seat = seat_of(a_node("z", cpu_milli=20_000, leaf=leaf), *(bare(name, leaf=leaf) for name in "ab"))
    seat.job(mixed("j", cpu=8_000, masters=3))
    seat.round()
    assert nodes_by_job(seat)["j"] == ["z", "z", "a", "z"]


@pytest.mark.parametrize("place", ["superpod", "leaf"])
def test_then_in_the_superpod_or_below_the_leaf_of_their_gang(place: str) -> None:
    seat = seat_of(
        a_node("z", cpu_milli=500, **{place: "1"}),
        bare("m", cpu_milli=3_000, **{place: "1"}),
        bare("n", cpu_milli=2_500, **{place: "1"}),
        bare("a", **{place: "2"}),
    )
    seat.job(mixed("j", masters=5))
    seat.round()
    assert nodes_by_job(seat)["j"] == ["m", "n", "m", "n", "m", "z"]
    seat.job(mixed("k", masters=1, node_selector={}))
    assert seat.round() is not None
    assert "k" not in nodes_by_job(seat)


def test_nodes_of_a_bucket_are_not_near_one_another() -> None:
    seat = seat_of(a_node("z", cpu_milli=500), bare("m", cpu_milli=3_000), bare("y", leaf="1"))
    seat.job(mixed("j"))
    seat.round()
    assert nodes_by_job(seat)["j"] == ["y", "z"]  # m has less free, and is as near as any other


def test_under_parity_no_node_is_preferred_for_being_near() -> None:
    product = "module910a3x16"
    seat = seat_of(
        a_node("z", product, cpu_milli=20_000),
        bare("a", labels=dict(NODE_PRODUCTS[product].labels)),
        reference_parity=True,
    )
    annotations = {"huawei.com/skip-ascend-plugin": "enabled"} | a_job("j", product=product).annotations
    seat.job(mixed("j", chips=16, product=product, annotations=annotations))
    seat.round()
    assert nodes_by_job(seat)["j"] == ["a", "z"]


def test_pods_with_chips_choose_first_so_that_the_others_do_not_change_their_choice() -> None:
    seat = seat_of(a_node("a", cpu_milli=9_000), a_node("b", cpu_milli=9_000))
    tasks = [Task("ps", 2, 0, 5_000), Task("worker", 2, 8, 4_000)]
    seat.job(a_job("j", tasks=tasks))
    seat.round()
    assert nodes_by_job(seat)["j"] == ["a", "b", "a", "b"]


def test_a_gang_whose_master_finds_no_room_takes_nothing() -> None:
    seat = seat_of(a_node("a", cpu_milli=1_000))
    seat.job(mixed("j", cpu=2_000))
    seat.job(a_job("other", chips=8))
    record = seat.round()
    assert record is not None
    assert nodes_by_job(seat) == {"other": ["a"]}
    refusal = record.verdicts[0].refusal
    assert refusal is not None
    assert (refusal.task, refusal.pods_have, refusal.pods_need, refusal.chips) == ("master", 1, 2, 0)


def test_a_gang_of_a_round_leaves_the_next_one_what_its_master_does_not_use() -> None:
    seat = seat_of(a_node("a", cpu_milli=6_000), a_node("b", cpu_milli=6_000))
    seat.job(on("a", "one", tasks=[Task("master", 1, 0, 4_000), Task("worker", 1, 4)]))
    seat.job(on("a", "two", tasks=[Task("master", 1, 0, 4_000), Task("worker", 1, 4)]))
    seat.job(a_job("three", tasks=[Task("master", 1, 0, 4_000), Task("worker", 1, 4)]))
    seat.round()
    assert nodes_by_job(seat) == {"one": ["a", "a"], "three": ["b", "a"]}


def late(name: str = "late", *, beside: str = "j", cpu: int = 1_000) -> JobRequest:
    annotations = {"berth/gang-pods": "1", "berth/beside": beside}
    return a_job(name, tasks=[Task("master", 1, 0, cpu)], annotations=annotations)


def test_a_part_without_chips_that_comes_later_is_near_the_rest_of_its_gang() -> None:
    nodes = [a_node("z", cpu_milli=20_000, leaf="1"), bare("y", cpu_milli=20_000, leaf="1"), bare("a")]
    seat = seat_of(*nodes)
    seat.job(a_job("j", chips=8))
    seat.round()
    for name, cpu, node in (("one", 15_000, "z"), ("two", 15_000, "y"), ("three", 15_000, "a")):
        seat.job(late(name, cpu=cpu))
        seat.round()
        assert nodes_by_job(seat)[name] == [node]
    seat.job(late("stranger", beside="nobody"))
    seat.job(late("other"))
    seat.round()
    assert (nodes_by_job(seat)["stranger"], nodes_by_job(seat)["other"]) == (["a"], ["z"])


def test_while_a_shard_is_missing_no_node_is_near_a_part_that_comes_later() -> None:
    seat = seat_of(a_node("z", leaf="1"), bare("a", leaf="2"))
    seat.job(a_job("j", chips=8))
    seat.round()
    shards = next(count for count in range(2, 20) if shard_of("leaf-1", count) != shard_of("leaf-2", count))
    seat.job(late())
    seat.round(MissingShards(shards, [shard_of("leaf-1", shards)]))
    assert nodes_by_job(seat)["late"] == ["a"]


def test_a_node_counts_more_pods_that_request_nothing_than_a_short_holds() -> None:
    seat = seat_of(bare("a"))
    seat.job(a_job("j", tasks=[Task("p", 40_000, 0)]))
    seat.round()
    table = seat.state.table
    assert (table.no_cpu[0], table.no_memory[0]) == (40_000, 40_000)
