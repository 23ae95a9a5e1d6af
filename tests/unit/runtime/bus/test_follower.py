"""A follower whose messages do not come as they should; on a real server, see tests/bus/test_follower.py."""

import asyncio

import pytest

from berth.runtime.bus import follower
from berth.runtime.bus.deliveries import Deliveries
from berth.runtime.bus.follower import NatsFollower, Wanted
from berth.runtime.bus.inbox import Inbox
from berth.runtime.bus.port import Gap, GapReason, Stored
from berth.runtime.bus.stream_api import Api
from berth.runtime.bus.streams import keeping
from berth.runtime.errors import TransientError
from berth.schemas.subjects import StreamName
from tests.support.fake_wire import STREAM, SUBJECT, Arrived, FakeWire
from tests.support.waiting import SLACK, until

_DEADLINE_S = 10.0


class Reader:
    """A follower of the stream behind a wire, and what it handed over."""

    def __init__(self) -> None:
        self.wire = FakeWire()
        self.taken: list[int] = []
        self.taken_late: list[int] = []  # once everything was delivered
        self.gaps: list[Gap] = []
        self.follower: NatsFollower

    async def start(self, *, start_seq: int = 1, filters: tuple[str, ...] = (), is_latest: bool = False) -> None:
        inbox = Inbox(self.wire, self.wire.deliveries())
        await inbox.open()
        wanted = Wanted(
            name=StreamName.LEDGER,
            stream=STREAM,
            start_seq=start_seq,
            filters=filters,
            is_pruned=is_latest,
            is_latest=is_latest,
        )
        self.follower = NatsFollower(self.wire, Api(inbox), wanted, self.take, self.gaps.append)

    def take(self, stored: Stored) -> None:
        self.taken.append(stored.sequence)
        if self.follower.caught_up.is_set():
            self.taken_late.append(stored.sequence)

    async def has(self, *sequences: int) -> None:
        await until(lambda: len(self.taken) >= len(sequences), deadline_s=_DEADLINE_S, what=f"{sequences}")
        assert self.taken == list(sequences)

    async def gap(self) -> Gap:
        async with asyncio.timeout(SLACK * _DEADLINE_S):
            gap = await self.follower.wait()
        assert gap is not None
        assert self.gaps == [gap]
        return gap


async def test_a_message_that_is_lost_on_the_way_is_read_again_though_filters_skip_sequences() -> None:
    reader = Reader()
    await reader.start(filters=("cell.events.>",))
    reader.wire.lost = {2}
    reader.wire.store(4)
    await reader.has(1, 2, 3, 4)
    assert reader.follower.recreations == 1
    await reader.follower.stop()


async def test_messages_that_went_before_they_were_sent_are_a_gap() -> None:
    reader = Reader()
    reader.wire.store(1)
    await reader.start(start_seq=2)
    await until(reader.follower.caught_up.is_set, deadline_s=_DEADLINE_S, what="the head")
    reader.wire.is_holding = True
    reader.wire.store(8)
    reader.wire.remove(1, 2, 3, 4, 5, 6)
    reader.wire.release()
    gap = await reader.gap()
    assert (gap.reason, gap.wanted, gap.first_seq) == (GapReason.TOO_OLD, 2, 7)
    assert reader.taken == []


async def test_the_last_message_is_taken_though_the_one_before_it_was_removed() -> None:
    reader = Reader()
    reader.wire.store(3)
    reader.wire.remove(2)
    await reader.start()
    await reader.has(1, 3)
    assert not reader.gaps
    await reader.follower.stop()


async def test_after_a_hole_what_goes_later_is_a_gap_again() -> None:
    reader = Reader()
    reader.wire.store(4)
    reader.wire.remove(2)
    await reader.start()
    await reader.has(1, 3, 4)
    reader.wire.is_holding = True
    reader.wire.store(4)
    reader.wire.remove(1, 3, 4, 5, 6)
    reader.wire.release()
    gap = await reader.gap()
    assert (gap.reason, gap.wanted, gap.first_seq) == (GapReason.TOO_OLD, 5, 7)
    assert reader.taken == [1, 3, 4]


