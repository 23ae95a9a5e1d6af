"""Jobs on drained nodes: their pods leave by the steps of a recovery, whatever labels say about faults."""

import pytest

from berth.core.faults.maintenance import drain_rules
from berth.core.requests.fault_rules import FaultRules
from berth.schemas.fault_facts import DrainKind, DrainSeen
from berth.schemas.intake import FROM_PODS, JobRequest
from berth.schemas.nodes import NodeDescription
from tests.support.cells import a_job, a_node
from tests.support.core_cells import SUBJECTS
from tests.support.fault_cells import GRACE, PODS_FIRST, FaultCell
from tests.support.replacements import holding_of


def nodes(count: int) -> list[NodeDescription]:
    return [a_node(f"n{number}", leaf=f"leaf{number // 2}") for number in range(count)]


def a_cell(count: int = 4, **settings: object) -> FaultCell:
    return FaultCell(nodes(count), **{"grace_over_ms": 60_000, **settings})


def drain(
    ground: FaultCell,
    name: str,
    *,
    kind: DrainKind = "node",
    since_ms: int = 0,
    grace_ms: int = 0,
    gone: bool = False,
    force: bool = False,
) -> None:
    fact = DrainSeen(kind, name, since_ms or ground.now_ms, grace_ms, gone=gone, force=force)
    ground.fact(SUBJECTS.fact_drain(kind, name), fact)


def test_without_its_master_a_job_starts_anew_as_a_whole() -> None:
    ground = a_cell()
    ground.run(a_job("j", chips=8, replicas=2), labels=PODS_FIRST)
    drain(ground, ground.node_of("j", 0))
    (step,) = ground.turns()
    assert (step.kind, step.scope, step.how, step.ranks) == ("Drain", "job", "grace", [0, 1])
    assert step.until_ms == ground.now_ms + 60_000


def test_a_worker_on_a_drained_node_moves_alone_if_the_labels_say_so() -> None:
    ground = a_cell()
    ground.run(a_job("j", chips=8, replicas=2), labels=PODS_FIRST)
    drain(ground, ground.node_of("j", 1), grace_ms=5_000)
    (step,) = ground.turns()
    assert (step.kind, step.scope, step.how, step.ranks, step.faulty) == ("Drain", "pod", "grace", [1], [1])
    assert step.cause == f"pod of rank 1 on {ground.pods['j'][1].node}: its node is drained"
    assert step.until_ms == ground.now_ms + 5_000
    assert step.placement is not None
    assert step.placement.names()[0] not in {ground.pods["j"][0].node, ground.pods["j"][1].node}
    ground.remove("j")
    ground.wait_for_places("j", 1)
    ground.turns()
    ground.bind("j")
    ground.wait_for_places("j")
    assert ground.wait(100_000) == []
    assert ground.node_of("j", 1) == step.placement.names()[0]


@pytest.mark.parametrize(
    "labels",
    [{}, {"fault-scheduling": "off"}, {"fault-scheduling": "external-grace"}, {"fault-scheduling": "nonsense"}],
    ids=["none", "off", "external", "invalid"],
)
def test_a_job_without_labels_for_faults_starts_anew_as_a_whole(labels: dict[str, str]) -> None:
    ground = a_cell()
    ground.run(a_job("j", chips=8, replicas=2), labels=labels)
    old = ground.node_of("j", 1)
    drain(ground, old)
    (step,) = ground.turns()
    assert (step.kind, step.scope, step.how, step.ranks, step.faulty) == ("Drain", "job", "grace", [0, 1], [1])
    assert ground.phase("j") == "ending"
    ground.remove("j")
    ground.turns()
    assert ground.phase("j") == "placed"
    assert holding_of(ground.state, "j").attempt == 2
    assert old not in holding_of(ground.state, "j").placement.names()


def test_a_job_with_the_limit_pod_loses_the_pods_on_drained_nodes_alone() -> None:
    ground = a_cell()
    ground.run(a_job("j", chips=8, replicas=2), labels={"app": "mindie-ms-server"})
    drain(ground, ground.node_of("j", 0))
    (step,) = ground.turns()
    assert (step.scope, step.how, step.ranks) == ("pod", "grace", [0])


def test_a_planned_drain_moves_jobs_when_its_time_comes() -> None:
    ground = a_cell()
    ground.run(a_job("j", chips=8, replicas=2), labels=PODS_FIRST)
    drain(ground, ground.node_of("j", 1), since_ms=ground.now_ms + 10_000)
    assert ground.turns() == []
    assert ground.scheduler.watch.next_due_ms == ground.now_ms + 10_000
    assert ground.wait(9_999) == []
    again = ground.reloaded()
    (step,) = ground.wait(1)
    assert step.kind == "Drain"
    assert again.wait(1) == [step], "a reader of a snapshot sees the same time"


def test_a_drain_of_a_leaf_moves_what_is_below_it() -> None:
    ground = a_cell(6)
    ground.run(a_job("j", chips=8, replicas=2), labels=GRACE)
    here = {ground.node_of("j", rank) for rank in (0, 1)}
    assert here == {"n0", "n1"}
    drain(ground, "leaf0", kind="leaf")
    (step,) = ground.turns()
    assert (step.scope, step.ranks, step.faulty, step.nodes) == ("job", [0, 1], [0, 1], ["n0", "n1"])


