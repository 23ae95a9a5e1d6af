"""Hot switch in turns: a backup pod gets a place beside the pod of its rank, and takes the rank over."""

import pytest

from berth.schemas.facts import NodeHealth, PodPhase
from berth.schemas.fault_facts import DrainSeen
from berth.schemas.recovery import Recovery
from tests.support.cells import a_job, a_node
from tests.support.core_cells import SUBJECTS
from tests.support.fault_cells import GRACE, PODS_FIRST, FaultCell, Pod
from tests.support.replacements import holding_of

LABELS = {**PODS_FIRST, "subHealthyStrategy": "hotSwitch"}
MARKS = {"backupNewPodName": "j-1-hot-0001", "fault-type": "SubHealth", "needVolcanoOpe": "delete"}


def a_cell(nodes: str = "abc", labels: dict[str, str] = LABELS, **settings: object) -> FaultCell:
    cell = FaultCell([a_node(name) for name in nodes], **settings)
    cell.run(a_job("j", chips=8, replicas=2), labels=labels)
    return cell


def backed_up(cell: FaultCell, uid: str = "backup-1") -> Recovery:
    """The backup pod of rank 1 exists and gets its place."""
    cell.back_up("j", {1: uid})
    (step,) = cell.turns()
    return step


def marked(cell: FaultCell, rank: int = 1) -> list[Recovery]:
    """The old pod may be deleted."""
    cell.pods["j"][rank].marks = MARKS
    cell.say("j")
    return cell.turns()


def take_over(cell: FaultCell, step: int) -> None:
    """The old pod of rank 1 is gone, and facts show its backup pod in its place."""
    holding = holding_of(cell.state, "j")
    move = holding.backups()[1]
    assert move.placement is not None
    cell.pods["j"][1] = Pod(move.placement.names()[0], 0xFF, step)
    cell.say("j")


def owned(cell: FaultCell) -> dict[str, int]:
    return {name: cell.state.held(name) for name in cell.nodes if cell.state.held(name)}


def test_a_backup_pod_gets_a_place_beyond_the_size_of_the_gang() -> None:
    cell = a_cell()
    step = backed_up(cell)
    assert (step.step, step.scope, step.how, step.ranks, step.backups) == (1, "pod", "backup", [1], ["backup-1"])
    assert step.placement is not None
    assert step.placement.names() == ["c"]
    assert (cell.phase("j"), cell.node_of("j", 1)) == ("placed", "b")
    assert owned(cell) == dict.fromkeys("abc", 0xFF), "the old place and the new one are its own"
    assert cell.turns() == []
    assert cell.wait(1_000_000) == [], "it waits for both marks"


def test_the_old_pod_is_deleted_only_after_both_marks_and_its_backup_has_the_rank_then() -> None:
    cell = a_cell("abcd")
    backed_up(cell)
    for marks in ({"fault-type": "SubHealth"}, {"needVolcanoOpe": "delete"}):
        cell.pods["j"][1].marks = {**marks, "backupNewPodName": "j-1-hot-0001"}
        cell.say("j")
        assert cell.turns() == []
    (step,) = marked(cell)
    assert (step.how, step.ranks, step.scope, step.placement) == ("force", [1], "pod", None)
    assert owned(cell) == dict.fromkeys("abc", 0xFF), "the old pod is still there"
    take_over(cell, 1)
    assert cell.turns() == []
    assert (cell.node_of("j", 0), cell.node_of("j", 1)) == ("a", "c")
    assert owned(cell) == {"a": 0xFF, "c": 0xFF}, "the old chips are free once its pod is gone"
    holding = holding_of(cell.state, "j")
    assert (holding.moves, holding.unplaced, holding.switched) == ([], [], {1: "backup-1"})
    assert cell.wait(1_000_000) == [], "the pod that was a backup gets no other place"
    cell.back_up("j", {})
    assert cell.wait(1_000_000) == []


def test_a_rank_whose_old_pod_goes_by_itself_is_taken_over_too() -> None:
    cell = a_cell()
    backed_up(cell)
    take_over(cell, 1)
    assert cell.turns() == []
    assert (cell.node_of("j", 1), owned(cell)) == ("c", {"a": 0xFF, "c": 0xFF})


