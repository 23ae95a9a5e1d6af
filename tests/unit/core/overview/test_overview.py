"""The picture of a cell: what nodes, jobs, the queue and faults look like in it."""

import msgspec

from berth.core.cluster.node_packing import pack_health
from berth.core.explain.refusal_text import sentence
from berth.core.overview.derived_statuses import DerivedStatuses
from berth.core.overview.job_list import OVER_MAX
from berth.core.overview.overview import Overview
from berth.core.overview.reading import applied, merged
from berth.core.state.cell import State
from berth.schemas.envelope import encode
from berth.schemas.facts import NodeHealth
from berth.schemas.nodes import NodeCondition
from berth.schemas.page.view import Change, Job, View
from berth.schemas.queues.facts import QueueSeen
from berth.schemas.queues.queue import Queue
from berth.schemas.refusal import Refusal
from berth.schemas.status import JobStatus
from tests.support.cells import a_job, a_node
from tests.support.core_cells import SUBJECTS, CoreCell


def status(name: str, phase: str = "waiting", **changes: object) -> JobStatus:
    fields = {
        "namespace": "team",
        "name": name,
        "uid": f"u-{name}",
        "phase": phase,
        "since_ms": 1,
        "at_ms": 1,
    } | changes
    return JobStatus(**fields)  # type: ignore[arg-type]  # a builder for tests


def first(overview: Overview) -> View:
    found = overview.change(1)
    assert isinstance(found, View)
    return found


def next_change(overview: Overview) -> Change:
    found = overview.change(2)
    assert isinstance(found, Change)
    return found


def test_nodes_are_in_the_natural_order_of_their_places() -> None:
    nodes = [
        a_node("n-10", superpod="sp-2"),
        a_node("n-9", superpod="sp-2"),
        a_node("n-1", superpod="sp-10"),
        a_node("lone"),
        a_node("below", leaf="leaf-1"),
    ]
    view = first(Overview(CoreCell(nodes).state, cell="c"))
    assert [one.name for one in view.layout.nodes] == ["n-9", "n-10", "n-1", "below", "lone"]
    assert (view.layout.superpods, view.layout.leaves, view.layout.racks) == (["sp-2", "sp-10"], ["leaf-1"], [])
    assert [one.superpod for one in view.layout.nodes] == [0, 0, 1, -1, -1]
    assert [one.leaf for one in view.layout.nodes] == [-1, -1, -1, 0, -1]
    assert {one.chips for one in view.layout.nodes} == {8}
    assert view.cell == "c"


def test_a_placed_job_owns_its_chips_until_it_ends() -> None:
    cell = CoreCell([a_node("a"), a_node("b")])
    overview, statuses = Overview(cell.state), DerivedStatuses(cell.state)
    before = first(overview)
    assert before.nodes[0].owners == [0] * 8
    cell.place(a_job("j", chips=2))
    overview.note_loaded()
    statuses.note_loaded()
    statuses.tell(overview, 2)
    change = next_change(overview)
    (job,) = change.jobs
    ((index, row),) = change.nodes
    assert (job.name, job.phase, job.chips) == ("j", "placed", 2)
    assert sorted(row.owners) == [0] * 6 + [job.n] * 2
    assert applied(before, change).nodes[index] == row


def test_chips_that_pods_have_and_do_not_name_are_counted() -> None:
    cell = CoreCell([a_node("a")])
    overview = Overview(cell.state)
    assert first(overview).nodes[0].unnamed == 0
    cell.nodes["a"] = a_node("a", chips_others=3)
    cell.publish()
    ((_, row),) = next_change(overview).nodes
    assert (row.unnamed, row.owners) == (3, [0] * 8)


def test_a_cell_has_queues_while_one_is_declared_that_means_something() -> None:
    overview = Overview((cell := CoreCell([a_node("a")])).state)

    def declare(queue: Queue, *, gone: bool = False) -> None:
        fact = encode(QueueSeen(queue, gone=gone))
        cell.state.apply_fact(SUBJECTS.fact_queue(queue.name), cell.state.facts_seq + 1, fact)

    declare(Queue("root"))
    view = first(overview)
    assert not view.has_queues
    declare(Queue("team"))
    change = next_change(overview)
    assert (change.has_queues, change.jobs, change.nodes) == (True, [], [])
    assert overview.change(3) is None
    declare(Queue("team"), gone=True)
    after = next_change(overview)
    assert [applied(view, one).has_queues for one in (change, merged(change, after))] == [True, False]


