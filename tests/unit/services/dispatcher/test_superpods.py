"""Jobs with SuperPoD affinity in the dispatcher's turns, on a whole cell in memory."""

import re
from collections.abc import Mapping

import pytest
from structlog.testing import capture_logs

from berth.core.topologies.blocks.placed import BlockPlacement
from berth.schemas.columns import unpack
from berth.schemas.facts import PodPhase
from berth.schemas.intake import JobRequest, Task
from berth.schemas.nodes import NodeCondition, NodeDescription
from berth.schemas.refusal import NodeReason
from berth.services.dispatcher.config import DecisionConfig
from tests.support.cells import Cell, a_job, a_node
from tests.support.job_verdicts import placement, refusal, told
from tests.support.placed_parts import the_block

A3 = "superpod910a3x16"


def nodes_of(pods: Mapping[str, int], product: str = A3) -> list[NodeDescription]:
    return [
        a_node(f"p{pod}-n{index:02}", product, superpod=pod, rack=str(index // 4))
        for pod, count in pods.items()
        for index in range(count)
    ]


async def a_cell(nodes: list[NodeDescription], *, shards: int = 0, **decisions: object) -> Cell:
    cell = await Cell(shards=shards, **decisions).open()  # type: ignore[arg-type]  # fields of the settings
    await cell.nodes(nodes)
    await cell.turns()
    return cell


def in_blocks(name: str, replicas: int, block: int, *, soft: bool = False, **changes: object) -> JobRequest:
    annotations = {"huawei.com/schedule_policy": "chip2-node16-sp", "sp-block": str(16 * block)}
    labels = {"super-pod-affinity": "soft"} if soft else {}
    fields: dict[str, object] = {"product": A3, "annotations": annotations, "labels": labels, **changes}
    return a_job(name, chips=16, replicas=replicas, **fields)  # type: ignore[arg-type]  # fields of a request


async def part(cell: Cell, name: str) -> BlockPlacement:
    return the_block(await placement(cell, name))


async def superpods(cell: Cell, name: str) -> list[str]:
    """SuperPoD of each block, by the ids of the blocks."""
    found = await part(cell, name)
    by_block = dict(zip(unpack(found.block_index, 2), unpack(found.superpod_index, 2), strict=True))
    return [found.superpods[by_block[index + 1] - 1] for index in range(len(found.blocks))]


@pytest.mark.parametrize("shards", [0, 3])
async def test_blocks_lie_in_superpods_that_keep_their_reserve(shards: int) -> None:
    cell = await a_cell(nodes_of({"0": 4, "1": 6, "2": 8, "10": 7}), shards=shards)
    await cell.submit(in_blocks("j", 8, 4))
    await cell.turns(2)
    found = await part(cell, "j")
    assert (found.variant, found.size, found.blocks, found.annotated) == ("a3", 4, [0, 1], True)
    assert found.phases == ["fits", "fits"]
    assert await superpods(cell, "j") == ["1", "10"]  # 6 = 4 + 2 fits, then 7; 4 has no reserve, 8 leaves more over
    assert (await placement(cell, "j")).names()[:4] == [f"p1-n0{index}" for index in range(4)]
    await cell.close()


async def test_a_gang_waits_for_blocks_and_is_told_which_superpods_come_closest() -> None:
    cell = await a_cell(nodes_of({"0": 7, "1": 3}))
    await cell.submit(in_blocks("j", 8, 4))
    await cell.turns(2)
    lack = (await refusal(cell, "j")).blocks
    assert (await refusal(cell, "j")).code == "no-blocks"
    assert lack is not None
    assert (lack.need, lack.have, lack.size) == (2, 1, 4)
    assert [(near.name, near.nodes, near.blocks) for near in lack.near] == [("0", 7, 1), ("1", 3, 0)]
    await cell.nodes(nodes_of({"0": 7, "1": 4}))
    await cell.turns(2)
    assert (await told(cell, "j")).phase == "placed"
    await cell.close()


async def test_a_soft_gang_goes_in_pieces_where_whole_blocks_find_no_room() -> None:
    cell = await a_cell(nodes_of({"0": 6, "1": 3}), reserve_nodes=0)
    await cell.submit(in_blocks("j", 8, 4, soft=True))
    await cell.turns(2)
    found = await part(cell, "j")
    assert found.phases[0] != "pieces"
    assert found.phases[1:] == ["pieces"] * (len(found.phases) - 1)
    assert len(set((await placement(cell, "j")).names())) == 8
    await cell.close()


async def test_nodes_outside_superpods_do_not_serve() -> None:
    nodes = [*nodes_of({"0": 4}), *(a_node(f"x{index}", A3) for index in range(4))]
    cell = await a_cell(nodes)
    await cell.submit(in_blocks("j", 8, 4))
    await cell.turns(2)
    counts = {count.reason: count.nodes for count in (await refusal(cell, "j")).counts}
    assert counts == {NodeReason.NO_SUPERPOD: 4}
    await cell.close()


async def test_a_later_gang_of_the_round_finds_what_is_left() -> None:
    cell = await a_cell(nodes_of({"0": 8, "1": 8}), reserve_nodes=0)
    await cell.submit(in_blocks("one", 8, 8), in_blocks("two", 8, 8), in_blocks("three", 8, 8))
    await cell.turns(2)
    assert [await superpods(cell, name) for name in ("one", "two")] == [["0"], ["1"]]
    assert (await told(cell, "three")).phase == "waiting"
    await cell.pods("one", PodPhase.SUCCEEDED)
    await cell.turns(2)
    assert await superpods(cell, "three") == ["0"]
    await cell.close()


async def test_a_service_goes_beside_its_siblings() -> None:
    cell = await a_cell(nodes_of({"0": 8, "1": 9, "2": 4}))
    chat = {"inferserviceid": "chat"}
    await cell.submit(in_blocks("one", 2, 2, labels=chat))
    await cell.turns(2)
    assert await superpods(cell, "one") == ["1"]  # the most free
    await cell.submit(in_blocks("two", 2, 2, labels=chat), in_blocks("other", 2, 2, labels={"inferserviceid": "x"}))
    await cell.turns(2)
    assert (await superpods(cell, "two"), (await part(cell, "two")).phases) == (["1"], ["service"])
    assert await superpods(cell, "other") == ["0"]
    await cell.close()


async def test_levels_of_labels() -> None:
    labels = {"huawei.com/topotree": "t"}
    nodes = [
        a_node(f"n{index}", labels=labels | {"rack": f"r{index // 2}", "row": f"w{index // 4}"}) for index in range(8)
    ]
    config = '{"t": {"level1": {"label": "rack", "reservedNode": 0}, "level2": {"label": "row"}}}'
    cell = await a_cell(nodes, resource_levels=config)
    annotations = {"huawei.com/schedule_policy": "multilevel", "huawei.com/affinity-config": "level1=2,level2=4"}
    await cell.submit(a_job("j", chips=8, replicas=4, annotations=annotations, node_selector={}))
    await cell.turns(2)
    found = await part(cell, "j")
    assert (found.variant, found.phases, found.superpods) == ("levels", ["level", "level"], ["r0", "r1"])
    assert (await placement(cell, "j")).names() == ["n0", "n1", "n2", "n3"]
    await cell.nodes([a_node(f"n{index}") for index in range(8)])
    await cell.submit(a_job("k", chips=8, replicas=4, annotations=annotations, node_selector={}))
    await cell.turns(2)
    assert {count.reason for count in (await refusal(cell, "k")).counts} == {NodeReason.NO_LEVEL}
    await cell.close()


@pytest.mark.parametrize(
    ("annotations", "field", "value"),
    [
        ({"sp-block": "-16"}, "annotations.sp-block", "-16"),
        ({"sp-block": "99999999999999999999"}, "annotations.sp-block", "99999999999999999999"),
        ({"sp-block": "17"}, "annotations.sp-block", "17"),
        ({"sp-block": str(16 * 49)}, "annotations.sp-block", str(16 * 49)),
    ],
)
async def test_a_bad_block_is_refused_and_other_jobs_go_on(annotations: dict[str, str], field: str, value: str) -> None:
    cell = await a_cell(nodes_of({"0": 8}))
    policy = {"huawei.com/schedule_policy": "chip2-node16-sp"}
    await cell.submit(in_blocks("bad", 2, 1, annotations=policy | annotations), in_blocks("good", 2, 2))
    await cell.turns(2)
    found = await refusal(cell, "bad")
    assert (found.field, found.value, (await told(cell, "bad")).phase) == (field, value, "rejected")
    assert (await told(cell, "good")).phase == "placed"
    await cell.close()


async def test_pods_of_a_job_in_blocks_fill_nodes() -> None:
    cell = await a_cell(nodes_of({"0": 8}))
    await cell.submit(in_blocks("j", 2, 1, tasks=[Task("a", 4, 8)]))
    await cell.turns(2)
    found = await refusal(cell, "j")
    assert (found.field, found.value) == ("tasks[0].chips", "8")
    await cell.close()


async def test_a_superpod_larger_than_said_serves_and_is_warned_of() -> None:
    with capture_logs() as logs:
        cell = await a_cell(nodes_of({"0": 12, "1": 3}), super_pod_size=8)
    assert [entry["superpods"] for entry in logs if entry["log_level"] == "warning"] == [["0"]]
    await cell.submit(in_blocks("j", 12, 4))
    await cell.turns(2)
    assert await superpods(cell, "j") == ["0", "0", "0"]
    await cell.close()


async def test_a_restarted_dispatcher_knows_services() -> None:
    cell = await a_cell(nodes_of({"0": 8, "1": 9}))
    await cell.submit(in_blocks("one", 2, 2, labels={"inferserviceid": "chat"}))
    await cell.turns(2)
    await cell.dispatcher.stop()
    await cell.start_dispatcher()
    await cell.submit(in_blocks("two", 2, 2, labels={"inferserviceid": "chat"}))
    await cell.turns(2)
    assert await superpods(cell, "two") == await superpods(cell, "one") == ["1"]
    await cell.close()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"reserve_nodes": 48}, "reserve_nodes is 48: expected fewer than super_pod_size, which is 48"),
        ({"super_pod_size": 1, "reserve_nodes": 1}, "reserve_nodes is 1"),
        ({"resource_levels": '{"a": {"level2": {}}}'}, "resource_levels: resource-level-config.a.level1 is missing"),
        ({"resource_levels": "no json"}, "resource_levels: "),
    ],
)
def test_settings_that_do_not_go_together_are_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        DecisionConfig(**changes)  # type: ignore[arg-type]  # fields of the settings