async def test_one_message_that_went_is_a_gap() -> None:
    reader = Reader()
    reader.wire.store(1)
    await reader.start()
    await reader.has(1)
    reader.wire.is_holding = True
    reader.wire.store(2)
    reader.wire.remove(1, 2)
    reader.wire.break_once()
    reader.follower.kick()
    gap = await reader.gap()
    assert (gap.reason, gap.wanted, gap.first_seq) == (GapReason.TOO_OLD, 2, 3)


async def test_a_stream_without_its_last_message_has_gone_backwards() -> None:
    reader = Reader()
    reader.wire.store(3)
    await reader.start()
    await reader.has(1, 2, 3)
    reader.wire.rewind(2)
    reader.wire.break_once()
    reader.follower.kick()
    gap = await reader.gap()
    assert (gap.reason, gap.wanted, gap.last_seq) == (GapReason.BACKWARDS, 4, 2)


async def test_the_oldest_kept_message_is_where_a_reader_of_everything_begins() -> None:
    reader = Reader()
    reader.wire.store(6)
    reader.wire.remove(1, 2, 3, 4)
    await reader.start()
    await reader.has(5, 6)
    assert (reader.follower.recreations, reader.gaps) == (0, [])
    await reader.follower.stop()


async def test_what_was_sent_and_not_handed_over_is_not_behind_a_follower(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "_CHECK_S", 0.0)  # the regular look at the stream, without a wait
    reader = Reader()
    reader.wire.store(3)
    reader.wire.lost = {3}
    await reader.start()
    await until(lambda: reader.wire.looks >= 2, deadline_s=_DEADLINE_S, what="two looks")
    assert reader.taken == [1, 2]
    assert not reader.follower.caught_up.is_set()
    await reader.follower.stop()


async def test_what_was_asked_for_is_asked_for_again_when_its_time_is_over() -> None:
    reader = Reader()
    await reader.start()
    reader.wire.store(1)
    await reader.has(1)
    reader.wire.end_pulls()
    reader.wire.store(1)
    await reader.has(1, 2)
    assert reader.follower.recreations == 0
    await reader.follower.stop()


async def test_a_consumer_that_the_server_removed_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "_CHECK_S", 0.0)  # the regular look at the stream, without a wait
    reader = Reader()
    reader.wire.store(2)
    await reader.start()
    await reader.has(1, 2)
    reader.wire.remove_consumers()
    await until(lambda: reader.follower.recreations == 1, deadline_s=_DEADLINE_S, what="another consumer")
    reader.wire.store(1)
    await reader.has(1, 2, 3)
    assert not reader.wire.failures
    await reader.follower.stop()


@pytest.mark.parametrize("filters", [(), ("cell.events.one",)])
async def test_a_read_of_latest_messages_ends_with_the_last_though_the_server_counts_too_few(
    filters: tuple[str, ...],
) -> None:
    reader = Reader()
    reader.wire.store(4)
    reader.wire.held_from, reader.wire.too_few = 3, 2
    await reader.start(filters=filters, is_latest=True)
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(reader.follower.reach_head(_DEADLINE_S))
        await until(lambda: reader.wire.stream_looks > 1, deadline_s=_DEADLINE_S, what="a look at the stream")
        assert reader.taken == [1, 2]
        assert not reading.done()
        reader.wire.release()
    assert reader.taken == [1, 2, 3, 4]
    await reader.follower.stop()


async def test_what_replaced_a_message_is_waited_for_where_the_latest_of_each_subject_is_kept() -> None:
    reader = Reader()
    reader.wire.store(2)
    reader.wire.is_holding = True
    await reader.start(is_latest=True)
    await until(lambda: reader.wire.has_pull, deadline_s=_DEADLINE_S, what="a pull")
    reader.wire.remove(1)
    reader.wire.store(1)
    reader.wire.release()
    await reader.has(2, 3)
    assert not reader.taken_late
    assert reader.follower.caught_up.is_set()
    await reader.follower.stop()


