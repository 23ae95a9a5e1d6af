"""Jobs with switch affinity in the dispatcher's turns, on a whole cell in memory."""

import pytest

from berth.core.cluster.node_packing import SWITCHES
from berth.core.topologies.switches.occupancy.leaf_bits import CROSS, EXCLUSIVE, NOT_NORMAL, SHARED, STATE
from berth.core.topologies.switches.occupancy.leaf_index import leaf_index_of
from berth.core.topologies.switches.occupancy.leaf_states import LeafJob
from berth.core.topologies.switches.placed import SwitchPlacement
from berth.schemas.columns import unpack
from berth.schemas.envelope import encode
from berth.schemas.facts import Leaf, PodPhase, TopologySeen
from berth.schemas.intake import JobRequest, Task
from berth.schemas.nodes import NodeCondition
from tests.support.cells import Cell, a_job, a_node
from tests.support.job_verdicts import placement, refusal, told
from tests.support.placed_parts import the_switch

PLACES = 4
LARGE = "large-model-schema"
NORMAL = "normal-schema"


def a_topology(leaves: int = 4, *, level: str = "double_layer", places: int = PLACES) -> TopologySeen:
    return TopologySeen(
        SWITCHES,
        [Leaf(f"leaf{leaf}", "", [f"n{leaf}{place}" for place in range(places)]) for leaf in range(leaves)],
        level=level,
        places=places,
    )


async def say(cell: Cell, topology: TopologySeen) -> None:
    await cell.user.publish(cell.user.subjects.fact_topology(SWITCHES), encode(topology))


async def a_cell(
    *,
    leaves: int = 4,
    shards: int = 0,
    topology: TopologySeen | None = None,
    product: str = "module910bx8",
    **decisions: object,
) -> Cell:
    cell = await Cell(shards=shards, **decisions).open()  # type: ignore[arg-type]  # fields of the settings
    await cell.nodes(
        [
            a_node(f"n{leaf}{place}", product, leaf=f"leaf{leaf}", position=place)
            for leaf in range(leaves)
            for place in range(PLACES)
        ]
    )
    await say(cell, topology if topology is not None else a_topology(leaves))
    await cell.turns()
    return cell


def by_leaf(name: str, replicas: int, label: str = LARGE, **changes: object) -> JobRequest:
    fields: dict[str, object] = {"labels": {"tor-affinity": label}, **changes}
    return a_job(name, chips=8, replicas=replicas, **fields)  # type: ignore[arg-type]  # fields of a request


async def part(cell: Cell, name: str) -> SwitchPlacement:
    return the_switch(await placement(cell, name))


async def test_a_small_job_goes_below_one_leaf_in_the_order_of_positions() -> None:
    cell = await a_cell()
    await cell.submit(by_leaf("j", 3))
    await cell.turns(2)
    assert (await placement(cell, "j")).names() == ["n30", "n31", "n32"]  # of equal leaves the last
    found = await part(cell, "j")
    assert (found.rule, found.policy, found.leaves, found.pods) == ("best-fit", "1.0", ["leaf3"], 3)
    assert (found.annotated, found.states, unpack(found.leaf_index, 2)) == (True, bytes(3), [1, 1, 1])
    await cell.close()


async def test_a_later_gang_of_the_round_respects_an_earlier_one() -> None:
    cell = await a_cell(leaves=3)
    await cell.submit(by_leaf("one", 6), by_leaf("two", 5))
    await cell.turns(2)
    leaves = (await part(cell, "one")).leaves
    found = await refusal(cell, "two")
    assert leaves == ["leaf0", "leaf1"]
    assert (found.code, found.switch is not None and found.switch.barred) == ("no-rows", 1)
    await cell.pods("one", PodPhase.SUCCEEDED)
    await cell.turns(2)
    assert (await part(cell, "two")).rule == "complete-leaves"
    await cell.close()


async def test_unlabelled_jobs_make_leaves_busy_from_their_decision_on() -> None:
    cell = await a_cell(leaves=2)
    await cell.submit(a_job("plain", chips=8, replicas=5))
    await cell.turns(2)
    assert leaf_index_of(cell.dispatcher.state.indexes).occupancy.bits().tolist() == [CROSS | NOT_NORMAL] * 2
    await cell.submit(by_leaf("j", 4, NORMAL))
    await cell.turns(2)
    assert (await refusal(cell, "j")).code == "no-leaves"
    await cell.close()


