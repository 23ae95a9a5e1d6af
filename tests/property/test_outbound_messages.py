"""Messages in line: whatever becomes of answers and verdicts, each is stored once and in the order of its namespace."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.schemas.facts import MembersSeen
from berth.schemas.intake import JobCancel, JobRequest
from berth.services.inventory.publishing.outbound_messages import (
    STILL_MS,
    WINDOW,
    WINDOW_ALL,
    Outbound,
    OutboundMessages,
)
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
        """See that each namespace has its order and no more than its window, and all no more than theirs."""
        for namespace in _NAMESPACES:
            asked = [one for one in self.asked if one.namespace == namespace]
            settled = [one for one in self.settled if one.namespace == namespace]
            assert settled == asked[: len(settled)]
            stored = sum(1 for _, of in self.unjudged if of == namespace)
            assert self.has_given_up or stored <= WINDOW
        assert self.has_given_up or len(self.unjudged) <= WINDOW_ALL


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


_PODS: Final = 4
_POD = st.tuples(st.sampled_from(("comes", "changes", "goes")), st.integers(0, _PODS - 1))
_SOME = st.tuples(st.just("store"), st.just(0))


class Pods:
    """Pods of one namespace that come and go, and what the inventory says of them.

    Args:
        cell: Where it is stored.
    """

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._number = 0
        self.uids: dict[str, str] = {}
        self.said: dict[str, MembersSeen] = {}

    def take(self, what: str, pod: int) -> None:
        name = f"pod.{pod}"
        self._number += 1
        if what == "store":
            self._cell.store("all", 0)
        elif what == "comes" and name not in self.uids:
            self.uids[name] = f"uid-{self._number}"
            self._say(name)
            self._cell.line.append(a_job(name, namespace="a", uid=self.uids[name]), is_new=True)
        elif what == "goes" and name in self.uids:
            self._cell.line.append(JobCancel("a", name, self.uids.pop(name)))
            self._say(name)
        elif name in self.uids:
            self._say(name)

    def _say(self, name: str) -> None:
        self.said[name] = MembersSeen("a", name, self.uids.get(name, ""), at_ms=self._number)
        self._cell.line.append(self.said[name])


def heard(settled: list[Outbound]) -> tuple[dict[str, str], dict[str, MembersSeen]]:
    """Requests that are not cancelled, and the last facts, of what is stored; pods come before their request."""
    asked: dict[str, str] = {}
    said: dict[str, MembersSeen] = {}
    for one in settled:
        match one:
            case MembersSeen():
                said[one.job] = one
            case JobRequest():
                assert said[one.name].uid == one.uid, "pods come before their request"
                assert asked.setdefault(one.name, one.uid) == one.uid, "the one before is cancelled first"
            case JobCancel():
                assert asked.pop(one.name) == one.uid
            case _:
                pytest.fail(f"nobody said {one}")
    return asked, said


@given(st.lists(st.one_of(_POD, _POD, _POD, _SOME), max_size=40), st.booleans())
def test_whatever_is_left_out_the_bus_has_each_pod_as_it_is_at_the_end(
    steps: list[tuple[str, int]],
    is_full: bool,  # noqa: FBT001  # drawn
) -> None:
    cell = Cell()
    for _ in range(WINDOW if is_full else 0):
        cell.line.append(a_job("before", namespace="a"))
    cell.store("all", 0)
    del cell.settled[:]
    pods = Pods(cell)
    for what, pod in steps:
        pods.take(what, pod)
    for _ in range(3):
        cell.wait("", STILL_MS)
        cell.store("all", 0)
    assert heard(cell.settled) == (pods.uids, pods.said)
