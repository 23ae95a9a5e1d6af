"""Storms: a report that would restart many jobs waits for a second source, or for a person."""

import pytest

from berth.core.changes import NO_CHANGES
from berth.core.cluster.node_packing import pack_health, pack_nodes
from berth.core.faults.storms import Cause, held_now
from berth.schemas.envelope import encode
from berth.schemas.facts import HealthSource, NodeHealth, PodPhase
from berth.schemas.fault_facts import REASON_MAX, ApprovalSeen
from berth.schemas.nodes import NodeCondition
from tests.support.cells import a_job, a_node
from tests.support.core_cells import SUBJECTS
from tests.support.fault_cells import GRACE, FaultCell

DEVICE = HealthSource.DEVICE_PLUGIN
CARDS = "CardUnhealthy"
NODES = "NodeUnhealthy"


def a_cell(nodes: str = "a", *, jobs: int = 8, pods: int = 1, **settings: object) -> FaultCell:
    """Nodes, and running jobs of one chip a pod; at most two jobs, or 20 percent of them, restart at once."""
    cell = FaultCell([a_node(name) for name in nodes], restarts_at_once=2, restart_share_percent=20, **settings)
    cell.run(*(a_job(f"j{number}", chips=1, replicas=pods) for number in range(jobs)), labels=GRACE)
    return cell


def say(cell: FaultCell, node: str, mask: int, sources: int, level: NodeHealth = NodeHealth.OK) -> None:
    cell.conditions[node] = NodeCondition(node, unhealthy=mask, level=level, sources=sources, updated_ms=cell.now_ms)
    cell.publish()


def approve(cell: FaultCell, kind: str = CARDS, domain: str = "all", lasts_ms: int = 600_000, **fields: object) -> None:
    fact = ApprovalSeen(
        kind, domain, until_ms=cell.now_ms + lasts_ms, **{"by": "ops", "at_ms": cell.now_ms, **fields}  # type: ignore[arg-type]  # fields of it
    )  # fmt: skip
    cell.fact(SUBJECTS.fact_approval(kind, domain), fact)


def held(cell: FaultCell) -> list[str]:
    return [one.name for one in cell.scheduler.watch.held_back]


def test_one_source_alone_restarts_none_of_too_many_jobs_and_says_what_helps() -> None:
    cell = a_cell()
    say(cell, "a", 0b111, DEVICE)
    assert cell.turns() == []
    found = cell.scheduler.watch.held_back
    assert [one.subject for one in found] == ["default/j0", "default/j1", "default/j2"]
    assert {one.reason for one in found} == {
        "CardUnhealthy would restart 3 of 8 jobs, more than 20 percent, and only the device plug-in reports it"
    }
    assert {one.why for one in found} == {
        "CardUnhealthy in domain all would restart too many jobs, and only the device plug-in reports it: it restarts"
        " when a second source reports it, or after `berth faults approve CardUnhealthy --domain all`"
    }
    assert {(one.cause, one.approvable) for one in found} == {(Cause(CARDS, "all"), True)}
    assert held_now(cell.state, at_ms=cell.now_ms) == found
    say(cell, "a", 0, 0)
    assert (cell.turns(), held(cell)) == ([], []), "the report was withdrawn"


@pytest.mark.parametrize("second", [HealthSource.NODED, HealthSource.CLUSTERD, HealthSource.AGENT])
def test_a_second_source_lets_them_restart_as_many_as_may_at_a_time(second: HealthSource) -> None:
    cell = a_cell()
    say(cell, "a", 0b111, DEVICE)
    assert cell.turns() == []
    say(cell, "a", 0b111, DEVICE | second)
    steps = cell.turns()
    assert [step.name for step in steps] == ["j0", "j1"]
    assert all(step.cause.startswith("pod of rank 0 on a: its chip ") for step in steps)
    assert all(" and " in step.cause.partition("; ")[2] for step in steps), "the sources are named"
    (left,) = cell.scheduler.watch.held_back
    assert (left.name, left.approvable) == ("j2", False)
    assert left.why.endswith("it restarts when one of them is placed again")
    cell.remove("j0")
    assert [step.name for step in cell.turns()] == ["j2"]


def test_a_source_that_repeats_itself_is_no_second_one() -> None:
    cell = a_cell()
    for _ in range(3):
        say(cell, "a", 0b111, DEVICE)
        assert cell.turns() == []
        cell.now_ms += 1_000
    assert held(cell) == ["j0", "j1", "j2"]


