"""What a bus does in trouble, told once for a real server and for a simulated one."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import pytest

from berth.runtime.bus.port import Bus, Gap, GapReason, Stored
from berth.runtime.errors import AmbiguousError, ConflictError, FatalError, TransientError
from berth.schemas.subjects import StreamName
from tests.support.waiting import until, until_true

DEADLINE_S: Final = 20.0
_SHORT_S: Final = 1.0
"""Time-out of what is not answered."""


class Trial(Protocol):
    """Two clients of a server, and what may go wrong between the first one and the server."""

    @property
    def bus(self) -> Bus:
        """The client in trouble."""

    @property
    def other(self) -> Bus:
        """A client that is well; it has created the streams."""

    async def lose_answers(self) -> None:
        """Let the server get what the client writes, and lose what it answers."""

    async def hold(self) -> None:
        """Let what the client sends wait on its way."""

    async def cut(self) -> None:
        """Break the connection, and let no new one in."""

    async def heal(self) -> None:
        """End all of that. What had to be lost is lost, what waited arrives; the client connects again."""

    async def lose_consumers(self) -> None:
        """Delete the consumers of the client's followers."""

    async def kill(self) -> None:
        """Kill the server."""

    async def start(self) -> None:
        """Start it again."""

    async def silence(self) -> None:
        """Let the ledger answer nobody, as without a leader."""

    async def answer(self) -> None:
        """End that."""

    async def keep(self) -> None:
        """Remember what the server has."""

    async def go_back(self) -> None:
        """Let the server begin again with what it had then, as after a power loss."""


