"""Explanations of jobs with switch affinity: the rule that chose the leaves, and what is missing below which leaf."""

import msgspec
import pytest

from berth.core.explain.explainer import explain, explain_now
from berth.core.explain.model import Explanation, sentences
from berth.core.topologies.layouts import LeafUser
from berth.runtime.history import state_at, verdict_on
from berth.schemas.columns import pack
from berth.schemas.facts import NodeHealth
from berth.schemas.intake import Task
from berth.schemas.nodes import NodeCondition
from tests.support.cells import Cell, a_job, a_node
from tests.unit.core.explain.test_explainer import on, told
from tests.unit.services.dispatcher.test_switches import NORMAL, a_cell, a_topology, by_leaf, say


def lines(found: Explanation) -> list[str]:
    return sentences(found)[1:]  # the first tells the product form


async def test_a_small_job_is_told_the_best_fit_and_no_runner_up() -> None:
    cell = await a_cell(leaves=2)
    await cell.submit(by_leaf("first", 2), by_leaf("job", 2))
    await cell.turns(2)
    found = await told(cell, "job")
    assert found.is_confirmed
    assert found.switch is not None
    assert (found.switch.rule, found.switch.policy, found.switch.kind) == ("best-fit", "1.0", "padding")
    assert [(part.leaf, part.ranks) for part in found.switch.leaves] == [("leaf1", [0, 1])]
    assert [(choice.leaf, choice.runner_up) for choice in found.choices] == [("leaf1", None)] * 2
    assert lines(found) == [
        "Switch affinity 1.0 chose the leaves for a padding job of 2 pods by best fit: of the leaves that can hold all of its"
        " pods, one that they fill best.",
        "It is below leaf1 (ranks 0,1).",
        "Rank 0 (worker) is on n12 below leaf1, chips 0-7, by leaf plan: 8 usable chips free before.",
        "Rank 1 (worker) is on n13 below leaf1, chips 0-7, by leaf plan: 8 usable chips free before.",
    ]
    await cell.close()


async def test_whole_leaves_are_told_with_their_ranks() -> None:
    cell = await a_cell(leaves=3)
    await cell.submit(by_leaf("whole", 6, NORMAL))
    await cell.turns(2)
    whole = await told(cell, "whole")
    assert whole.is_confirmed
    assert lines(whole)[:2] == [
        "Switch affinity 1.0 chose the leaves for a common job of 6 pods by complete leaves: leaves of which every node is"
        " usable.",
        "It is below leaf0 (ranks 0-3), leaf1 (ranks 4,5).",
    ]
    await cell.close()


async def test_two_drained_leaves_tell_what_the_pods_say_of_them() -> None:
    cell = await a_cell(leaves=3, nslb_version="2.0")
    await cell.submit(by_leaf("job", 6))
    await cell.turns(2)
    found = await told(cell, "job")
    assert found.is_confirmed
    assert lines(found)[:2] == [
        "Switch affinity 2.0 chose the leaves for a foundation-model job of 6 pods by drained and opened: free leaves, of"
        " which it takes all usable nodes, and for the rest a free one that becomes shared.",
        "It is below leaf0 (ranks 0-3, exclusive), leaf1 (ranks 4,5, shared).",
    ]
    await cell.close()


async def test_a_job_below_one_leaf_says_nothing_of_its_state() -> None:
    cell = await a_cell(leaves=3, nslb_version="2.0")
    await cell.submit(by_leaf("wide", 6), by_leaf("job", 2, NORMAL))
    await cell.turns(2)
    found = await told(cell, "job")
    assert lines(found)[:2] == [
        "Switch affinity 2.0 chose the leaves for a common job of 2 pods by best fit: of the leaves that can hold all of its"
        " pods, exclusive ones go first, then unhealthy shared, shared and free ones; of those alike, one that they fill"
        " best.",
        "It is below leaf1 (ranks 0,1).",
    ]
    await cell.close()


async def test_a_fallback_tells_what_the_other_rules_lacked() -> None:
    cell = await a_cell(leaves=2)
    await cell.submit(*[a_job(f"on-{node}", chips=8, node_selector=on(node)) for node in ("n00", "n10")])
    await cell.turns(2)
    await cell.submit(by_leaf("job", 5, NORMAL))
    await cell.turns(2)
    found = await told(cell, "job")
    assert found.is_confirmed
    assert lines(found)[:3] == [
        "Switch affinity 1.0 chose the leaves for a common job of 5 pods by fallback: any usable nodes, as the job is a"
        " common one and no other rule fits.",
        "By the other rules it needs 1 complete logical switch of 4 nodes and 1 node of another; 0 complete ones can be made"
        " of 6 usable nodes on 2 leaves.",
        "It is below leaf0 (ranks 0-2), leaf1 (ranks 3,4).",
    ]
    await cell.close()


