"""What would help a job that waits: the events that are named, and the words for them."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.core.cluster.domains import shard_of
from berth.core.cluster.node_packing import pack_nodes, pack_switches
from berth.core.explain.evidence import Unblocking, Way, unblocking_lines
from berth.core.explain.unblocking import Waiting, end_of, reduced, unblocking
from berth.core.requests.gangs import gang_of
from berth.core.scheduling.turn import MissingShards
from berth.schemas.facts import JobSeen, NodeHealth
from berth.schemas.nodes import NodeCondition
from berth.schemas.refusal import Refusal
from tests.support.cells import a_job, a_node
from tests.support.core_cells import SUBJECTS, CoreCell, on
from tests.support.gang_lifecycle import Life
from tests.unit.core.explain.test_superpod_explanation import on as filling
from tests.unit.services.dispatcher.test_superpods import A3, in_blocks


def kinds(way: Way) -> list[tuple[str, str]]:
    return [(event.kind, event.job or event.node) for event in way.events]


def words(found: Unblocking) -> list[str]:
    return unblocking_lines(found, str)


def test_one_job_that_ends_is_named_with_what_it_holds_and_when() -> None:
    ground = CoreCell([a_node(name) for name in "abc"])
    ground.place(a_job("long", chips=8, replicas=2, run_ms=50_000), a_job("short", chips=4, run_ms=9_000))
    big = a_job("big", chips=8, replicas=2)
    found = ground.unblocking(big, ground.refuse(big))
    assert [kinds(way) for way in found.ways] == [[("job-ends", "default/long")]]
    assert words(found) == ["There is room when default/long ends (2 nodes, 16 chips, about 51000)."]


def test_of_several_jobs_only_those_that_are_needed_are_named() -> None:
    ground = CoreCell([a_node(name) for name in "abcd"])
    ground.place(*(a_job(f"on-{node}", chips=4, node_selector=on(node)) for node in "abcd"))
    big = a_job("big", chips=8, replicas=2)
    found = ground.unblocking(big, ground.refuse(big))
    assert kinds(found.ways[0]) == [("job-ends", "default/on-a"), ("job-ends", "default/on-b")]
    assert words(found)[0] == (
        "There is room when 2 things have happened: default/on-a ends (1 node, 4 chips); default/on-b ends (1 node, 4 chips)."
    )


def test_declared_ends_come_before_nearness() -> None:
    """The way by declared ends says when; the nearer nodes belong to jobs of which nobody knows how long they run."""
    ground = CoreCell([a_node(name) for name in "abcd"])
    ground.place(
        *(a_job(f"on-{node}", chips=4, node_selector=on(node)) for node in "ab"),
        *(a_job(f"on-{node}", chips=6, node_selector=on(node), run_ms=60_000) for node in "cd"),
    )
    big = a_job("big", chips=8, replicas=2)
    found = ground.unblocking(big, ground.refuse(big))
    assert [(way.at_ms, [event.job for event in way.events]) for way in found.ways[:2]] == [
        (61_000, ["default/on-c", "default/on-d"]),
        (0, ["default/on-a", "default/on-b"]),
    ]


@pytest.mark.parametrize(
    ("ill", "condition", "wrong"),
    [
        ({"cordoned": True}, None, "cordoned"),
        ({"ready": False}, None, "not ready"),
        ({}, NodeCondition("b", unhealthy=1), "unhealthy"),
        ({}, NodeCondition("b", level=NodeHealth.EVICT), "unhealthy"),
    ],
)
def test_a_node_that_becomes_well_is_named_with_what_is_wrong(
    ill: dict[str, Any], condition: NodeCondition | None, wrong: str
) -> None:
    ground = CoreCell([a_node("a"), a_node("b", **ill)])
    if condition is not None:
        ground.conditions["b"] = condition
        ground.publish()
    big = a_job("big", chips=8, replicas=2)
    found = ground.unblocking(big, ground.refuse(big))
    assert [kinds(way) for way in found.ways] == [[("node-well", "b")]]
    assert words(found) == [
        f"There is room when node b is available again (now {wrong}).",
        "No set of running jobs ending makes room.",
    ]


def test_a_job_larger_than_the_cluster_waits_for_nodes() -> None:
    ground = CoreCell([a_node("a"), a_node("b")])
    ground.place(a_job("small", chips=1))
    big = a_job("big", chips=8, replicas=5)
    found = ground.unblocking(big, ground.refuse(big))
    assert not found.ends_help
    assert [(event.kind, event.nodes) for event in found.ways[0].events] == [("nodes-come", 4)]
    assert words(found)[0] == "There is room when 4 more nodes like those of module910bx8 are added."


def test_what_no_event_can_cure_is_said() -> None:
    ground = CoreCell([a_node("a")])
    lost = a_job("lost", chips=1, node_selector={"accelerator-type": "module-910b-8", "zone": "nowhere"})
    found = ground.unblocking(lost, ground.refuse(lost))
    assert (found.ways, words(found)) == ([], ["No set of running jobs ending makes room."])


def test_a_job_behind_another_waits_for_that_one() -> None:
    ground = CoreCell([a_node("a"), a_node("b")])
    ground.place(a_job("one", chips=8), a_job("other", chips=4))
    first, second = a_job("first", chips=8), a_job("second", chips=4)
    ground.refuse(first)
    ground.ask(second)
    refusal = Refusal(code="behind", ahead="default/first")
    found = ground.unblocking(second, refusal)
    assert [kinds(way) for way in found.ways] == [[("job-placed", "default/first"), ("job-ends", "default/one")]]
    assert "default/first, which is ahead of it, is placed" in words(found)[0]


def test_in_strict_order_it_is_placed_with_the_job_ahead() -> None:
    ground = CoreCell([a_node(name) for name in "abc"], queue_policy="fifo")
    ground.place(a_job("one", chips=8, replicas=2, run_ms=60_000), a_job("other", chips=4, run_ms=30_000))
    first, second = a_job("first", chips=8, replicas=2), a_job("second", chips=4)
    ground.refuse(first)
    refusal = ground.refuse(second)
    assert refusal.code == "behind"
    found = ground.unblocking(second, refusal)
    assert kinds(found.ways[0]) == [("job-placed", "default/first"), ("job-ends", "default/one")]
    ground.happen(found.ways[0].events[1])
    placed = [verdict.name for verdict in ground.decide() if verdict.placement is not None]
    assert placed == ["first", "second"]


@pytest.mark.parametrize(("policy", "code"), [("fifo", "behind"), ("easy", "reserved"), ("conservative", "reserved")])
def test_where_both_have_no_room_at_once_it_waits_for_the_other_to_be_over(policy: str, code: str) -> None:
    ground = CoreCell([a_node("a"), a_node("b")], queue_policy=policy, reserve_chips=1)
    ground.place(a_job("one", chips=8, run_ms=60_000), a_job("other", chips=4, run_ms=30_000))
    first, second = a_job("first", chips=8, replicas=2, run_ms=60_000), a_job("second", chips=4, run_ms=600_000)
    ground.refuse(first)
    refusal = ground.refuse(second)
    assert (refusal.code, refusal.ahead) == (code, "default/first")
    found = ground.unblocking(second, refusal)
    assert words(found) == [
        "There is room when default/first, which is ahead of it, has ended or is cancelled.",
        "There is room when 2 things have happened: default/first, which is ahead of it, is placed; 2 more nodes like those of"
        " module910bx8 are added.",
    ]
    ground.take_back("first")
    assert [verdict.name for verdict in ground.decide() if verdict.placement is not None] == ["second"]


def test_scorers_that_answer_again_are_named() -> None:
    nodes = [a_node(f"n{number}", leaf=f"leaf-{number % 4}") for number in range(8)]
    ground = CoreCell([])
    for leaf in range(4):
        below = [node for node in nodes if node.leaf == f"leaf-{leaf}"]
        ground.fact(SUBJECTS.fact_node(f"leaf-{leaf}"), pack_nodes(f"leaf-{leaf}", below))
    job = a_job("job", chips=8, replicas=7)
    ground.ask(job)
    opening = ground.scheduler.open(ground.now_ms).opening
    assert opening is not None
    missing_shards = MissingShards(shards=2, missing=[shard_of("leaf-0", 2)])
    (verdict,) = ground.scheduler.decide(opening, missing_shards).round.verdicts
    assert verdict.refusal is not None
    gang = gang_of(ground.state.jobs["default", "job"], job, attempt=1, settings=ground.state.fold.settings)
    found = unblocking(ground.state, Waiting(gang, verdict.refusal, missing_shards=missing_shards))
    assert words(found)[0] == f"There is room when scorer {missing_shards.missing[0]} answers."


def test_a_gang_in_blocks_waits_for_jobs_of_its_superpods() -> None:
    ground = CoreCell([a_node(f"n{number}", A3, superpod=str(number // 4)) for number in range(8)], super_pod_size=4)
    ground.place(*map(filling, ("n1", "n2", "n5")))
    big = in_blocks("big", 4, 4)
    refusal = ground.refuse(big)
    assert refusal.code == "no-blocks"
    found = ground.unblocking(big, refusal)
    assert kinds(found.ways[0]) == [("job-ends", "default/on-n5")]
    ground.happen(found.ways[0].events[0])
    assert [verdict.name for verdict in ground.decide() if verdict.placement is not None] == ["big"]


def test_without_a_topology_its_coming_is_the_event() -> None:
    ground = CoreCell([a_node("a")])
    job = a_job("job", chips=8, replicas=2, labels={"tor-affinity": "large-model-schema"})
    refusal = ground.refuse(job)
    assert refusal.code == "no-topology"
    assert words(ground.unblocking(job, refusal)) == ["It can be planned when the leaf switches are known."]


def test_a_gang_below_one_leaf_waits_for_jobs_of_that_leaf() -> None:
    nodes = [a_node(f"n{number}", leaf=f"leaf-{number // 4}", position=number % 4) for number in range(8)]
    ground = CoreCell(nodes)
    ground.fact(SUBJECTS.fact_topology("switch"), pack_switches(nodes))
    ground.place(
        *(a_job(f"on-{node}", chips=8, node_selector=on(node)) for node in ("n0", "n1", "n2", "n4", "n5")),
    )
    big = a_job("big", chips=8, replicas=4, labels={"tor-affinity": "large-model-schema"})
    found = ground.unblocking(big, ground.refuse(big))
    assert found.ways
    for event in found.ways[0].events:
        ground.happen(event)
    assert "big" in [verdict.name for verdict in ground.decide() if verdict.placement]


def test_the_search_is_broken_off_and_says_so() -> None:
    ground = CoreCell([a_node(f"n{number:02d}") for number in range(40)])
    ground.place(*(a_job(f"on-{number}", chips=4, node_selector=on(f"n{number:02d}")) for number in range(40)))
    big = a_job("big", chips=8, replicas=30)
    refusal = ground.refuse(big)
    job = ground.state.jobs["default", "big"]
    gang = gang_of(job, big, attempt=1, settings=ground.state.fold.settings)
    found = unblocking(ground.state, Waiting(gang, refusal), plans_max=5)
    assert not found.is_whole
    assert found.ends_help, "it was not found out"


def test_where_very_many_jobs_would_have_to_end_none_is_named() -> None:
    ground = CoreCell([a_node(f"n{number:02d}") for number in range(80)])
    ground.place(*(a_job(f"on-{number}", chips=4, node_selector=on(f"n{number:02d}")) for number in range(80)))
    big = a_job("big", chips=8, replicas=70)
    found = ground.unblocking(big, ground.refuse(big))
    assert found.is_whole
    assert words(found) == [
        "There is room when 70 more nodes like those of module910bx8 are added.",
        "The ends of the 64 running jobs most likely to help are not enough.",
    ]


@given(st.sets(st.integers(0, 30), min_size=1), st.integers(1, 31))
def test_reducing_keeps_what_is_needed(needed: set[int], size: int) -> None:
    items = list(range(31))[: max(size, max(needed) + 1)]
    fits: Callable[[Sequence[int]], bool] = lambda kept: needed <= set(kept)  # noqa: E731  # a typed predicate
    assert reduced(items, fits) == sorted(needed)


@pytest.mark.parametrize(("uid", "end_ms"), [("uid-j", 1_050), ("uid-other", 0)])
def test_the_run_time_that_another_job_of_the_name_declares_is_none_of_this_one(uid: str, end_ms: int) -> None:
    life = Life()
    request = a_job("j", run_ms=1_000)
    life.fact(JobSeen("default", "j", uid, "accepted", 2, 1, request=request, after_seq=1), "job.default.j")
    assert end_of(life.state, life.state.fold.holdings["uid-j", 1]) == end_ms