@pytest.mark.parametrize("rack", ["", "r1", "-1", "2147483648", "9" * 30, "9" * 5_000])
async def test_nodes_in_no_numbered_rack_do_not_serve_jobs_that_need_racks(rack: str) -> None:
    nodes = [a_node(f"n{index}", "superpod950x8", superpod="0", rack=rack if index else "7") for index in range(4)]
    cell = await a_cell(nodes)
    policy = {"huawei.com/schedule_policy": "chip8-node8-ra64-sp", "sp-block": "8"}
    for replicas in (1, 2):
        await cell.submit(
            a_job(f"j{replicas}", chips=8, replicas=replicas, product="superpod950x8", annotations=policy)
        )
        await cell.turns(2)
    counts = {count.reason: count.nodes for count in (await refusal(cell, "j2")).counts}
    assert counts == {NodeReason.NO_SUPERPOD: 3, NodeReason.SHORTAGE: 1}
    assert (await placement(cell, "j1")).names() == ["n0"]
    await cell.close()


async def test_a_superpod_may_have_any_name() -> None:
    name = "9" * 5_000
    cell = await a_cell([*nodes_of({"5": 2, "x": 3}), *(a_node(f"z{index}", A3, superpod=name) for index in range(4))])
    await cell.submit(in_blocks("j", 4, 4))
    await cell.turns(2)
    assert await superpods(cell, "j") == [name]
    await cell.close()


