"""The lease of ``berth restore``: nobody leads, and everybody who would says why."""

import pytest

from berth.runtime.bus.leaders import ROLE
from berth.schemas.envelope import encode
from berth.schemas.status import RESTORE_HOLDER, LeaseHeld
from berth.schemas.subjects import StreamName
from tests.support.candidates import Rivals


async def test_the_lease_of_a_restore_keeps_everybody_from_leading_and_is_named_until_it_is_released() -> None:
    them = Rivals()
    first = await them.join("a")
    subject = first.bus.subjects.lease(ROLE)
    held = await first.bus.publish(subject, encode(LeaseHeld(RESTORE_HOLDER, 0, 0)))
    await them.pass_time(60)
    assert not first.leads
    assert first.standing.barred.endswith("use: berth restore")
    assert first.changes == 1
    await first.bus.publish(subject, encode(LeaseHeld("", 0, 0)), expected_subject_seq=held)
    await them.pass_time(2)
    assert first.leads
    assert not first.standing.barred
    await them.close()


async def test_the_lease_of_a_restore_is_forgotten_when_another_leads() -> None:
    them = Rivals()
    first, second = await them.join("a"), await them.join("b")
    first.standing.is_candidate = False
    subject = first.bus.subjects.lease(ROLE)
    held = await first.bus.publish(subject, encode(LeaseHeld(RESTORE_HOLDER, 0, 0)))
    await them.pass_time(3)
    assert second.standing.barred
    first.standing.is_candidate, second.standing.is_candidate = True, False
    await first.bus.publish(subject, encode(LeaseHeld("", 0, 0)), expected_subject_seq=held)
    await them.pass_time(2)
    assert (first.leads, first.standing.barred, second.standing.barred) == (True, "", "")
    await them.close()


async def test_a_record_behind_the_restored_ledger_shows_that_only_the_release_is_lost() -> None:
    them = Rivals()
    first = await them.join("a")
    ledger = (await first.bus.state(StreamName.LEDGER)).created
    subject = first.bus.subjects.lease(ROLE)
    await first.bus.append(b"restored", expected_seq=0)
    lost = LeaseHeld(RESTORE_HOLDER, 0, 0, ledger=ledger, ledger_seq=1)
    await first.bus.publish(subject, encode(lost))
    await them.pass_time(20)
    assert (first.leads, bool(first.standing.barred)) == (False, True)
    await first.bus.append(b"of a leader", expected_seq=1)
    await them.pass_time(3)
    assert (first.leads, first.standing.barred) == (True, "")
    await them.close()


@pytest.mark.parametrize("lease", [LeaseHeld(RESTORE_HOLDER, 0, 0), LeaseHeld(RESTORE_HOLDER, 0, 0, ledger="old")])
async def test_records_of_a_ledger_that_is_not_the_restored_one_show_nothing(lease: LeaseHeld) -> None:
    them = Rivals()
    first = await them.join("a")
    await first.bus.append(b"of the cell before", expected_seq=0)
    await first.bus.publish(first.bus.subjects.lease(ROLE), encode(lease))
    await them.pass_time(20)
    assert not first.leads
    await them.close()
