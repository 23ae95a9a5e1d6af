"""Explanations of jobs with SuperPoD affinity: what gave each block its nodes, and which SuperPoDs come closest.

Longer than 400 lines because each variant has its own stories, and all share the few words in which they are told.
"""

import msgspec
import numpy as np
import pytest

from berth.core.explain.explainer import explain, explain_now
from berth.core.explain.model import Explanation, sentences
from berth.core.requests.gangs import gang_of
from berth.core.topologies.layouts import SuperpodUser
from berth.core.topologies.planning import Ground, Lack
from berth.core.topologies.registry import begun, lack_words
from berth.runtime.history import state_at, verdict_on
from berth.schemas.columns import pack, pack_names
from berth.schemas.envelope import encode
from berth.schemas.facts import NodeHealth, PodPhase, PodsSeen
from berth.schemas.intake import JobRequest, Task
from berth.schemas.nodes import NodeCondition
from berth.schemas.refusal import Refusal
from tests.support.cells import Cell, a_job, a_node
from tests.support.placed_parts import the_block
from tests.unit.core.explain.test_explainer import told
from tests.unit.services.dispatcher.test_superpods import A3, a_cell, in_blocks, nodes_of

RACKS = "superpod950x8"
LEVELS = '{"t": {"level1": {"label": "rack", "reservedNode": 0}, "level2": {"label": "row"}}}'


def lines(found: Explanation) -> list[str]:
    return sentences(found)[1:]  # the first tells the product form


def on(node: str) -> JobRequest:
    """A job without SuperPoD affinity that fills a node."""
    annotations = {"huawei.com/schedule_policy": "chip2-node16"}
    selector = {"kubernetes.io/hostname": node}
    return a_job(f"on-{node}", product=A3, chips=16, annotations=annotations, node_selector=selector)


