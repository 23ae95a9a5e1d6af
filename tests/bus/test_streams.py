"""Streams on a real server: what they are, and what is never done to them."""

import asyncio

import msgspec
import pytest

from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.errors import FatalError, TransientError
from berth.schemas.subjects import StreamName
from tests.support.command import berth

pytestmark = pytest.mark.timeout(30)


async def config_of(bus: NatsBus, stream: StreamName) -> dict[str, object]:
    answer = await bus.request(f"$JS.API.STREAM.INFO.{bus.subjects.stream(stream)}", b"", timeout_s=5)
    found: dict[str, object] = msgspec.json.decode(answer)["config"]
    return found


async def test_the_mirror_keeps_sequences_through_many_overwrites(real_bus: NatsBus) -> None:
    subjects = real_bus.subjects
    futures = [real_bus.submit(subjects.fact_node(str(number % 7)), b"%d" % number) for number in range(1, 1001)]
    head = max([await future for future in futures])
    await real_bus.wait_mirror(StreamName.LATEST, at_least=head, timeout_s=10)
    latest = {message.sequence: message for message in await real_bus.read(StreamName.LATEST)}
    facts = {message.sequence: message for message in await real_bus.read(StreamName.FACTS)}
    assert sorted(latest) == list(range(head - 6, head + 1))
    assert all(latest[sequence][:3] == facts[sequence][:3] for sequence in latest)


async def test_a_changed_setting_is_corrected(real_bus: NatsBus) -> None:
    config = await config_of(real_bus, StreamName.LEDGER)
    config["max_bytes"] = 1 << 20
    stream = real_bus.subjects.stream(StreamName.LEDGER)
    await real_bus.request(f"$JS.API.STREAM.UPDATE.{stream}", msgspec.json.encode(config), timeout_s=5)
    await real_bus.ensure_streams(max_bytes={StreamName.FACTS: 1 << 30})
    assert (await config_of(real_bus, StreamName.LEDGER))["max_bytes"] == -1
    assert (await config_of(real_bus, StreamName.FACTS))["max_bytes"] == 1 << 30


async def test_the_age_of_events_is_that_of_the_service_that_names_it(real_bus: NatsBus) -> None:
    assert (await config_of(real_bus, StreamName.EVENTS))["max_age"] == 7 * 86_400 * 10**9
    await real_bus.ensure_streams(max_age_s={StreamName.EVENTS: 3_600})
    await real_bus.ensure_streams()
    assert (await config_of(real_bus, StreamName.EVENTS))["max_age"] == 3_600 * 10**9
    await real_bus.ensure_streams(max_age_s={StreamName.EVENTS: 60})  # below the window of ids
    assert (await config_of(real_bus, StreamName.EVENTS))["max_age"] == 60 * 10**9


async def test_a_setting_that_cannot_change_is_fatal_and_named(nats_server: str, cell: str) -> None:
    async with await NatsBus.connect(nats_server, cell, name="test", inbox="_INBOX.person.test") as bus:
        stream = bus.subjects.stream(StreamName.LEDGER)
        config = {"name": stream, "subjects": [bus.subjects.ledger], "storage": "memory"}
        await bus.request(f"$JS.API.STREAM.CREATE.{stream}", msgspec.json.encode(config), timeout_s=5)
        with pytest.raises(FatalError, match=f"{stream}.*storage"):
            await bus.ensure_streams()


async def test_the_server_itself_refuses_to_remove_facts(real_bus: NatsBus) -> None:
    await real_bus.publish(real_bus.subjects.fact_timer, b"x")
    denied = [
        (StreamName.FACTS, "PURGE", b"{}"),
        (StreamName.FACTS, "MSG.DELETE", b'{"seq":1}'),
        (StreamName.LATEST, "MSG.DELETE", b'{"seq":1}'),
    ]
    for stream, verb, body in denied:
        name = real_bus.subjects.stream(stream)
        answer = await real_bus.request(f"$JS.API.STREAM.{verb}.{name}", body, timeout_s=5)
        assert "error" in msgspec.json.decode(answer), (stream, verb)


