"""A purge removes the content of letters, and no service writes them again."""

from berth.core.requests.dead_reasons import UNDECODABLE
from berth.runtime.dead_letters.letters import read_letters
from berth.runtime.dead_letters.purges import purge
from berth.schemas.status import Purge
from tests.support.cells import Cell


async def test_a_purged_letter_keeps_its_reason_and_is_not_written_again() -> None:
    cell = await Cell().open()
    for _ in range(3):
        await cell.user.publish(cell.user.subjects.intake_request("default", "x"), b"{}")
    await cell.turns(2)
    found = (await read_letters(cell.user)).letters
    await purge(cell.user, cell.clock, found[:2], by="me")
    settled = [one for one in (await read_letters(cell.user)).letters if not one.is_open]
    assert len(settled) == 2
    await purge(cell.user, cell.clock, settled, by="you")
    for _ in range(2):
        by_id = {one.id: one for one in (await read_letters(cell.user)).letters}
        assert {name: one.state for name, one in by_id.items()} == {
            "intake:1": "purged",
            "intake:2": "purged",
            "intake:3": "open",
        }
        body = by_id["intake:1"].body
        assert (body.data, body.size_bytes, body.code, body.headers) == (b"", 2, UNDECODABLE, {})
        assert by_id["intake:2"].body.purge == Purge(cell.clock.now_ms(), "me")
        # A new leader reads requests again after the last verdict, which are all of these.
        await cell.dispatcher.stop()
        await cell.start_dispatcher()
        await cell.turns(2)
    await cell.close()