async def racked() -> Cell:
    nodes = [
        a_node(f"p{pod}-n{index:02}", RACKS, superpod=str(pod), rack=str(index // 8))
        for pod in range(2)
        for index in range(16)
    ]
    return await a_cell(nodes)


def in_racks(replicas: int, block: int, part: int, *, service: str = "", memory: bool = False) -> JobRequest:
    annotations = {
        "huawei.com/schedule_policy": "chip8-node8-ra64-sp",
        "sp-block": str(8 * block),
        "ra-block": str(8 * part),
        "huawei.com/schedule_ubmemory": "true" if memory else "false",
    }
    labels = {"inferserviceid": service} if service else {}
    return a_job("job", product=RACKS, chips=8, replicas=replicas, annotations=annotations, labels=labels)


async def test_blocks_are_told_with_superpod_ranks_and_the_queue_that_gave_them() -> None:
    cell = await a_cell([])
    await cell.submit(in_blocks("one", 8, 4), in_blocks("two", 8, 4))
    await cell.turns(2)
    await cell.nodes(nodes_of({"0": 4, "1": 6, "2": 8, "10": 7}))
    await cell.turns(2)
    one = await told(cell, "one")
    assert one.is_confirmed
    assert one.blocks is not None
    assert [(seat.block, seat.superpod, seat.ranks, seat.phase) for seat in one.blocks.seats] == [
        (0, "1", [0, 1, 2, 3], "fits"),
        (1, "10", [4, 5, 6, 7], "fits"),
    ]
    assert [(choice.block, choice.superpod, choice.runner_up) for choice in one.choices][3:5] == [
        (0, "1", None),
        (1, "10", None),
    ]
    assert lines(one)[:3] == [
        "SuperPoD affinity of A3, hard, asks for 2 logical SuperPoDs (blocks) of 4 nodes for its 8 pods with chips; a SuperPoD"
        " keeps 2 nodes in reserve while another has room.",
        "By queue 1, fits (SuperPoDs with room for no more blocks than are open, which keep their reserve): block 0 in SuperPoD"
        " 1 (ranks 0-3), block 1 in SuperPoD 10 (ranks 4-7).",
        "Rank 0 (worker) is on p1-n00 (block 0, SuperPoD 1), chips 0-15, by block plan: 16 usable chips free before.",
    ]
    two = await told(cell, "two")
    assert one.basis.ledger_seq == two.basis.ledger_seq  # the verdict before it in the record counts
    assert two.is_confirmed
    assert lines(two)[1:3] == [
        "By queue 1, fits (SuperPoDs with room for no more blocks than are open, which keep their reserve): block 0 in SuperPoD"
        " 2 (ranks 0-3).",
        "By queue 2 (SuperPoDs that use nodes of their reserve, as no other one has room for a block): block 1 in SuperPoD 0"
        " (ranks 4-7).",
    ]
    await cell.close()


async def test_a_soft_job_is_told_its_pieces() -> None:
    cell = await a_cell(nodes_of({"0": 6, "1": 3}), reserve_nodes=0)
    await cell.submit(in_blocks("job", 8, 4, soft=True))
    await cell.turns(2)
    found = await told(cell, "job")
    assert found.is_confirmed
    assert lines(found)[:3] == [
        "SuperPoD affinity of A3, soft, asks for 2 logical SuperPoDs (blocks) of 4 nodes for its 8 pods with chips.",
        "By queue 1, fits (SuperPoDs with room for no more blocks than are open, which keep their reserve): block 0 in SuperPoD"
        " 0 (ranks 0-3).",
        "By queue 3 (the remaining nodes of SuperPoDs, in pieces, as blocks may be split): block 1 in SuperPoD 1 (ranks 4-6, 3 of 4"
        " nodes), block 2 in SuperPoD 0 (rank 7, 1 of 4 nodes).",
    ]
    await cell.close()


async def test_a_superpod_with_room_for_more_is_told_so() -> None:
    cell = await a_cell(nodes_of({"0": 20}))
    await cell.submit(in_blocks("job", 4, 4))
    await cell.turns(2)
    found = await told(cell, "job")
    assert found.is_confirmed
    assert lines(found)[1] == (
        "By queue 1, larger (SuperPoDs with room for more blocks than are open, which keep their reserve): block 0 in SuperPoD 0"
        " (ranks 0-3)."
    )
    await cell.close()


async def test_of_many_blocks_eight_are_told() -> None:
    cell = await a_cell(nodes_of({"0": 10}), reserve_nodes=0)
    await cell.submit(in_blocks("job", 10, 1))
    await cell.turns(2)
    found = await told(cell, "job")
    assert lines(found)[1].endswith("block 7 in SuperPoD 0 (rank 7) and 2 more blocks.")
    assert found.blocks is not None
    assert len(found.blocks.seats) == 10
    await cell.close()


async def test_an_inference_service_is_told_its_siblings_rule() -> None:
    cell = await a_cell(nodes_of({"0": 8, "1": 9}))
    chat = {"inferserviceid": "chat"}
    await cell.submit(in_blocks("one", 2, 2, labels=chat), in_blocks("two", 2, 2, labels=chat))
    await cell.turns(2)
    found = await told(cell, "two")
    assert found.is_confirmed
    assert lines(found)[:2] == [
        "SuperPoD affinity of A3 for inference service chat asks for 1 logical SuperPoD (block) of 2 nodes for its 2 pods with"
        " chips.",
        "By inference service (SuperPoDs with jobs of its service go first, then those with the most usable nodes): block 0 in"
        " SuperPoD 1 (ranks 0,1).",
    ]
    await cell.close()


async def test_mindie_jobs_are_confirmed_beside_a_job_of_the_same_record() -> None:
    cell = await a_cell([])
    labels = {"app": "mind", "jobID": "7"}
    await cell.submit(
        in_blocks("one", 2, 2, labels=labels, annotations=SP | {"sp-fit": "idlest"}),
        in_blocks("two", 2, 2, labels=labels, near={"app": "mind"}),
    )
    await cell.turns(2)
    await cell.nodes(nodes_of({"0": 6, "1": 9}))  # 0 is the fuller one, but its sibling is in 1
    await cell.turns(2)
    one, two = await told(cell, "one"), await told(cell, "two")
    assert one.basis.ledger_seq == two.basis.ledger_seq
    assert (one.is_confirmed, two.is_confirmed) == (True, True)
    assert lines(one)[:2] == [
        "SuperPoD affinity of A3 for MindIE asks for 1 logical SuperPoD (block) of 2 nodes for its 2 pods with chips; a SuperPoD"
        " keeps 2 nodes in reserve while another has room.",
        "By preferred affinity (SuperPoDs that keep their reserve go first, then emptier ones): block 0 in SuperPoD 1 (ranks"
        " 0,1).",
    ]
    assert lines(two)[1] == (
        "By preferred affinity (SuperPoDs that keep their reserve go first, then those with more nodes of the pods that it"
        " prefers to be near, then fuller ones): block 0 in SuperPoD 1 (ranks 0,1)."
    )
    await cell.close()


SP = {"huawei.com/schedule_policy": "chip2-node16-sp", "sp-block": "32"}


@pytest.mark.parametrize(
    ("request_", "asked", "by"),
    [
        (
            in_racks(4, 4, 4),
            "1 logical SuperPoD (block) of 4 nodes, each in one rack, for its 4 pods",
            "one rack",
        ),
        (
            in_racks(16, 8, 2),
            "2 logical SuperPoDs (blocks) of 8 nodes, whose parts of 2 nodes each stay in one rack, for its 16 pods",
            "one SuperPoD",
        ),
        (in_racks(12, 12, 1), "1 logical SuperPoD (block) of 12 nodes for its 12 pods", "one SuperPoD"),
        (in_racks(32, 16, 8), "2 logical SuperPoDs (blocks) of 16 nodes, whose parts of 8", "several SuperPoDs"),
        (
            in_racks(16, 16, 8, memory=True),
            "1 logical SuperPoD (block) of 16 nodes, whose parts of 8 nodes each stay in one rack, for its 16 pods",
            "shared memory",
        ),
        (
            in_racks(4, 2, 1, service="chat"),
            "2 logical SuperPoDs (blocks) of 2 nodes, each in one rack, for its 4 pods",
            "inference service",
        ),
    ],
)
async def test_racks_are_told_with_the_way_that_was_taken(request_: JobRequest, asked: str, by: str) -> None:
    cell = await racked()
    await cell.submit(request_)
    await cell.turns(2)
    found = await told(cell, "job")
    assert found.is_confirmed
    assert asked in lines(found)[0]
    assert "keeps" not in lines(found)[0]
    assert lines(found)[1].startswith(f"By {by} (")
    await cell.close()


def levelled(count: int) -> list[dict[str, str]]:
    return [{"huawei.com/topotree": "t", "rack": f"r{at // 2}", "row": f"w{at // 4}"} for at in range(count)]


def by_levels(name: str, replicas: int, config: str = "level1=2,level2=4") -> JobRequest:
    annotations = {"huawei.com/schedule_policy": "multilevel", "huawei.com/affinity-config": config}
    return a_job(name, chips=8, replicas=replicas, annotations=annotations, node_selector={})


async def test_levels_are_told_with_their_groups() -> None:
    nodes = [a_node(f"n{at}", labels=labels) for at, labels in enumerate(levelled(8))]
    cell = await a_cell(nodes, resource_levels=LEVELS)
    await cell.submit(by_levels("job", 4))
    await cell.turns(2)
    found = await told(cell, "job")
    assert found.is_confirmed
    assert lines(found)[:3] == [
        "Levels put its 4 pods with chips into groups of one tree: 2 in a group of level 1, 4 in a group of level 2.",
        "By levels (groups of one tree; groups with the least left over go first): block 0 in group r0 (ranks"
        " 0,1), block 1 in group r1 (ranks 2,3).",
        "Rank 0 (worker) is on n0 (block 0, group r0), chips 0-7, by block plan: 8 usable chips free before.",
    ]
    await cell.close()


async def test_a_job_of_more_levels_than_any_tree_has_is_told_both_numbers() -> None:
    nodes = [a_node(f"n{at}", labels=labels) for at, labels in enumerate(levelled(8))]
    cell = await a_cell(nodes, resource_levels=LEVELS)
    await cell.submit(by_levels("job", 4, "level1=1,level2=2,level3=4"))
    await cell.turns(2)
    state = cell.dispatcher.state
    job = state.jobs["default", "job"]
    assert job.request is not None
    gang = gang_of(job, job.request, attempt=1, settings=state.fold.settings)
    ground = Ground(state.table, lambda: state.table, state.fold.settings, state.colocation, ())
    assert gang.demand is not None
    found = begun(gang.demand, ground, state.indexes).plan(gang, np.ones(len(state.table), np.bool_))
    assert isinstance(found, Lack)
    assert lack_words(found.of(Refusal("no-room"))) == "needs a tree of 3 levels; the highest one has 2"
    await cell.close()


async def test_a_job_that_waits_for_groups_is_told_the_nearest_ones() -> None:
    nodes = [a_node(f"n{at}", labels=labels) for at, labels in enumerate(levelled(8))]
    cell = await a_cell(nodes, resource_levels=LEVELS)
    policy = {"huawei.com/schedule_policy": "chip8-node8"}
    for node in ("n1", "n5"):
        selector = {"kubernetes.io/hostname": node}
        await cell.submit(a_job(f"on-{node}", chips=8, annotations=policy, node_selector=selector))
    await cell.turns(2)
    await cell.submit(by_levels("job", 4))
    await cell.turns(2)
    found = await told(cell, "job")
    assert lines(found) == [
        "It waits: needs 1 group of 4 nodes; none can be placed in tree t, which comes closest; 6 of 8 nodes fit: 2 have fewer"
        " than 8 free chips.",
        "1 group of 4 nodes is missing.",
        "Near: group r1, 2 of 2 nodes usable, 1 block.",
        "Near: group r3, 2 of 2 nodes usable, 1 block.",
        "Near: group r0, 1 of 2 nodes usable; 1 has fewer than 8 free chips; its jobs are default/on-n1 (1 pod).",
    ]
    await cell.close()


async def test_a_group_of_nodes_that_a_pod_does_not_fill_is_not_near() -> None:
    nodes = [a_node(f"n{at}", labels=labels) for at, labels in enumerate(levelled(2))]
    larger = {"huawei.com/topotree": "t", "rack": "r9", "row": "w9"}
    nodes += [a_node(f"x{at}", "module910a3x16", labels=larger) for at in range(2)]
    cell = await a_cell(nodes, resource_levels=LEVELS)
    await cell.submit(by_levels("job", 4))
    await cell.turns(2)
    found = await told(cell, "job")
    assert found.blocks is not None
    assert [(near.superpod, near.usable, near.nodes) for near in found.blocks.nearest] == [("r0", 2, 2), ("r9", 0, 2)]
    await cell.close()


async def test_a_waiting_job_is_told_how_many_blocks_are_missing_and_who_is_in_the_nearest_superpods() -> None:
    cell = await a_cell(nodes_of({"0": 8, "1": 7, "2": 3, "3": 1}))
    await cell.submit(in_blocks("two", 4, 2), on("p0-n07"))
    await cell.health("superpod-2", [NodeCondition("p2-n02", level=NodeHealth.NO_NEW_WORK)])
    await cell.turns(2)
    await cell.submit(in_blocks("job", 12, 4))
    await cell.turns(2)
    found = await told(cell, "job")
    assert lines(found) == [
        "It waits: needs 3 logical SuperPoDs of 4 nodes; 1 can be placed: SuperPoD 0 has 7 usable nodes (1 block), SuperPoD 1 has"
        " 3, SuperPoD 2 has 2; 13 of 19 nodes fit: 5 have fewer than 16 free chips, 1 is faulty or takes no new work.",
        "2 blocks of 4 nodes are missing.",
        "Near: SuperPoD 0, 7 of 8 nodes usable, 1 block, 1 node short of another; 1 has fewer than 16 free chips; its jobs are"
        " default/on-p0-n07 (1 pod).",
        "Near: SuperPoD 1, 3 of 7 nodes usable, 1 node short of a block; 4 have fewer than 16 free chips; its jobs are"
        " default/two (4 pods, blocks 0,1).",
        "Near: SuperPoD 2, 2 of 3 nodes usable, 2 nodes short of a block; 1 is faulty or takes no new work.",
    ]
    await cell.close()


async def test_a_node_that_is_in_no_superpod_is_counted_and_in_none_of_the_nearest() -> None:
    cell = await a_cell([*nodes_of({"0": 7}), a_node("outside", A3)])
    await cell.submit(in_blocks("job", 8, 4))
    await cell.turns(2)
    found = await told(cell, "job")
    assert lines(found)[0].endswith("1 is in no SuperPoD or rack that is known.")
    assert found.blocks is not None
    assert [(near.superpod, near.usable, near.nodes) for near in found.blocks.nearest] == [("0", 7, 7)]
    await cell.close()


async def test_jobs_that_the_same_record_placed_are_named_in_their_superpods() -> None:
    cell = await a_cell([])
    await cell.submit(in_blocks("first", 4, 2, priority=1), in_blocks("second", 8, 4))
    await cell.turns(2)
    await cell.nodes(nodes_of({"0": 8}))
    await cell.turns(2)
    found = await told(cell, "second")
    assert found.blocks is not None
    assert found.blocks.nearest[0].jobs == [SuperpodUser("default/first", 4, 4, [0, 1])]
    await cell.close()


async def test_another_placement_than_that_of_the_plan_is_not_confirmed() -> None:
    cell = await a_cell(nodes_of({"0": 8}))
    await cell.submit(in_blocks("job", 2, 2))
    await cell.turns(2)
    kept = await verdict_on(cell.user, "uid-job", hint_seq=0)
    assert kept is not None
    placed = kept.verdict.placement
    assert placed is not None
    assert placed.names() == ["p0-n00", "p0-n01"]
    state = await state_at(cell.user, ledger_seq=kept.sequence - 1, facts_seq=kept.record.facts_seq)
    assert state is not None
    for turned in (
        msgspec.structs.replace(placed, node_index=pack([1, 0], 4)),
        msgspec.structs.replace(placed, groups=[msgspec.structs.replace(the_block(placed), phases=["reserve"]).groups]),
    ):
        verdicts = [msgspec.structs.replace(kept.verdict, placement=turned)]
        record = msgspec.structs.replace(kept.record, verdicts=verdicts)
        found = explain(state, record, "uid-job", ledger_seq=kept.sequence)
        assert found is not None
        assert not found.is_confirmed
        assert sentences(found)[-1] == "Deciding again does not give the same nodes."
    await cell.close()


async def test_pods_without_chips_have_a_runner_up_and_no_block() -> None:
    cell = await a_cell(nodes_of({"0": 8}))
    tasks = [Task("scheduler", 1, 0), Task("worker", 2, 16)]
    await cell.submit(in_blocks("job", 2, 2, tasks=tasks))
    await cell.turns(2)
    found = await told(cell, "job")
    assert found.is_confirmed
    assert [(choice.task, choice.block, choice.superpod) for choice in found.choices] == [
        ("scheduler", -1, ""),
        ("worker", 0, "0"),
        ("worker", 0, "0"),
    ]
    assert [choice.runner_up is not None for choice in found.choices] == [True, False, False]
    assert found.blocks is not None
    assert [seat.ranks for seat in found.blocks.seats] == [[1, 2]]
    await cell.close()


async def test_pods_without_chips_get_their_nodes_after_the_plan_and_count_in_no_superpod() -> None:
    cell = await a_cell(nodes_of({"0": 3}), reserve_nodes=0)
    tasks = [Task("scheduler", 1, 0, cpu_milli=100_000), Task("worker", 2, 16, cpu_milli=100_000)]
    await cell.submit(in_blocks("job", 2, 2, tasks=tasks))
    await cell.turns(2)
    found = await told(cell, "job")
    assert found.is_confirmed
    assert [choice.node for choice in found.choices] == ["p0-n02", "p0-n00", "p0-n01"]
    await cell.submit(in_blocks("late", 2, 2))
    await cell.turns(2)
    late = await told(cell, "late")
    assert late.blocks is not None
    assert late.blocks.nearest[0].jobs == [SuperpodUser("default/job", 2, 2, [0])]
    await cell.close()


@pytest.mark.parametrize(
    ("request_", "near"),
    [
        (in_racks(24, 8, 8), [("1", 15, 1, 0), ("0", 14, 0, 0)]),
        (in_racks(32, 4, 1, service="chat"), [("1", 15, 3, 0), ("0", 14, 2, 0)]),
    ],
)
async def test_blocks_of_near_superpods_are_counted_in_their_racks(
    request_: JobRequest, near: list[tuple[str, int, int, int]]
) -> None:
    cell = await racked()
    policy = {"huawei.com/schedule_policy": "chip8-node8"}
    for node in ("p0-n00", "p0-n08", "p1-n00"):
        selector = {"kubernetes.io/hostname": node}
        fields = {"annotations": policy, "node_selector": selector}
        await cell.submit(a_job(f"on-{node}", product=RACKS, chips=8, **fields))  # type: ignore[arg-type]  # fields of a request
    await cell.turns(2)
    await cell.submit(request_)
    await cell.turns(2)
    found = await told(cell, "job")
    assert found.blocks is not None
    assert [(one.superpod, one.usable, one.blocks, one.lacks) for one in found.blocks.nearest] == near
    await cell.close()


async def test_from_the_state_of_now_the_record_is_told_and_nothing_is_confirmed_anew() -> None:
    cell = await a_cell(nodes_of({"0": 8}))
    await cell.submit(in_blocks("job", 2, 2))
    await cell.turns(2)
    await cell.submit(in_blocks("later", 2, 2))
    await cell.turns(2)
    kept = await verdict_on(cell.user, "uid-job", hint_seq=0)
    assert kept is not None
    found = explain_now(cell.dispatcher.state, kept.verdict, ledger_seq=kept.sequence)
    assert found is not None
    assert found.is_confirmed
    assert found.blocks is not None
    assert [seat.superpod for seat in found.blocks.seats] == ["0"]
    await cell.close()


@pytest.mark.parametrize("shards", [0, 3])
async def test_plans_are_confirmed_whatever_the_shards(shards: int) -> None:
    cell = await a_cell(nodes_of({"0": 8, "1": 9, "2": 4, "3": 12}), shards=shards)
    await cell.submit(*[in_blocks(f"job-{at}", 2 + 2 * at, 2, soft=at % 2 == 1) for at in range(6)])
    await cell.turns(3)
    outcomes = []
    for at in range(6):
        found = await told(cell, f"job-{at}")
        assert found.is_confirmed
        outcomes.append(found.outcome)
    assert outcomes == ["placed"] * 5 + ["waiting"]
    await cell.close()


async def test_adopted_pods_are_told_with_the_blocks_that_they_name() -> None:
    cell = await a_cell([*nodes_of({"0": 3}), a_node("outside", A3)])
    names = ["outside", "p0-n00", "p0-n01"]
    fact = PodsSeen(
        namespace="default", gang="adopted", uid="uid-adopted", attempt=1, rank=pack(range(3), 4), nodes=pack_names(names),
        node_index=pack(range(3), 4), phase=pack([PodPhase.RUNNING] * 3, 1), chips=pack([0xFFFF] * 3, 8),
        resource="huawei.com/Ascend910", foreign=True, blocks=pack([5, 5, 0], 2),
    )  # fmt: skip
    await cell.user.publish(cell.user.subjects.fact_pod("default", "adopted"), encode(fact))
    await cell.turns(2)
    await cell.submit(in_blocks("job", 3, 3))
    await cell.turns(2)
    found = await told(cell, "job")
    assert found.blocks is not None
    assert found.blocks.nearest[0].jobs == [SuperpodUser("default/adopted", 2, 3, [4])]
    await cell.close()