def test_a_second_source_counts_for_the_nodes_that_it_names_alone() -> None:
    cell = a_cell("ab", jobs=16)
    say(cell, "a", 0b1111, DEVICE)
    say(cell, "b", 0b1111, DEVICE | HealthSource.NODED)
    steps = cell.turns()
    assert {cell.node_of(step.name, 0) for step in steps} == {"b"}
    assert len(steps) == 2


def test_a_node_that_is_not_ready_either_is_confirmed_by_kubernetes() -> None:
    cell = a_cell()
    say(cell, "a", 0, HealthSource.NODED, NodeHealth.EVICT)
    assert cell.turns() == []
    cell.change("a", ready=False)
    steps = cell.turns()
    assert len(steps) == 2
    assert all(step.cause.endswith("; NodeD and Kubernetes report it") for step in steps)


def test_nodes_that_are_only_not_ready_wait() -> None:
    cell = a_cell()
    cell.wait(1_000)
    cell.change("a", ready=False)
    assert cell.turns() == []
    assert cell.scheduler.watch.held_back[0].reason.endswith("and only Kubernetes reports it")


def test_nodes_that_are_gone_are_approved_without_a_domain() -> None:
    cell = a_cell("ab", jobs=16)
    gone = {f"j{number}" for number in range(16) if cell.node_of(f"j{number}", 0) == "a"}
    del cell.nodes["a"]
    cell.publish()
    cell.wait(2_000)
    assert set(held(cell)) == gone
    found = cell.scheduler.watch.held_back[0]
    assert found.cause == Cause(NODES, "")
    assert found.why.startswith("NodeUnhealthy on nodes that are gone would restart too many jobs")
    assert found.why.endswith("`berth faults approve NodeUnhealthy`")
    approve(cell, NODES, "")
    assert len(cell.turns()) == 2


def test_failed_pods_confirm_the_fault_of_their_node() -> None:
    cell = a_cell()
    say(cell, "a", 0b111, DEVICE)
    assert cell.turns() == []
    for name in ("j0", "j1", "j2"):
        cell.pods[name][0].phase = PodPhase.FAILED
        cell.say(name)
    steps = cell.turns()
    assert [step.cause.partition("; ")[2] for step in steps] == ["the device plug-in and a failed pod report it"] * 2


def test_a_label_of_clusterd_on_a_pod_confirms_the_fault_of_its_node() -> None:
    cell = a_cell()
    say(cell, "a", 0b111, DEVICE)
    assert cell.turns() == []
    cell.pods["j1"][0].marks = {"fault-type": "SubHealth"}
    cell.say("j1")
    (step,) = cell.turns()
    assert (step.name, step.cause.partition("; ")[2]) == ("j1", "the device plug-in and ClusterD report it")


def test_an_approval_lets_them_restart_until_it_ends() -> None:
    cell = a_cell("ab", jobs=16)
    say(cell, "a", 0b1111, DEVICE)
    assert cell.turns() == []
    approve(cell, lasts_ms=1_000)
    steps = cell.turns()
    assert len(steps) == 2
    assert all(step.cause.endswith("; ops approved it") for step in steps)
    cell.now_ms += 1_000
    for step in steps:
        cell.remove(step.name)
    say(cell, "b", 0b1111, DEVICE)
    assert cell.turns() == []
    assert held(cell), "it is over"


@pytest.mark.parametrize(("kind", "domain"), [(CARDS, "other"), (NODES, "all"), (CARDS, "")])
def test_an_approval_is_of_one_kind_in_one_domain(kind: str, domain: str) -> None:
    cell = a_cell()
    say(cell, "a", 0b111, DEVICE)
    approve(cell, kind, domain)
    assert cell.turns() == []


def test_an_approval_that_is_withdrawn_ends() -> None:
    cell = a_cell()
    approve(cell)
    approve(cell, gone=True)
    say(cell, "a", 0b111, DEVICE)
    assert cell.turns() == []
    assert cell.state.faults.approvals == {}


def test_a_snapshot_has_the_approvals() -> None:
    cell = a_cell()
    approve(cell)
    other = cell.reloaded()
    say(other, "a", 0b111, DEVICE)
    assert len(other.turns()) == 2


