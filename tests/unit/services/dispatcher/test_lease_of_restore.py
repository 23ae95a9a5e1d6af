"""The lease of ``berth restore``: nobody leads, and everybody who would says why."""

from berth.schemas.envelope import encode
from berth.schemas.status import RESTORE_HOLDER, LeaseHeld
from berth.services.dispatcher.leadership import ROLE
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
