"""Messages in line: namespaces take turns, and each has few requests on INTAKE that are not judged."""

from berth.schemas.facts import MembersSeen
from berth.schemas.fault_facts import ReplacementsSeen
from berth.schemas.intake import JobCancel, JobRequest
from berth.services.inventory.publishing.outbound_messages import (
    STILL_MS,
    WINDOW,
    WINDOW_ALL,
    Outbound,
    OutboundMessages,
)
from tests.support.cells import a_job

START_MS = 1_000


class Intake:
    """Stores what is chosen, as the bus does."""

    def __init__(self) -> None:
        self.line = OutboundMessages()
        self.stored: list[Outbound] = []
        self.now_ms = START_MS

    def ask(self, namespace: str, count: int = 1, *, is_new: bool = False) -> None:
        """Append so many requests of a namespace."""
        for number in range(count):
            self.line.append(a_job(f"job-{number}", namespace=namespace), is_new=is_new)

    def store(self) -> list[Outbound]:
        """Store all that may be stored; returns it."""
        before = len(self.stored)
        while True:
            self.line.choose(self.now_ms)
            chosen = list(self.line.chosen)
            if not chosen:
                return self.stored[before:]
            self.stored += chosen
            self.line.note_settled(range(len(self.stored) - len(chosen) + 1, len(self.stored) + 1))

    def requests(self, namespace: str) -> int:
        """Number of stored requests of a namespace."""
        return sum(isinstance(one, JobRequest) and one.namespace == namespace for one in self.stored)


def test_a_namespace_has_a_bounded_number_of_requests_before_those_of_others() -> None:
    intake = Intake()
    intake.ask("flood", 5_000)
    intake.store()
    assert intake.requests("flood") == WINDOW == 256
    intake.ask("bystander")
    assert [one.namespace for one in intake.store()] == ["bystander"]


def test_messages_of_a_namespace_that_come_later_take_the_next_turn() -> None:
    intake = Intake()
    for number in range(5_000):
        intake.line.append(MembersSeen("flood", f"job-{number}", ""))
    intake.ask("bystander")
    assert intake.store()[1].namespace == "bystander"


def test_few_messages_are_stored_before_others_may_come_between_them() -> None:
    line = OutboundMessages()
    for number in range(5_000):
        line.append(MembersSeen("flood", f"job-{number}", ""))
    line.choose(START_MS)
    assert (len(line.chosen), line.has_turn) == (512, True)


