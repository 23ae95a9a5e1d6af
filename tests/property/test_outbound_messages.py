"""Messages in line: whatever becomes of answers and verdicts, each is stored once and in the order of its namespace."""

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from berth.schemas.facts import MembersSeen
from berth.schemas.intake import JobCancel, JobRequest
from berth.services.inventory.publishing.outbound_messages import STILL_MS, WINDOW, Outbound, OutboundMessages
from tests.support.cells import a_job

_NAMESPACES: Final = ("a", "b", "c")
_ASK = st.tuples(st.just("ask"), st.sampled_from(_NAMESPACES), st.sampled_from((1, 40, WINDOW, 2 * WINDOW)))
_STORE = st.tuples(st.just("store"), st.sampled_from(("all", "some", "unanswered")), st.integers(0, 600))
_JUDGE = st.tuples(st.just("judge"), st.sampled_from(("seen", "lost", "twice")), st.integers(0, 600))
_WAIT = st.tuples(st.just("wait"), st.just(""), st.sampled_from((1, STILL_MS - 1, STILL_MS)))


class Cell:
    """A bus that may not answer, and a dispatcher that judges what is stored and whose verdicts may be lost."""

    def __init__(self) -> None:
        self.line = OutboundMessages()
        self.asked: list[Outbound] = []
        self.settled: list[Outbound] = []
        self.now_ms = 1
        self.head = self.judged = 0
        self.unjudged: list[tuple[int, str]] = []
        self.has_given_up = False

    def ask(self, namespace: str, count: int) -> None:
        for _ in range(count):
            number = len(self.asked)
            kinds: tuple[Outbound, ...] = (
                MembersSeen(namespace, f"job-{number}", ""),
                a_job(f"job-{number}", namespace=namespace),
                JobCancel(namespace, f"job-{number - 1}"),
            )
            self.asked.append(kinds[number % 3])
            self.line.append(self.asked[-1])

    def store(self, what: str, count: int) -> None:
        self.line.choose(self.now_ms)
        chosen = list(self.line.chosen)
        part = chosen if what == "all" else chosen[:count]
        sequences: list[int] = []
        for one in part:
            self.head += 1
            sequences.append(self.head)
            if isinstance(one, JobRequest | JobCancel):
                self.unjudged.append((self.head, one.namespace))
        if what == "unanswered":  # it is stored again, and the dispatcher judges both
            self.unjudged = [entry for entry in self.unjudged if entry[0] not in sequences]
            return
        self.line.note_settled(sequences)
        self.settled += part

    def judge(self, what: str, count: int) -> None:
        self.judged = min(self.judged + count, self.head)
        if what != "lost":
            self.line.note_judged(self.judged)
            self.unjudged = [entry for entry in self.unjudged if entry[0] > self.judged]
        if what == "twice":
            self.line.note_judged(self.judged)
            self.line.note_judged(self.judged // 2)

    def wait(self, _: str, wait_ms: int) -> None:
        self.now_ms += wait_ms
        self.has_given_up |= wait_ms >= STILL_MS - 1

    def see(self) -> None:
        """See that each namespace has its order, and no more than its window."""
        for namespace in _NAMESPACES:
            asked = [one for one in self.asked if one.namespace == namespace]
            settled = [one for one in self.settled if one.namespace == namespace]
            assert settled == asked[: len(settled)]
            stored = sum(1 for _, of in self.unjudged if of == namespace)
            assert self.has_given_up or stored <= WINDOW


@given(st.lists(st.one_of(_ASK, _ASK, _STORE, _STORE, _JUDGE, _WAIT), max_size=25))
def test_each_message_is_stored_once_in_the_order_of_its_namespace_and_none_waits_for_ever(
    steps: list[tuple[str, str, int]],
) -> None:
    cell = Cell()
    for step, how, count in steps:
        {"ask": cell.ask, "store": cell.store, "judge": cell.judge, "wait": cell.wait}[step](how, count)
        cell.see()
    for _ in range(3 + 4 * len(cell.asked) // WINDOW):  # nobody judges any more
        cell.store("all", 0)
        cell.wait("", STILL_MS)
    assert len(cell.settled) == len(cell.asked)
    cell.see()