def test_a_pod_that_ended_gives_its_rank_to_a_backup_pod_that_is_not_bound_yet() -> None:
    cell = a_cell()
    backed_up(cell)
    cell.pods["j"][1].phase = PodPhase.GONE
    cell.say("j")
    cell.turns()
    assert holding_of(cell.state, "j").gone == [], "the rank has not ended: its backup pod takes it"
    take_over(cell, 1)
    cell.turns()
    assert (cell.node_of("j", 1), holding_of(cell.state, "j").moves) == ("c", [])


def test_a_late_backup_pod_that_its_operator_deletes_leaves_nothing() -> None:
    cell = a_cell()
    backed_up(cell)
    cell.now_ms += 60_000
    cell.back_up("j", {})
    assert cell.turns() == []
    assert owned(cell) == {"a": 0xFF, "b": 0xFF}
    assert (cell.phase("j"), holding_of(cell.state, "j").moves) == ("placed", [])
    again = backed_up(cell, "backup-2")
    assert (again.step, again.backups) == (2, ["backup-2"]), "another one gets a place of its own"


def test_another_backup_pod_gets_its_place_only_when_that_of_the_first_is_free() -> None:
    cell = a_cell("abcd")
    first = backed_up(cell)
    second = backed_up(cell, "backup-2")
    assert first.placement is not None
    assert second.placement is not None
    assert (second.step, second.backups) == (2, ["backup-2"])
    assert len(owned(cell)) == 3


def test_failure_mark_on_rank_0_restarts_the_job_and_frees_the_place_with_it() -> None:
    cell = a_cell("abcd")
    backed_up(cell)
    cell.pods["j"][0].marks = {"fault-type": "SubHealth", "needVolcanoOpe": "delete"}
    cell.say("j")
    (step,) = cell.turns()
    assert (step.scope, step.how, step.ranks) == ("job", "force", [0, 1])
    assert owned(cell) == dict.fromkeys("abc", 0xFF), "its backup pod may run"
    cell.back_up("j", {})
    cell.remove("j")
    cell.turns()
    assert holding_of(cell.state, "j").attempt == 2
    assert len(owned(cell)) == 2


def test_a_cancellation_during_the_switch_frees_everything() -> None:
    cell = a_cell()
    backed_up(cell)
    cell.take_back("j")
    cell.turns()
    assert owned(cell) == dict.fromkeys("abc", 0xFF), "until the pods are gone"
    cell.remove("j")
    cell.turns()
    assert owned(cell) == {}
    assert cell.state.fold.holdings == {}


def test_a_place_whose_node_fails_is_free_once_the_operator_deletes_the_backup_pod() -> None:
    cell = a_cell()
    backed_up(cell)
    cell.break_chip("c")
    assert cell.turns() == [], "the pod that runs is well"
    cell.back_up("j", {})
    cell.turns()
    assert owned(cell) == {"a": 0xFF, "b": 0xFF}


def spoil(cell: FaultCell, way: str, node: str = "c") -> str:
    """Something happens to a node; the reason why a place there cannot be used."""
    if way == "chip":
        cell.break_chip(node, 0b10)
        return f"on {node} its chip 1 is unhealthy"
    if way == "sub-health":
        cell.break_chip(node, 0, NodeHealth.SUB_HEALTHY)
        return f"on {node} its node is sub-healthy"
    if way == "drained":
        cell.fact(SUBJECTS.fact_drain("node", node), DrainSeen("node", node, cell.now_ms))
        return f"node {node} is drained"
    cell.lose(node, way=way)
    return f"on {node} its node is {'not ready' if way == 'unready' else 'unhealthy' if way == 'evict' else way}"


