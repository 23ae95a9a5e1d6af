"""Sentences about refusals that name labels, taints and chips, and count nodes of the job's own product."""

from collections.abc import Mapping, Sequence

import pytest

from berth.core.explain.current_reasons import reason_of
from berth.core.explain.obstacles import Namer
from berth.core.scheduling.drained_gangs import DrainedGangs
from berth.core.text import cause_of
from berth.schemas.constraints import Expression, Taint, Term, Toleration
from berth.schemas.facts import NodeHealth
from berth.schemas.intake import JobRequest, Task
from berth.schemas.nodes import NodeCondition, NodeDescription
from berth.schemas.refusal import NodeReason, ReasonCount, Refusal
from tests.support.cells import a_job, a_node
from tests.support.core_cells import CoreCell

OWN = {"accelerator-type": "module-910b-8"}


def with_labels(name: str, **labels: str) -> NodeDescription:
    return a_node(
        name, labels={**a_node(name).labels, **{key.replace("_", "-"): value for key, value in labels.items()}}
    )


def said(nodes: Sequence[NodeDescription], job: JobRequest, *conditions: NodeCondition) -> str:
    """Why a job waits on these nodes."""
    cell = CoreCell(nodes, needs_health=False)
    cell.conditions = {one.name: one for one in conditions}
    cell.publish()
    refusal = cell.refuse(job)
    known = cell.state.jobs[job.namespace, job.name]
    gang = cell.scheduler.gang(known, job, 1)
    applied = DrainedGangs(cell.state, cell.now_ms).applied(gang)
    return reason_of(cell.state, cell.scheduler.scorer, applied, refusal, at_ms=cell.now_ms).sentence


def wants(selector: Mapping[str, str] = {}, *, affinity: Sequence[Expression] = (), replicas: int = 1) -> JobRequest:
    terms = [Term(tuple(affinity))] if affinity else []
    return a_job("job", node_selector={**OWN, **selector}, tasks=[Task("worker", replicas, 8, affinity=terms)])


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (wants({"zone": "c"}), "3 nodes have accelerator-type=module-910b-8, none has zone=c; they have a, b"),
        (
            wants({"zone": "a", "disk": "ssd"}),
            "2 nodes have accelerator-type=module-910b-8 and zone=a, none has the label disk, of which the job asks"
            " disk=ssd",
        ),
        (
            wants(affinity=[Expression("zone", "In", ("c", "d"))]),
            "3 nodes have accelerator-type=module-910b-8, none has zone in (c, d); they have a, b",
        ),
        (
            wants(affinity=[Expression("zone", "DoesNotExist")]),
            "3 nodes have accelerator-type=module-910b-8, all have the label zone",
        ),
    ],
)
def test_what_no_node_has_is_named_with_what_they_have(job: JobRequest, words: str) -> None:
    nodes = [with_labels("n0", zone="a"), with_labels("n1", zone="a"), with_labels("n2", zone="b")]
    assert said([*nodes, a_node("other", product="module910bx16")], job) == words


def test_a_task_beside_others_that_find_room_says_how_many_do() -> None:
    tasks = [Task("worker", 2, 8), Task("master", 1, 0, node_selector={"zone": "c"})]
    nodes = [with_labels("n0", zone="a"), with_labels("n1", zone="a")]
    assert said(nodes, a_job("job", tasks=tasks)) == (
        "2 of 3 pods find room, and 0 of 2 nodes fit: 2 nodes have accelerator-type=module-910b-8, none has zone=c; they"
        " have a"
    )


def test_a_product_that_no_node_is_of_is_named() -> None:
    nodes = [a_node("n0", product="module910bx16"), a_node("n1", product="module910bx16")]
    assert said(nodes, wants()) == (
        "of 2 nodes with huawei.com/Ascend910 none has accelerator-type=module-910b-8; they have module-910b-16"
    )


def test_nodes_of_other_products_are_not_counted() -> None:
    others = [a_node(f"other{number}", product="module910bx16") for number in range(7)]
    cards = [a_node(f"card{number}", product="310") for number in range(5)]
    nodes = [a_node("n0", cordoned=True), a_node("n1", ready=False), *others, *cards]
    assert said(nodes, wants()) == "0 of 2 nodes fit: 1 is not ready, 1 is cordoned"


def test_nodes_that_the_job_does_not_select_come_last_and_name_the_label() -> None:
    nodes = [with_labels(f"n{number}", zone="b") for number in range(5)]
    nodes += [a_node("m", labels=with_labels("m", zone="a").labels, ready=False)]
    assert said(nodes, wants({"zone": "a"})) == "0 of 6 nodes fit: 1 is not ready, 5 do not have zone=a"


