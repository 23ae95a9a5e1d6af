"""Queues of Volcano: facts where they are applied; elsewhere what they would hold back is scheduled, and it is said."""

from collections import Counter

import msgspec
import pytest

from berth.formats.kubernetes.policies import Queue
from berth.schemas.intake import JobRequest, Task
from berth.schemas.queues.facts import QueueSeen
from berth.schemas.queues.queue import Queue as Declared
from berth.services.inventory.publishing.queues import Queues, amounts

CHIPS = "huawei.com/Ascend910"
ALL_THE_SAME = "the cell does not apply queues of Volcano, the job is scheduled all the same"


def a_queue(name: str, state: str = "Open", **capability: str) -> Queue:
    limits = {key.replace("chips", CHIPS): value for key, value in capability.items()}
    tree = {"metadata": {"name": name}, "spec": {"capability": limits}, "status": {"state": state}}
    return msgspec.convert(tree, Queue)


def warning(queues: Queues, name: str, **requested: int) -> str:
    return queues.warning(
        name,
        lambda: Counter(
            {key.replace("chips", CHIPS): n * (100 if key == "chips" else 1) for key, n in requested.items()}
        ),
    )


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("open", ""),
        ("default", ""),
        ("gold", f"queue gold does not exist: {ALL_THE_SAME}"),
        ("shut", f"queue shut is closed: {ALL_THE_SAME}"),
        ("shutting", f"queue shutting is closing: {ALL_THE_SAME}"),
        ("exact", ""),
        ("small", f"queue small is over its capability, its jobs request 16 of 8 {CHIPS}: {ALL_THE_SAME}"),
        ("slow", f"queue slow is over its capability, its jobs request 2 of 1.5 cpu: {ALL_THE_SAME}"),
        ("lean", f"queue lean is over its capability, its jobs request 4Gi of 2Gi memory: {ALL_THE_SAME}"),
        ("odd", f"queue odd: spec.capability['{CHIPS}']: is 'many', expected "),
    ],
)
def test_what_a_queue_would_hold_back_is_said(name: str, wanted: str) -> None:
    queues = Queues(are_applied=False)
    queues.replace(
        [
            a_queue("open"),
            a_queue("shut", "Closed"),
            a_queue("shutting", "Closing"),
            a_queue("exact", chips="16", cpu="2", memory="4Gi"),
            a_queue("small", chips="8"),
            a_queue("slow", cpu="1500m"),
            a_queue("lean", memory="2Gi"),
            a_queue("odd", chips="many"),
        ]
    )
    found = warning(queues, name, chips=16, cpu=2_000, memory=4_096)
    assert found.startswith(wanted) if wanted else found == ""


def test_nothing_is_said_before_queues_are_listed_and_changes_count() -> None:
    queues = Queues(are_applied=False)
    assert warning(queues, "gold") == ""
    queues.replace([])
    assert warning(queues, "gold") != ""
    queues.change([("ADDED", a_queue("gold"))])
    assert warning(queues, "gold") == ""
    queues.change([("DELETED", a_queue("gold"))])
    assert warning(queues, "gold") != ""


def test_what_jobs_request_is_summed_by_queue() -> None:
    def request(name: str, queue: str) -> JobRequest:
        tasks = [Task("worker", 2, 8, 1_000, 1_024), Task("master", 1, 0, 500, 256)]
        return JobRequest("ns", name, name, CHIPS, tasks, queue=queue)

    found = amounts([request("a", "gold"), request("b", "gold"), request("c", "default")])
    assert found["gold"] == {CHIPS: 3_200, "cpu": 5_000, "memory": 4_608}
    assert found["default"] == {CHIPS: 1_600, "cpu": 2_500, "memory": 2_304}


def test_root_and_default_are_missing_once_queues_are_listed() -> None:
    queues = Queues(are_applied=False)
    assert queues.missing() == []
    queues.replace([a_queue("gold")])
    assert queues.missing() == ["root", "default"]
    queues.change([("ADDED", a_queue("root"))])
    assert queues.missing() == ["default"]


def applied(*queues: Queue) -> Queues:
    """Queues that are applied and listed."""
    found = Queues(are_applied=True)
    found.replace([a_queue("root"), a_queue("default"), *queues])
    return found


def published(queues: Queues, at_ms: int = 5) -> list[QueueSeen]:
    """Facts that are due, and stored then."""
    facts = queues.due(at_ms)
    for fact in facts:
        queues.note_published(fact)
    return facts


