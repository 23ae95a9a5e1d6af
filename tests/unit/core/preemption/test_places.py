"""Where victims leave a place: rings, leaves, SuperPoDs, racks and levels, each by its planner."""

import numpy as np
import pytest

from berth.core.cluster.node_packing import SWITCHES
from berth.core.preemption.model import NoVictims, Terms, VictimSet
from berth.schemas.facts import Leaf, TopologySeen
from berth.schemas.intake import JobRequest, Task
from berth.schemas.nodes import NodeCondition
from berth.schemas.pod_constraints import PodConstraints
from tests.support.cells import a_job, a_node
from tests.support.constraint_worlds import HOST, OneNode, near, usage_of
from tests.support.core_cells import SUBJECTS, nodes_in_superpods, on
from tests.support.preemption_cells import HOUR_MS, PreemptionCell, leaves, named, nodes_of

A3 = "superpod910a3x16"
LARGE = {"tor-affinity": "large-model-schema"}


def below_leaves(number: int = 2, width: int = 2) -> PreemptionCell:
    """Nodes below leaf switches, each with a gang of its own; those of the last leaf have run longest."""
    cell = PreemptionCell(leaves(number, width), nslb_version="2.0", shared_tor_num=2)
    names = [[f"{leaf}-{index}" for index in range(width)] for leaf in range(number)]
    known = [Leaf(f"leaf-{leaf}", f"10.0.0.{leaf}", names[leaf], list(range(width))) for leaf in range(number)]
    fact = TopologySeen(SWITCHES, known, level="double_layer", places=width)
    cell.fact(SUBJECTS.fact_topology(SWITCHES), fact)
    for leaf in range(number):
        for name in names[leaf]:
            start_ms = cell.now_ms - 60_000 * (1 + leaf)
            cell.runs(a_job(f"j{name}", chips=8, node_selector=on(name)), start_ms=start_ms)
    return cell


def test_one_leaf_is_freed_for_a_gang_that_fits_below_one() -> None:
    cell = below_leaves()
    found = cell.found(a_job("p", chips=8, replicas=2, priority=1, labels=LARGE))
    assert named(found) == ["j0-0", "j0-1"]
    assert nodes_of(found) == ["0-0", "0-1"]
    assert isinstance(found, VictimSet)
    assert (found.place.kind, found.place.name) == ("leaf", "leaf-0")
    assert found.placement.groups, "the leaves of the plan are recorded"


def test_a_gang_on_the_cheapest_leaf_that_may_not_go_moves_the_choice_to_another_leaf() -> None:
    cell = below_leaves()
    cell.facts["j0-1"] = {"is_preemptable": False}
    found = cell.found(a_job("p", chips=8, replicas=2, priority=1, labels=LARGE))
    assert named(found) == ["j1-0", "j1-1"]


def test_a_ring_is_freed_by_the_gangs_on_it() -> None:
    cell = PreemptionCell([a_node("n0", "module910x8")], strict_job_shape=False)
    for number in range(4):
        cell.runs(a_job(f"j{number}", chips=2, product="module910x8"), start_ms=cell.now_ms - (number + 1) * 60_000)
    found = cell.found(a_job("p", chips=4, priority=1, product="module910x8"))
    assert named(found) == ["j0", "j1"]
    assert isinstance(found, VictimSet)
    assert [*found.placement.chips] == [0, 1, 2, 3]


def in_superpods(widths: tuple[int, ...], product: str = A3, **settings: object) -> PreemptionCell:
    """Each node has a gang; those of the first SuperPoD have run longest."""
    cell = PreemptionCell(nodes_in_superpods(widths, product), reserve_nodes=0, **settings)
    for pod, width in enumerate(widths):
        for index in range(width):
            name = f"{pod}-{index}"
            request = a_job(f"j{name}", chips=16, product=product, annotations={"sp-block": "16"})
            request.node_selector["kubernetes.io/hostname"] = name
            cell.runs(request, start_ms=cell.now_ms - 60_000 * (1 + len(widths) - pod))
    return cell


