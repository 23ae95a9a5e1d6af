"""``berth log --follow``: what is skipped, or was deleted, as the services see it."""

import asyncio

import pytest

from berth.cli.output import CommandError
from berth.cli.recordings.log import Live
from berth.formats.shown import Shown, shown
from berth.schemas.chain import encode_record, stored_digest
from berth.schemas.envelope import encode, open_envelope
from berth.schemas.ledger import Round
from berth.schemas.recording import Entry
from berth.schemas.status import Skip
from berth.schemas.subjects import StreamName
from tests.support.cells import a_node
from tests.support.stored_cells import GARBAGE, append, grown, stream
from tests.support.waiting import SLACK, until


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_a_live_cell_is_printed_with_its_skips(*, is_deleted: bool) -> None:
    cell = await grown("one")
    await cell.dispatcher.stop()
    head = cell.dispatcher.state.fold.head
    skip = Skip(head + 1, head + 1, "" if is_deleted else stored_digest(GARBAGE))
    await cell.user.publish(cell.user.subjects.skip(head + 1), encode(skip))
    printed: list[tuple[int, str]] = []
    moved = asyncio.Event()

    def show(entry: Entry) -> Shown:
        if not entry.subject:
            printed.append((entry.sequence, open_envelope(entry.data).kind))
            moved.set()
        return shown("")

    live = Live(cell.user, show)
    async with asyncio.TaskGroup() as group:
        printing = group.create_task(live.run(), name="print")
        await live.began.wait()
        await cell.settle()
        await cell.user.append(GARBAGE, expected_seq=head)
        if is_deleted:
            stream(cell, StreamName.LEDGER).remove(head + 1)
            await cell.user.append(GARBAGE, expected_seq=head + 1)
        async with asyncio.timeout(5 * SLACK):
            await moved.wait()
        printing.cancel()
    assert printed[0] == (head + 1, Skip.KIND)
    await cell.close()


async def test_messages_that_were_deleted_end_it_with_the_command() -> None:
    cell = await grown("one")
    await cell.dispatcher.stop()
    head = cell.dispatcher.state.fold.head
    live = Live(cell.user, lambda _: shown(""))

    async def spoil() -> None:
        await live.began.wait()
        await cell.settle()
        await cell.user.append(GARBAGE, expected_seq=head)
        stream(cell, StreamName.LEDGER).remove(head + 1)
        await cell.user.append(GARBAGE, expected_seq=head + 1)

    async def both() -> None:
        async with asyncio.timeout(5 * SLACK), asyncio.TaskGroup() as group:
            group.create_task(live.run(), name="print")
            group.create_task(spoil(), name="spoil")

    with pytest.raises(ExceptionGroup) as caught:
        await both()
    assert caught.group_contains(CommandError, match="messages were deleted from it, use: berth repair")
    await cell.close()


async def test_a_message_that_claims_to_know_facts_to_come_holds_up_nothing() -> None:
    cell = await grown("one")
    await cell.dispatcher.stop()
    head, facts_seq = cell.dispatcher.state.fold.head, cell.dispatcher.state.facts_seq
    printed: list[tuple[str, int]] = []

    def show(entry: Entry) -> Shown:
        printed.append((entry.subject, entry.sequence))
        return shown("")

    live = Live(cell.user, show)
    async with asyncio.TaskGroup() as group:
        printing = group.create_task(live.run(), name="print")
        await live.began.wait()
        await cell.settle()
        foreign = Round(epoch=1, base_seq=head, facts_seq=10**12, at_ms=0, number=9)
        await append(cell.user, encode_record(foreign, sequence=head + 1), GARBAGE)
        await cell.nodes([a_node("c")])
        await until(lambda: len(printed) >= 3, deadline_s=5, what="what is stored is printed")
        printing.cancel()
    assert printed[:2] == [("", head + 1), ("", head + 2)]
    assert printed[2][1] == facts_seq + 1
    await cell.close()