@pytest.mark.parametrize("labels", [LABELS, {}], ids=["hot-switch", "no-labels"])
@pytest.mark.parametrize("way", ["chip", "drained", "gone", "unready", "evict", "sub-health"])
def test_a_backup_pod_that_is_not_bound_gets_another_place_when_its_own_fails(way: str, labels: dict[str, str]) -> None:
    cell = a_cell("abcd", labels)
    cell.now_ms += 2_000
    backed_up(cell)
    why = spoil(cell, way)
    if way == "sub-health" and not labels:
        assert cell.wait(10_000) == [], "the job ignores it"
        return
    (step,) = cell.wait(10_000)
    assert (step.step, step.how, step.ranks, step.backups) == (2, "backup", [1], ["backup-1"])
    assert step.cause == f"the backup pod of rank 1 gets another place for a hot switch: {why}"
    assert step.placement is not None
    assert step.placement.names() == ["d"]
    assert owned(cell) == dict.fromkeys(["a", "b", "d"], 0xFF), "the former place is free"
    assert cell.wait(1_000_000) == []
    take_over(cell, 2)
    cell.turns()
    assert (cell.node_of("j", 1), owned(cell)) == ("d", {"a": 0xFF, "d": 0xFF})


def test_another_place_is_not_on_the_node_of_the_old_pod() -> None:
    cell = FaultCell([a_node(name) for name in "abc"])
    cell.run(a_job("j", chips=4), labels=LABELS)
    cell.back_up("j", {0: "backup-1"})
    assert [step.placement.names() for step in cell.turns() if step.placement is not None] == [["b"]]
    cell.break_chip("b", 0xFF)
    assert [step.placement.names() for step in cell.turns() if step.placement is not None] == [["c"]]


def test_it_keeps_its_place_until_there_is_another_one() -> None:
    cell = a_cell("abc")
    backed_up(cell)
    cell.change("c", ready=False)
    assert cell.wait(10_000) == []
    assert owned(cell) == dict.fromkeys("abc", 0xFF)
    cell.nodes["d"] = a_node("d")
    cell.publish()
    steps = cell.turns()
    assert [(step.name, step.how) for step in steps] == [("j", "backup")]
    assert set(owned(cell)) == {"a", "b", "d"}


@pytest.mark.parametrize("by", ["fact", "outcome"])
def test_one_that_is_bound_stays_where_it_is(by: str) -> None:
    cell = a_cell("abcd")
    backed_up(cell)
    if by == "fact":
        cell.back_up("j", {1: "backup-1"}, bound=[1])
    else:
        cell.bind("j", [])
    cell.break_chip("c")
    assert cell.wait(10_000) == []
    assert set(owned(cell)) == {"a", "b", "c"}


def test_a_snapshot_in_between_seeks_the_same_place() -> None:
    cell = a_cell("abcd")
    backed_up(cell)
    cell.break_chip("c")
    assert [step.placement for step in cell.reloaded().turns()] == [step.placement for step in cell.turns()]


def test_a_backup_pod_gets_no_second_place_while_the_pod_beside_it_leaves() -> None:
    cell = a_cell("abcd")
    backed_up(cell)
    marked(cell)
    cell.break_chip("c")
    assert cell.turns() == []
    assert set(owned(cell)) == {"a", "b", "c"}


def test_a_fault_of_the_old_pod_makes_it_leave_for_its_backup() -> None:
    cell = a_cell("abcd")
    backed_up(cell)
    cell.break_chip("b", 0b10)
    (step,) = cell.turns()
    assert (step.how, step.ranks, step.kind, step.placement) == ("grace", [1], "CardUnhealthy", None)
    assert len(owned(cell)) == 3, "no third place"
    take_over(cell, 1)
    assert cell.turns() == []
    assert cell.node_of("j", 1) == "c"


def test_a_fault_of_the_reserved_place_counts_once_when_the_backup_pod_has_the_rank() -> None:
    cell = a_cell("abcd")
    backed_up(cell)
    cell.break_chip("c", 0b10)
    take_over(cell, 1)
    (step,) = cell.turns()
    assert (step.step, step.ranks, step.kind, cell.node_of("j", 1)) == (2, [1], "CardUnhealthy", "c")
    assert step.placement is not None


