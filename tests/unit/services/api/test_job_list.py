"""The list of jobs: its order, positions in the queue, counts, and pages while everything changes."""

from random import Random
from typing import Final

import pytest

from berth.schemas.programs.lists import JobsRequest, ListedJob, NamespaceUse
from berth.schemas.refusal import Refusal
from berth.schemas.status import JobStatus
from berth.services.api import job_list
from berth.services.api.job_list import JobList

ALL: Final = ("*",)


def status(name: str, phase: str = "waiting", *, namespace: str = "team", **changes: object) -> JobStatus:
    fields = {
        "namespace": namespace,
        "name": name,
        "uid": f"u-{name}",
        "phase": phase,
        "since_ms": 1,
        "at_ms": 1,
        "pods": 1,
        "chips": 8,
        "queue": "default",
    } | changes
    return JobStatus(**fields)  # type: ignore[arg-type]  # a builder for tests


def listed(jobs: JobList, *, readable: tuple[str, ...] = ALL, **asked: object) -> list[ListedJob]:
    request = JobsRequest(**asked)  # type: ignore[arg-type]  # fields of the request
    return [job for _, job in jobs.entries(request, readable) if job is not None]


def names(found: list[ListedJob]) -> list[str]:
    return [f"{one.namespace}/{one.name}" for one in found]


def a_list(*statuses: JobStatus) -> JobList:
    found = JobList()
    for one in statuses:
        found.note(one)
    return found


def test_jobs_are_by_namespace_and_name() -> None:
    jobs = a_list(status("b"), status("a", namespace="z"), status("a"), status("a", namespace="team-b"))
    assert names(listed(jobs)) == ["team/a", "team/b", "team-b/a", "z/a"]


def test_positions_follow_priority_then_the_time_of_acceptance() -> None:
    jobs = a_list(
        status("late", accepted_seq=9),
        status("early", accepted_seq=3),
        status("urgent", accepted_seq=10, priority=5),
        status("placed", "running", accepted_seq=1),
    )
    assert {one.name: one.position for one in listed(jobs)} == {"late": 3, "early": 2, "urgent": 1, "placed": 0}
    assert jobs.waiting == 3


def test_jobs_without_chips_have_positions_of_their_own() -> None:
    jobs = a_list(
        status("plain", accepted_seq=1, chips=0, is_plain=True),
        status("plain-2", accepted_seq=2, chips=0, is_plain=True),
        status("chips", accepted_seq=3),
    )
    assert {one.name: one.position for one in listed(jobs)} == {"plain": 1, "plain-2": 2, "chips": 1}
    assert jobs.waiting == 1


def test_the_position_is_in_the_queue_of_the_cell_also_for_who_reads_one_namespace() -> None:
    jobs = a_list(status("first", namespace="other", accepted_seq=1), status("second", accepted_seq=2))
    assert [(one.name, one.position) for one in listed(jobs, readable=("team",))] == [("second", 2)]


def test_jobs_are_filtered_by_namespace_phase_and_queue() -> None:
    jobs = a_list(
        status("waits", queue="q"),
        status("runs", "running"),
        status("ended", "succeeded", queue="q"),
        status("other", namespace="lab"),
    )
    assert names(listed(jobs, namespace="lab")) == ["lab/other"]
    assert names(listed(jobs, namespace="nobody")) == []
    assert names(listed(jobs, phase="live")) == ["lab/other", "team/runs", "team/waits"]
    assert names(listed(jobs, phase="running")) == ["team/runs"]
    assert names(listed(jobs, queue="q")) == ["team/ended", "team/waits"]
    assert names(listed(jobs, queue="q", phase="succeeded")) == ["team/ended"]


def test_namespaces_that_the_reader_may_not_read_are_left_out() -> None:
    jobs = a_list(status("a"), status("b", namespace="lab"))
    assert names(listed(jobs, readable=("team", "empty"))) == ["team/a"]
    assert names(listed(jobs, readable=())) == []


def test_a_list_goes_on_after_a_job_that_is_gone_or_never_was() -> None:
    jobs = a_list(status("a"), status("c"), status("a", namespace="z"))
    assert names(listed(jobs, after="team/b")) == ["team/c", "z/a"]
    assert names(listed(jobs, after="team/c")) == ["z/a"]
    assert names(listed(jobs, after="u/any")) == ["z/a"]
    assert names(listed(jobs, after="team")) == ["team/a", "team/c", "z/a"]