async def test_a_part_of_a_gang_of_several_blocks_needs_chips_that_the_network_reaches() -> None:
    cell = await a_cell(nodes_of({"0": 4}))
    ill = [NodeCondition(f"p0-n{index:02}", network_unhealthy=1) for index in range(3)]
    await cell.health("superpod-0", ill)
    for gang_pods in (1, 2):
        annotations = {"huawei.com/schedule_policy": "chip2-node16-sp", "berth/gang-pods": str(gang_pods)}
        await cell.submit(in_blocks(f"j{gang_pods}", 1, 1, annotations=annotations | {"sp-block": "16"}))
        await cell.turns(2)
    assert [(await placement(cell, name)).names() for name in ("j1", "j2")] == [["p0-n00"], ["p0-n03"]]
    await cell.close()


@pytest.mark.parametrize(
    ("tasks", "field", "value"),
    [
        ([Task("a", 2, 8), Task("b", 2, 4)], "tasks[1].chips", "4"),
        ([Task("a", 1, 0), Task("b", 4, 17)], "tasks[1].chips", "17"),
        ([Task("a", 4, 64)], "tasks[0].chips", "64"),
    ],
)
async def test_pods_of_a_job_with_levels_fill_nodes(tasks: list[Task], field: str, value: str) -> None:
    nodes = [a_node(f"n{index}", labels={"rack": "r"}) for index in range(8)]
    cell = await a_cell(nodes, resource_levels='{"default": {"level1": {"label": "rack"}}}')
    annotations = {"huawei.com/schedule_policy": "multilevel", "huawei.com/affinity-config": "level1=2"}
    await cell.submit(a_job("j", tasks=tasks, annotations=annotations, node_selector={}))
    await cell.turns(2)
    found = await refusal(cell, "j")
    assert (found.code, found.field, found.value) == ("invalid-request", field, value)
    await cell.close()


