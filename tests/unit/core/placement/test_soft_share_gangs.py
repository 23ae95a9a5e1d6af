"""Soft-share gangs: their own pods are no strangers to each other, neither in one round nor in a replacement."""

import msgspec
import pytest

from berth.core.chips.soft_share_table import ENABLE_LABEL, MEMORY_LABEL
from berth.core.placement.replacements import NoPlaces
from berth.core.requests.job_validation import SHARE_AICORE, SHARE_HBM, SHARE_POLICY
from berth.schemas.facts import NodeHealth
from berth.schemas.intake import JobRequest
from berth.schemas.nodes import NodeCondition, NodeDescription
from berth.schemas.placement import Placement
from berth.schemas.pod_constraints import PodConstraints
from tests.support.cells import a_job, a_node
from tests.support.constraint_worlds import near
from tests.support.core_cells import CoreCell
from tests.support.replacements import gang_of_cell, holding_of, leaving_of, replaced


def shared(name: str, chips: int) -> NodeDescription:
    labels = {ENABLE_LABEL: "true", MEMORY_LABEL: "64G"}
    return a_node(name, "soft-share", labels=labels, chips=chips, allocatable=chips.bit_count())


def a_gang(name: str, aicore: int, pods: int) -> JobRequest:
    labels = {SHARE_AICORE: str(aicore), SHARE_HBM: "1024", SHARE_POLICY: "elastic"}
    return a_job(name, product="soft-share", chips=1, replicas=pods, labels=labels)


def chips_of(cell: CoreCell, name: str) -> list[int]:
    found = [one for one in cell.state.fold.holdings.values() if one.name == name]
    return [chip for one in found for chips in one.placement.chips_by_rank() for chip in chips]


@pytest.mark.parametrize(("aicore", "pods", "chips"), [(100, 2, 0b11), (50, 4, 0b11), (100, 1, 0b1), (34, 4, 0b11)])
@pytest.mark.parametrize("parity", [False, True])
def test_a_gang_may_fill_a_node_exactly(*, aicore: int, pods: int, chips: int, parity: bool) -> None:
    cell = CoreCell([shared("a", chips)], reference_parity=parity)
    cell.ask(a_gang("j", aicore, pods))
    cell.decide()
    assert len(chips_of(cell, "j")) == pods
    assert max(cell.state.shares.nodes[0].core) <= 100


def test_a_gang_that_is_larger_than_a_node_is_refused() -> None:
    cell = CoreCell([shared("a", 0b11)])
    cell.ask(a_gang("j", 100, 3), a_gang("k", 51, 3))
    cell.decide()
    assert not cell.state.fold.holdings


def test_pods_of_others_count_as_before() -> None:
    cell = CoreCell([shared("a", 0b111)])
    cell.ask(a_gang("first", 100, 1))
    cell.decide()
    cell.ask(a_gang("j", 100, 3))
    cell.decide()
    assert (chips_of(cell, "first"), chips_of(cell, "j")) == ([0], [])
    cell.ask(a_gang("k", 100, 2))
    cell.decide()
    assert chips_of(cell, "k") == [1, 2]


def replaced_chips(cell: CoreCell, name: str, rank: int) -> list[int] | None:
    found = replaced(cell, leaving_of(cell, name, [rank]))
    if isinstance(found, NoPlaces):
        return None
    assert isinstance(found, Placement)
    return [chip for chips in found.chips_by_rank() for chip in chips]


def test_a_new_pod_does_not_count_its_siblings_as_strangers() -> None:
    cell = CoreCell([shared("a", 0b111)])
    cell.ask(a_gang("j", 60, 2))
    cell.decide()
    assert chips_of(cell, "j") == [0, 1]
    cell.conditions["a"] = NodeCondition("a", unhealthy=0b10)
    cell.publish()
    assert replaced_chips(cell, "j", 1) == [2]


def test_a_new_pod_counts_pods_of_others() -> None:
    cell = CoreCell([shared("a", 0b111)])
    cell.ask(a_gang("j", 60, 2))
    cell.decide()
    cell.ask(a_gang("other", 60, 1))
    cell.decide()
    cell.conditions["a"] = NodeCondition("a", unhealthy=0b10)
    cell.publish()
    assert replaced_chips(cell, "j", 1) is None
    assert holding_of(cell.state, "other").placement.chips_by_rank() == [(2,)]