async def test_states_of_shared_and_exclusive_leaves_are_in_the_placement() -> None:
    cell = await a_cell(nslb_version="2.0")
    await cell.submit(by_leaf("one", 6))
    await cell.turns(2)
    found = await part(cell, "one")
    assert (found.rule, found.leaves) == ("drained-and-opened", ["leaf0", "leaf1"])
    assert list(found.states) == [2, 2, 2, 2, 1, 1]
    bits = leaf_index_of(cell.dispatcher.state.indexes).occupancy.bits()
    assert [int(bit) & STATE for bit in bits] == [EXCLUSIVE, SHARED, 0, 0]
    await cell.submit(by_leaf("two", 6))
    await cell.turns(2)
    assert (await part(cell, "two")).leaves == ["leaf2", "leaf1"]
    assert (await part(cell, "two")).rule == "drained-and-shared"
    await cell.close()


async def test_ranks_that_have_ended_are_on_their_leaf_no_more() -> None:
    cell = await a_cell(nslb_version="2.0")
    await cell.submit(by_leaf("one", 6))
    await cell.turns(2)
    state = cell.dispatcher.state
    assert [int(bit) & STATE for bit in leaf_index_of(state.indexes).occupancy.bits()] == [EXCLUSIVE, SHARED, 0, 0]
    phases = [PodPhase.RUNNING] * 4 + [PodPhase.SUCCEEDED] * 2
    await cell.pods("one", *phases)
    await cell.turns(2)
    assert [int(bit) & STATE for bit in leaf_index_of(state.indexes).occupancy.bits()] == [EXCLUSIVE, 0, 0, 0]
    assert not any(int(bit) & CROSS for bit in leaf_index_of(state.indexes).occupancy.bits())
    await cell.close()


async def test_without_leaf_switches_a_job_waits_until_they_are_known() -> None:
    cell = await a_cell(topology=TopologySeen(SWITCHES, []))
    await cell.submit(by_leaf("j", 2))
    await cell.turns(2)
    assert ((await told(cell, "j")).phase, (await refusal(cell, "j")).code) == ("waiting", "no-topology")
    await say(cell, a_topology())
    await cell.turns(2)
    assert (await told(cell, "j")).phase == "placed"
    await cell.close()


async def test_a_single_layer_goes_before_the_version_and_writes_no_annotations() -> None:
    cell = await a_cell(nslb_version="2.0", topology=a_topology(level="single_layer"))
    await cell.submit(by_leaf("j", 4), by_leaf("larger", 5))
    await cell.turns(2)
    found = await part(cell, "j")
    assert (found.policy, found.annotated) == ("single-layer", False)
    lack = (await refusal(cell, "larger")).switch
    assert lack is not None
    assert (lack.rule, lack.need, lack.places) == ("leaf-size", 5, 4)
    await cell.close()


async def test_a_bad_topology_leaves_the_last_good_one_in_force() -> None:
    cell = await a_cell()
    twice = a_topology()
    twice = TopologySeen(SWITCHES, [*twice.leaves, Leaf("leaf9", "", ["n00"])], places=PLACES)
    await say(cell, twice)
    await cell.turns()
    assert [subject.rpartition(".")[0] for subject in await cell.dead()] == ["berth.cell.dead.FACTS"]
    assert leaf_index_of(cell.dispatcher.state.indexes).leaves.names == ["leaf0", "leaf1", "leaf2", "leaf3"]
    await cell.submit(by_leaf("j", 3))
    await cell.turns(2)
    assert (await told(cell, "j")).phase == "placed"
    await cell.close()


async def test_other_tasks_without_chips_go_anywhere_and_have_no_leaf() -> None:
    cell = await a_cell(product="module910a3x16")
    tasks = [Task("scheduler", 1, 0, cpu_milli=1000), Task("worker", 3, 16)]
    await cell.submit(by_leaf("j", 3, tasks=tasks, product="module910a3x16"))
    await cell.turns(2)
    found = await part(cell, "j")
    assert unpack(found.leaf_index, 2) == [0, 1, 1, 1]
    assert len(found.states) == 4
    await cell.close()


async def test_other_tasks_without_chips_leave_their_cpu_to_the_pods_placed_by_leaf() -> None:
    cell = await a_cell(leaves=1, product="module910a3x16")
    tasks = [Task("scheduler", 1, 0, cpu_milli=150_000), Task("worker", 3, 16, cpu_milli=100_000)]
    await cell.submit(by_leaf("j", 3, tasks=tasks, product="module910a3x16"))
    await cell.turns(2)
    assert (await placement(cell, "j")).names() == ["n03", "n00", "n01", "n02"]
    assert (await placement(cell, "j")).chips_by_rank()[0] == ()
    table = cell.dispatcher.state.table
    assert min(table.cpu_free[table.view()]) >= 0
    await cell.close()


