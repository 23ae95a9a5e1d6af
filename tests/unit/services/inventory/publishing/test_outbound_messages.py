"""Messages in line: namespaces take turns, and each has few requests on INTAKE that are not judged."""

from berth.schemas.facts import MembersSeen
from berth.schemas.intake import JobCancel, JobRequest
from berth.services.inventory.publishing.outbound_messages import STILL_MS, WINDOW, Outbound, OutboundMessages
from tests.support.cells import a_job

START_MS = 1_000


class Intake:
    """Stores what is chosen, as the bus does."""

    def __init__(self) -> None:
        self.line = OutboundMessages()
        self.stored: list[Outbound] = []
        self.now_ms = START_MS

    def ask(self, namespace: str, count: int = 1) -> None:
        """Append so many requests of a namespace."""
        for number in range(count):
            self.line.append(a_job(f"job-{number}", namespace=namespace))

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