async def test_an_empty_replica_that_answers_while_nobody_leads_is_no_gap() -> None:
    reader = Reader()
    reader.wire.store(3)
    await reader.start()
    await reader.has(1, 2, 3)
    reader.wire.has_leader = False
    looks = reader.wire.stream_looks
    reader.wire.break_once()
    reader.follower.kick()
    await until(lambda: reader.wire.stream_looks > looks + 2, deadline_s=_DEADLINE_S, what="it asks again and again")
    assert (reader.gaps, str(reader.follower.trouble)) == ([], f"{STREAM} has no leader")
    reader.wire.has_leader = True
    reader.wire.store(1)
    await reader.has(1, 2, 3, 4)
    await reader.follower.stop()


async def test_what_a_stream_has_is_told_by_its_leader_alone() -> None:
    wire = FakeWire()
    wire.store(2)
    inbox = Inbox(wire, wire.deliveries())
    await inbox.open()
    api = Api(inbox)
    wire.has_leader = False
    for ask in (api.stream(STREAM), keeping(api, STREAM)):
        with pytest.raises(TransientError, match="EVENTS_cell has no leader"):
            await ask
    wire.has_leader = True
    found = await keeping(api, STREAM)
    assert found is not None
    assert ((await api.stream(STREAM)).state.last_seq, found.state.last_seq) == (2, 2)


@pytest.mark.parametrize(("stored", "lag"), [(3, 3), (100, 16), (100, 99)])
async def test_a_replica_that_is_far_behind_is_not_read(stored: int, lag: int) -> None:
    reader = Reader()
    reader.wire.consumers_on = "one"
    reader.wire.lag = lag
    reader.wire.store(stored)
    await reader.start()
    await until(lambda: reader.wire.stream_looks > 2, deadline_s=_DEADLINE_S, what="it asks again and again")
    assert (reader.taken, reader.follower.caught_up.is_set()) == ([], False)
    assert str(reader.follower.trouble) == f"{STREAM} is not complete on one yet"
    reader.wire.lag = 0
    await reader.has(*range(1, stored + 1))
    await reader.follower.stop()


@pytest.mark.parametrize(("stored", "lag", "on"), [(3, 2, "one"), (100, 15, "one"), (100, 99, "three")])
async def test_a_replica_that_lacks_what_is_on_its_way_is_read(stored: int, lag: int, on: str) -> None:
    reader = Reader()
    reader.wire.consumers_on = on
    reader.wire.lag = lag
    reader.wire.store(stored)
    await reader.start()
    await reader.has(*range(1, stored + 1))
    assert reader.follower.recreations == 0
    await reader.follower.stop()