def test_chips_of_a_job_that_ends_for_another_one_are_leaving_and_reserved() -> None:
    cell = CoreCell([a_node("a")], preempt=2)
    overview = Overview(cell.state)
    cell.place(a_job("low", chips=8))
    cell.ask(a_job("high", chips=4, priority=1))
    cell.decide()
    overview.note_loaded()
    DerivedStatuses(cell.state).note_loaded()
    view = first(overview)
    (node,) = view.nodes
    (place,) = view.reservations
    assert (node.releasing, node.reserved, place.nodes) == (0xFF, 0x0F, [0])
    (low,) = set(node.owners)
    assert low != place.job, "its pods have the chips still"
    assert node.sharers == [(chip, sorted([low, place.job])) for chip in range(4)]


def test_nothing_changed_is_no_change() -> None:
    cell = CoreCell([a_node("a")])
    overview = Overview(cell.state)
    view = first(overview)
    assert overview.change(2) is None
    cell.publish()
    assert overview.change(3) is None
    assert overview.view() == view


def test_a_node_that_comes_or_goes_gives_a_whole_picture() -> None:
    cell = CoreCell([a_node("a"), a_node("b")])
    overview = Overview(cell.state)
    assert [one.name for one in first(overview).layout.nodes] == ["a", "b"]
    del cell.nodes["b"]
    cell.publish()
    view = overview.change(2)
    assert isinstance(view, View)
    assert (view.version, [one.name for one in view.layout.nodes]) == (2, ["a"])


def test_positions_follow_the_queue_and_move_without_a_message_for_each_job() -> None:
    overview = Overview(State())
    first(overview)
    for name, priority, seq, is_plain in (
        ("a", 0, 1, False),
        ("b", 5, 2, False),
        ("c", 0, 3, True),
        ("d", 0, 4, False),
    ):
        overview.note_status(status(name, priority=priority, accepted_seq=seq, is_plain=is_plain))
    change = next_change(overview)
    names = {job.n: job.name for job in change.jobs}
    assert isinstance(change.queue, list)
    assert [names[number] for number in change.queue] == ["b", "a", "d", "c"]
    assert {job.name: job.position for job in change.jobs} == {"b": 1, "a": 2, "d": 3, "c": 1}
    view = overview.view()
    overview.note_status(status("b", "placed", priority=5, accepted_seq=2))
    change = next_change(overview)
    assert [job.name for job in change.jobs] == ["b"]
    after = applied(view, change)
    assert {job.name: job.position for job in after.jobs} == {"b": 0, "a": 1, "d": 2, "c": 1}
    assert after == overview.view()


def test_a_job_of_another_namespace_that_is_ahead_has_no_name() -> None:
    overview = Overview(State())
    first(overview)
    for ahead in ("team/first", "prod/secret"):
        refusal = Refusal("behind", ahead=ahead)
        overview.note_status(status(ahead[-5:], sentence=sentence(refusal), refusal=refusal))
    words = "waits behind {}, which was first in the queue (queue_policy fifo)"
    assert [job.sentence for job in next_change(overview).jobs] == [
        words.format("team/first"),
        words.format("a job of another namespace"),
    ]


def test_only_the_newest_jobs_that_are_over_stay() -> None:
    overview = Overview(State())
    first(overview)
    for number in range(OVER_MAX + 3):
        overview.note_status(status(f"j-{number}", "succeeded", since_ms=10 + number))
    view = applied(overview.view(), next_change(overview))
    names = {job.name for job in view.jobs}
    assert len(names) == OVER_MAX
    assert not names & {"j-0", "j-1", "j-2"}
    overview.note_status(status("last", "failed", since_ms=10_000))
    change = next_change(overview)
    assert [job.name for job in change.jobs] == ["last"]
    assert change.gone == [job.n for job in view.jobs if job.name == "j-3"]