async def test_a_job_whose_other_tasks_find_no_room_leaves_nothing_behind() -> None:
    cell = await a_cell(leaves=1, product="module910a3x16")
    tasks = [Task("scheduler", 2, 0, cpu_milli=150_000), Task("worker", 3, 16, cpu_milli=100_000)]
    await cell.submit(
        by_leaf("big", 3, tasks=tasks, product="module910a3x16"),
        by_leaf("next", 3, tasks=tasks[1:], product="module910a3x16"),
    )
    await cell.turns(2)
    found = await refusal(cell, "big")
    assert (found.code, found.task, found.pods_have, found.pods_need) == ("no-room", "scheduler", 4, 5)
    assert (await placement(cell, "next")).names() == ["n00", "n01", "n02"]
    await cell.close()


async def test_where_no_shard_answers_the_leaves_are_known_all_the_same() -> None:
    cell = await a_cell(shards=1)
    cell.shards[0].state.facts_seq = cell.shards[0].state.nodes_seq = 1 << 40  # too far ahead to answer
    await cell.submit(by_leaf("j", 2))
    await cell.turns(2)
    found = await refusal(cell, "j")
    assert (found.code, found.missing_shards) == ("no-leaf", [0])
    await cell.close()


async def test_tasks_that_differ_get_nodes_that_take_each_of_them() -> None:
    cell = await a_cell()
    tasks = [Task("master", 1, 8, cpu_milli=100_000), Task("worker", 2, 8)]
    await cell.health("leaf-leaf3", [NodeCondition("n30", unhealthy=1)])
    await cell.submit(by_leaf("j", 3, tasks=tasks))
    await cell.turns(2)
    assert (await placement(cell, "j")).names() == ["n31", "n32", "n33"]
    await cell.close()


@pytest.mark.parametrize(("strict", "phase"), [(False, "placed"), (True, "failed")])
async def test_a_product_that_the_policy_does_not_support(*, strict: bool, phase: str) -> None:
    cell = await a_cell(nslb_version="2.0", strict_product_support=strict)
    await cell.submit(by_leaf("j", 2, labels={"tor-affinity": LARGE, "framework": "tensorflow"}))
    await cell.turns(2)
    assert (await told(cell, "j")).phase == phase
    if strict:
        assert (await refusal(cell, "j")).code == "product-support"
    else:
        assert "tensorflow" in (await part(cell, "j")).warning
        assert (await told(cell, "j")).warning == (await part(cell, "j")).warning
    await cell.close()


async def test_a_job_that_its_policy_does_not_support_is_turned_away_though_one_of_its_class_waits() -> None:
    cell = await a_cell(topology=a_topology(0), strict_product_support=True)
    other = by_leaf("other", 17, labels={"tor-affinity": LARGE, "framework": "tensorflow"})
    await cell.submit(by_leaf("job", 17), other)
    await cell.turns(3)
    assert [(await refusal(cell, name)).code for name in ("job", "other")] == ["no-topology"] * 2
    await say(cell, a_topology())
    await cell.turns(2)
    assert [(await told(cell, name)).phase for name in ("job", "other")] == ["waiting", "failed"]
    assert (await refusal(cell, "other")).code == "product-support"
    await cell.close()


async def test_offers_say_what_fits_on_nodes_and_nothing_of_jobs_below_leaves() -> None:
    cell = await a_cell(shards=2)
    for shard in cell.shards:
        leaf_index_of(shard.state.indexes).occupancy.put(("somebody", 1), LeafJob("", 2, ["n00", "n10"]))
    await cell.submit(by_leaf("j", 2))
    await cell.settle()
    await cell.dispatcher.intake.step(cell.dispatcher.state.fold.settings, batch_max=10)
    await cell.turns()
    assert len((await placement(cell, "j")).names()) == 2
    await cell.close()


async def test_a_restarted_dispatcher_knows_the_same_leaves() -> None:
    cell = await a_cell(nslb_version="2.0")
    await cell.submit(by_leaf("one", 6), by_leaf("two", 2))
    await cell.turns(2)
    before = leaf_index_of(cell.dispatcher.state.indexes).occupancy.bits().tolist()
    await cell.dispatcher.stop()
    await cell.start_dispatcher()
    await cell.turns()
    assert leaf_index_of(cell.dispatcher.state.indexes).occupancy.bits().tolist() == before
    assert any(before)
    await cell.close()


async def test_under_parity_a_job_counts_once_it_runs() -> None:
    cell = await a_cell(leaves=2, reference_parity=True)
    await cell.submit(a_job("plain", chips=8, replicas=5))
    await cell.turns(2)
    occupancy = leaf_index_of(cell.dispatcher.state.indexes).occupancy
    assert [int(bit) & CROSS for bit in occupancy.bits()] == [0, 0]
    await cell.pods("plain", PodPhase.RUNNING)
    await cell.turns()
    assert [int(bit) & CROSS for bit in occupancy.bits()] == [CROSS, CROSS]
    await cell.close()