def test_a_status_that_says_the_same_changes_nothing() -> None:
    jobs = a_list(status("a"))
    before = jobs.revision
    jobs.note(status("a", at_ms=5))
    assert jobs.revision == before
    jobs.note(status("a", "placed"))
    assert jobs.revision == before + 1


def test_namespaces_are_counted_as_jobs_wait_run_and_end() -> None:
    jobs = a_list(status("a"), status("b", chips=4), status("c", "running", chips=2), status("d", "failed"))
    assert jobs.uses(ALL, 10) == [NamespaceUse(name="team", jobs=1, used=2, jobs_waiting=2, waiting=12)]
    assert jobs.totals() == (1, 2, 2, 12)
    jobs.note(status("a", "placed"))
    jobs.note(status("c", "succeeded", chips=2))
    assert jobs.uses(ALL, 10) == [NamespaceUse(name="team", jobs=1, used=8, jobs_waiting=1, waiting=4)]
    jobs.note(status("a", "cancelled"))
    jobs.note(status("b", "cancelled"))
    assert (jobs.uses(ALL, 10), jobs.totals()) == ([], (0, 0, 0, 0))


def test_of_too_many_namespaces_those_with_the_most_chips_are_named() -> None:
    jobs = a_list(*(status("a", namespace=name, chips=chips) for name, chips in (("x", 1), ("y", 9), ("z", 5))))
    assert [one.name for one in jobs.uses(ALL, 2)] == ["y", "z"]
    assert [one.name for one in jobs.uses(("x",), 2)] == ["x"]


def test_the_jobs_that_ended_first_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_list, "_OVER_MAX", 2)
    jobs = a_list(
        status("waits"),
        status("b", "failed", since_ms=3),
        status("a", "succeeded", since_ms=1, namespace="lab"),
        status("c", "rejected", since_ms=2),
    )
    assert names(listed(jobs)) == ["team/b", "team/c", "team/waits"]
    jobs.note(status("a", namespace="lab"))  # the name is used again
    assert names(listed(jobs)) == ["lab/a", "team/b", "team/c", "team/waits"]


@pytest.mark.parametrize("seed", range(30))
def test_what_is_there_all_the_time_is_on_exactly_one_page(seed: int) -> None:
    dice = Random(seed)  # noqa: S311  # cells that follow from a seed
    spaces = ["a", "a-b", "b", "b.c"]
    steady = {(dice.choice(spaces), f"s{number}") for number in range(20)}
    jobs = a_list(*(status(name, namespace=namespace) for namespace, name in sorted(steady)))
    seen: list[tuple[str, str]] = []
    after, limit = "", dice.randint(1, 4)
    while True:
        page: list[ListedJob] = []
        cursors: list[str] = []
        for cursor, job in jobs.entries(JobsRequest(after=after, limit=limit), ALL):
            if job is not None:
                page.append(job)
                cursors.append(cursor)
            if len(page) == limit:
                break
        seen += [(one.namespace, one.name) for one in page]
        if not page:
            break
        after = cursors[-1]
        for _ in range(3):
            phase = dice.choice(["waiting", "running", "failed"])
            jobs.note(status(f"x{dice.randrange(40)}", phase, namespace=dice.choice(spaces)))
            namespace, name = dice.choice(sorted(steady))
            jobs.note(status(name, dice.choice(["waiting", "placed", "running"]), namespace=namespace))
    assert sorted(one for one in seen if one in steady) == sorted(steady)
    assert len(seen) == len(set(seen))


def test_jobs_that_are_not_over_are_counted_by_phase_and_reason() -> None:
    no_room = Refusal("no-room")
    jobs = a_list(status("a"), status("b", refusal=no_room), status("c", refusal=no_room), status("d", "running"))
    assert (jobs.phases(), jobs.reasons()) == ({"waiting": 3, "running": 1}, {"": 1, "no-room": 2})
    for one in (status("a", "failed", refusal=no_room), status("b", "placed"), status("d", "succeeded")):
        jobs.note(one)
    assert (+jobs.phases(), jobs.reasons()) == ({"waiting": 1, "placed": 1}, {"no-room": 1})