def test_more_is_stored_when_half_of_a_window_is_judged() -> None:
    intake = Intake()
    intake.ask("flood", 5_000)
    intake.store()
    intake.line.note_judged(WINDOW // 2 - 1)
    assert intake.store() == []
    intake.line.note_judged(WINDOW // 2)
    assert len(intake.store()) == WINDOW // 2


def test_a_verdict_is_about_all_messages_before_it() -> None:
    intake = Intake()
    intake.ask("flood", 2 * WINDOW)
    intake.store()
    intake.ask("bystander")
    intake.store()
    intake.line.note_judged(len(intake.stored))
    assert len(intake.store()) == WINDOW


def test_a_verdict_that_comes_before_the_answer_of_the_bus_counts() -> None:
    line = OutboundMessages()
    for number in range(2 * WINDOW):
        line.append(a_job(f"job-{number}"))
    line.choose(START_MS)
    line.note_judged(WINDOW)
    line.note_settled(range(1, WINDOW + 1))
    line.choose(START_MS)
    assert len(line.chosen) == WINDOW


def test_cancellations_count_as_requests_do_and_come_in_their_order() -> None:
    intake = Intake()
    intake.ask("flood", WINDOW - 1)
    later: list[Outbound] = [
        JobCancel("flood", "job-0"),
        JobCancel("flood", "job-1"),
        a_job("job-0", namespace="flood", uid="new"),
    ]
    for one in later:
        intake.line.append(one)
    assert intake.store()[-1] is later[0]
    intake.line.note_judged(WINDOW)
    assert intake.store() == later[1:]


def test_facts_pass_a_full_window_until_a_request_comes_before_them() -> None:
    intake = Intake()
    intake.ask("flood", WINDOW)
    intake.store()
    first, last = MembersSeen("flood", "before", ""), MembersSeen("flood", "behind", "")
    for one in (first, a_job("one-more", namespace="flood"), last):
        intake.line.append(one)
    assert intake.store() == [first]
    intake.line.note_judged(WINDOW)
    assert intake.store()[-1] is last


def test_requests_that_get_no_verdict_are_not_awaited_for_ever() -> None:
    intake = Intake()
    intake.ask("flood", 3 * WINDOW)
    intake.store()
    due_ms = intake.line.next_due_ms()
    assert due_ms == START_MS + STILL_MS == START_MS + 5_000
    intake.now_ms = due_ms - 1
    assert intake.store() == []
    intake.now_ms = due_ms
    assert len(intake.store()) == WINDOW


def test_a_verdict_shows_that_others_are_awaited_with_reason() -> None:
    intake = Intake()
    intake.ask("flood", 3 * WINDOW)
    intake.store()
    intake.now_ms += STILL_MS - 1
    intake.line.note_judged(1)
    intake.store()
    intake.now_ms += STILL_MS - 1
    assert intake.store() == []


def test_nothing_is_due_while_no_namespace_waits() -> None:
    intake = Intake()
    intake.ask("flood", WINDOW)
    intake.store()
    assert intake.line.next_due_ms() is None


def test_a_message_that_is_refused_for_ever_leaves_its_place() -> None:
    line = OutboundMessages()
    for number in range(2 * WINDOW):
        line.append(a_job(f"job-{number}"))
    line.choose(START_MS)
    line.note_settled([0] * WINDOW)
    line.choose(START_MS)
    assert len(line.chosen) == WINDOW


def test_what_was_not_stored_comes_first_again() -> None:
    intake = Intake()
    intake.ask("flood", 3)
    intake.line.choose(START_MS)
    chosen = list(intake.line.chosen)
    intake.line.note_settled([1])
    intake.ask("bystander")
    intake.line.choose(START_MS)
    assert list(intake.line.chosen)[:2] == chosen[1:]


def test_requests_of_many_namespaces_are_bounded_together_and_one_that_comes_later_has_the_next_turn() -> None:
    intake = Intake()
    for number in range(20):
        intake.ask(f"flood-{number}", 500)
    intake.store()
    assert len(intake.stored) == WINDOW_ALL == 512
    assert max(intake.requests(f"flood-{number}") for number in range(20)) == 26
    intake.ask("bystander")
    assert intake.store() == []
    intake.line.note_judged(WINDOW_ALL // 2 - 1)
    assert intake.store() == []
    intake.line.note_judged(WINDOW_ALL // 2)
    taken = [one.namespace for one in intake.store()]
    assert len(taken) == WINDOW_ALL // 2
    assert taken.index("bystander") == 20, "each of the others has one turn before it"


def test_namespaces_keep_their_turns_while_all_windows_are_full() -> None:
    intake = Intake()
    for number in range(2 * WINDOW_ALL):
        intake.ask(f"one-{number}", 2)
    intake.store()
    for judged in range(WINDOW_ALL // 2, 2 * WINDOW_ALL, WINDOW_ALL // 2):
        intake.line.note_judged(judged)
        intake.store()
    first = [one.namespace for one in intake.stored[: 2 * WINDOW_ALL]]
    assert first == [f"one-{number}" for number in range(2 * WINDOW_ALL)]


def test_facts_pass_while_all_windows_are_full() -> None:
    intake = Intake()
    for number in range(3):
        intake.ask(f"flood-{number}", WINDOW)
    intake.store()
    fact = MembersSeen("bystander", "job", "")
    intake.line.append(fact)
    assert intake.store() == [fact]


def test_a_new_request_that_is_cancelled_while_it_waits_is_left_out_with_its_cancellation() -> None:
    intake = Intake()
    intake.ask("flood", 2 * WINDOW, is_new=True)
    intake.store()
    last = a_job(f"job-{2 * WINDOW - 1}", namespace="flood")
    intake.line.append(JobCancel("flood", "job-0", a_job("job-0", namespace="flood").uid))
    for number in range(WINDOW, 2 * WINDOW - 1):
        job = a_job(f"job-{number}", namespace="flood")
        intake.line.append(JobCancel("flood", job.name, job.uid))
    intake.line.note_judged(WINDOW)
    assert intake.store() == [last, JobCancel("flood", "job-0", a_job("job-0", namespace="flood").uid)]


def test_a_request_that_an_earlier_process_may_have_stored_is_cancelled() -> None:
    line = OutboundMessages()
    job = a_job("job")
    cancel = JobCancel(job.namespace, job.name, job.uid)
    for one in (job, cancel):
        line.append(one)
    line.choose(START_MS)
    assert list(line.chosen) == [job, cancel]


def test_a_request_that_says_something_else_now_is_stored_as_it_is_now() -> None:
    line = OutboundMessages()
    line.append(a_job("job", priority=1), is_new=True)
    line.append(MembersSeen("default", "behind", ""))
    line.append(a_job("job", priority=2))
    line.choose(START_MS)
    assert [one.priority for one in line.chosen if isinstance(one, JobRequest)] == [2]
    assert isinstance(line.chosen[0], JobRequest)
    line.append(a_job("job", priority=3))
    line.choose(START_MS)
    assert [one.priority for one in line.chosen if isinstance(one, JobRequest)] == [2, 3]


def test_of_facts_about_the_same_pods_the_newest_is_stored_and_pods_come_before_their_request() -> None:
    line = OutboundMessages()
    job = a_job("job")
    facts = [MembersSeen(job.namespace, job.name, job.uid, at_ms=number) for number in range(5)]
    for one in (facts[0], facts[1]):
        line.append(one)
    line.append(job, is_new=True)
    for one in facts[2:]:
        line.append(one)
    line.choose(START_MS)
    assert list(line.chosen) == [facts[1], job, facts[4]]


def test_pods_come_before_the_replacements_that_name_them() -> None:
    line = OutboundMessages()
    facts = [MembersSeen("default", "job", "u", at_ms=number) for number in range(3)]
    replacements = ReplacementsSeen("default", "job", "u", at_ms=1)
    for one in (facts[0], replacements, facts[1], facts[2]):
        line.append(one)
    line.choose(START_MS)
    assert list(line.chosen) == [facts[0], replacements, facts[2]]
    for one in (facts[0], facts[1]):
        line.append(one)
    line.note_settled([1, 2, 3])
    line.choose(START_MS)
    assert list(line.chosen) == [facts[1]], "what is stored is between them no more"


def test_pods_that_are_gone_before_the_dispatcher_heard_of_them_leave_one_fact_each() -> None:
    intake = Intake()
    intake.ask("flood", WINDOW)
    intake.store()
    for number in range(1_000):
        job = a_job(f"gone-{number}", namespace="flood")
        intake.line.append(MembersSeen("flood", job.name, job.uid))
        intake.line.append(job, is_new=True)
        intake.line.append(JobCancel("flood", job.name, job.uid))
        intake.line.append(MembersSeen("flood", job.name, ""))
    assert [(type(one), getattr(one, "uid", None)) for one in intake.store()] == [(MembersSeen, "")] * 1_000
