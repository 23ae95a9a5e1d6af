"""The last hour of a cell: lines of use and of waiting, what happened, and the bounds of both."""

from typing import Any

from berth.core.overview.hour_log import EVENTS_MAX, HOUR_MS, STEP_MS, HourLog
from berth.core.overview.hour_past import PastHour, Step
from berth.schemas.page.hour import Hour, HourEvent
from berth.schemas.page.view import Change, Fault, Job, Layout, NodePlace, NodeRow, View

T0 = 10 * HOUR_MS
NOTHING = PastHour(T0, [], [])


def everything(_: str) -> bool:
    return True


def free() -> NodeRow:
    return NodeRow("ok", 0, 0, [0] * 8)


def view(*jobs: Job, nodes: int = 4, at_ms: int = T0, faults: list[Fault] | None = None) -> View:
    places = [NodePlace(f"n{index}", 0, -1, -1, index // 2, 8) for index in range(nodes)]
    layout = Layout(leaves=["leaf-0", "leaf-1", "leaf-2"], products=["p"], nodes=places)
    rows = [free() for _ in range(nodes)]
    return View(version=1, at_ms=at_ms, layout=layout, nodes=rows, jobs=list(jobs), queue=[], faults=faults or [])


def job(n: int, phase: str, namespace: str = "team", **values: Any) -> Job:  # noqa: ANN401  # fields of a job
    return Job(n=n, namespace=namespace, name=f"j{n}", uid=f"u{n}", phase=phase, **values)


def change(at_ms: int, *jobs: Job, **values: Any) -> Change:  # noqa: ANN401  # fields of a change
    return Change(version=2, at_ms=at_ms, jobs=list(jobs), **values)


def begun(*jobs: Job, past: PastHour = NOTHING, **values: Any) -> HourLog:  # noqa: ANN401  # fields of a view
    log = HourLog()
    log.begin(view(*jobs, **values), past)
    return log


def told(hour: Hour) -> list[tuple[int, str, str, int]]:
    return [(one.at_ms - T0, one.what, one.name or one.place, one.nodes) for one in hour.events]


def points(hour: Hour) -> list[tuple[int, int, int]]:
    return [(one.at_ms - T0, one.used, one.waiting) for one in hour.points]


def test_lines_and_events_follow_the_changes() -> None:
    log = begun(job(1, "waiting"))
    held = NodeRow("ok", 0, 0, [2] * 4 + [0] * 4)
    log.note(change(T0 + 20_000, job(1, "bound", chips=4), nodes=[(0, held)]))
    log.note(change(T0 + 40_000, job(1, "running", chips=4), job(2, "waiting", sentence="no room")))
    log.note(change(T0 + 60_000, job(1, "succeeded"), nodes=[(0, free())]))
    hour = log.hour(T0 + 70_000, everything)
    assert points(hour) == [(0, 0, 1), (20_000, 4, 0), (40_000, 4, 1), (60_000, 0, 1)]
    assert told(hour) == [
        (60_000, "succeeded", "j1", 0),
        (40_000, "waiting", "j2", 0),
        (20_000, "placed", "j1", 0),
    ]
    assert hour.counts == {"placed": 1, "succeeded": 1, "waiting": 1}
    assert (hour.begin_ms, hour.at_ms, hour.chips) == (T0, T0 + 70_000, 32)


def test_pods_of_other_schedulers_wait_for_nothing() -> None:
    log = begun()
    log.note(change(T0 + 20_000, job(1, "running", is_foreign=True)))
    assert log.hour(T0 + 30_000, everything).events == []


def test_a_job_that_leaves_the_list_waits_no_longer() -> None:
    log = begun(job(1, "waiting"))
    log.note(change(T0 + 20_000, gone=[1]))
    assert points(log.hour(T0 + 30_000, everything))[-1] == (20_000, 0, 0)


def test_only_the_last_hour_is_told_and_the_first_point_is_at_its_begin() -> None:
    log = begun()
    log.note(change(T0 + 20_000, job(1, "waiting")))
    log.note(change(T0 + HOUR_MS + 50_000, job(2, "waiting")))
    hour = log.hour(T0 + HOUR_MS + 60_000, everything)
    assert points(hour) == [(60_000, 0, 1), (HOUR_MS + 50_000, 0, 2)]
    assert told(hour) == [(HOUR_MS + 50_000, "waiting", "j2", 0)]
    assert hour.begin_ms == T0 + 60_000


def test_points_counts_and_events_are_bounded() -> None:
    log = begun()
    steps = 3 * HOUR_MS // 2_000
    for step in range(1, steps):
        log.note(change(T0 + 2_000 * step, job(step, "waiting")))
    hour = log.hour(T0 + 2_000 * steps, everything)
    assert len(hour.points) <= HOUR_MS // STEP_MS + 2
    assert hour.points[-1].waiting == steps - 1
    assert len(hour.events) == EVENTS_MAX
    assert HOUR_MS // 2_000 <= hour.counts["waiting"] <= HOUR_MS // 2_000 + 60
    assert (len(log._points), len(log._counts)) < (HOUR_MS // STEP_MS + 3, 64)


def test_failures_and_faults_are_not_crowded_out_by_what_is_usual() -> None:
    log = begun()
    log.note(change(T0 + 1_000, job(1, "failed", sentence="its pod has failed")))
    for n in range(2, EVENTS_MAX + 10):
        log.note(change(T0 + 2_000 + n, job(n, "waiting")))
    assert told(log.hour(T0 + 10_000, everything))[-1] == (1_000, "failed", "j1", 0)


def test_faults_of_a_leaf_at_once_are_one_event_and_so_is_their_end() -> None:
    log = begun()
    faults = [Fault(node=row, place=f"n{row}", kind="NodeNotReady", level="not-ready") for row in (0, 1, 2)]
    log.note(change(T0 + 20_000, faults=faults))
    log.note(change(T0 + 40_000, faults=faults[2:]))
    hour = log.hour(T0 + 50_000, everything)
    assert told(hour) == [(40_000, "repaired", "leaf-0", 2), (20_000, "fault", "leaf-0", 2), (20_000, "fault", "n2", 1)]
    assert {one.level for one in hour.events} == {"not-ready"}
    assert hour.counts == {"fault": 3, "repaired": 2}


def test_nodes_that_come_leave_or_are_drained_are_told() -> None:
    log = begun()
    log.note(change(T0 + 20_000, nodes=[(row, NodeRow("ok", 0, 5, [0] * 8)) for row in (0, 1)]))
    log.note(change(T0 + 40_000, nodes=[(1, free())]))
    log.note(view(nodes=6, at_ms=T0 + 60_000))
    log.note(view(nodes=5, at_ms=T0 + 80_000))
    assert told(log.hour(T0 + 90_000, everything)) == [
        (80_000, "left", "n5", 1),
        (60_000, "came", "n4", 2),
        (40_000, "undrained", "n1", 1),
        (20_000, "drained", "leaf-0", 2),
    ]


def test_jobs_of_other_namespaces_are_counted_and_not_named() -> None:
    log = begun()
    log.note(change(T0 + 20_000, job(1, "waiting"), job(2, "waiting", namespace="secret")))
    hour = log.hour(T0 + 30_000, lambda namespace: namespace == "team")
    assert told(hour) == [(20_000, "waiting", "j1", 0)]
    assert (hour.counts, points(hour)[-1]) == ({"waiting": 2}, (20_000, 0, 2))


def test_what_was_before_the_picture_leads_to_it() -> None:
    happened = [HourEvent(at_ms=T0 - 50_000, what="placed", namespace="team", name="old")]
    past = PastHour(
        T0 - 100_000, [Step(T0 - 80_000, 0, 2), Step(T0 - 50_000, 8, -1), Step(T0 - 30_000, -8, 0)], happened
    )
    fault = Fault(since_ms=T0 - 60_000, node=0, place="n0", kind="k", level="evict")
    older = Fault(since_ms=T0 - 600_000, node=1, place="n1", kind="k", level="evict")
    hour = begun(job(1, "waiting"), past=past, faults=[fault, older]).hour(T0 + 1_000, everything)
    assert points(hour) == [(-100_000, 0, 0), (-80_000, 0, 2), (-50_000, 8, 1), (-30_000, 0, 1)]
    assert told(hour) == [(-50_000, "placed", "old", 0), (-60_000, "fault", "n0", 1)]
    assert hour.begin_ms == T0 - 100_000