async def test_logical_switches_are_told_with_the_ranks_of_each_leaf() -> None:
    cell = await a_cell(leaves=2)
    await cell.submit(by_leaf("small", 2))
    await cell.turns(2)
    await cell.submit(by_leaf("job", 6))
    await cell.turns(2)
    found = await told(cell, "job")
    assert found.is_confirmed
    assert lines(found)[:2] == [
        "Switch affinity 1.0 chose the leaves for a foundation-model job of 6 pods by logical switches: rows of nodes at"
        " different positions, so that their traffic does not meet on a link from the spine.",
        "It is below leaf0 (ranks 0-3), leaf1 (ranks 4,5).",
    ]
    await cell.close()


async def test_pods_without_chips_are_told_after_those_of_the_plan_whatever_their_rank() -> None:
    cell = await Cell().open()
    places = [(leaf, place) for leaf in range(2) for place in range(4)]
    await cell.nodes(
        [
            a_node(f"n{leaf}{place}", "module910a3x16", leaf=f"leaf{leaf}", position=place, cpu_milli=10_000)
            for leaf, place in places
        ]
    )
    await say(cell, a_topology(2))
    tasks = [Task("scheduler", 1, 0, cpu_milli=4_000), Task("worker", 4, 16, cpu_milli=8_000)]
    await cell.submit(by_leaf("job", 5, tasks=tasks, product="module910a3x16"))
    await cell.turns(2)
    found = await told(cell, "job")
    assert [(choice.rank, choice.node) for choice in found.choices] == list(
        enumerate(["n10", "n00", "n01", "n02", "n03"])
    )
    rival = found.choices[0].runner_up
    assert rival is not None
    assert (rival.node, rival.lost_by, found.is_confirmed) == ("n11", "name", True)
    await cell.close()


async def test_verdicts_before_it_in_the_record_count() -> None:
    cell = await a_cell(leaves=3, nslb_version="2.0")
    await cell.submit(by_leaf("one", 6), by_leaf("two", 6))
    await cell.turns(2)
    found = await told(cell, "two")
    assert found.is_confirmed
    assert found.switch is not None
    assert (found.switch.rule, [part.leaf for part in found.switch.leaves]) == (
        "drained-and-shared",
        ["leaf2", "leaf1"],
    )
    await cell.close()


async def test_another_placement_than_that_of_the_plan_is_not_confirmed() -> None:
    cell = await a_cell(leaves=2)
    await cell.submit(by_leaf("job", 2))
    await cell.turns(2)
    kept = await verdict_on(cell.user, "uid-job", hint_seq=0)
    assert kept is not None
    placed = kept.verdict.placement
    assert placed is not None
    assert placed.names() == ["n10", "n11"]
    turned = msgspec.structs.replace(placed, node_index=pack([1, 0], 4))
    record = msgspec.structs.replace(kept.record, verdicts=[msgspec.structs.replace(kept.verdict, placement=turned)])
    state = await state_at(cell.user, ledger_seq=kept.sequence - 1, facts_seq=kept.record.facts_seq)
    assert state is not None
    found = explain(state, record, "uid-job", ledger_seq=kept.sequence)
    assert found is not None
    assert not found.is_confirmed
    assert sentences(found)[-1] == "Deciding again does not give the same nodes."
    await cell.close()


async def test_pods_without_chips_have_a_runner_up_and_no_leaf() -> None:
    cell = await a_cell(leaves=2, product="module910a3x16")
    await cell.submit(
        by_leaf("job", 2, NORMAL, product="module910a3x16", tasks=[Task("scheduler", 1, 0), Task("worker", 2, 16)])
    )
    await cell.turns(2)
    found = await told(cell, "job")
    assert found.is_confirmed
    assert [(choice.task, choice.leaf) for choice in found.choices] == [
        ("scheduler", ""),
        ("worker", "leaf1"),
        ("worker", "leaf1"),
    ]
    assert [choice.runner_up is not None for choice in found.choices] == [True, False, False]
    assert found.switch is not None
    assert [part.ranks for part in found.switch.leaves] == [[1, 2]]
    await cell.close()


async def test_a_waiting_padding_job_names_the_nearest_leaves_what_they_lack_and_who_is_there() -> None:
    cell = await a_cell(leaves=2)
    await cell.health("leaf-leaf0", [NodeCondition("n00", level=NodeHealth.NO_NEW_WORK)])
    await cell.submit(by_leaf("a", 1), by_leaf("b", 3))
    await cell.turns(2)
    await cell.submit(by_leaf("job", 3))
    await cell.turns(2)
    found = await told(cell, "job")
    assert lines(found) == [
        "It waits: needs 3 nodes under one leaf; the best leaf, leaf0, has 2; 3 of 8 nodes fit: 4 have fewer than 8 free chips,"
        " 1 is faulty or takes no new work.",
        "Near: leaf leaf0, 2 of 4 nodes usable, 1 too few; 1 is faulty or takes no new work, 1 has fewer than 8 free chips;"
        " its jobs are default/a (1 pod).",
        "Near: leaf leaf1, 1 of 4 nodes usable, 2 too few; 3 have fewer than 8 free chips; its jobs are default/b (3 pods).",
    ]
    assert found.nearest == []
    await cell.close()