def test_a_node_that_is_cordoned_and_not_selected_counts_as_not_selected() -> None:
    nodes = [
        a_node("n0", labels=with_labels("n0", zone="b").labels, cordoned=True),
        a_node("n1", labels=with_labels("n1", zone="a").labels, cordoned=True),
    ]
    assert said(nodes, wants({"zone": "a"})) == "0 of 2 nodes fit: 1 is cordoned, 1 does not have zone=a"


def test_taints_are_named_and_a_tolerated_one_is_not() -> None:
    taints = [Taint("team", "blue"), Taint("spare", "", "NoExecute"), Taint("soft", "", "PreferNoSchedule")]
    tolerations = [Toleration("team", "Equal", "blue")]
    job = a_job("job", tasks=[Task("worker", 1, 8, tolerations=tolerations)])
    nodes = [a_node("n0", taints=taints), a_node("n1", taints=[taints[1]])]
    words = "2 have the taint spare:NoExecute, which the job does not tolerate"
    assert said(nodes, job) == f"0 of 2 nodes fit: {words}"


def test_of_a_job_that_is_too_large_for_free_nodes_it_is_not_said_that_no_node_has_its_chips() -> None:
    nodes = [a_node("n0"), a_node("x0", product="module910a3x16"), a_node("y0", product="310p")]
    words = said(nodes, wants(replicas=2))
    assert words.startswith("larger than the cluster: tasks[0].replicas is 2; the job asks for 16 chips"), words


def test_a_job_that_is_too_large_for_the_nodes_that_it_selects_names_the_label() -> None:
    nodes = [with_labels("n0", zone="a"), with_labels("n1", zone="b"), with_labels("n2", zone="b")]
    assert said(nodes, wants({"zone": "a"}, replicas=2)) == (
        "larger than the cluster: tasks[0].replicas is 2; the job asks for 16 chips of huawei.com/Ascend910, and there"
        " are 8 in all, on 1 node that it may use; of the other nodes, 2 do not have zone=a"
    )


def test_a_name_that_no_node_has_is_named() -> None:
    nodes = [a_node("n0"), a_node("n1")]
    assert "kubernetes.io/hostname=n7, which no node has" in said(nodes, wants({"kubernetes.io/hostname": "n7"}))


def test_unhealthy_chips_are_named_where_they_are_why() -> None:
    nodes = [a_node("n0"), a_node("n1")]
    broken = [NodeCondition("n0", unhealthy=1), NodeCondition("n1", level=NodeHealth.NO_NEW_WORK)]
    assert said(nodes, wants(), *broken) == (
        "0 of 2 nodes fit: 1 is faulty or takes no new work, 1 has fewer than 8 free chips beside unhealthy ones"
    )


def test_chips_that_break_and_heal_later_are_followed() -> None:
    cell = CoreCell([a_node("n0"), a_node("n1")], needs_health=False)
    job = wants(replicas=2)
    cell.ask(job)
    gang = cell.scheduler.gang(cell.state.jobs[job.namespace, job.name], job, 1)
    namer, found = Namer(cell.scheduler.scorer), list[str]()
    for broken in ([], ["n1"], ["n0", "n1"], ["n0"], []):
        cell.conditions = {name: NodeCondition(name, unhealthy=1) for name in broken}
        cell.publish()
        nodes = Refusal(code="no-room", nodes_total=2, counts=[ReasonCount(NodeReason.SHORTAGE, 2)])
        found.append(namer.sentence(nodes, gang))
    words = "1 has fewer than 8 free chips beside unhealthy ones"
    assert [words in said for said in found] == [False, True, False, True, False], found


def test_a_network_fault_does_not_keep_a_single_pod_away_and_is_not_named_for_it() -> None:
    broken = NodeCondition("n0", network_unhealthy=1, unhealthy=2)
    assert said([a_node("n0")], wants(), broken) == (
        "0 of 1 node fits: 1 has fewer than 8 free chips beside unhealthy ones"
    )


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("1 is cordoned, 1 has fewer than 8 free chips", "7 have fewer than 8 free chips, 2 are cordoned", True),
        ("1 is cordoned", "1 is faulty or takes no new work", False),
        ("4 nodes have zone=a1, none has x=1", "4 nodes have zone=a2, none has x=1", False),
        (
            "no room; room is reserved for it from 2026-01-01T00:00:00Z on",
            "no room; room is reserved for it from 2027-02-03T04:05:06Z on",
            True,
        ),
        ("room is reserved for ns/job-1", "room is reserved for ns/job-2", False),
    ],
)
def test_sentences_with_other_numbers_have_the_same_cause(one: str, other: str, *, same: bool) -> None:
    assert (cause_of(one) == cause_of(other)) is same
