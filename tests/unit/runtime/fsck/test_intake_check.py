"""The check of INTAKE and DEAD."""

import asyncio

from berth.core.verification.findings import Finding
from berth.runtime.fsck.cell_check import CellCheck, check_cell
from berth.schemas.envelope import encode
from berth.schemas.status import LeaseHeld
from berth.schemas.subjects import StreamName
from tests.support.cells import Cell, a_job, a_node
from tests.support.stored_cells import checked


def of_requests(result: CellCheck) -> list[Finding]:
    return [one for one in result.findings if one.where in {"INTAKE", "DEAD"}]


def counts(result: CellCheck) -> dict[str, int]:
    return {one.what: one.count for one in result.checked if one.what in {"requests", "dead letters"}}


async def published(cell: Cell, data: bytes) -> None:
    await cell.user.publish(cell.user.subjects.intake_request("default", "x"), data)


async def hold_lease(cell: Cell) -> None:
    held = encode(LeaseHeld("somebody", 0, cell.clock.now_ms()))
    await cell.user.publish(cell.user.subjects.lease("dispatcher"), held)


async def test_requests_are_counted_and_letters_are_a_note() -> None:
    cell = await Cell().open()
    await cell.nodes([a_node("a")])
    await cell.submit(a_job("good"))
    for _ in range(2):
        await published(cell, b"{}")
    await cell.turns(3)
    result = await checked(cell)
    assert counts(result) == {"requests": 3, "dead letters": 2}
    (note,) = of_requests(result)
    assert (note.code, note.where, note.sequence, note.last_seq, note.repair) == ("dead-letters", "DEAD", 1, 2, "")
    assert note.text == "messages that can never be handled: 2 undecodable; see: berth dead list"
    assert result.is_clean
    await cell.close()


async def test_a_message_without_a_letter_is_found() -> None:
    cell = await Cell().open()
    for data in (b"{}", b"{}", b"\xff"):
        await published(cell, data)
    result = await checked(cell)
    first, second = of_requests(result)
    assert (first.code, first.sequence, first.last_seq, first.repair) == ("unreadable-request", 1, 2, "")
    assert "DEAD has no letter that says so. A dispatcher that leads writes one" in first.text
    assert (second.sequence, second.last_seq) == (3, 3)
    assert result.is_clean
    await cell.turns(2)
    assert [one.code for one in of_requests(await checked(cell))] == ["dead-letters"]
    await cell.close()


async def test_a_letter_that_a_leader_is_about_to_write_is_waited_for() -> None:
    cell = await Cell().open()
    await hold_lease(cell)
    await published(cell, b"{}")

    async def wait() -> None:
        cell.clock.advance(1)
        await cell.turns()

    result = await check_cell(cell.user, cell.clock, wait=wait)
    assert [one.code for one in of_requests(result)] == ["dead-letters"]
    await cell.close()


async def test_a_letter_that_a_leader_never_writes_is_missed() -> None:
    cell = await Cell().open()
    await hold_lease(cell)
    await published(cell, b"{}")

    async def wait() -> None:
        cell.clock.advance(1)
        await asyncio.sleep(0)

    result = await check_cell(cell.user, cell.clock, wait=wait)
    (found,) = of_requests(result)
    assert (found.code, found.text.endswith("DEAD has no letter that says so")) == ("unreadable-request", True)
    await cell.close()


async def test_what_is_no_letter_is_found() -> None:
    cell = await Cell().open()
    await cell.user.publish(cell.user.subjects.dead(StreamName.INTAKE, 9), b"\xff")
    (found,) = of_requests(await checked(cell))
    assert (found.code, found.where, found.sequence, found.repair) == ("unreadable-letter", "DEAD", 1, "")
    await cell.close()