def test_queues_that_are_applied_are_published_as_a_file_of_them_reads() -> None:
    tree = {
        "metadata": {
            "name": "gold",
            "creationTimestamp": "2026-11-30T10:00:00Z",
            "annotations": {"berth/namespaces": "nlp"},
        },
        "spec": {"parent": "root", "capability": {CHIPS: 16}, "weight": -1},
        "status": {"state": "Closing", "allocated": {"cpu": "1"}},
    }
    facts = published(applied(msgspec.convert(tree, Queue)))
    assert [fact.queue.name for fact in facts] == ["default", "gold", "root"]
    assert {(fact.source, fact.at_ms, fact.gone) for fact in facts} == {("kubernetes", 5, False)}
    assert facts[1].queue == Declared(
        "gold",
        parent="root",
        capability={CHIPS: 1_600},
        state="Closing",
        created=20261130100000,
        namespaces=["nlp"],
        wrong=["spec.weight: is -1, expected a whole number from 0 to 65535"],
    )


def test_a_queue_that_is_no_mapping_is_published_and_others_too() -> None:
    odd = msgspec.convert({"metadata": {"name": "odd"}, "spec": 5, "status": []}, Queue)
    facts = published(applied(odd))
    assert [fact.queue.name for fact in facts] == ["default", "odd", "root"]
    assert len(facts[1].queue.wrong) == 2


def test_a_change_of_what_is_not_read_publishes_nothing() -> None:
    queues = applied(a_queue("gold", chips="8"))
    published(queues)
    tree = {"metadata": {"name": "gold", "labels": {"a": "b"}}, "spec": {"capability": {CHIPS: "8"}}}
    again = msgspec.convert(tree | {"status": {"state": "Open", "running": 3, "allocated": {"cpu": "9"}}}, Queue)
    assert published(queues) == []
    queues.change([("MODIFIED", again)])
    assert not queues.is_changed
    assert published(queues) == []


def test_a_changed_queue_is_published_and_a_deleted_one_is_gone() -> None:
    queues = applied(a_queue("gold", chips="8"), a_queue("iron"))
    published(queues)
    queues.change([("MODIFIED", a_queue("gold", chips="16")), ("DELETED", a_queue("iron"))])
    facts = published(queues, 7)
    assert [(fact.queue.name, fact.gone, fact.at_ms) for fact in facts] == [("iron", True, 7), ("gold", False, 7)]
    assert facts[1].queue.capability == {CHIPS: 1_600}
    assert published(queues) == []


def test_facts_of_an_earlier_run_are_withdrawn_where_the_queue_is_gone() -> None:
    queues = Queues(are_applied=True)
    for name in ("gold", "iron"):
        queues.note_published(QueueSeen(Declared(name, state="Open"), "kubernetes", at_ms=1))
    assert queues.due(5) == []  # not listed by now
    queues.replace([a_queue("root"), a_queue("default"), a_queue("gold")])
    assert [(fact.queue.name, fact.gone) for fact in published(queues)] == [
        ("iron", True),
        ("default", False),
        ("root", False),
    ]


def test_facts_of_an_earlier_run_are_withdrawn_where_queues_are_not_applied_any_more() -> None:
    queues = Queues(are_applied=False)
    queues.note_published(QueueSeen(Declared("gold"), "kubernetes", at_ms=1))
    queues.note_published(QueueSeen(Declared("iron"), by="ops", at_ms=1))
    assert [(fact.queue.name, fact.gone) for fact in published(queues)] == [("gold", True)]
    queues.replace([a_queue("gold", chips="8")])
    assert published(queues) == []


def test_the_queues_that_every_volcano_makes_are_not_published() -> None:
    queues = applied()
    assert published(queues) == []
    queues.note_published(QueueSeen(Declared("default", capability={CHIPS: 800}), by="ops"))
    assert queues.conflict() == ""


def test_queues_from_two_sources_are_a_conflict_and_nothing_is_published() -> None:
    queues = applied(a_queue("gold", chips="8"))
    queues.note_published(QueueSeen(Declared("iron"), by="ops"))
    assert queues.conflict() == (
        "iron are declared by berth queues apply, and default, gold, root by Queues of Volcano; delete the former with"
        " berth queues delete, or the latter with kubectl delete"
    )
    assert published(queues) == []
    queues.note_published(QueueSeen(Declared("iron"), gone=True))
    assert queues.conflict() == ""
    assert len(published(queues)) == 3


def test_nothing_is_said_of_queues_that_are_applied() -> None:
    assert warning(applied(a_queue("shut", "Closed")), "shut") == ""
    assert warning(applied(), "missing") == ""
