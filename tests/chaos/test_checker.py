"""Planted violations of what users were told, each found by the checker; and histories in which nothing is wrong."""

from dataclasses import replace
from typing import Final

import pytest

from tests.chaos.checker import End, Evidence, LivePod, Placing, Request, Verdict, Violation, check
from tests.chaos.operations import History, Operation, Outcome

POD: Final = LivePod("pod-1", "uid-a", 1, 0, "node-1", 0b0011)
OTHER: Final = LivePod("pod-2", "uid-b", 1, 0, "node-1", 0b1100)
CALM: Final = Evidence(
    ends={
        "a": End("finished"),
        "b": End("placed"),
        "c": End("cancelled"),
        "d": End("refused", "no node has 8 free chips"),
        "e": End("finished"),
    },
    uids={"a": frozenset({"uid-a"}), "b": frozenset({"uid-b"})},
    placings=[
        Placing("a", "uid-a", 1, (("node-1", 0b0011),)),
        Placing("b", "uid-b", 1, (("node-1", 0b1100),)),
        Placing("b", "uid-b", 2, (("node-2", 0b1100),)),
    ],
    looks=[(POD, OTHER), (OTHER,)],
    told={"double_allocations": 0},
    events=dict.fromkeys(
        ("uid-a/0/0/accepted", "uid-a/1/0/placed", "uid-b/0/0/accepted", "uid-b/1/0/placed", "uid-b/2/0/placed"), 1
    ),
)
OPERATIONS: Final = (
    Operation("submit", "a", 0, 1, "ok"),
    Operation("submit", "b", 0, 1, "unknown"),
    Operation("submit", "b", 1, 2, "ok"),
    Operation("submit", "c", 0, 1, "ok"),
    Operation("cancel", "c", 2, 3, "ok"),
    Operation("submit", "d", 0, 1, "ok"),
    Operation("submit", "e", 0, 1, "unknown"),
    Operation("submit", "f", 0),
    Operation("submit", "g", 0, 1, "failed"),
)


def found(verdict: Verdict) -> list[str]:
    return [violation.kind for violation in verdict.violations]


def test_a_calm_history_is_accounted_for() -> None:
    verdict = check(OPERATIONS, CALM)
    assert found(verdict) == []
    assert (verdict.acknowledged, verdict.unknown, verdict.present, verdict.refused, verdict.cancels) == (4, 2, 1, 1, 1)
    assert verdict.fates == {"finished": 1, "placed": 1, "cancelled": 1, "refused": 1}
    assert (verdict.placings, verdict.pods, verdict.events) == (3, 2, 5)


def test_a_request_that_was_withdrawn_before_it_had_a_place_may_be_made_anew() -> None:
    again = replace(CALM, uids={"a": frozenset({"uid-a", "uid-z"})}, withdrawn=frozenset({"uid-z"}))
    assert found(check(OPERATIONS, again)) == []


@pytest.mark.parametrize("event", ["uid-a/0/0/accepted", "uid-b/2/0/placed"])
def test_an_event_of_a_placement_that_is_not_stored_is_lost(event: str) -> None:
    events = {one: count for one, count in CALM.events.items() if one != event}
    assert check(OPERATIONS, replace(CALM, events=events)).violations == [
        Violation("event lost", f"{event} is not stored")
    ]


def test_an_event_that_is_stored_twice_is_told() -> None:
    twice = replace(CALM, events={**CALM.events, "uid-a/1/0/running": 2})
    assert check(OPERATIONS, twice).violations == [Violation("event twice", "uid-a/1/0/running is stored 2 times")]


def ends(**changed: End | None) -> Evidence:
    return replace(CALM, ends={name: end for name, end in {**CALM.ends, **changed}.items() if end is not None})