def test_a_block_is_freed_in_one_superpod() -> None:
    cell = in_superpods((4, 4))
    cell.facts["j1-3"] = {"is_preemptable": False}
    request = a_job("p", chips=16, replicas=4, product=A3, annotations={"sp-block": "64"}, priority=1)
    found = cell.found(request)
    assert named(found) == ["j0-0", "j0-1", "j0-2", "j0-3"], "three nodes of the cheaper one are no block"
    cell.facts["j0-3"] = {"is_preemptable": False}
    assert cell.found(request) == NoVictims("preempt", gangs=6, chips=96, place="superpod")
    smaller = a_job("p", chips=16, replicas=4, product=A3, annotations={"sp-block": "32"}, priority=1)
    assert len(named(cell.found(smaller))) == 4, "two blocks of two nodes, one a SuperPoD"


LEVELS = '{"default": {"level1": {"label": "rack"}, "level2": {"label": "row"}}}'


def by_levels(name: str, replicas: int, size: int, node: str = "", priority: int = 0) -> JobRequest:
    annotations = {"huawei.com/schedule_policy": "multilevel", "huawei.com/affinity-config": f"level1={size}"}
    selector = {"kubernetes.io/hostname": node} if node else {}
    return a_job(name, chips=8, replicas=replicas, annotations=annotations, node_selector=selector, priority=priority)


def test_a_group_of_a_level_is_freed() -> None:
    nodes = [a_node(f"n{index}", labels={"rack": f"r{index // 4}", "row": "w"}) for index in range(8)]
    cell = PreemptionCell(nodes, resource_levels=LEVELS)
    for index, node in enumerate(nodes):
        cell.runs(by_levels(f"j{index}", 1, 1, node.name), start_ms=cell.now_ms - 60_000 * (1 + index))
    cell.facts["j0"] = {"is_preemptable": False}
    request = by_levels("p", 4, 4, priority=1)
    assert named(cell.found(request)) == ["j4", "j5", "j6", "j7"], "three cheaper nodes are no group"
    cell.facts["j7"] = {"is_preemptable": False}
    assert cell.found(request) == NoVictims("preempt", gangs=6, chips=48, place="group")


def test_a_drained_or_faulty_node_is_no_place() -> None:
    cell = PreemptionCell([a_node("n0"), a_node("n1")])
    cell.runs(a_job("first", chips=8, node_selector=on("n0")), start_ms=cell.now_ms - 1)
    cell.runs(a_job("second", chips=8, node_selector=on("n1")))
    cell.conditions["n0"] = NodeCondition("n0", unhealthy=0xFF)
    cell.publish()
    assert cell.victims(a_job("p", chips=8, priority=1)) == ["second"]


def sharing(name: str, quota: int, priority: int = 0) -> JobRequest:
    request = a_job(name, product="soft-share", priority=priority)
    quotas = {"aicoreQuota": str(quota), "hbmQuota": "4000", "policy": "elastic"}
    prefixed = {f"huawei.com/scheduler.softShareDev.{key}": value for key, value in quotas.items()}
    request.labels.update(prefixed)
    return request


def test_a_chip_is_free_when_all_have_left_that_share_it() -> None:
    cell = PreemptionCell([a_node("n0", "soft-share", chips=0b11, allocatable=2)])
    for number in range(4):
        cell.runs(sharing(f"j{number}", 50), start_ms=cell.now_ms - 60_000 * (number + 1))
    assert named(cell.found(sharing("p", 50, priority=1))) == ["j0"]
    assert named(cell.found(sharing("p", 100, priority=1))) == ["j0", "j1"]


def test_a_place_that_is_freed_by_others_is_taken_without_an_eviction() -> None:
    cell = PreemptionCell([a_node("n0"), a_node("n1")])
    cell.runs(a_job("leaves", chips=8, node_selector=on("n0")), is_leaving=True)
    cell.runs(a_job("other", chips=8, node_selector=on("n1")))
    found = cell.found(a_job("p", chips=8, priority=1))
    assert (named(found), nodes_of(found)) == ([], ["n0"])


def test_places_that_a_gang_keeps_for_its_next_attempt_are_nobody_elses() -> None:
    cell = PreemptionCell([a_node("n0")])
    cell.runs(a_job("anew", chips=8), is_leaving=True)
    assert named(cell.found(a_job("p", chips=8, priority=1))) == []
    cell.facts["anew"] = {"is_leaving": True, "is_kept": True}
    assert cell.victims(a_job("p", chips=8, priority=1)) == "preempt"