async def test_a_message_that_was_lost_last_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The consumer goes on with its heartbeats, and no later message tells of the loss."""
    monkeypatch.setattr(follower, "_CHECK_S", 0.0)  # the regular look at the stream, without a wait
    reader = Reader()
    reader.wire.store(3)
    reader.wire.lost = {3}
    await reader.start()
    await reader.has(1, 2, 3)
    assert reader.follower.recreations == 1
    await reader.follower.stop()


async def test_a_replica_that_stops_to_follow_the_leader_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """It lacks so few messages that a reader may begin there, and does not get them."""
    monkeypatch.setattr(follower, "_CHECK_S", 0.0)  # the regular look at the stream, without a wait
    reader = Reader()
    reader.wire.consumers_on, reader.wire.lag = "one", 3
    reader.wire.held_from, reader.wire.unaware = 98, 3
    reader.wire.store(100)
    await reader.start()
    await until(lambda: reader.wire.looks >= 2, deadline_s=_DEADLINE_S, what="two looks")
    assert (reader.follower.applied, reader.follower.covered) == (97, 97)
    reader.wire.consumers_on = "three"
    await until(lambda: reader.follower.recreations, deadline_s=_DEADLINE_S, what="another consumer")
    reader.wire.held_from = reader.wire.unaware = 0
    reader.wire.store(1)
    await reader.has(*range(1, 102))
    await reader.follower.stop()


async def test_a_replica_that_is_a_little_behind_under_load_is_read_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "_CHECK_S", 0.0)
    reader = Reader()
    reader.wire.consumers_on, reader.wire.lag = "one", 3
    reader.wire.store(100)
    await reader.start()
    await reader.has(*range(1, 101))
    for _ in range(6):  # nothing of it is for the reader
        reader.wire.last_seq += 4
        looks = reader.wire.looks
        await until(lambda looks=looks: reader.wire.looks > looks, deadline_s=_DEADLINE_S, what="a look")  # type: ignore[misc]  # a default in a loop
    assert reader.follower.recreations == 0
    assert reader.follower.covered >= 100
    await reader.follower.stop()


async def test_a_reader_of_a_replica_covers_what_the_leader_had_a_look_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "_CHECK_S", 0.0)
    reader = Reader()
    reader.wire.consumers_on = "one"
    reader.wire.store(2)
    await reader.start(filters=("cell.events.one",))
    await reader.has(1, 2)
    looks = reader.wire.looks
    await until(lambda: reader.wire.looks > looks, deadline_s=_DEADLINE_S, what="a look")
    reader.wire.last_seq += 1
    looks = reader.wire.looks
    await until(lambda: reader.follower.covered == 3, deadline_s=_DEADLINE_S, what="it is covered")
    assert reader.wire.looks >= looks + 2
    await reader.follower.stop()


_ACK = f"$JS.ACK.{STREAM}.{{name}}"


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "$JS.ACK",
        ".".join(["x"] * 9),
        "_INBOX.somebody",
        _ACK + ".1.2.2.0",
        _ACK + ".1.2.2.0.0.0",
        _ACK + ".1.two.2.0.0",
        _ACK + ".1.-2.2.0.0",
        _ACK + ".1.2.2.0." + "9" * 5000,
        _ACK + ".1.\u0662.2.0.0",
        _ACK.replace(STREAM, "OTHER") + ".1.2.2.0.0",
        f"$JS.ACK.{STREAM}.another.1.2.2.0.0",
        f"$JS.ACK.domain.hash.{STREAM}.another.1.2.2.0.0.token",
    ],
)
async def test_what_its_consumer_did_not_deliver_is_dropped_and_counted(reply: str) -> None:
    reader = Reader()
    await reader.start()
    reader.wire.store(1)
    await reader.has(1)
    name, consumer = next(iter(reader.wire.consumers.items()))
    forged = Arrived(SUBJECT, reply.replace("{name}", name), b"forged")
    reader.wire.hand(consumer.inbox, forged)
    reader.wire.store(1)
    await reader.has(1, 2)
    assert (reader.follower.foreign, reader.follower.recreations) == (1, 0)
    await reader.follower.stop()


async def test_a_forged_end_of_a_pull_does_not_end_a_follower() -> None:
    reader = Reader()
    await reader.start()
    reader.wire.store(1)
    await reader.has(1)
    consumer = next(iter(reader.wire.consumers.values()))
    forged = Arrived(consumer.inbox, headers={"Status": "408", "Nats-Pending-Messages": "many"})
    reader.wire.hand(consumer.inbox, forged)
    reader.wire.store(1)
    await reader.has(1, 2)
    await reader.follower.stop()


def test_a_delivery_behind_a_domain_is_read_too() -> None:
    deliveries = Deliveries("S", "C")
    plain = deliveries.read("$JS.ACK.S.C.1.7.5.3000000.2")
    assert plain == (7, 5, 3_000_000, 2)
    assert deliveries.read("$JS.ACK.hub.hash.S.C.1.7.5.3000000.2.token") == plain
    assert deliveries.read("$JS.ACK.S.C.1.7.5.3000000.2.token") is None