async def test_pods_without_chips_go_beside_those_of_a_job_with_levels() -> None:
    nodes = [a_node(f"n{index}", labels={"rack": "r"}) for index in range(2)]
    cell = await a_cell(nodes, resource_levels='{"default": {"level1": {"label": "rack"}}}')
    annotations = {"huawei.com/schedule_policy": "multilevel", "huawei.com/affinity-config": "level1=2"}
    tasks = [Task("ps", 1, 0), Task("worker", 2, 8)]
    await cell.submit(a_job("j", tasks=tasks, annotations=annotations, node_selector={}))
    await cell.turns(2)
    assert unpack((await part(cell, "j")).block_index, 2) == [0, 1, 1]
    await cell.close()


async def test_a_part_that_is_no_whole_block_is_told_that_it_is_a_part() -> None:
    cell = await a_cell(nodes_of({"0": 8}))
    annotations = {"huawei.com/schedule_policy": "chip2-node16-sp", "sp-block": "64", "berth/gang-pods": "4"}
    await cell.submit(in_blocks("j", 1, 4, annotations=annotations))
    await cell.turns(2)
    found = await refusal(cell, "j")
    assert (found.field, found.value) == ("annotations.sp-block", "64")
    assert "1 of the 4 pods of its gang" in found.expected
    await cell.close()


async def test_a_cordon_moves_nobody_and_new_labels_do() -> None:
    def fleet(*, cordoned: bool = False, rack: str = "r0") -> list[NodeDescription]:
        first = a_node("n0", labels={"rack": rack}, cordoned=cordoned, ready=not cordoned)
        return [first, *(a_node(f"n{index}", labels={"rack": f"r{index // 2}"}) for index in range(1, 4))]

    cell = await a_cell(fleet(), resource_levels='{"default": {"level1": {"label": "rack"}}}')
    annotations = {"huawei.com/schedule_policy": "multilevel", "huawei.com/affinity-config": "level1=2"}
    table = cell.dispatcher.state.table
    revision = table.layout_revision
    await cell.nodes(fleet(cordoned=True))
    await cell.submit(a_job("a", chips=8, replicas=2, annotations=annotations, node_selector={}))
    await cell.turns(2)
    assert table.layout_revision == revision
    assert (await placement(cell, "a")).names() == ["n2", "n3"]
    await cell.submit(a_job("b", chips=8, replicas=2, annotations=annotations, node_selector={}))
    await cell.nodes(fleet(rack="r9"))
    await cell.turns(2)
    assert table.layout_revision > revision
    assert (await told(cell, "b")).phase == "waiting"
    await cell.nodes(fleet())
    await cell.turns(2)
    assert (await placement(cell, "b")).names() == ["n0", "n1"]
    await cell.close()


async def test_pods_of_a_job_with_levels_need_chips_that_the_network_reaches() -> None:
    config = '{"default": {"level1": {"label": "rack"}}}'
    cell = await a_cell([a_node(f"n{index}", labels={"rack": "r"}) for index in range(3)], resource_levels=config)
    await cell.health("bucket-all", [NodeCondition("n0", network_unhealthy=1)])
    for replicas in (2, 1):
        annotations = {"huawei.com/schedule_policy": "multilevel", "huawei.com/affinity-config": f"level1={replicas}"}
        await cell.submit(a_job(f"j{replicas}", chips=8, replicas=replicas, annotations=annotations, node_selector={}))
        await cell.turns(2)
    assert [(await placement(cell, name)).names() for name in ("j2", "j1")] == [["n1", "n2"], ["n0"]]
    await cell.close()