WRONG_ENDS: Final[list[tuple[str, Evidence, str]]] = [
    ("an acknowledged job is not there", ends(a=None), "lost"),
    ("an acknowledged job after unanswered tries is not there", ends(b=None), "lost"),
    ("a job waits and nobody says why", ends(a=End("waiting")), "not settled"),
    ("an unanswered job that is there waits without a reason", ends(e=End("waiting")), "not settled"),
    ("a job is between two states for good", ends(a=End("restless")), "not settled"),
    ("a refusal has no reason", ends(d=End("refused")), "not settled"),
    ("a failure has no reason", ends(a=End("failed")), "not settled"),
    ("a job of which every submit failed is there", ends(g=End("finished")), "ghost"),
    ("a job that nobody asked for is there", ends(zz=End("finished")), "ghost"),
    ("a job is cancelled and nobody asked", ends(a=End("cancelled")), "cancelled by nobody"),
    ("a cancelled job runs on", ends(c=End("placed")), "not cancelled"),
    ("a cancelled job waits on", ends(c=End("refused", "no room")), "not cancelled"),
]


@pytest.mark.parametrize(("evidence", "kind"), [case[1:] for case in WRONG_ENDS], ids=[case[0] for case in WRONG_ENDS])
def test_what_became_of_a_job_contradicts_what_users_were_told(evidence: Evidence, kind: str) -> None:
    assert found(check(OPERATIONS, evidence)) == [kind]


def placings(*more: Placing) -> Evidence:
    return replace(CALM, placings=[*CALM.placings, *more])


def looks(*more: tuple[LivePod, ...]) -> Evidence:
    return replace(CALM, looks=[*CALM.looks, *more])


WRONG_PODS: Final[list[tuple[str, Evidence, str]]] = [
    ("an attempt is placed twice", placings(Placing("b", "uid-b", 2)), "doubled"),
    ("an attempt follows a later one", placings(Placing("b", "uid-b", 1)), "doubled"),
    ("a name is accepted twice", replace(CALM, uids={"a": frozenset({"uid-a", "uid-z"})}), "doubled"),
    (
        "a name is accepted again after it was placed",
        replace(CALM, uids={"a": frozenset({"uid-a", "uid-z"})}, withdrawn=frozenset({"uid-a"})),
        "doubled",
    ),
    ("two pods stand for one rank", looks((POD._replace(uid="pod-9"),)), "doubled"),
    ("two live pods share a chip", replace(CALM, looks=[(POD, OTHER._replace(node="node-1", chips=0b0110))]), "chip twice"),
    ("a pod has no record", looks((LivePod("pod-7", "uid-7", 1, 0, "node-1", 1),)), "without record"),
    ("a pod has a rank that its record lacks", looks((LivePod("pod-7", "uid-a", 1, 1, "node-1", 4),)), "without record"),
    ("a pod has another node than its record", looks((LivePod("pod-7", "uid-b", 2, 0, "node-1", 12),)), "without record"),
    ("a pod has other chips than its record", looks((LivePod("pod-7", "uid-b", 2, 0, "node-2", 1),)), "without record"),
    ("a pod changes its node", looks((POD._replace(node="node-3"),)), "moved"),
    ("the cluster counts what must not be", replace(CALM, told={"double_allocations": 2}), "double_allocations"),
]  # fmt: skip


@pytest.mark.parametrize(("evidence", "kind"), [case[1:] for case in WRONG_PODS], ids=[case[0] for case in WRONG_PODS])
def test_pods_and_records_contradict_one_another(evidence: Evidence, kind: str) -> None:
    assert kind in found(check(OPERATIONS, evidence))


def with_operations(*more: Operation) -> tuple[Operation, ...]:
    return (*OPERATIONS, *more)


