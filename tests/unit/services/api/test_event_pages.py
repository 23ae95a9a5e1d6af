"""Pages of stored events, waits for those to come, and what is lost."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from berth.runtime.bus.port import Stored
from berth.runtime.logs import DEFAULT_LOG
from berth.schemas.programs.replies import Rank
from berth.schemas.programs.requests import EventsRequest
from berth.schemas.subjects import StreamName
from berth.services.api.event_tail import _BYTES_MAX, _ROWS_MAX, Jobs, Reading, Tail
from tests.support.fake_bus import FakeBus, FakeFollower, FakeServer
from tests.support.programs import answering_events
from tests.support.stored_events import an_event, events, uids, waits
from tests.support.waiting import SLACK


async def test_stored_events_with_their_positions_and_times() -> None:
    async with events() as told:
        told.store(0, 1)
        reply = await told.ask(namespace="a")
        assert [one["position"] for one in reply["events"]] == [1, 2]
        stored = await told.bus.read(StreamName.EVENTS)
        assert [one["stored_ms"] for one in reply["events"]] == [one.at_ms for one in stored]
        assert [one["event"] for one in reply["events"]] == [msgspec.json.decode(one.data) for one in stored]
        assert (reply["position"], reply["more"], reply["kept"]) == (2, False, None)
        assert uids(await told.ask(after=reply["position"], mark=reply["mark"])) == []


@pytest.mark.parametrize("is_tail_open", [False, True])
async def test_events_of_other_names_and_namespaces_are_left_out(is_tail_open: bool) -> None:  # noqa: FBT001
    async with events() as told:
        if is_tail_open:
            await told.ask()
        for number, (namespace, name) in enumerate([("a", "x"), ("b", "x"), ("a", "y"), ("a.b", "x")]):
            told.store(number, namespace=namespace, name=name)
        for request, wanted in (
            ({}, ["u-0", "u-1", "u-2", "u-3"]),
            ({"namespace": "a"}, ["u-0", "u-2"]),
            ({"name": "x"}, ["u-0", "u-1", "u-3"]),
            ({"namespace": "a", "name": "x"}, ["u-0"]),
            ({"namespace": "a.b"}, ["u-3"]),
            ({"namespace": "c"}, []),
        ):
            reply = await told.ask(**request)
            assert (uids(reply), reply["position"]) == (wanted, 4)


@pytest.mark.parametrize("is_tail_open", [False, True])
async def test_pages_hold_what_was_asked_for_and_say_whether_there_is_more(is_tail_open: bool) -> None:  # noqa: FBT001
    async with events() as told:
        if is_tail_open:
            await told.ask()
        told.store(0, 1, 2, namespace="a")
        told.store(3, namespace="b")
        found: list[str] = []
        pages: list[tuple[int, int, bool]] = []
        after = 0
        while True:
            reply = await told.ask(namespace="a", after=after, limit=2)
            found += uids(reply)
            after = reply["position"]
            pages.append((len(reply["events"]), after, reply["more"]))
            if not reply["more"]:
                break
        assert found == ["u-0", "u-1", "u-2"]
        assert pages == [(2, 2, True), (1, 4, False)]


async def test_a_page_is_as_long_as_the_server_takes() -> None:
    async with events() as told:
        told.store(*range(20), sentence="s" * 200)
        whole = uids(await told.ask())
        told.server.payload_limit_bytes = 3_000
        found: list[str] = []
        after = pages = 0
        while True:
            reply = await told.ask(after=after)
            found, after, pages = found + uids(reply), reply["position"], pages + 1
            if not reply["more"]:
                break
        assert found == whole
        assert pages > 2


async def test_an_event_that_is_longer_than_a_reply_has_no_ranks_and_says_so() -> None:
    ranks = [Rank(rank=number, node=f"node-{number}", chips=[0, 1]) for number in range(100)]
    async with events() as told:
        told.store(0, 1, ranks=ranks)
        told.server.payload_limit_bytes = 2_000
        reply = await told.ask()
        assert uids(reply) == ["u-0", "u-1"]
        assert all(not one["event"]["ranks"] and "too long" in one["event"]["sentence"] for one in reply["events"])


async def test_an_event_that_is_too_long_without_its_ranks_is_left_out_and_others_follow() -> None:
    async with events() as told:
        told.store(0)
        told.store(1, code="c" * 5_000)
        told.store(2)
        told.server.payload_limit_bytes = 2_000
        reply = await told.ask()
        assert (uids(reply), reply["position"], reply["more"]) == (["u-0", "u-2"], 3, False)


async def test_how_far_the_stream_goes() -> None:
    async with events() as told:
        empty = await told.ask(limit=0)
        told.store(*range(5))
        await told.bus.purge(StreamName.EVENTS, keep_from_seq=3)
        reply = await told.ask(limit=0, wait_s=30)
        state = await told.bus.state(StreamName.EVENTS)
        assert (empty["kept"]["first"], empty["kept"]["last"], empty["events"]) == (1, 0, [])
        assert reply["kept"] == {"stream": state.created, "first": 3, "last": 5}
        assert (reply["events"], reply["position"]) == ([], 0)
        assert uids(await told.ask()) == ["u-2", "u-3", "u-4"], "without a position from the oldest on"


async def test_a_wait_ends_with_the_first_event_of_the_jobs() -> None:
    async with events() as told, asyncio.TaskGroup() as group:
        told.store(0)
        waiting = group.create_task(told.ask(namespace="a", after=1, wait_s=30))
        await waits(told)
        told.store(1, namespace="b")
        told.store(2, name="y")
        async with asyncio.timeout(5 * SLACK):
            reply = await waiting
        assert (uids(reply), reply["position"]) == (["u-2"], 3)


async def test_a_wait_ends_in_time_and_passes_over_events_of_others() -> None:
    async with events() as told, asyncio.TaskGroup() as group:
        waiting = group.create_task(told.ask(namespace="a", wait_s=0.2))
        await waits(told)
        told.store(0, namespace="b")
        reply = await waiting
        assert (uids(reply), reply["position"], reply["more"]) == ([], 1, False)


async def test_a_wait_from_the_beginning_is_answered_with_what_is_stored() -> None:
    async with events() as told:
        told.store(0)
        async with asyncio.timeout(5 * SLACK):
            assert uids(await told.ask(wait_s=30)) == ["u-0"]


async def test_each_instance_answers_what_another_one_has_told() -> None:
    async with events() as told, FakeBus(told.server, "c") as second, answering_events(second):
        seen: list[str] = []
        after, mark = 0, ""
        for number in range(6):  # the instances answer in turn
            told.store(number)
            reply = await told.ask(after=after, mark=mark, wait_s=5)
            seen, after, mark = seen + uids(reply), reply["position"], reply["mark"]
        assert seen == [f"u-{number}" for number in range(6)]


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("wait_s", [0, 5])
async def test_a_stream_that_has_lost_its_end_is_said_also_if_it_has_grown_again(count: int, wait_s: int) -> None:
    async with events() as told:
        told.store(0, 1, 2)
        reply = await told.ask()
        told.lose(count)
        lost = await told.ask(after=3, mark=reply["mark"], wait_s=wait_s)
        assert (lost["code"], "history went backwards" in lost["error"]) == ("events-lost", True)
        told.store(*range(7, 9 + count))
        lost = await told.ask(after=3, mark=reply["mark"], wait_s=wait_s)
        assert lost["code"] == "events-lost", "other events have the positions"
        assert uids(await told.ask(after=3)), "a position alone does not tell"


async def test_a_request_that_waits_while_the_stream_loses_its_end_is_told() -> None:
    async with events() as told, asyncio.TaskGroup() as group:
        told.store(0, 1, 2)
        reply = await told.ask()
        waiting = group.create_task(told.ask(after=3, mark=reply["mark"], wait_s=30))
        await waits(told)
        told.lose(2)
        told.store(7, 8, 9)
        async with asyncio.timeout(5 * SLACK):
            assert (await waiting)["code"] == "events-lost"


async def test_events_that_were_removed_after_the_position_are_lost() -> None:
    async with events() as told:
        told.store(*range(5))
        reply = await told.ask()
        await told.bus.purge(StreamName.EVENTS, keep_from_seq=4)
        assert (await told.ask(after=2))["code"] == "events-lost"
        assert "after is 2, expected at least 3: older than kept history" in (await told.ask(after=2))["error"]
        assert uids(await told.ask(after=3)) == ["u-3", "u-4"]
        await told.bus.purge(StreamName.EVENTS, keep_from_seq=6)
        assert uids(await told.ask(after=5, mark=reply["mark"])) == [], "all were read before they became too old"


async def test_a_mark_whose_message_became_too_old_says_nothing_to_an_instance_that_has_not_seen_it() -> None:
    async with events() as told:
        told.store(*range(5))
        reply = await told.ask()
        await told.bus.purge(StreamName.EVENTS, keep_from_seq=6)
        async with FakeBus(told.server, "c") as bus, answering_events(bus) as pages:
            page = await pages.page(EventsRequest(after=5, mark=reply["mark"]), "")
            assert (page.events, page.position) == ([], 5)


class LateBus(FakeBus):
    """A bus whose followers are some time behind."""

    def follow(self, *args: Any, on_message: Callable[[Stored], None], **more: Any) -> FakeFollower:  # noqa: ANN401  # as they are
        def later(stored: Stored) -> None:
            asyncio.get_running_loop().call_later(0.02, on_message, stored)

        return super().follow(*args, on_message=later if not more.get("filters") else on_message, **more)


async def test_a_reply_has_all_that_was_stored_before_the_request() -> None:
    async with events(kind=LateBus) as told:
        await told.ask()
        told.store(1, 2)
        reply = await told.ask()
        assert (uids(reply), reply["position"]) == (["u-1", "u-2"], 2)
        told.store(3)
        assert uids(await told.ask(after=3, wait_s=0.1)) == [], (
            "another instance may have told the program of the third"
        )


async def test_a_position_that_the_stream_has_not_reached_is_lost() -> None:
    async with events() as told:
        told.store(0)
        assert "after is 2, expected at most 1" in (await told.ask(after=2))["error"]


async def test_a_stream_that_was_made_again_is_another_one() -> None:
    async with events() as told:
        told.store(0, 1)
        reply = await told.ask()
        told.make_again()
        told.store(5, 6)
        lost = await told.ask(after=2, mark=reply["mark"])
        assert (lost["code"], "created again" in lost["error"]) == ("events-lost", True)
        assert uids(await told.ask()) == ["u-5", "u-6"]


async def test_a_break_of_the_connection_without_a_loss_changes_nothing() -> None:
    async with events() as told, asyncio.TaskGroup() as group:
        told.store(0, 1)
        reply = await told.ask()
        told.lose(0)
        waiting = group.create_task(told.ask(after=2, mark=reply["mark"], wait_s=30))
        await waits(told)
        told.lose(0)
        told.store(2)
        assert uids(await waiting) == ["u-2"]


async def test_what_is_no_event_is_left_out_wherever_it_is_read() -> None:
    async with events() as told:
        subject = told.bus.subjects.event_job("a", "x")
        for is_tail_open in (False, True):
            if is_tail_open:
                await told.ask()
            for data in (b"", b"{}", b"\xff", b"[" * 9_999, b'{"id": 7}'):
                told.server.store(subject, data, None, None)
            told.server.store(told.bus.subjects.event_position, b"{}", None, None)
            told.store(7)
        assert uids(await told.ask(namespace="a")) == ["u-7", "u-7"]
        assert uids(await told.ask(after=7)) == ["u-7"]


async def test_pages_without_an_event_lead_on() -> None:
    async with events() as told:
        for _ in range(7):
            told.server.store(told.bus.subjects.event_job("a", "x"), b"junk", None, None)
        told.store(1)
        after = 0
        while not (reply := await told.ask(after=after, limit=2))["events"]:
            assert reply["more"]
            assert reply["position"] > after
            after = reply["position"]
        assert uids(reply) == ["u-1"]


async def test_an_event_of_a_later_release_is_given_as_it_is_stored() -> None:
    async with events() as told:
        data = {**msgspec.to_builtins(an_event(1)), "later": {"x": [1]}}
        told.server.store(told.bus.subjects.event_job("a", "x"), msgspec.json.encode(data), None, None)
        (one,) = (await told.ask())["events"]
        assert one["event"] == data


async def test_what_is_kept_in_memory_is_bounded_and_older_events_come_from_the_stream() -> None:
    async with events() as told:
        await told.ask()
        tail = told.pages._tail
        assert tail is not None
        count = 2 * _ROWS_MAX
        told.store(*range(count))
        found: list[str] = []
        after = 0
        while len(found) < count:
            reply = await told.ask(after=after, wait_s=5)
            found, after = found + uids(reply), reply["position"]
        assert found == [f"u-{number}" for number in range(count)]
        assert told.pages._tail is tail
        assert 0 < len(tail._rows) <= _ROWS_MAX
        assert tail.base == count - len(tail._rows)


async def test_a_wait_misses_no_event_that_memory_has_forgotten_when_it_ends() -> None:
    async with events() as told, asyncio.TaskGroup() as group:
        waiting = group.create_task(told.ask(namespace="a", wait_s=30))
        await waits(told)
        told.store(0)
        told.store(*range(1, 2 * _ROWS_MAX), namespace="b")
        told.store(9, namespace="a")
        async with asyncio.timeout(10 * SLACK):
            assert uids(await waiting) == ["u-0", "u-9"]


class FloodedBus(FakeBus):
    """While a message is read, so many others are stored that memory forgets the oldest."""

    flood: Callable[[], None] | None = None

    async def message(self, stream: StreamName, sequence: int) -> Stored | None:
        found = await super().message(stream, sequence)
        flood, self.flood = self.flood, None
        if flood is not None:
            flood()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return found


async def test_an_event_that_memory_forgets_while_the_mark_is_looked_at_is_not_missed() -> None:
    async with events() as told, FloodedBus(told.server, "c") as bus, answering_events(bus) as pages:
        told.store(0)
        mark = (await told.ask())["mark"]
        told.store(1)
        await pages.page(EventsRequest(after=2), "")  # from now on in memory, without the message of the mark
        told.store(2)
        await asyncio.sleep(0)
        bus.flood = lambda: told.store(*range(3, 2 * _ROWS_MAX), namespace="b")
        reply = await pages.page(EventsRequest(namespace="a", after=2, mark=mark, wait_s=5), "")
        assert bus.flood is None
        assert [one.position for one in reply.events] == [3]


async def test_the_bytes_in_memory_are_bounded() -> None:
    async with FakeBus(FakeServer(), "c") as bus:
        await bus.ensure_streams()
        tail = await Tail.open(bus, Reading(bus.subjects, DEFAULT_LOG))
        data = msgspec.json.encode(an_event(1, sentence="s" * (_BYTES_MAX // 8)))
        for sequence in range(1, 30):
            tail._put(Stored(bus.subjects.event_job("a", "x"), sequence, data, sequence))
            assert sum(len(row.data) for row in tail._rows) == tail._bytes <= _BYTES_MAX
        assert [row.position for row in tail.rows_of(Jobs.of("a", "*"), tail.base)][-1] == 29
        assert tail.at_ms(tail.base) == tail.base
        assert tail.at_ms(tail.base - 1) is None
        await tail.close()
