"""Notices: what is written when, and the writer on an API server in memory.

Longer than 400 lines because rules and writer share their jobs.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from berth.formats.kubernetes.events import Involved
from berth.runtime.errors import TransientError
from berth.runtime.instruments import Instruments
from berth.runtime.kube.port import Body, PatchKind, RefusedError
from berth.schemas.columns import pack
from berth.schemas.facts import MembersSeen, Owner, Rejection
from berth.schemas.fault_facts import ReplacementsSeen
from berth.schemas.programs.trace_ids import trace_id
from berth.schemas.recovery import RecoveryStatus
from berth.schemas.refusal import Refusal
from berth.schemas.status import JobStatus, Phase
from berth.services.binder import notices
from berth.services.binder.config import BinderConfig
from berth.services.binder.metrics import BinderMetrics
from berth.services.binder.notice_loop import NoticeLoop
from berth.services.binder.notices import Notice, Notices, NoticeWrite
from tests.support.clock import ManualClock
from tests.support.fake_kube import FakeKube
from tests.support.kube_binder import a_gang, a_placement, a_pod, members_of
from tests.support.waiting import until

GANG = a_gang("job", ["n0", "n1"], [(0,), (0,)])
PODS = [(0, "p0", "u0"), (1, "p1", "u1")]
EVENTS = "/api/v1/namespaces/ns/events"
BEGUN_MS = 1_000


def status(phase: Phase, sentence: str = "", *, uid: str = "uid-job", at_ms: int = 2_000) -> JobStatus:
    placement = a_placement(["n0", "n1"], [(0,), (0,)]) if phase in {"placed", "bound", "running"} else None
    return JobStatus("ns", "job", uid, phase, 0, at_ms, sentence=sentence, placement=placement, pods=2)


def held_status(why: str) -> JobStatus:
    return msgspec.structs.replace(status("running"), restart_held=why)


class Book:
    """Notices, and what they say to be written."""

    def __init__(self) -> None:
        self.notices = Notices(again_s=300, begun_ms=BEGUN_MS)
        self.now_s = 0.0
        self.notices.take_members(members_of(GANG, PODS), 0)

    def say(self, phase: Phase, sentence: str = "", **changes: object) -> None:
        self.notices.take_status(status(phase, sentence, **changes), self.now_s)  # type: ignore[arg-type]  # fields

    def members(self, **changes: object) -> None:
        self.notices.take_members(members_of(GANG, PODS, **changes), self.now_s)  # type: ignore[arg-type]  # fields

    def written(self) -> list[tuple[str, str, str]]:
        """(pod or nothing, kind, sentence) of all that is due."""
        found: list[NoticeWrite] = []
        while (told := self.notices.next(self.now_s)) is not None:
            found.append(told)
        return [(told.pod, *told.notice) for told in found]


CAUSE = "preempted for a job of priority 1, above 0, that needs 8 chips in one node"


@pytest.mark.parametrize(
    ("ahead", "names_others", "named"),
    [
        ("prod/big", False, False),
        ("prod/big", True, True),
        ("ns/big", False, True),
    ],
)
def test_jobs_of_other_namespaces_have_names_only_if_it_is_set(ahead: str, *, names_others: bool, named: bool) -> None:
    waits = msgspec.structs.replace(status("waiting", f"waits behind {ahead}"), refusal=Refusal("behind", ahead=ahead))
    recovery = RecoveryStatus(1, "job", "grace", "Preempted", CAUSE, [0, 1], [], 1, for_job=ahead)
    ended = msgspec.structs.replace(status("waiting", f"it waits again: {CAUSE}"), recovery=recovery)
    for one, words in (
        (waits, f"waits behind {ahead if named else 'a job of another namespace'}"),
        (ended, f"it waits again: {CAUSE}{f'; that job is {ahead}' if named else ''}"),
    ):
        notices = Notices(again_s=300, begun_ms=BEGUN_MS, name_others=names_others)
        notices.take_members(members_of(GANG, PODS), 0)
        notices.take_status(one, 0)
        told = notices.next(0)
        assert told is not None
        assert told.notice.sentence == words


def test_a_restart_that_is_held_back_is_an_event_and_no_condition() -> None:
    book = Book()
    book.say("running")
    assert book.written() == [("", "placed", "placed 2 pods on 2 nodes")]
    book.notices.take_status(held_status("too many"), 1)
    assert book.written() == [("", "restart-held", "too many")]
    book.notices.take_status(held_status("too many"), 2)
    book.notices.suppress(("ns", "job"))
    assert book.written() == []
    book.say("running")
    assert book.written() == [], "that it has its place was said before"
    book.now_s = 1_000
    book.notices.take_status(held_status("too many again"), book.now_s)
    assert book.written() == [("", "restart-held", "too many again")]


def test_statuses_of_other_jobs_do_not_replace_that_of_a_job_with_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "_STATUSES_MAX", 3)
    book = Book()
    book.say("waiting", "no room")
    book.written()
    for number in range(10):
        other = msgspec.structs.replace(status("waiting", "too small"), name=f"other-{number}")
        book.notices.take_status(other, 0)
    book.notices.take_members(members_of(GANG, [*PODS, (0, "p2", "u2")]), 1)
    assert book.written() == [("p2", "waiting", "no room")]
    assert len(book.notices._statuses) == 1 + 3
    fact = msgspec.structs.replace(members_of(GANG, PODS), job="other-9")
    book.notices.take_members(fact, 2)
    assert ("", "waiting", "too small") in book.written()
    book.notices.take_members(msgspec.structs.replace(fact, pods=[], pod_uids=[], rank=b""), 3)
    assert sorted(book.notices._unknown) == [("ns", "other-7"), ("ns", "other-8")]


def recovering(*unplaced: int, refusal: str = "no room") -> JobStatus:
    recovery = RecoveryStatus(
        2, "pod", "force", "CardUnhealthy", "its chip broke", [1], [1], 0, open=[1], unplaced=list(unplaced),
        refusal=refusal,
    )  # fmt: skip
    return msgspec.structs.replace(status("running"), recovery=recovery)


def waiting(*ranks: int, uid: str = "uid-job") -> ReplacementsSeen:
    return ReplacementsSeen("ns", "job", uid, pack(list(ranks), 4), 0)


def test_a_new_pod_that_finds_no_place_gets_a_condition_and_the_others_do_not() -> None:
    book = Book()
    book.say("running")
    book.written()
    book.notices.take_status(recovering(1), 0)
    assert book.written() == [], "its controller has made none"
    book.notices.take_replacements(waiting(1, uid="another"), 0)
    assert book.written() == []
    book.notices.take_replacements(waiting(1), 0)
    words = "the new pod of rank 1 waits for a place: no room"
    assert book.written() == [("", "unplaced", words), ("p1", "unplaced", words)]
    book.notices.take_status(recovering(1), 1)
    book.members()
    assert book.written() == []
    again = members_of(GANG, [PODS[0], (1, "p1", "u9")])
    book.notices.take_members(again, 2)
    assert book.written() == [("p1", "unplaced", words)], "another pod by now"
    book.notices.take_status(recovering(), 3)
    assert book.written() == [("", "placed", "placed 2 pods on 2 nodes")]


def test_a_rank_whose_new_pod_comes_later_is_told_without_delay() -> None:
    book = Book()
    book.notices.take_replacements(waiting(1), 0)
    book.notices.take_status(recovering(0, 1), 0)
    assert [pod for pod, _, _ in book.written()] == ["", "p1"]
    book.notices.take_replacements(waiting(0, 1), 1)
    words = "the new pods of ranks 0,1 wait for places: no room"
    assert book.written() == [("p0", "unplaced", words)]
    book.notices.take_replacements(waiting(), 2)
    assert book.written() == []


def test_a_gang_that_waits_gets_one_event_and_a_condition_a_pod_once() -> None:
    book = Book()
    book.say("waiting", "no room")
    assert book.written() == [("", "waiting", "no room"), ("p0", "waiting", "no room"), ("p1", "waiting", "no room")]
    book.say("waiting", "no room")
    book.members()
    assert book.written() == []


def test_what_could_not_be_written_for_now_is_due_again_after_a_pause() -> None:
    book = Book()
    book.say("waiting", "3 nodes lack chips")
    event, of_pod, _ = (book.notices.next(0.0) for _ in range(3))
    assert event is not None
    assert of_pod is not None
    for write in (event, of_pod):
        book.notices.missed(write, 0.0)
    assert book.notices.next(9.9) is None
    assert book.notices.wait_s(0.0) == 10.0
    assert [book.notices.next(10.0) for _ in range(3)] == [event, of_pod, None]
    book.say("rejected", "it asks for nothing")
    assert book.notices.next(10.0) is not None
    book.notices.missed(of_pod, 10.0)
    assert book.notices.wait_s(10.0) is None, "another notice has taken its place"


def test_a_new_sentence_of_the_same_kind_waits_and_only_the_last_is_written() -> None:
    book = Book()
    book.say("waiting", "7 of 8")
    book.written()
    book.now_s = 100
    book.say("waiting", "6 of 8")
    book.say("waiting", "5 of 8")
    assert book.written() == []
    assert book.notices.wait_s(100) == 200
    book.now_s = 300
    assert {sentence for _, _, sentence in book.written()} == {"5 of 8"}
    assert book.notices.wait_s(300) is None


def test_a_sentence_that_was_not_written_yet_is_replaced() -> None:
    book = Book()
    book.say("waiting", "7 of 8")
    book.say("waiting", "6 of 8")
    assert [sentence for _, _, sentence in book.written()] == ["6 of 8"] * 3


def test_a_new_kind_is_written_at_once() -> None:
    book = Book()
    book.say("waiting", "no room")
    book.written()
    book.say("placed")
    assert book.written() == [("", "placed", "placed 2 pods on 2 nodes")]
    book.say("running")
    assert book.written() == []
    book.say("waiting", "no room")
    assert len(book.written()) == 3


def test_what_waits_to_be_written_of_a_gang_that_was_placed_is_dropped() -> None:
    book = Book()
    book.say("waiting", "no room")
    book.notices.suppress(("ns", "job"))
    assert book.written() == []


def test_a_gang_that_is_over_has_nothing_to_say() -> None:
    book = Book()
    book.say("waiting", "no room")
    book.say("cancelled")
    assert book.written() == []


def test_a_gang_that_failed_for_its_placement_is_told_and_one_whose_pods_failed_is_not() -> None:
    book = Book()
    for words in ("", "a pod failed", "its pods are gone"):
        book.say("failed", words)
        assert book.written() == []
    book.say("failed", "its pods could not be bound 5 times")
    assert [kind for _, kind, _ in book.written()] == ["failed"] * 3


def test_a_held_gang_is_told_why_though_no_request_was_made() -> None:
    book = Book()
    book.members(uid="", hold="minMember is 8, and there are 2 pods")
    assert book.written() == [(pod, "held", "minMember is 8, and there are 2 pods") for pod in ("", "p0", "p1")]


def test_a_pod_that_comes_later_is_told_too() -> None:
    book = Book()
    book.say("waiting", "no room")
    book.written()
    later = members_of(GANG, [*PODS[:1], (1, "p9", "u9")])
    book.notices.take_members(later, 1)
    assert book.written() == [("p9", "waiting", "no room")]


def test_statuses_of_other_requests_of_the_name_do_not_count() -> None:
    book = Book()
    book.say("waiting", "no room", uid="somebody else")
    assert book.written() == []


def test_a_request_that_was_turned_away_for_its_name_is_told() -> None:
    book = Book()
    rejection = Rejection("uid-job", 1, Refusal("name-in-use", value="u7"), 0)
    other = JobStatus("ns", "job", "u7", "running", 0, 2_000, rejection=rejection)
    book.notices.take_status(other, 0)
    assert [kind for _, kind, _ in book.written()] == ["rejected"] * 3


def test_what_was_placed_before_this_run_is_not_told_again() -> None:
    book = Book()
    book.say("running", at_ms=BEGUN_MS - 1)
    assert book.written() == []
    book.say("waiting", "no room")
    assert len(book.written()) == 3


def test_nothing_is_kept_of_gangs_without_pods() -> None:
    book = Book()
    book.say("waiting", "no room")
    book.notices.take_members(MembersSeen("ns", "job", "uid-job"), 0)
    assert len(book.notices) == 0
    assert book.written() == []
    for number in range(10_050):
        book.notices.take_status(JobStatus("ns", f"j{number}", "u", "waiting", 0, 0, sentence="x"), 0)
    assert len(book.notices._statuses) == 10_000


def test_a_status_may_come_before_the_members() -> None:
    notices = Notices(again_s=300, begun_ms=0)
    notices.take_status(status("rejected", "no such policy"), 0)
    notices.take_members(members_of(GANG, PODS), 0)
    told = notices.next(0)
    assert told is not None
    assert told.notice == Notice("rejected", "no such policy")


class World:
    """A writer on an API server in memory."""

    def __init__(self, kind: type[FakeKube] = FakeKube, **settings: float) -> None:
        self.clock = ManualClock()
        self.kube = kind(clock=self.clock)
        config = BinderConfig(**{"notices_per_s": 1_000, **settings})  # type: ignore[arg-type]  # fields
        self.loop = NoticeLoop(self.kube, self.clock, config, Instruments.make(BinderMetrics))
        self.uids = [
            str(self.kube.put("/api/v1/namespaces/ns/pods", a_pod(name))["metadata"]["uid"]) for name in ("p0", "p1")
        ]

    def members(self, **changes: object) -> None:
        rows = [(rank, f"p{rank}", uid) for rank, uid in enumerate(self.uids)]
        self.loop.take_members(members_of(GANG, rows, **changes))  # type: ignore[arg-type]  # fields of the fact

    def say(self, phase: Phase, sentence: str = "") -> None:
        self.loop.take_status(status(phase, sentence, at_ms=self.clock.now_ms()))

    def events(self) -> list[tuple[str, str, str, str, int]]:
        return [
            (
                found["involvedObject"]["kind"],
                found["involvedObject"]["name"],
                found["reason"],
                found["message"],
                found["count"],
            )
            for found in self.kube.objects(EVENTS)
        ]

    def conditions(self, pod: str) -> list[dict[str, str]]:
        found: list[dict[str, str]] = self.kube.object(f"/api/v1/namespaces/ns/pods/{pod}")["status"].get(
            "conditions", []
        )
        return found

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.loop.run(), name="write")
            yield
            task.cancel()


async def test_a_notice_about_no_object_costs_no_pause() -> None:
    world = World(notices_per_s=0.01)
    world.kube.put("/api/v1/namespaces/ns/pods", {**a_pod("p0"), "status": {"phase": "Pending"}})
    world.members()
    async with world.writing():
        world.say("waiting", "0 of 8 nodes fit")
        await until(lambda: bool(world.conditions("p0")), deadline_s=5, what="the pod says so without a pause")


async def test_conditions_and_events_stand_in_the_cluster() -> None:
    world = World()
    world.kube.put(
        "/api/v1/namespaces/ns/pods", {**a_pod("p0"), "status": {"phase": "Pending", "qosClass": "Burstable"}}
    )
    world.members(owner=Owner("Job", "job", "u-job"))
    async with world.writing():
        world.say("waiting", "0 of 8 nodes fit")
        await until(lambda: len(world.events()) == 3, deadline_s=5, what="all is written")
        world.say("placed")
        await until(lambda: len(world.events()) == 4, deadline_s=5, what="the placement is told")
    (condition,) = world.conditions("p0")
    assert (condition["type"], condition["status"], condition["reason"], condition["message"]) == (
        "PodScheduled",
        "False",
        "Unschedulable",
        "0 of 8 nodes fit",
    )
    assert world.kube.object("/api/v1/namespaces/ns/pods/p0")["status"]["qosClass"] == "Burstable"
    assert sorted(world.events()) == [
        ("Job", "job", "FailedScheduling", "0 of 8 nodes fit", 1),
        ("Job", "job", "Scheduled", "placed 2 pods on 2 nodes", 1),
        ("Pod", "p0", "FailedScheduling", "0 of 8 nodes fit", 1),
        ("Pod", "p1", "FailedScheduling", "0 of 8 nodes fit", 1),
    ]


@pytest.mark.parametrize(("uid", "of_group"), [("", True), ("u-pg", True), ("u-before", False)])
async def test_the_event_is_of_the_podgroup_for_which_the_request_was_made(uid: str, *, of_group: bool) -> None:
    world = World()
    world.kube.put(
        "/apis/scheduling.volcano.sh/v1beta1/namespaces/ns/podgroups", {"metadata": {"name": "pg", "uid": "u-pg"}}
    )
    world.members(podgroup="pg", podgroup_uid=uid)
    async with world.writing():
        world.say("waiting", "no room")
        await until(lambda: len(world.events()) == 2 + of_group, deadline_s=5, what="events")
    about = {(kind, name) for kind, name, *_ in world.events()}
    assert about == {("Pod", "p0"), ("Pod", "p1")} | ({("PodGroup", "pg")} if of_group else set())


async def test_a_gang_of_nobody_has_its_events_on_its_pods_once_each() -> None:
    world = World()
    world.members(podgroup="lost")
    async with world.writing():
        world.say("rejected", "no such policy")
        await until(lambda: len(world.events()) == 2, deadline_s=5, what="both pods are told")
    assert world.events() == [("Pod", f"p{rank}", "JobRejected", "no such policy", 1) for rank in range(2)]


async def test_pods_that_are_bound_get_a_normal_event_after_everything_else() -> None:
    world = World()
    world.members()
    pod = Involved(api_version="v1", kind="Pod", namespace="ns", name="p0", uid=world.uids[0])
    world.loop.report_scheduled(pod, "Successfully assigned ns/p0 to n0", "uid-j")
    world.say("waiting", "no room")
    async with world.writing():
        await until(lambda: len(world.events()) == 3, deadline_s=5, what="all is written")
    made = [call.body for call in world.kube.calls if call.method == "POST"]
    assert [(body["involvedObject"]["name"], body["reason"], body["type"]) for body in made] == [
        ("p0", "FailedScheduling", "Warning"),
        ("p1", "FailedScheduling", "Warning"),
        ("p0", "Scheduled", "Normal"),
    ]
    traces = [body["metadata"]["annotations"] for body in made]
    assert traces[2] == {"berth/trace-id": trace_id("uid-j")}
    assert traces[0] == traces[1] == {"berth/trace-id": trace_id(GANG.uid)}


async def test_an_event_that_was_written_by_an_earlier_run_counts_up() -> None:
    world = World()
    world.members()
    pod = Involved(api_version="v1", kind="Pod", namespace="ns", name="p0", uid=world.uids[0])
    async with world.writing():
        world.loop.report_event(pod, "Evicted", "cancelled", "uid-j")
        world.loop.report_event(pod, "Evicted", "cancelled", "uid-j")
        await until(lambda: world.events() and world.events()[0][-1] == 2, deadline_s=5, what="it is counted")
    assert world.events() == [("Pod", "p0", "Evicted", "cancelled", 2)]
    (made,) = world.kube.objects(EVENTS)
    assert made["metadata"]["annotations"] == {"berth/trace-id": trace_id("uid-j")}


@pytest.mark.parametrize(
    "error",
    [TransientError("away", retry_after_s=0.001), RefusedError("no", status=403), RefusedError("no", status=404)],
)
async def test_what_cannot_be_written_stops_nothing(error: Exception) -> None:
    world = World()
    world.members()
    world.kube.fail(error, method="POST", part="/events", times=2)
    world.kube.fail(error, method="PATCH", part="p0", times=2)
    async with world.writing():
        world.say("waiting", "no room")
        await until(lambda: world.conditions("p1"), deadline_s=5, what="the other pod is told")
    assert world.conditions("p0") == []


async def test_a_pod_of_another_uid_is_not_told() -> None:
    world = World()
    world.uids[0] = "somebody else"
    world.members()
    async with world.writing():
        world.say("waiting", "no room")
        await until(lambda: world.conditions("p1"), deadline_s=5, what="the other pod is told")
    assert world.conditions("p0") == []


async def test_nothing_is_written_where_the_rate_is_nought() -> None:
    world = World(notices_per_s=0)
    world.members()
    world.say("waiting", "no room")
    await world.loop.run()
    assert world.kube.calls == []


def test_another_cause_is_told_at_once_however_often_it_changes() -> None:
    book = Book()
    for number in range(6):
        book.now_s += 1
        words = ("0 of 2 nodes fit: 1 is cordoned", "0 of 2 nodes fit: 2 are faulty")[number % 2]
        book.say("waiting", words)
        assert {sentence for _, _, sentence in book.written()} == {words}


def test_one_node_more_or_less_is_no_other_cause() -> None:
    book = Book()
    book.say("waiting", "0 of 2 nodes fit: 1 is cordoned, 1 has fewer than 8 free chips")
    book.written()
    book.say("waiting", "0 of 9 nodes fit: 7 have fewer than 8 free chips, 2 are cordoned")
    assert book.written() == []
    book.say("waiting", "0 of 9 nodes fit: 9 have fewer than 8 free chips")
    assert len(book.written()) == 3


def test_a_pod_that_comes_later_gets_the_numbers_of_now() -> None:
    book = Book()
    book.say("waiting", "7 of 8")
    book.written()
    book.say("waiting", "6 of 8")
    book.notices.take_members(members_of(GANG, [*PODS, (0, "p2", "u2")]), 1)
    assert book.written() == [("p2", "waiting", "6 of 8")]


def test_causes_are_written_before_numbers_and_the_one_that_waits_longest_first() -> None:
    book = Book()
    for job in ("a", "b", "c"):
        book.notices.take_members(msgspec.structs.replace(members_of(GANG, PODS[:1]), job=job), 0)

    def say(job: str, sentence: str) -> None:
        book.notices.take_status(msgspec.structs.replace(status("waiting", sentence), name=job), book.now_s)

    for job in ("a", "b", "c"):
        say(job, "7 of 8")
    book.written()
    book.now_s = 400
    say("a", "6 of 8")
    say("b", "faulty")
    say("c", "cordoned")
    order = []
    for _ in range(3):
        write = book.notices.next(book.now_s)
        assert write is not None
        order.append((write.job[1], write.pod))
    assert order == [("b", ""), ("b", "p0"), ("c", "")]
    say("c", "drained")  # it has begun: what is due since then comes first
    say("b", "drained")
    rest: list[tuple[str, str]] = []
    while (write := book.notices.next(book.now_s)) is not None:
        rest.append((write.job[1], write.notice.sentence))
    assert rest == [("c", "drained")] * 2 + [("b", "drained")] * 2 + [("a", "6 of 8")] * 2


def told(book: Notices, now_s: float) -> Iterator[tuple[str, str]]:
    """Writes about pods, each of which succeeds: what it is, and the pod."""
    while (write := book.next(now_s)) is not None:
        if write.is_condition:
            book.told(write)
        if write.pod:
            yield "condition" if write.is_condition else "event", write.pod


def test_conditions_of_all_pods_come_before_their_events() -> None:
    book = Book()
    book.notices.take_members(msgspec.structs.replace(members_of(a_gang("b", ["n0"], [(0,)]), [(0, "q", "v")])), 0)
    book.say("waiting", "no room")
    book.notices.take_status(msgspec.structs.replace(status("waiting", "no room"), name="b", uid="uid-b"), 0)
    kinds = [kind for kind, _ in told(book.notices, 0)]
    assert kinds == ["condition"] * 3 + ["event"] * 3


def test_events_of_pods_are_written_though_conditions_are_always_due() -> None:
    book = Book()
    pods = [(rank, f"p{rank}", f"u{rank}") for rank in range(8)]
    book.notices.take_members(members_of(GANG, pods), 0)
    found: list[str] = []
    for turn in range(20):
        book.say("waiting", ("no room", "nodes are faulty")[turn % 2])
        found += [kind for kind, _ in itertools.islice(told(book.notices, 0), 8)]
    assert found.count("event") >= 10


def test_a_pod_that_is_placed_after_its_condition_gets_no_event_that_it_waits() -> None:
    book = Book()
    book.say("waiting", "no room")
    writes = told(book.notices, 0)
    assert [next(writes), next(writes)] == [("condition", "p0"), ("condition", "p1")]
    book.notices.suppress(("ns", "job"))
    assert list(writes) == []


def test_a_gang_whose_cause_changes_while_it_is_written_does_not_hold_up_others() -> None:
    book = Book()
    book.notices.take_members(msgspec.structs.replace(members_of(GANG, PODS), job="other"), 0)
    book.say("waiting", "faulty")
    book.notices.take_status(msgspec.structs.replace(status("waiting", "faulty"), name="other"), 0)
    assert [write.job[1] for _ in range(2) if (write := book.notices.next(0))] == ["job", "job"]
    book.say("waiting", "cordoned")
    jobs = [write.job[1] for _ in range(6) if (write := book.notices.next(0))]
    assert jobs == ["other"] * 3 + ["job"] * 3


async def test_a_pod_that_is_bound_is_not_told_that_it_waits() -> None:
    world = World()
    path = "/api/v1/namespaces/ns/pods"
    bound = world.kube.object(f"{path}/p0")
    world.uids[0] = str(world.kube.put(path, {**bound, "spec": {**bound["spec"], "nodeName": "n0"}})["metadata"]["uid"])
    world.members()
    async with world.writing():
        world.say("waiting", "no room")
        await until(lambda: len(world.events()) == 1, deadline_s=5, what="the other pod is told")
    assert (world.conditions("p0"), [name for _, name, *_ in world.events()]) == ([], ["p1"])


class BindsBeforeTheWrite(FakeKube):
    """Pod p0 is bound between the read and the write."""

    async def patch(self, path: str, body: Body, *, how: PatchKind = "merge", field_manager: str = "") -> bytes:
        pods = "/api/v1/namespaces/ns/pods"
        pod = self.object(f"{pods}/p0")
        if path.endswith("p0/status") and "nodeName" not in pod["spec"]:
            scheduled = {"type": "PodScheduled", "status": "True"}
            now = {"spec": {**pod["spec"], "nodeName": "n0"}, "status": {"conditions": [scheduled]}}
            self.put(pods, {**pod, **now})
        return await super().patch(path, body, how=how, field_manager=field_manager)


async def test_a_pod_that_is_bound_between_the_read_and_the_write_keeps_its_condition() -> None:
    world = World(BindsBeforeTheWrite)
    world.members()
    async with world.writing():
        world.say("waiting", "no room")
        await until(lambda: world.conditions("p1"), deadline_s=5, what="the other pod is told")
    assert world.conditions("p0") == [{"type": "PodScheduled", "status": "True"}]


async def test_a_condition_says_as_of_when_and_since_when() -> None:
    world = World()
    world.members()
    async with world.writing():
        world.say("waiting", "no room")
        await until(lambda: world.conditions("p1"), deadline_s=5, what="both pods are told")
        (first,) = world.conditions("p1")
        world.clock.advance(60)
        world.say("waiting", "faulty")
        await until(lambda: world.conditions("p1")[0]["message"] == "faulty", deadline_s=5, what="they are told again")
    (second,) = world.conditions("p1")
    assert second["lastTransitionTime"] == first["lastTransitionTime"] == first["lastProbeTime"]
    assert second["lastProbeTime"] > first["lastProbeTime"]


def test_what_was_placed_in_the_moment_of_the_start_is_told() -> None:
    book = Book()
    book.say("placed", at_ms=BEGUN_MS)
    assert [kind for _, kind, _ in book.written()] == ["placed"]
    earlier = Book()
    earlier.say("placed", at_ms=BEGUN_MS - 1)
    assert earlier.written() == []


def test_a_pod_that_stands_for_its_rank_again_is_told_again() -> None:
    book = Book()
    book.say("waiting", "no room")
    book.written()
    book.notices.take_members(members_of(GANG, PODS[:1]), book.now_s)
    book.notices.take_members(members_of(GANG, PODS), book.now_s)
    assert book.written() == [("p1", "waiting", "no room")]


def test_many_pods_of_one_namespace_do_not_hold_up_the_notices_of_another() -> None:
    book = Book()
    large = members_of(GANG, PODS)
    many = [f"many-{number}" for number in range(500)]
    large = msgspec.structs.replace(large, job="large", pods=many, pod_uids=many, rank=pack(range(500), 4))
    small = msgspec.structs.replace(members_of(GANG, PODS[:1]), namespace="other", job="small")
    for fact in (large, small):
        book.notices.take_members(fact, 0)
        about = msgspec.structs.replace(status("waiting", "faulty"), namespace=fact.namespace, name=fact.job)
        book.notices.take_status(about, 0)
    first = [write.job[1] for _ in range(6) if (write := book.notices.next(0))]
    assert first == ["large", "small", "large", "small", "large", "large"]
