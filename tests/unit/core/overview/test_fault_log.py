"""Faults in groups: where they are, since when, and which jobs are there."""

from berth.core.cluster.node_packing import pack_health
from berth.core.overview.fault_log import FaultLog
from berth.schemas.envelope import encode
from berth.schemas.facts import NodeHealth
from berth.schemas.nodes import NodeCondition
from berth.schemas.programs.lists import FaultGroup
from tests.support.cells import a_job, a_node
from tests.support.core_cells import CoreCell, on


def everything(_: str) -> bool:
    return True


def groups(log: FaultLog) -> list[FaultGroup]:
    return [log.group(place, everything) for place in log.places()]


def placed(found: list[FaultGroup]) -> list[tuple[str, str, str, int, int]]:
    return [(one.kind, one.scope, one.name, one.nodes, one.of) for one in found]


def refreshed(cell: CoreCell, log: FaultLog, at_ms: int) -> list[FaultGroup]:
    """Groups after all nodes are said again, and how they are."""
    cell.publish()
    log.note_fact(encode(pack_health("all", list(cell.conditions.values()))))
    log.refresh(at_ms)
    return groups(log)


def rack(leaf: str, count: int) -> list[str]:
    return [f"{leaf}-n{number}" for number in range(count)]


def test_a_leaf_whose_nodes_are_not_ready_is_one_group() -> None:
    nodes = [a_node(name, leaf="leaf-5") for name in rack("leaf-5", 3)] + [a_node("other", leaf="leaf-6")]
    cell = CoreCell(nodes)
    log = FaultLog(cell.state)
    assert refreshed(cell, log, 0) == []
    for name in rack("leaf-5", 3):
        cell.nodes[name] = a_node(name, leaf="leaf-5", ready=False)
    (group,) = refreshed(cell, log, 7_000)
    assert placed([group]) == [("NodeNotReady", "leaf", "leaf-5", 3, 3)]
    assert (group.names, group.level, group.since_ms, group.changed_ms) == (
        rack("leaf-5", 3),
        "not-ready",
        7_000,
        7_000,
    )


def test_one_node_of_a_leaf_is_a_group_of_its_own_and_two_are_of_the_leaf() -> None:
    cell = CoreCell([a_node(name, leaf="leaf-5") for name in rack("leaf-5", 3)])
    log = FaultLog(cell.state)
    cell.conditions["leaf-5-n1"] = NodeCondition("leaf-5-n1", unhealthy=0b101, reason="chips 0 and 2 are broken")
    (one,) = refreshed(cell, log, 1)
    assert placed([one]) == [("CardUnhealthy", "node", "leaf-5-n1", 1, 1)]
    assert (one.chips, one.chip_ids, one.reason) == (2, [0, 2], "chips 0 and 2 are broken")
    cell.conditions["leaf-5-n2"] = NodeCondition("leaf-5-n2", unhealthy=0b1, reason="chip 0 is broken")
    (two,) = refreshed(cell, log, 2)
    assert placed([two]) == [("CardUnhealthy", "leaf", "leaf-5", 2, 3)]
    assert (two.chips, two.chip_ids, two.reason) == (3, [], "")


def test_a_superpod_of_several_leaves_is_one_group_only_if_all_of_it_has_the_fault() -> None:
    places = [("a", "l-1"), ("b", "l-1"), ("c", "l-2"), ("d", "l-2")]
    cell = CoreCell([a_node(name, leaf=leaf, superpod="sp") for name, leaf in places])
    log = FaultLog(cell.state)
    for name, leaf in places[:3]:
        cell.nodes[name] = a_node(name, leaf=leaf, superpod="sp", ready=False)
    assert placed(refreshed(cell, log, 1)) == [
        ("NodeNotReady", "leaf", "l-1", 2, 2),
        ("NodeNotReady", "node", "c", 1, 1),
    ]
    cell.nodes["d"] = a_node("d", leaf="l-2", superpod="sp", ready=False)
    assert placed(refreshed(cell, log, 2)) == [("NodeNotReady", "superpod", "sp", 4, 4)]