async def test_a_job_that_waits_for_free_leaves_is_told_their_states() -> None:
    cell = await a_cell(leaves=3, nslb_version="2.0")
    await cell.submit(by_leaf("a", 6), by_leaf("b", 2), by_leaf("c", 1))
    await cell.turns(2)
    await cell.submit(by_leaf("job", 9))
    await cell.turns(2)
    found = await told(cell, "job")
    assert lines(found) == [
        "It waits: needs 9 nodes on free leaves and on as many shared ones as a job may use; free leaves have 3 and the best"
        " shared ones 0; 3 of 12 nodes fit: 9 have fewer than 8 free chips.",
        "Near: leaf leaf2 (free), 3 of 4 nodes usable; 1 has fewer than 8 free chips; its jobs are default/c (1 pod).",
        "Near: leaf leaf0 (exclusive, cross jobs), 0 of 4 nodes usable; 4 have fewer than 8 free chips; its jobs are"
        " default/a (4 of 6 pods).",
        "Near: leaf leaf1 (shared, cross jobs), 0 of 4 nodes usable; 4 have fewer than 8 free chips; its jobs are default/a"
        " (2 of 6 pods), default/b (2 pods).",
    ]
    assert found.switch is not None
    assert (found.switch.rule, found.switch.kind, found.switch.pods) == ("idle-and-shared", "foundation-model", 9)
    assert found.switch.nearest[2].jobs == [LeafUser("default/a", 2, 6), LeafUser("default/b", 2, 2)]
    assert found.switch.nearest[2].unfit == {"shortage": 4}
    await cell.close()


async def test_jobs_that_the_same_record_placed_are_named_below_their_leaves() -> None:
    cell = await a_cell(leaves=1)
    await cell.submit(by_leaf("first", 3, priority=1), by_leaf("second", 2))
    await cell.turns(2)
    found = await told(cell, "second")
    assert lines(found)[1:] == [
        "Near: leaf leaf0, 1 of 4 nodes usable, 1 too few; 3 have fewer than 8 free chips; its jobs are default/first (3 pods)."
    ]
    await cell.close()


async def test_without_leaves_the_sentence_names_the_source_and_no_leaf_is_near() -> None:
    cell = await a_cell(topology=a_topology(0))
    await cell.submit(by_leaf("job", 2))
    await cell.turns(2)
    found = await told(cell, "job")
    assert lines(found) == [
        "It waits: the leaf switches are not known: ConfigMap basic-tor-node-cm is not read yet, or has no leaf."
    ]
    await cell.close()


async def test_a_job_outside_what_its_policy_supports_is_warned_of() -> None:
    cell = await a_cell(leaves=1)
    await cell.submit(by_leaf("job", 1, labels={"tor-affinity": NORMAL, "framework": "tensorflow"}))
    await cell.turns(2)
    found = await told(cell, "job")
    assert lines(found)[2] == "Warning: switch affinity 1.0 is meant for PyTorch and MindSpore, not for tensorflow."
    status = await cell.status("job")
    assert status is not None
    assert status.warning == "switch affinity 1.0 is meant for PyTorch and MindSpore, not for tensorflow"
    await cell.close()


async def test_from_the_state_of_now_the_record_is_told_and_nothing_is_confirmed_anew() -> None:
    cell = await a_cell(leaves=2)
    await cell.submit(by_leaf("job", 2))
    await cell.turns(2)
    await cell.submit(by_leaf("later", 1))
    await cell.turns(2)
    kept = await verdict_on(cell.user, "uid-job", hint_seq=0)
    assert kept is not None
    found = explain_now(cell.dispatcher.state, kept.verdict, ledger_seq=kept.sequence)
    assert found is not None
    assert found.is_confirmed
    assert lines(found)[1] == "It is below leaf1 (ranks 0,1)."
    await cell.close()


@pytest.mark.parametrize("shards", [0, 3])
async def test_plans_are_confirmed_whatever_the_shards(shards: int) -> None:
    cell = await a_cell(shards=shards, nslb_version="2.0")
    await cell.submit(*[by_leaf(f"job-{number}", 1 + number, NORMAL) for number in range(5)])
    await cell.turns(3)
    for number in range(5):
        found = await told(cell, f"job-{number}")
        assert found.is_confirmed
        assert (found.outcome == "placed") == (number < 4 or bool(found.choices))
    await cell.close()