class Log:
    """What a follower hands over: nothing is left out, nothing comes twice."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.gaps: list[Gap] = []

    def take(self, message: Stored) -> None:
        """Keep the sequence of a message."""
        assert not self.seen or message.sequence == self.seen[-1] + 1
        self.seen.append(message.sequence)


async def error_of(awaited: Awaitable[object]) -> Exception:
    """The error that something ends with."""
    with pytest.raises(Exception) as caught:  # noqa: PT011  # the caller looks at it
        await awaited
    assert isinstance(caught.value, Exception)
    return caught.value


async def is_connected(trial: Trial) -> None:
    """Wait until the client in trouble is connected."""
    await until(lambda: trial.bus.connected, deadline_s=DEADLINE_S, what="connected again")


async def publish_in_trouble(bus: Bus, count: int) -> None:
    """Publish until so many were acknowledged; some may be stored twice."""
    done = 0

    async def one() -> bool:
        nonlocal done
        try:
            await bus.publish(bus.subjects.fact_timer, b"%d" % done, timeout_s=_SHORT_S)
        except TransientError:
            return False
        done += 1
        return done == count

    await until_true(one, deadline_s=DEADLINE_S, what=f"{count} messages are acknowledged")


async def a_lost_answer(trial: Trial) -> None:
    """A write without an answer is ambiguous, and it was stored; a second one conflicts."""
    await trial.lose_answers()
    assert isinstance(await error_of(trial.bus.append(b"a", expected_seq=0, timeout_s=_SHORT_S)), AmbiguousError)
    await trial.heal()
    lasts: list[int | None] = []

    async def is_told() -> bool:
        try:
            await trial.bus.append(b"a", expected_seq=0, timeout_s=_SHORT_S)
        except ConflictError as conflict:
            lasts.append(conflict.last_seq)
        except TransientError:
            pass  # the connection is not there again
        return bool(lasts)

    await until_true(is_told, deadline_s=DEADLINE_S, what="a second append is answered")
    assert lasts == [1]
    assert [stored.data for stored in await trial.bus.read(StreamName.LEDGER)] == [b"a"]


async def what_is_held_lands_late(trial: Trial) -> None:
    """A write that waits on its way is ambiguous for its sender, and is stored afterwards."""
    await trial.hold()
    assert isinstance(await error_of(trial.bus.append(b"late", expected_seq=0, timeout_s=_SHORT_S)), AmbiguousError)
    assert await trial.other.read(StreamName.LEDGER) == []
    await trial.heal()

    async def has_landed() -> bool:
        return [stored.data for stored in await trial.other.read(StreamName.LEDGER)] == [b"late"]

    await until_true(has_landed, deadline_s=DEADLINE_S, what="the held message is stored")


async def a_broken_connection(trial: Trial) -> None:
    """What is under way is ambiguous, what comes while the connection is broken is not sent at all."""
    before = trial.bus.link_changes
    await trial.hold()
    under_way = asyncio.get_running_loop().create_task(error_of(trial.bus.append(b"a", expected_seq=0)), name="append")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await trial.cut()
    await until(lambda: not trial.bus.connected, deadline_s=DEADLINE_S, what="the break is seen")
    assert isinstance(await under_way, AmbiguousError)
    refused = await error_of(trial.bus.append(b"b", expected_seq=0))
    assert isinstance(refused, TransientError)
    assert not isinstance(refused, AmbiguousError)
    await trial.heal()
    await is_connected(trial)
    await until(lambda: trial.bus.link_changes >= before + 2, deadline_s=DEADLINE_S, what="both changes are counted")
    head = (await trial.bus.state(StreamName.LEDGER)).last_seq
    assert head <= 1
    assert await trial.bus.append(b"c", expected_seq=head) == head + 1
    assert b"b" not in [stored.data for stored in await trial.bus.read(StreamName.LEDGER)]


async def deleted_consumers(trial: Trial) -> None:
    """A follower whose consumer is deleted makes another one, and goes on without a gap."""
    log = Log()
    follower = trial.bus.follow(StreamName.FACTS, on_message=log.take, on_gap=log.gaps.append)
    for part in range(1, 4):
        await publish_in_trouble(trial.other, 30)
        await until(lambda: len(log.seen) >= 30 * part, deadline_s=DEADLINE_S, what="what was published")  # noqa: B023  # awaited here
        await trial.lose_consumers()
    await publish_in_trouble(trial.other, 30)
    await until(lambda: len(log.seen) == 120, deadline_s=DEADLINE_S, what="all messages")
    assert log.gaps == []
    assert follower.recreations >= 3


async def a_killed_server(trial: Trial) -> None:
    """A follower goes on after its server was killed, and has all that was acknowledged."""
    log = Log()
    trial.bus.follow(StreamName.FACTS, on_message=log.take, on_gap=log.gaps.append)
    for _ in range(3):
        await publish_in_trouble(trial.other, 30)
        await trial.kill()
        await until(lambda: not trial.bus.connected, deadline_s=DEADLINE_S, what="the break is seen")
        assert isinstance(await error_of(trial.bus.append(b"x", expected_seq=0)), TransientError)
        await trial.start()
        await is_connected(trial)
    await publish_in_trouble(trial.other, 1)
    head = (await trial.other.state(StreamName.FACTS)).last_seq
    assert head >= 91
    await until(lambda: log.seen[-1:] == [head], deadline_s=DEADLINE_S, what="the head")
    assert log.seen == list(range(1, head + 1))
    assert log.gaps == []
    await trial.other.wait_mirror(StreamName.LATEST, at_least=head, timeout_s=DEADLINE_S)
    (latest,) = await trial.other.read(StreamName.LATEST)
    assert latest.sequence == head


async def a_stream_without_an_answer(trial: Trial) -> None:
    """An append to a stream that answers nobody is ambiguous; it is there at most once, and the next one follows."""
    await trial.silence()
    assert isinstance(await error_of(trial.bus.append(b"a", expected_seq=0, timeout_s=_SHORT_S)), AmbiguousError)
    assert isinstance(await error_of(trial.bus.state(StreamName.LEDGER)), TransientError)
    await trial.answer()

    async def answers() -> bool:
        try:
            return (await trial.bus.state(StreamName.LEDGER)).last_seq <= 1
        except TransientError:
            return False

    await until_true(answers, deadline_s=DEADLINE_S, what="the ledger answers")
    head = (await trial.bus.state(StreamName.LEDGER)).last_seq
    assert await trial.bus.append(b"b", expected_seq=head) == head + 1


async def a_stream_made_anew(trial: Trial) -> None:
    """A follower of a stream that is deleted and created ends with a gap, whatever the new one has."""
    log = Log()
    follower = trial.bus.follow(StreamName.LEDGER, on_message=log.take, on_gap=log.gaps.append)
    for number in range(3):
        await trial.other.append(b"old", expected_seq=number)
    await until(lambda: len(log.seen) == 3, deadline_s=DEADLINE_S, what="the old stream")
    await trial.other.delete_stream(StreamName.LEDGER)
    await trial.other.ensure_streams()
    for number in range(5):
        await trial.other.append(b"new", expected_seq=number)
    gap = await follower.wait()
    assert gap is not None
    assert gap.reason is GapReason.RECREATED
    assert gap.wanted == 4
    assert log.gaps == [gap]
    assert log.seen == [1, 2, 3]


async def a_lost_stream_with_a_mirror(trial: Trial) -> None:
    """Facts that are gone are not begun again beside their mirror; without any message they are."""
    await trial.other.delete_stream(StreamName.FACTS)
    await trial.other.ensure_streams()
    await trial.other.publish(trial.bus.subjects.fact_timer, b"x")
    await trial.other.wait_mirror(StreamName.LATEST, at_least=1, timeout_s=DEADLINE_S)
    await trial.other.delete_stream(StreamName.FACTS)
    with pytest.raises(FatalError, match=r"FACTS.* is gone.*sequence 1.*berth restore"):
        await trial.other.ensure_streams()
    with pytest.raises(TransientError):
        await trial.bus.state(StreamName.FACTS)


async def history_that_goes_backwards(trial: Trial) -> None:
    """A follower that has read what the server lost ends with a gap; what is stored next has the lost sequences."""
    for number in range(3):
        await trial.other.append(b"kept", expected_seq=number)
    await trial.keep()
    log = Log()
    follower = trial.bus.follow(StreamName.LEDGER, on_message=log.take, on_gap=log.gaps.append)
    for number in range(3, 6):
        await trial.other.append(b"lost", expected_seq=number)
    await until(lambda: len(log.seen) == 6, deadline_s=DEADLINE_S, what="all that there is")
    await trial.go_back()
    gap = await follower.wait()
    assert gap == Gap(StreamName.LEDGER, GapReason.BACKWARDS, 7, 1, 3)
    await until(lambda: trial.other.connected, deadline_s=DEADLINE_S, what="connected again")
    assert await trial.other.append(b"new", expected_seq=3) == 4


async def two_appenders(trial: Trial) -> None:
    """Of two that append behind the same message one wins, each time, and the other one is told the last sequence."""
    wins = 0
    lasts: list[int | None] = []

    async def append(bus: Bus, sequence: int) -> None:
        nonlocal wins
        try:
            await bus.append(b"x", expected_seq=sequence)
            wins += 1
        except ConflictError as conflict:
            lasts.append(conflict.last_seq)

    for sequence in range(20):
        async with asyncio.TaskGroup() as group:
            group.create_task(append(trial.bus, sequence), name="one")
            group.create_task(append(trial.other, sequence), name="the other")
    assert wins == 20
    assert lasts == list(range(1, 21))


async def nothing_is_stuck(trial: Trial) -> None:
    """A stream that works is not stuck, nor is one that is gone, and to delete that one again is no error."""
    assert not await trial.bus.is_stuck(StreamName.LEASE, beside=StreamName.LEDGER)
    await trial.bus.delete_stream(StreamName.LEASE)
    await trial.bus.delete_stream(StreamName.LEASE)
    assert not await trial.bus.is_stuck(StreamName.LEASE, beside=StreamName.LEDGER)
    await trial.bus.ensure_streams()
    assert await trial.bus.last(StreamName.LEASE, trial.bus.subjects.lease("dispatcher")) is None


TROUBLES: Final[tuple[Callable[[Trial], Awaitable[None]], ...]] = (
    a_lost_answer,
    what_is_held_lands_late,
    a_broken_connection,
    deleted_consumers,
    a_killed_server,
    a_stream_without_an_answer,
    a_stream_made_anew,
    a_lost_stream_with_a_mirror,
    history_that_goes_backwards,
    two_appenders,
    nothing_is_stuck,
)
"""All of them."""