def test_a_fault_has_the_time_at_which_it_came_and_that_of_its_last_change() -> None:
    cell = CoreCell([a_node("a")])
    log = FaultLog(cell.state)
    cell.conditions["a"] = NodeCondition("a", unhealthy=0b1, updated_ms=50)
    assert [(one.since_ms, one.changed_ms) for one in refreshed(cell, log, 100)] == [(100, 100)]
    cell.conditions["a"] = NodeCondition("a", unhealthy=0b1, updated_ms=160)
    assert [(one.since_ms, one.changed_ms) for one in refreshed(cell, log, 200)] == [(100, 100)]
    cell.conditions["a"] = NodeCondition("a", unhealthy=0b11, updated_ms=250)
    assert [(one.since_ms, one.changed_ms) for one in refreshed(cell, log, 300)] == [(100, 300)]
    del cell.conditions["a"]
    assert (refreshed(cell, log, 400), len(log)) == ([], 0)
    cell.conditions["a"] = NodeCondition("a", unhealthy=0b1)
    assert [(one.since_ms, one.changed_ms) for one in refreshed(cell, log, 500)] == [(500, 500)]


def test_a_fault_that_was_there_before_has_the_time_that_is_known_of_it() -> None:
    cell = CoreCell([a_node("a"), a_node("b")])
    cell.place(a_job("j", chips=8, node_selector=on("a")))
    for name in ("a", "b"):
        cell.nodes[name] = a_node(name, ready=False)
        cell.conditions[name] = NodeCondition(name, unhealthy=0b1, updated_ms=70)
    cell.publish()
    log = FaultLog(cell.state)
    found = {(one.kind, one.name): one.since_ms for one in refreshed(cell, log, 0)}
    assert found[("CardUnhealthy", "a")] == found[("CardUnhealthy", "b")] == 70
    assert found[("NodeNotReady", "b")] == 0  # nothing was placed there, so nobody has noted it
    assert found[("NodeNotReady", "a")] > 0


def test_a_node_that_is_gone_has_no_fault() -> None:
    cell = CoreCell([a_node("a", ready=False), a_node("b")])
    log = FaultLog(cell.state)
    assert len(refreshed(cell, log, 1)) == 1
    del cell.nodes["a"]
    assert refreshed(cell, log, 2) == []


def test_jobs_are_named_with_their_ranks_as_far_as_the_reader_may_read_them() -> None:
    cell = CoreCell([a_node("a"), a_node("b")])
    cell.place(
        a_job("j", chips=8, replicas=2),
    )
    cell.conditions["b"] = NodeCondition("b", level=NodeHealth.EVICT)
    log = FaultLog(cell.state)
    (group,) = refreshed(cell, log, 1)
    ((job, ranks, pods),) = [(one.name, one.ranks, one.pods) for one in group.jobs]
    assert (job, len(ranks), pods, group.more_jobs) == ("j", 1, 1, 0)
    (place,) = log.places()
    hidden = log.group(place, lambda namespace: namespace == "elsewhere")
    assert (hidden.jobs, hidden.more_jobs) == ([], 1)


def test_faults_of_a_node_are_named_with_their_level() -> None:
    cell = CoreCell([a_node("a")])
    cell.conditions["a"] = NodeCondition("a", level=NodeHealth.EVICT, unhealthy=0b10, reason="fire")
    log = FaultLog(cell.state)
    refreshed(cell, log, 9)
    assert [(one.kind, one.level, one.chips, one.since_ms) for one in log.of_node("a")] == [
        ("NodeUnhealthy", "evict", [], 9),
        ("CardUnhealthy", "unhealthy", [1], 9),
    ]
    assert log.of_node("nobody") == []


def test_many_nodes_are_looked_at_a_few_at_a_time() -> None:
    cell = CoreCell([a_node(f"n{at}", ready=False) for at in range(5)])
    log = FaultLog(cell.state)
    assert [log.refresh(1, most=2), len(log)] == [True, 2]
    assert [log.refresh(1, most=2), len(log)] == [True, 4]
    assert [log.refresh(1, most=2), len(log)] == [False, 5]
    assert not log.refresh(1, most=2)