def test_a_pod_that_facts_show_on_another_node_than_its_rank_is_not_judged() -> None:
    cell = a_cell("abcd")
    backed_up(cell)
    take_over(cell, 1)
    cell.turns()
    cell.pods["j"] |= {1: Pod("b", 0xFF, 1), 5: Pod("b", 0xFF, 1)}
    cell.say("j")
    cell.turns()
    cell.lose("b")
    loaded = cell.reloaded()
    assert cell.wait(60_000) == []
    assert loaded.wait(60_000) == [], "a reader of a snapshot examines all gangs"
    cell.lose("c")
    (step,) = cell.wait(60_000)
    assert (step.ranks, step.nodes) == ([1], ["c"]), "the place of the rank counts"


def test_a_backup_pod_that_is_lost_while_the_old_pod_leaves_is_replaced_like_any_other() -> None:
    cell = a_cell("abcd")
    backed_up(cell)
    marked(cell)
    cell.back_up("j", {})
    (step,) = cell.turns()
    assert (step.how, step.ranks) == ("place", [1])
    cell.remove("j")
    cell.turns()
    assert len(owned(cell)) == 2


def test_without_a_place_it_waits_and_gets_the_first_that_comes_free() -> None:
    cell = FaultCell([a_node(name) for name in "abc"])
    cell.run(a_job("k", chips=8), labels={})
    cell.run(a_job("j", chips=8, replicas=2), labels=LABELS)
    cell.back_up("j", {1: "backup-1"})
    assert cell.turns() == []
    assert cell.phase("j") == "placed"
    freed = cell.node_of("k", 0)
    cell.take_back("k")
    cell.turns()
    cell.remove("k")
    (step,) = cell.turns()
    assert step.placement is not None
    assert (step.how, step.placement.names()) == ("backup", [freed])


def test_two_backup_pods_of_a_gang_get_their_places_one_after_the_other() -> None:
    cell = a_cell("abcd")
    cell.back_up("j", {0: "backup-0", 1: "backup-1"})
    assert [(step.ranks, step.backups) for step in cell.turns()] == [([0], ["backup-0"]), ([1], ["backup-1"])]
    assert len(owned(cell)) == 4


@pytest.mark.parametrize("labels", [{}, {"fault-scheduling": "off"}, GRACE])
def test_a_backup_pod_is_placed_whatever_the_labels_say_of_faults(labels: dict[str, str]) -> None:
    assert backed_up(a_cell(labels=labels)).how == "backup"


def test_a_backup_pod_of_an_attempt_before_gets_no_place_until_the_pod_of_its_rank_is_there() -> None:
    cell = a_cell("abcd")
    backed_up(cell)
    cell.pods["j"][0].marks = {"fault-type": "SubHealth", "needVolcanoOpe": "delete"}
    cell.say("j")
    cell.turns()
    cell.remove("j")
    assert cell.turns() == [], "the fact still names it"
    assert (holding_of(cell.state, "j").attempt, len(owned(cell))) == (2, 2)
    cell.bind("j", [0])
    assert cell.turns() == [], "nor is the new pod of its rank there"


def test_the_place_of_a_lost_backup_pod_is_free_though_its_rank_is_faulty_and_waits() -> None:
    cell = a_cell(labels={**PODS_FIRST, "subHealthyStrategy": "graceExit"}, plan_before_delete=True)
    backed_up(cell)
    cell.break_chip("b", 0, NodeHealth.SUB_HEALTHY, sub_healthy=0b10)
    assert cell.turns() == [], "it runs on, and gets no third place"
    cell.back_up("j", {})
    (step,) = cell.turns()
    assert (step.how, step.ranks) == ("grace", [1])
    assert step.placement is not None
    assert step.placement.names() == ["c"]


def test_a_snapshot_in_the_middle_of_a_switch_goes_on() -> None:
    cell = a_cell()
    backed_up(cell)
    other = cell.reloaded()
    assert owned(other) == dict.fromkeys("abc", 0xFF)
    (step,) = marked(other)
    assert step.how == "force"
    take_over(other, 1)
    other.turns()
    assert owned(other) == {"a": 0xFF, "c": 0xFF}