def test_two_preemptors_do_not_get_one_place_and_share_what_one_victim_leaves() -> None:
    cell = PreemptionCell([a_node("n0"), a_node("n1")])
    for name in ("n0", "n1"):
        cell.runs(
            a_job(f"j{name}", chips=8, node_selector=on(name)), start_ms=cell.now_ms - HOUR_MS // (1 + int(name[1]))
        )
    search = cell.search()
    places = []
    for number in range(4):
        preemptor = cell.preemptor(a_job(f"p{number}", chips=4, priority=1))
        found = search.find(preemptor)
        assert isinstance(found, VictimSet)
        search.accept(preemptor, found)
        places.append((named(found), nodes_of(found), [*found.placement.chips]))
    low, high = [0, 1, 2, 3], [4, 5, 6, 7]
    assert places == [(["jn1"], ["n1"], low), ([], ["n1"], high), (["jn0"], ["n0"], low), ([], ["n0"], high)]
    assert search.find(cell.preemptor(a_job("p4", chips=4, priority=1))) == NoVictims("preempt", place="node")


def test_gangs_with_pods_on_silent_rows_stay() -> None:
    cell = PreemptionCell([a_node("n0"), a_node("n1")])
    for name in ("n0", "n1"):
        cell.runs(a_job(f"j{name}", chips=8, node_selector=on(name)))
    cell.silent = np.array([True, False])
    assert cell.victims(a_job("p", chips=8, priority=1)) == ["jn1"]
    assert cell.victims(a_job("p", chips=8, replicas=2, priority=1)) == "preempt"


@pytest.mark.parametrize("places_max", [1, 2])
def test_the_place_that_seems_cheapest_is_looked_at_first(places_max: int) -> None:
    cell = below_leaves(4)
    found = cell.found(a_job("p", chips=8, replicas=2, priority=1), Terms(places_max=places_max))
    assert named(found) == ["j0-0", "j0-1"]


def apart(name: str, priority: int = 0) -> JobRequest:
    """A pod that may not be on a node with pods of app x."""
    constraints = PodConstraints(anti_affinity=(near(HOST, app="x"),))
    return a_job(name, tasks=[Task("worker", 1, 4, labels={"app": "p"}, constraints=constraints)], priority=priority)


def test_without_a_placement_the_next_candidate_goes_too() -> None:
    """Counting does not see who may not be near whom."""
    cell = PreemptionCell([a_node("n0")])
    usage = usage_of("all", [OneNode("n0")], ())
    cell.fact(SUBJECTS.fact_usage("all"), usage)
    tasks = [Task("worker", 1, 4, labels={"app": "x"}, constraints=PodConstraints())]
    cell.runs(a_job("x", tasks=tasks), start_ms=0)
    cell.runs(a_job("y", chips=4), start_ms=cell.now_ms - 60_000)
    found = cell.found(apart("p", priority=1))
    assert named(found) == ["x"], "y goes first; when x has to go too, y may stay"
    assert isinstance(found, VictimSet)
    assert found.plans == 3
    assert cell.victims(apart("p", priority=1), Terms(plans_max=1)) == "preempt"


def test_what_a_gang_holds_is_found_once_and_again_when_it_holds_something_else() -> None:
    cell = PreemptionCell([a_node("n0")])
    cell.runs(a_job("j", chips=8))
    (key,) = cell.state.fold.holdings
    first = cell.footprints.of(cell.state, key)
    assert first is not None
    assert cell.footprints.of(cell.state, key) is first
    cell.state.fold.holdings[key].gone = [0]
    assert cell.footprints.of(cell.state, key) is not first
    assert cell.footprints.of(cell.state, ("another", 1)) is None
    cell.footprints.keep_only([])
    cell.state.fold.holdings[key].gone = []
    assert cell.footprints.of(cell.state, key) is not first


def test_of_equal_places_the_first_by_name_counts_in_whatever_order_the_nodes_came() -> None:
    cell = PreemptionCell([])
    for name in ("n2", "n0", "n1"):
        cell.nodes[name] = a_node(name)
        cell.publish()
    cell.runs(a_job("wide", chips=8, replicas=3))
    assert nodes_of(cell.found(a_job("p", chips=8, priority=1))) == ["n0"]
