"""Publishes, gathers, handlers and purges on a wire that does as it is told."""

import asyncio
from collections.abc import Mapping

import pytest

from berth.runtime.bus import publisher as publishing
from berth.runtime.bus.inbox import Inbox
from berth.runtime.bus.nats_bus import newest_of_each
from berth.runtime.bus.port import Endpoint, Stored
from berth.runtime.bus.publisher import Publisher
from berth.runtime.bus.service import NatsServed
from berth.runtime.bus.streams import refuse_purge
from berth.runtime.errors import AmbiguousError, FatalError, TransientError
from berth.runtime.logs import DEFAULT_LOG
from berth.schemas.subjects import StreamName, Subjects
from tests.support.fake_wire import Arrived, FakeWire
from tests.support.waiting import until

DEADLINE_S = 5.0


class Wire(FakeWire):
    """Takes everything down, and answers nothing; while ``gate`` is not set, writing waits.

    Attributes:
        sent: What the server has sent and this process has not read yet, by subject; read at the next round trip.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[str, bytes]] = []
        self.written: list[tuple[str, bytes, str]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def write(self, subject: str, data: bytes, reply: str = "", headers: Mapping[str, str] | None = None) -> None:
        assert headers is None
        self.written.append((subject, data, reply))
        await self.gate.wait()

    async def round_trip(self, *, timeout_s: float) -> None:
        await super().round_trip(timeout_s=timeout_s)
        sent, self.sent = self.sent, []
        for one in sent:
            self.answer(*one)

    def answer(self, subject: str, data: bytes, reply: str = "") -> None:
        self.hand(subject, Arrived(subject, reply, data))

    async def wrote(self, count: int) -> None:
        await until(lambda: len(self.written) >= count, deadline_s=DEADLINE_S, what=f"{count} messages")


async def a_publisher() -> tuple[Wire, Publisher]:
    wire = Wire()
    publisher = Publisher(wire)
    await publisher.open()
    return wire, publisher


async def test_a_message_that_was_half_written_when_the_connection_broke_may_be_stored() -> None:
    wire, publisher = await a_publisher()
    wire.gate.clear()
    future = publisher.submit_batch([("a", b"1"), ("b", b"2")])
    await wire.wrote(1)
    publisher.broke()
    with pytest.raises(AmbiguousError):
        await future
    await publisher.close()


async def test_a_message_whose_sender_gave_up_before_it_left_is_not_sent() -> None:
    wire, publisher = await a_publisher()
    given_up = publisher.submit("a", b"1")
    given_up.cancel()
    kept = publisher.submit("b", b"2")
    await wire.wrote(1)
    assert [subject for subject, _, _ in wire.written] == ["b"]
    wire.answer(wire.written[0][2], b'{"stream":"S","seq":7}')
    assert await kept == 7
    assert publisher.outstanding == 0
    await publisher.close()


async def test_bytes_of_publishes_that_are_done_leave_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "OUTSTANDING_BYTES_MAX", 10)
    wire, publisher = await a_publisher()
    first = publisher.submit("a", b"x" * 10)
    assert publisher.is_full
    with pytest.raises(TransientError):
        publisher.submit("a", b"y")
    await wire.wrote(1)
    wire.answer(wire.written[0][2], b'{"stream":"S","seq":1}')
    assert await first == 1
    assert not publisher.is_full
    await asyncio.wait_for(publisher.wait_for_room(), DEADLINE_S)
    await publisher.close()


async def test_a_gathering_that_is_over_waits_for_nobody() -> None:
    wire = Wire()
    inbox = Inbox(wire, wire.answers())
    await inbox.open()
    gathered = await inbox.gather({0: "score.0", 1: "score.1"}, b"?", timeout_s=0.01)
    assert (gathered.replies, gathered.missing) == ({}, [0, 1])
    assert not inbox._waiting
    wire.answer(wire.written[0][2], b"late")


async def test_a_request_that_cannot_be_answered_now_does_not_end_its_handler() -> None:
    wire = Wire()
    errors: list[Exception] = [TransientError("away")]

    async def handle(_: str, data: bytes) -> bytes:
        if errors:
            raise errors.pop()
        return data

    served = NatsServed(wire, Endpoint("ask", "ask", "", "", ""), handle, DEFAULT_LOG)
    served._listening = await wire.listen("ask", served._receive)
    wire.answer("ask", b"1", reply="_INBOX.first.r.1")
    wire.answer("ask", b"2", reply="_INBOX.second.r.1")
    await wire.wrote(1)
    assert wire.written == [("_INBOX.second.r.1", b"2", "")]
    assert (served.taken, served.failed, wire.failures) == (2, 1, [])
    await served.cancel()


async def test_some_requests_are_handled_at_once_and_begin_in_order() -> None:
    wire, began, gate = Wire(), [], asyncio.Event()
    running = 0

    async def handle(_: str, data: bytes) -> bytes:
        nonlocal running
        began.append(data)
        running += 1
        assert running <= 2
        await gate.wait()
        running -= 1
        if data == b"3":
            raise TransientError("away")
        return data

    served = NatsServed(wire, Endpoint("ask", "ask", "", "", "", at_once=2), handle, DEFAULT_LOG)
    served._listening = await wire.listen("ask", served._receive)
    for number in b"12345":
        wire.answer("ask", bytes([number]), reply=f"_INBOX.to.r.{chr(number)}")
    await until(lambda: running == 2, deadline_s=5, what="two requests")
    assert began == [b"1", b"2"]
    gate.set()
    await until(lambda: served.taken == 5, deadline_s=5, what="all requests")
    await served.cancel()
    assert began == [b"1", b"2", b"3", b"4", b"5"]
    assert sorted(reply[-1] for reply, _, _ in wire.written if reply.startswith("_INBOX.to.")) == ["1", "2", "4", "5"]
    assert (served.taken, served.failed, wire.failures) == (5, 1, [])


async def test_a_handler_that_fails_among_others_ends_them_and_says_why() -> None:
    wire = Wire()

    async def handle(_: str, data: bytes) -> bytes:
        if data == b"1":
            await asyncio.Event().wait()
        raise ValueError("wrong")

    served = NatsServed(wire, Endpoint("ask", "ask", "", "", "", at_once=2), handle, DEFAULT_LOG)
    served._listening = await wire.listen("ask", served._receive)
    wire.answer("ask", b"1", reply="_INBOX.first.r.1")
    wire.answer("ask", b"2", reply="_INBOX.second.r.1")
    await until(lambda: bool(wire.failures), deadline_s=5, what="the failure")
    assert "handler of ask ended: ValueError('wrong')" in str(wire.failures[0])


@pytest.mark.parametrize(("keep_from_seq", "subject"), [(None, None), (5, "cell.ledger")])
def test_a_purge_is_by_sequence_or_by_subject(keep_from_seq: int | None, subject: str | None) -> None:
    spec = next(spec for spec in Subjects("cell").streams() if spec.name is StreamName.LEDGER)
    with pytest.raises(FatalError, match="and not both"):
        refuse_purge(spec, keep_from_seq, subject, floor=0)


async def test_no_more_publishes_are_on_their_way_than_the_bound_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "OUTSTANDING_MAX", 2)
    _, publisher = await a_publisher()
    futures = [publisher.submit("a", b"1"), publisher.submit("a", b"2")]
    with pytest.raises(TransientError, match="2 publishes are outstanding"):
        publisher.submit("a", b"3")
    futures.append(publisher.submit("lease", b"4", awaited=True))
    await publisher.close()
    assert [type(future.exception()) for future in futures] == [TransientError] * 3, "nothing was sent"


async def test_a_shard_that_nobody_serves_is_missing() -> None:
    wire = Wire()
    inbox = Inbox(wire, wire.answers())
    await inbox.open()
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(inbox.gather({0: "score.0", 1: "score.1"}, b"?", timeout_s=DEADLINE_S))
        await wire.wrote(2)
        first, second = (reply for _, _, reply in wire.written)
        wire.hand(first, Arrived(first, headers={"Status": "503"}))
        wire.answer(second, b"offer")
    gathered = asking.result()
    assert (gathered.replies, gathered.missing) == ({1: b"offer"}, [0])


async def test_who_knows_where_some_answers_go_knows_it_of_no_other() -> None:
    wire, inbox = await an_inbox()
    await inbox.gather(dict.fromkeys(range(100), "score"), b"?", timeout_s=0.01)
    tokens = [reply.rpartition(".")[2] for _, _, reply in wire.written]
    assert min(map(len, tokens)) >= 16
    assert len({token[:8] for token in tokens}) == 100
    assert len({token[-8:] for token in tokens}) == 100


async def an_inbox() -> tuple[Wire, Inbox]:
    wire = Wire()
    inbox = Inbox(wire, wire.answers())
    await inbox.open()
    return wire, inbox


async def test_all_answers_to_a_question_are_collected_until_no_more_come() -> None:
    wire, inbox = await an_inbox()
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(inbox.collect("all", first_s=DEADLINE_S, quiet_s=0.01))
        await wire.wrote(1)
        ((_, _, reply),) = wire.written
        for answer in (b"1", b"2"):
            wire.answer(reply, answer)
    assert asking.result() == [b"1", b"2"]
    wire.answer(reply, b"late")  # dropped


@pytest.mark.parametrize(("answer", "most"), [(b"1", 4_096), (bytes(8 << 20), 8)])
async def test_who_answers_again_and_again_is_heard_so_often_and_no_more(answer: bytes, most: int) -> None:
    wire, inbox = await an_inbox()
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(inbox.collect("all", first_s=DEADLINE_S, quiet_s=DEADLINE_S))
        await wire.wrote(1)
        ((_, _, reply),) = wire.written
        for _ in range(most + 10):
            wire.answer(reply, answer)
    assert asking.result() == [answer] * most


async def test_answers_that_came_while_this_process_was_paused_are_not_late() -> None:
    wire, inbox = await an_inbox()
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(inbox.collect("all", first_s=0.01, quiet_s=0.01))
        await wire.wrote(1)
        ((_, _, reply),) = wire.written
        wire.sent = [(reply, b"1"), (reply, b"2")]
    assert asking.result() == [b"1", b"2"]


async def test_a_question_that_nobody_can_answer_ends_at_once() -> None:
    wire, inbox = await an_inbox()
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(inbox.collect("all", first_s=60, quiet_s=60))
        await wire.wrote(1)
        ((_, _, reply),) = wire.written
        wire.hand(reply, Arrived(reply, headers={"Status": "503"}))
    assert asking.result() == []


async def test_a_question_on_a_connection_that_breaks_fails() -> None:
    wire, inbox = await an_inbox()

    async def ask() -> None:
        with pytest.raises(TransientError, match="connection broke before the replies from all"):
            await inbox.collect("all", first_s=60, quiet_s=60)

    async with asyncio.TaskGroup() as group:
        group.create_task(ask())
        await wire.wrote(1)
        inbox.broke()


def test_the_newest_message_of_each_subject_is_kept_in_the_order_of_the_stream() -> None:
    read = [Stored(subject, sequence, b"", 0) for sequence, subject in enumerate(["a", "b", "a", "c", "b"], 1)]
    assert newest_of_each(read) == [read[2], read[3], read[4]]