def test_a_gang_after_a_replacement_counts_the_pods_of_that_gang() -> None:
    """Both are tried in one round: what is left out for one gang counts for the next."""
    cell = CoreCell([shared("a", 0b111)])
    cell.ask(a_gang("j", 60, 2))
    cell.decide()
    assert cell.state.shares.nodes[0].core[:3] == [60, 60, 0]
    leaving = leaving_of(cell, "j", [1])
    assert not isinstance(replaced(cell, leaving), NoPlaces)
    cell.ask(a_gang("k", 60, 2))
    cell.decide()
    assert chips_of(cell, "k") == []
    assert cell.state.shares.nodes[0].core[:3] == [60, 60, 0]


def test_a_sub_healthy_node_loses_a_point() -> None:
    cell = CoreCell([a_node("a"), a_node("b")])
    cell.conditions["a"] = NodeCondition("a", level=NodeHealth.SUB_HEALTHY)
    cell.publish()
    cell.ask(a_job("j", chips=2), a_job("plain", chips=0))
    cell.decide()
    assert holding_of(cell.state, "j").placement.names() == ["b"]
    assert holding_of(cell.state, "plain").placement.names() == ["a"], "only pods with chips look at it"


@pytest.mark.parametrize("product", ["module910bx8", "soft-share"])
def test_one_row_has_the_score_of_all_rows(product: str) -> None:
    nodes = [shared(name, 0b11) if product == "soft-share" else a_node(name) for name in "ab"]
    cell = CoreCell(nodes)
    cell.ask(*(a_gang(name, 10, 1) if product == "soft-share" else a_job(name, chips=1) for name in ("j", "k")))
    cell.decide()
    before = scores_of(cell, "j")
    cell.conditions["a"] = NodeCondition("a", level=NodeHealth.SUB_HEALTHY)
    cell.publish()
    after = scores_of(cell, "j")
    assert [was - now for was, now in zip(before, after, strict=True)] == [int(before[0] > 0), 0]


def scores_of(cell: CoreCell, name: str) -> list[int]:
    """Score of each node for a pod of a job, which is the same for all nodes at once and one by one."""
    scorer = cell.scheduler.scorer
    shape = gang_of_cell(cell, name).request_class[0][0]
    reasons, scores = scorer.evaluate(shape)
    for row in range(len(scorer.table)):
        assert scorer.evaluate_one(shape, row, scorer.row_state(row)) == (reasons[row], scores[row])
    return [int(score) for score in scores]


@pytest.mark.parametrize("used", ["a", "b"])
def test_a_gang_that_stays_in_one_zone_goes_to_the_node_that_is_best_without_that(used: str) -> None:
    """Whether a chip is unused, or has room for its shares beside others, makes no difference to how many fit."""
    labels = {ENABLE_LABEL: "true", MEMORY_LABEL: "64G"}
    nodes = [msgspec.structs.replace(shared(name, 0b11), labels={**labels, "zone": name}) for name in "ab"]
    chosen: list[list[str]] = []
    for constraints in (None, PodConstraints(affinity=(near("zone", app="x"),))):
        cell = CoreCell(
            nodes,
        )
        apart = {**a_gang("apart", 20, 2).labels, SHARE_HBM: "40000"}
        cell.ask(msgspec.structs.replace(a_gang("apart", 20, 2), node_selector={"zone": used}, labels=apart))
        cell.decide()
        assert sorted(chips_of(cell, "apart")) == [0, 1]
        gang = a_gang("gang", 40, 2)
        tasks = [msgspec.structs.replace(task, labels={"app": "x"}, constraints=constraints) for task in gang.tasks]
        cell.ask(msgspec.structs.replace(gang, tasks=tasks))
        cell.decide()
        chosen += [one.placement.names() for one in cell.state.fold.holdings.values() if one.name == "gang"]
    assert len(chosen) == 2
    assert chosen[0] == chosen[1]