ALLOWED: Final[list[tuple[str, tuple[Operation, ...], Evidence]]] = [
    (
        "a user deleted it",
        with_operations(Operation("cancel", "a", 2, 3, "ok")),
        replace(ends(a=None), is_deleted_by_cancel=True),
    ),
    (
        "a user may have deleted it",
        with_operations(Operation("cancel", "a", 2, 3, "unknown")),
        replace(ends(a=None), is_deleted_by_cancel=True),
    ),
    ("it was over before", with_operations(Operation("cancel", "a", 2, 3, "ok")), CALM),
    (
        "the cancel began before the submit was answered",
        with_operations(Operation("submit", "h", 0, 5, "ok"), Operation("cancel", "h", 2, 3, "ok")),
        ends(h=End("placed")),
    ),
    (
        "an unanswered submit takes effect after the cancel",
        with_operations(
            Operation("submit", "h", 0, 1, "unknown"),
            Operation("submit", "h", 1, 2, "ok"),
            Operation("cancel", "h", 3, 4, "ok"),
        ),
        replace(ends(h=End("placed")), uids={"h": frozenset({"one", "two"})}),
    ),
]


@pytest.mark.parametrize(("operations", "evidence"), [case[1:] for case in ALLOWED], ids=[case[0] for case in ALLOWED])
def test_what_is_allowed_is_not_reported(operations: tuple[Operation, ...], evidence: Evidence) -> None:
    assert found(check(operations, evidence)) == []


def test_a_refused_cancel_excuses_nothing() -> None:
    operations = with_operations(Operation("cancel", "a", 2, 3, "failed"))
    assert found(check(operations, replace(ends(a=None), is_deleted_by_cancel=True))) == ["lost"]
    assert found(check(operations, ends(a=End("cancelled")))) == ["cancelled by nobody"]


@pytest.mark.parametrize("outcome", ["ok", "unknown"])
def test_a_cancel_on_the_bus_excuses_no_job_that_is_gone(outcome: Outcome) -> None:
    operations = with_operations(Operation("cancel", "a", 2, 3, outcome))
    assert found(check(operations, ends(a=None))) == ["lost"]


TOLD: Final = (
    Operation("submit", "a", 0, 1, "ok", sequence=4),
    Operation("submit", "a", 1, 2, "ok", sequence=4),  # the server knows it already
    Operation("cancel", "c", 2, 3, "ok", sequence=9),
    Operation("submit", "e", 0, 1, "unknown", sequence=11),
)
STORED: Final = {4: Request("submit", "a"), 9: Request("cancel", "c"), 10: Request("submit", "e")}


def test_requests_are_stored_under_the_sequences_that_users_were_told() -> None:
    verdict = check((*OPERATIONS, *TOLD), replace(CALM, requests=STORED))
    assert (found(verdict), verdict.sequences) == ([], 3)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({4: Request("submit", "a")}, "cancel of c was acknowledged as request 9, where nothing is stored"),
        (
            {**STORED, 9: Request("cancel", "b")},
            "cancel of c was acknowledged as request 9, where cancel of b is stored",
        ),
        (
            {**STORED, 9: Request("submit", "c")},
            "cancel of c was acknowledged as request 9, where submit of c is stored",
        ),
    ],
    ids=["gone", "of another job", "another action"],
)
def test_an_acknowledged_request_that_is_not_stored_is_lost(changed: dict[int, Request], said: str) -> None:
    verdict = check((*OPERATIONS, *TOLD), replace(CALM, requests=changed))
    assert verdict.violations == [Violation("lost", said)]


def test_an_operation_without_an_end_is_unknown_and_ends_once() -> None:
    history = History()
    number = history.begin("submit", "a", 1.0)
    history.begin("submit", "b", 2.0)
    history.end(number, "ok", 3.0, sequence=7)
    assert history.operations == (Operation("submit", "a", 1, 3, "ok", "", 7), Operation("submit", "b", 2))
    assert (history.count("submit", "ok"), history.count("submit", "unknown"), history.count("cancel", "ok")) == (
        1,
        1,
        0,
    )
    with pytest.raises(ValueError, match="ended before"):
        history.end(number, "failed", 4.0)