def test_jobs_of_all_domains_count_together() -> None:
    cell = FaultCell([], restarts_at_once=2, restart_share_percent=20)
    for name in "abcd":
        cell.fact(SUBJECTS.fact_node(name), pack_nodes(name, [a_node(name)]))
        cell.fact(SUBJECTS.fact_health(name), pack_health(name, [NodeCondition(name)]))
    cell.run(*(a_job(f"j{number}", chips=8) for number in range(4)), labels=GRACE)
    for name in "abc":
        cell.fact(SUBJECTS.fact_health(name), pack_health(name, [NodeCondition(name, unhealthy=1, sources=DEVICE)]))
    assert (cell.turns(), held(cell)) == ([], ["j0", "j1", "j2"])
    approve(cell, CARDS, "b")
    assert [step.name for step in cell.turns()] == ["j1"]


def test_those_that_wait_for_places_count_although_nothing_of_them_changed() -> None:
    cell = a_cell("ab", jobs=16, plan_before_delete=True)
    say(cell, "a", 0b11, DEVICE)
    assert (cell.turns(), held(cell)) == ([], []), "they wait for places, and are few"
    say(cell, "b", 0b11, DEVICE)
    kept, _ = cell.scheduler.watch.find_faulty(["uid-j8", "uid-j9"], NO_CHANGES, at_ms=cell.now_ms)
    assert (kept, held(cell)) == ([], ["j0", "j1", "j8", "j9"])


def test_jobs_that_wait_for_places_keep_none_back_that_has_some() -> None:
    """However long they wait; of those with places as many restart as may at a time."""
    cell = FaultCell(
        [a_node(name) for name in "abc"], plan_before_delete=True, restarts_at_once=1, restart_share_percent=100
    )
    cell.run(a_job("j0", chips=8, replicas=2), labels=GRACE)
    cell.run(a_job("j1", chips=2), a_job("j2", chips=2), labels=GRACE)
    (shared,) = {cell.node_of("j1", 0), cell.node_of("j2", 0)}
    broken = {cell.node_of("j0", 0): 1, shared: 0b1 | 0b100}
    fact = pack_health("all", [NodeCondition(name, unhealthy=broken.get(name, 0)) for name in "abc"], at_ms=cell.now_ms)
    cell.fact(SUBJECTS.fact_health("all"), fact)
    (step,) = cell.turns()
    assert step.name in {"j1", "j2"}
    cell.remove(step.name)
    assert [one.name for one in cell.turns()] == [{"j1": "j2", "j2": "j1"}[step.name]]
    assert cell.phase("j0") == "placed"


@pytest.mark.parametrize(
    ("subject", "fact", "problem"),
    [
        (("", "all"), ApprovalSeen("", "all", until_ms=1), "kind: empty"),
        ((CARDS, "all"), ApprovalSeen(CARDS, "all"), "until_ms: 0, expected a moment above 0"),
        ((CARDS, "all"), ApprovalSeen(CARDS, "all", until_ms=1, reason="x" * (REASON_MAX + 1)), "reason: 1025"),
        ((NODES, "all"), ApprovalSeen(CARDS, "all", until_ms=1), "speaks of CardUnhealthy/all on the subject"),
    ],
)
def test_an_approval_that_makes_no_sense_counts_for_nothing(
    subject: tuple[str, str], fact: ApprovalSeen, problem: str
) -> None:
    cell = a_cell()
    applied = cell.state.apply_fact(SUBJECTS.fact_approval(*subject), cell.state.facts_seq + 1, encode(fact))
    assert problem in applied.error
    assert cell.state.faults.approvals == {}


def test_facts_of_releases_before_0_5_name_no_source() -> None:
    cell = a_cell()
    fact = pack_health("all", [NodeCondition("a", unhealthy=0b111)])
    assert fact.sources == b""
    cell.fact(SUBJECTS.fact_health("all"), fact)
    assert cell.turns() == []
    assert cell.scheduler.watch.held_back[0].reason.endswith("and who reports it is not known")


@pytest.mark.parametrize("condition", [NodeCondition("nobody", unhealthy=1), NodeCondition("a", unhealthy=1 << 40)])
def test_faults_of_unknown_nodes_and_chips_make_no_pod_faulty(condition: NodeCondition) -> None:
    cell = a_cell()
    cell.fact(SUBJECTS.fact_health("all"), pack_health("all", [condition], at_ms=cell.now_ms))
    assert (cell.turns(), held(cell)) == ([], [])
    assert cell.scheduler.next_due_ms == 0


def test_a_fault_that_goes_before_it_was_approved_leaves_nothing() -> None:
    cell = a_cell()
    say(cell, "a", 0b111, DEVICE)
    cell.turns()
    say(cell, "a", 0, 0)
    approve(cell)
    assert (cell.turns(), held(cell), cell.scheduler.next_due_ms) == ([], [], 0)
    assert held_now(cell.state, at_ms=cell.now_ms) == []
