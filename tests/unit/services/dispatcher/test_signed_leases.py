"""Leases where keys are known: what nobody signed who may lead is no lease, and deposes nobody."""

from collections.abc import Mapping

import pytest

from berth.runtime.bus.leaders import ROLE
from berth.runtime.bus.port import Stored
from berth.runtime.instruments import Instruments
from berth.schemas.envelope import encode
from berth.schemas.status import RESTORE_HOLDER, LeaseHeld
from berth.schemas.subjects import StreamName
from berth.services.dispatcher.lease import Lease
from berth.services.dispatcher.metrics import DispatcherMetrics
from tests.support.candidates import Candidate, Rivals
from tests.support.signing_keys import signer

FIRST, SECOND, STRANGER = signer(1), signer(2), signer(3)


async def two() -> tuple[Rivals, Candidate, Candidate]:
    """A leader and a standby that know each other's keys."""
    them = Rivals()
    first = await them.join("a")
    first.bus.signatures = FIRST.knowing(SECOND)
    await first.keeper.renew_or_take()
    second = await them.join("b")
    second.bus.signatures = SECOND.knowing(FIRST)
    await them.pass_time(1)
    assert (first.leads, second.leads) == (True, False)
    return them, first, second


def now(them: Rivals, holder: str = "forger") -> bytes:
    return encode(LeaseHeld(holder, 0, them.server.clock.now_ms(), 0))


def plant(them: Rivals, data: bytes, headers: Mapping[str, str] | None = None, *, ttl_s: int | None = None) -> Stored:
    """Store a message as the newest of the lease."""
    bus = them.all[0].bus
    sequence = them.server.store(bus.subjects.lease(ROLE), data, None, ttl_s, headers)
    return Stored(bus.subjects.lease(ROLE), sequence, data, 0, headers)


async def newest(them: Rivals) -> Stored:
    bus = them.all[0].bus
    found = await bus.last(StreamName.LEASE, bus.subjects.lease(ROLE))
    assert found is not None
    return found


@pytest.mark.parametrize("holder", ["forger", "", RESTORE_HOLDER, "b"])
async def test_a_lease_that_nobody_signed_deposes_no_leader(holder: str) -> None:
    them, first, second = await two()
    plant(them, now(them, holder))
    await them.pass_time(10)
    assert (first.leads, second.leads, first.changes) == (True, False, 1)
    assert (await them.lease()).holder == "a"
    await them.close()


@pytest.mark.parametrize("data", [b"", b"\xff\x00", b"\x93\xa5lease\x01\x90"], ids=["empty", "garbage", "no fields"])
async def test_bytes_without_form_depose_no_leader(data: bytes) -> None:
    them, first, second = await two()
    plant(them, data)
    await them.pass_time(10)
    assert (first.leads, second.leads, first.changes) == (True, False, 1)
    await them.close()


async def test_the_signature_of_a_stranger_deposes_no_leader() -> None:
    them, first, second = await two()
    bus = them.all[0].bus
    data = now(them)
    sequence = (await newest(them)).sequence
    plant(them, data, STRANGER.knowing().headers(bus.subjects, bus.subjects.lease(ROLE), data, sequence))
    await them.pass_time(10)
    assert (first.leads, second.leads, first.changes) == (True, False, 1)
    await them.close()


async def test_a_lease_that_expires_at_once_deposes_no_leader() -> None:
    them, first, second = await two()
    plant(them, now(them), ttl_s=1)
    await them.pass_time(10)
    assert (first.leads, second.leads, first.changes) == (True, False, 1)
    await them.close()


async def test_an_old_lease_that_is_published_again_deposes_no_leader() -> None:
    them, first, second = await two()
    await them.kill(first)
    await them.pass_time(1)
    assert second.leads
    old = await newest(them)
    back = await them.join("a")
    back.bus.signatures = FIRST.knowing(SECOND)
    await them.kill(second)
    await them.pass_time(1)
    assert back.leads
    plant(them, old.data, old.headers)
    await them.pass_time(10)
    assert back.leads
    assert (await them.lease()).holder == "a"
    await them.close()


async def test_a_standby_still_takes_the_lease_of_a_leader_that_was_killed() -> None:
    them, first, second = await two()
    await them.kill(first)
    plant(them, now(them))
    await them.pass_time(1)
    assert second.leads
    assert (await them.lease()).holder == "b"
    await them.close()


async def test_a_leader_that_was_paused_gives_way_to_one_that_may_lead() -> None:
    them, first, second = await two()
    them.paused.add(first)
    question = next(one for one in them.server.services if one.subject.endswith("question"))
    them.server.services.remove(question)  # a paused process answers nothing
    await them.pass_time(1)
    assert second.leads
    them.paused.clear()
    await them.pass_time(2)
    assert (first.leads, second.leads) == (False, True)
    await them.close()


async def test_what_nobody_signed_is_no_other_holder() -> None:
    them, first, _ = await two()
    instruments = Instruments.make(DispatcherMetrics)
    lease = Lease(first.bus, first.clock, role=ROLE, holder="c", lease_s=5, instruments=instruments)
    assert await lease.other_holder() == "a"
    plant(them, now(them, RESTORE_HOLDER))
    assert await lease.other_holder() == ""
    await them.close()