def test_a_node_that_moves_to_a_drained_leaf_is_drained() -> None:
    ground = a_cell()
    drain(ground, "leaf9", kind="leaf")
    ground.run(a_job("j", chips=8))
    assert ground.turns() == []
    ground.change(ground.node_of("j", 0), leaf="leaf9")
    assert [step.kind for step in ground.turns()] == ["Drain"]


def test_an_undrain_before_its_time_moves_nothing() -> None:
    ground = a_cell()
    ground.run(a_job("j", chips=8), labels=GRACE)
    drain(ground, "n0", since_ms=ground.now_ms + 1_000)
    ground.turns()
    drain(ground, "n0", gone=True)
    assert ground.wait(2_000) == []


def test_a_fault_goes_before_a_drain() -> None:
    ground = a_cell()
    ground.run(a_job("j", chips=8, replicas=2), labels={**PODS_FIRST, "fault-scheduling": "force"})
    drained, broken = ground.node_of("j", 1), ground.node_of("j", 0)
    ground.break_chip(broken)
    drain(ground, drained)
    (step, *_) = ground.turns()
    assert (step.kind, step.how) == ("CardUnhealthy", "force")


def test_a_place_that_is_reserved_on_a_node_that_is_drained_is_given_up() -> None:
    ground = a_cell(5)
    ground.run(a_job("j", chips=8, replicas=2), labels=PODS_FIRST)
    drain(ground, ground.node_of("j", 1))
    (first,) = ground.turns()
    assert first.placement is not None
    drain(ground, first.placement.names()[0])
    (second,) = ground.turns()
    assert second.placement is not None
    assert (second.kind, second.ranks) == ("Drain", [1])
    assert second.placement.names()[0] not in {first.placement.names()[0], ground.pods["j"][1].node}


def test_with_plan_before_delete_pods_wait_for_places() -> None:
    ground = a_cell(2, plan_before_delete=True, fault_wait_ms=10_000)
    ground.run(a_job("j", chips=8, replicas=2), labels=PODS_FIRST)
    drain(ground, ground.node_of("j", 1))
    assert ground.turns() == []
    assert ground.wait(9_999) == []
    (step,) = ground.wait(1)
    assert (step.ranks, step.placement) == ([1], None)


@pytest.mark.parametrize("which", [0, 1], ids=["the faulty node", "the healthy node"])
def test_a_drain_does_not_wait_for_the_places_that_a_fault_of_the_job_waits_for(which: int) -> None:
    """The person who drains decides; the fault alone ends no healthy pod while there is no place."""
    ground = a_cell(2, plan_before_delete=True, fault_wait_ms=10_000)
    ground.run(a_job("j", chips=8, replicas=2), labels=GRACE)
    ground.break_chip(ground.node_of("j", 0))
    assert ground.wait(60_000) == []
    drain(ground, ground.node_of("j", which))
    assert [*ground.turns(), *ground.wait(9_999)] == []
    (step,) = ground.wait(1)
    assert (step.kind, step.scope, step.ranks) == ("Drain", "job", [0, 1])


def test_rules_of_a_drain() -> None:
    assert drain_rules(FaultRules()) == FaultRules(scheduling="grace")
    forced = FaultRules(scheduling="force", pods_first=True, limit="job")
    assert drain_rules(forced) == FaultRules(scheduling="grace", pods_first=True, limit="job")
    owned = FaultRules(scheduling="force", pods_first=True, limit="pod", has_owner=True)
    assert drain_rules(owned) == FaultRules(scheduling="grace", limit="pod")
    assert drain_rules(FaultRules(scheduling="off", pods_first=True)) == FaultRules(scheduling="grace")


def unowned(name: str) -> JobRequest:
    """A job of a pod that no controller makes anew."""
    return a_job(name, chips=8, origin=FROM_PODS, is_unowned=True)


def test_a_drain_leaves_pods_without_a_controller_where_they_are() -> None:
    """As ``kubectl drain``, which ends them with ``--force`` alone."""
    ground = a_cell()
    ground.run(unowned("alone"), a_job("made", chips=8, origin=FROM_PODS), labels={})
    for name in ("alone", "made"):
        drain(ground, ground.node_of(name, 0))
    assert [step.name for step in ground.turns()] == ["made"]
    assert ground.wait(3_600_000) == []
    drain(ground, ground.node_of("alone", 0), force=True)
    assert [step.name for step in ground.turns()] == ["alone"]


def test_a_forced_drain_of_another_place_ends_no_pod_without_a_controller() -> None:
    ground = a_cell()
    ground.run(unowned("alone"), labels={})
    node = ground.node_of("alone", 0)
    drain(ground, next(name for name in ("n0", "n1", "n2") if name != node), force=True)
    drain(ground, node)
    assert ground.turns() == []


def test_a_drain_by_force_counts_from_its_own_moment() -> None:
    ground = a_cell()
    ground.run(unowned("alone"), labels={})
    node = ground.node_of("alone", 0)
    drain(ground, node)
    drain(ground, f"leaf{int(node[1:]) // 2}", kind="leaf", since_ms=ground.now_ms + 5_000, force=True)
    assert ground.turns() == []
    assert ground.wait(4_999) == []
    (step,) = ground.wait(1)
    assert (step.name, step.kind) == ("alone", "Drain")