async def test_two_cells_share_nothing(nats_server: str, real_bus: NatsBus, cell: str) -> None:
    async with await NatsBus.connect(nats_server, f"{cell}.b", name="test", inbox="_INBOX.person.test") as other:
        await other.ensure_streams()
        await other.append(b"x", expected_seq=0)
        assert (await real_bus.state(StreamName.LEDGER)).last_seq == 0


async def test_a_handler_is_known_when_serve_returns(nats_server: str, real_bus: NatsBus, cell: str) -> None:
    async def echo(data: bytes) -> bytes:
        return data

    async with await NatsBus.connect(nats_server, cell, name="asking") as asking:
        for number in range(300):
            subject = real_bus.subjects.sim(str(number))
            served = await real_bus.serve(subject, echo)
            assert await asking.request(subject, b"x", timeout_s=5) == b"x"
            if number % 10 == 0:
                await served.stop()


async def test_a_handler_that_stops_answers_all_it_was_sent(nats_server: str, real_bus: NatsBus, cell: str) -> None:
    answered = 0
    refused = 0

    async def echo(data: bytes) -> bytes:
        return data

    async def ask(asking: NatsBus, subject: str) -> None:
        nonlocal answered, refused
        try:
            await asking.request(subject, b"x", timeout_s=5)
            answered += 1
        except TransientError as error:
            refused += "no responders" in error.reason

    async with await NatsBus.connect(nats_server, cell, name="asking") as asking:
        for number in range(20):
            subject = real_bus.subjects.sim(str(number))
            served = await real_bus.serve(subject, echo)
            async with asyncio.TaskGroup() as group:
                for _ in range(50):
                    group.create_task(ask(asking, subject))
                await asyncio.sleep(0)
                group.create_task(served.stop())
                for _ in range(50):
                    group.create_task(ask(asking, subject))
    assert answered + refused == 2000  # none was left to its time-out
    assert answered


async def test_streams_that_somebody_else_makes_are_waited_for_and_not_corrected(
    nats_server: str, cell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with (
        await NatsBus.connect(nats_server, f"{cell}.w", name="waits") as waits,
        await NatsBus.connect(nats_server, f"{cell}.w", name="makes") as makes,
        asyncio.TaskGroup() as group,
    ):
        waiting = group.create_task(waits.ensure_streams(waits_for=list(StreamName)))
        with pytest.raises(TransientError):
            await waits.state(StreamName.INTAKE)
        assert not waiting.done()
        await makes.ensure_streams(max_bytes={StreamName.FACTS: 1 << 30})
        await waiting
        kept = await waits.keeping(StreamName.FACTS)
        assert kept is not None
        assert kept.max_bytes == 1 << 30, "it has other settings than it should, and keeps them"
    said = capsys.readouterr()
    assert "make it with: berth streams apply" in said.out + said.err
    assert "correct it with: berth streams apply" in said.out + said.err


async def test_the_command_makes_streams_and_says_which_are_missing(nats_server: str, cell: str) -> None:
    code, out, err = await berth("streams", url=nats_server, cell=cell)
    assert (code, out.splitlines()[-1]) == (1, f"0 streams of cell {cell}, {len(StreamName)} missing"), err
    code, out, err = await berth("streams", "apply", "--replicas", "2", url=nats_server, cell=cell)
    assert (code, err) == (2, "error: --replicas is 2, expected 1 or 3\n")
    code, out, err = await berth("streams", "apply", "--events-kept", "2h", url=nats_server, cell=cell)
    assert (code, out.splitlines()[-1]) == (0, f"{len(StreamName)} streams of cell {cell}, 0 missing"), err
    async with await NatsBus.connect(nats_server, cell, name="test") as bus:
        assert (await config_of(bus, StreamName.EVENTS))["max_age"] == 7_200_000_000_000