def test_a_job_that_gives_up_its_name_before_its_end_is_seen_leaves_the_list() -> None:
    overview = Overview(State())
    first(overview)
    overview.note_status(status("runs", "running"))
    overview.note_status(status("ended", "succeeded"))
    overview.note_status(status("waits"))
    view = applied(overview.view(), next_change(overview))
    for name in ("runs", "ended", "waits", "unknown"):
        overview.note_unnamed(("team", name))
    after = applied(view, next_change(overview))
    assert [job.name for job in after.jobs] == ["ended"]
    assert after.queue == []


def test_numbers_are_never_used_again() -> None:
    overview = Overview(State())
    first(overview)
    overview.note_status(status("j", uid="one"))
    (one,) = next_change(overview).jobs
    overview.note_status(status("j", uid="two"))
    change = next_change(overview)
    (two,) = change.jobs
    assert change.gone == [one.n]
    assert two.n > one.n


def test_faults_have_their_reasons_and_jobs() -> None:
    cell = CoreCell([a_node("a"), a_node("b", ready=False)])
    overview, statuses = Overview(cell.state), DerivedStatuses(cell.state)
    first(overview)
    cell.place(a_job("j", chips=8))
    conditions = [
        NodeCondition(name="a", unhealthy=0b100, level=NodeHealth.SUB_HEALTHY, reason="link lost (NodeD)", updated_ms=7)
    ]
    fact = pack_health("all", conditions)
    cell.fact(SUBJECTS.fact_health("all"), fact)
    overview.note_fact(encode(fact))
    overview.note_loaded()
    statuses.note_loaded()
    statuses.tell(overview, 2)
    change = next_change(overview)
    assert isinstance(change.faults, list)
    found = [(one.place, one.level, one.sentence, one.at_ms, one.jobs) for one in change.faults]
    assert found == [
        ("a", "sub-healthy", "link lost (NodeD)", 7, [1]),
        ("a chip 2", "unhealthy", "link lost (NodeD)", 7, [1]),
        ("b", "not-ready", "", 0, []),
    ]
    view = overview.view()
    assert (view.nodes[0].level, view.nodes[0].unhealthy, view.nodes[1].flags) == ("sub-healthy", 0b100, 1)


def test_a_fault_has_the_time_since_which_the_node_has_it() -> None:
    cell = CoreCell([a_node("a"), a_node("b")])
    overview = Overview(cell.state)

    def report(at_ms: int, *names: str) -> list[tuple[str, int]]:
        cell.conditions = {name: NodeCondition(name, unhealthy=1, reason=f"seen at {at_ms}") for name in names}
        cell.publish()
        overview.note_fact(encode(pack_health("all", list(cell.conditions.values()))))
        overview.change(at_ms)
        return [(one.place, one.since_ms) for one in overview.view().faults]

    report(1)
    assert report(5, "a") == [("a chip 0", 5)]
    assert report(7, "a", "b") == [("a chip 0", 5), ("b chip 0", 7)]
    assert report(9, "b") == [("b chip 0", 7)]
    assert report(11, "a", "b") == [("a chip 0", 11), ("b chip 0", 7)]


def test_the_json_has_the_fields_of_the_page() -> None:
    overview = Overview(CoreCell([a_node("a", superpod="s")]).state)
    first(overview)
    overview.note_status(status("j", chips=3, submitted_ms=4))
    next_change(overview)
    plain = msgspec.json.decode(msgspec.json.encode(overview.view()))
    assert plain["layout"]["nodes"] == [["a", 0, 0, -1, -1, 8]]
    assert plain["nodes"] == [["ok", 0, 0, [0] * 8, 0, 0, 0, 0, 0, 0, 0, [], 0]]
    assert plain["jobs"][0] | {"n": 1, "name": "j", "chips": 3, "submitted_ms": 4, "position": 1} == plain["jobs"][0]
    assert "expected_start_ms" not in plain["jobs"][0]
    assert msgspec.convert(plain["jobs"][0], Job) == overview.view().jobs[0]
