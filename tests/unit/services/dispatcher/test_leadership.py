"""Who leads: heartbeats, silence, questions, and the lease that all of it is about. The clock moves when told."""

import msgspec

from berth.runtime.bus.leaders import ROLE
from berth.schemas.envelope import encode
from berth.schemas.status import Heartbeat, LeaseHeld
from berth.services.dispatcher.leadership import Progress
from tests.support.candidates import Candidate, Rivals, settled


async def two() -> tuple[Rivals, Candidate, Candidate]:
    """A leader and a standby."""
    them = Rivals()
    first = await them.join("a")
    await first.keeper.renew_or_take()
    second = await them.join("b")
    await them.pass_time(1)
    assert (first.leads, second.leads) == (True, False)
    return them, first, second


async def test_the_first_candidate_leads_at_once_and_tells_it_on_the_bus() -> None:
    them = Rivals()
    first = await them.join("a")
    await first.keeper.renew_or_take()
    assert first.leads
    assert first.changes == 1
    assert await them.lease() == LeaseHeld("a", 0, them.server.clock.now_ms(), 400)
    await them.close()


async def test_a_dispatcher_that_is_not_warm_takes_no_lease() -> None:
    them = Rivals()
    first = await them.join("a")
    first.standing.is_candidate = False
    await them.pass_time(1)
    assert not first.leads
    first.standing.is_candidate = True
    await first.keeper.renew_or_take()
    assert first.leads
    await them.close()


async def test_a_standby_takes_the_lease_of_a_leader_that_was_killed_after_the_silence_and_not_before() -> None:
    them, first, second = await two()
    await them.kill(first)
    await them.pass_time(0.3)
    assert not second.leads
    await them.pass_time(0.2)
    assert second.leads
    assert (await them.lease()).holder == "b"
    await them.close()


async def test_heartbeats_keep_the_lease_however_long_nothing_else_is_heard() -> None:
    them, first, second = await two()
    await them.pass_time(60)
    assert (first.leads, second.leads) == (True, False)
    assert (await them.lease()).holder == "a"
    await them.close()


async def test_a_leader_that_is_paused_for_less_than_the_silence_keeps_the_lease() -> None:
    them, first, second = await two()
    for _ in range(20):
        them.paused.add(first)
        await them.pass_time(0.3)
        them.paused.discard(first)
        await them.pass_time(0.1)
    assert (first.leads, second.leads) == (True, False)
    await them.close()


async def test_a_leader_that_answers_a_question_keeps_the_lease_although_its_heartbeats_are_lost() -> None:
    them, first, second = await two()
    second_hears = next(one for one in them.server.services if one.subject.endswith(f"heartbeat.{ROLE}"))
    them.server.services = [one for one in them.server.services if not one.subject.endswith(f"heartbeat.{ROLE}")]
    assert second_hears not in them.server.services
    await them.pass_time(5)
    assert (first.leads, second.leads) == (True, False)
    await them.close()


async def test_a_leader_that_is_paused_for_long_finds_its_lease_taken() -> None:
    them, first, second = await two()
    them.paused.add(first)
    question = next(one for one in them.server.services if one.subject.endswith("question"))
    them.server.services.remove(question)  # a paused process answers nothing
    await them.pass_time(1)
    assert second.leads
    assert first.leads, "it does not know yet"
    them.paused.discard(first)
    await first.keeper.renew_or_take()
    assert not first.leads
    await them.pass_time(10)
    assert (first.leads, second.leads) == (False, True)
    await them.close()


async def test_a_leader_that_stops_gives_the_lease_to_a_standby_at_once() -> None:
    them, first, second = await two()
    await first.keeper.end()
    them.all.remove(first)
    await settled()
    await second.keeper.renew_or_take()
    assert second.leads
    await first.bus.close()
    await them.close()


async def test_a_process_with_the_name_of_the_holder_takes_its_lease_back_at_once() -> None:
    them = Rivals()
    first = await them.join("process-1", holder="dispatcher-0")
    await first.keeper.renew_or_take()
    await them.pass_time(1)
    await them.kill(first)
    again = await them.join("process-2", holder="dispatcher-0")
    other = await them.join("process-3", holder="dispatcher-1")
    await other.keeper.renew_or_take()
    assert not other.leads
    await again.keeper.renew_or_take()
    assert again.leads
    await them.close()


async def test_two_processes_with_one_name_do_not_take_the_lease_from_each_other() -> None:
    them = Rivals()
    first = await them.join("process-1", holder="same")
    await first.keeper.renew_or_take()
    second = await them.join("process-2", holder="same")
    await them.pass_time(20)
    assert (first.leads, second.leads) == (True, False)
    await them.close()


async def test_a_lease_without_heartbeats_is_left_alone_until_it_expires() -> None:
    them = Rivals()
    one = await them.join("b")
    old = msgspec.msgpack.encode((LeaseHeld.KIND, 1, ["old", 0, 0]))
    await one.bus.publish(one.bus.subjects.lease(ROLE), old, ttl_s=5)
    await them.pass_time(4.9)
    assert not one.leads, "its holder sends no heartbeats"
    await them.pass_time(2)
    assert one.leads
    await them.close()


async def test_silence_while_the_standby_itself_was_paused_is_no_silence_of_the_leader() -> None:
    them, first, second = await two()
    question = next(one for one in them.server.services if one.subject.endswith("question"))
    them.server.services.remove(question)  # the answer may take as long as the heartbeats
    them.paused.add(second)
    them.paused.add(first)  # what it sent meanwhile is not read yet
    await them.pass_time(3)
    them.paused.clear()
    await second.keeper.renew_or_take()
    assert not second.leads
    await them.pass_time(3)
    assert (first.leads, second.leads) == (True, False)
    await them.close()


async def test_silence_counts_anew_after_the_connection_broke() -> None:
    them, first, second = await two()
    await them.kill(first)
    await them.pass_time(0.3)
    second.bus.link_changes += 2
    await them.pass_time(0.4)
    assert not second.leads
    await them.pass_time(0.2)
    assert second.leads
    await them.close()


async def test_a_leader_whose_decisions_stand_still_sends_no_heartbeats_and_loses_the_lease() -> None:
    them, first, second = await two()
    them.stalled.add(first)
    await them.pass_time(30)
    assert (first.leads, second.leads) == (True, False)
    await them.pass_time(2)
    assert second.leads
    them.stalled.clear()
    await them.pass_time(2)
    assert (first.leads, second.leads) == (False, True)
    await them.close()


async def test_of_two_standbys_one_takes_over() -> None:
    them, first, second = await two()
    third = await them.join("c")
    await them.pass_time(1)
    await them.kill(first)
    await them.pass_time(1)
    assert sorted([second.leads, third.leads]) == [False, True]
    await them.close()


async def test_who_doubts_its_lease_does_not_lead_until_it_was_renewed() -> None:
    them, first, _ = await two()
    first.standing.doubt()
    assert not first.leads
    await first.keeper.renew_or_take()
    assert first.leads
    await them.close()


async def test_a_standby_knows_how_far_the_leader_is() -> None:
    them, first, second = await two()
    first.standing.progress = Progress(7, 11)
    await first.keeper.beat()
    await settled()
    assert second.standing.heard == Progress(7, 11)
    await them.close()


async def test_a_heartbeat_that_does_not_decode_is_left_alone() -> None:
    them, first, second = await two()
    await first.bus.send(first.bus.subjects.heartbeat(ROLE), b"\x93")
    await first.bus.send(first.bus.subjects.heartbeat(ROLE), encode(Heartbeat("a", ledger_seq=3)))
    await settled()
    assert second.standing.heard == Progress(3, 0)
    await them.close()


async def test_without_a_connection_nobody_is_taken_for_lost() -> None:
    them, first, second = await two()
    them.server.is_down = True
    await them.pass_time(2)
    assert not second.leads
    them.server.is_down = False
    second.bus.link_changes += 2
    await them.pass_time(2)
    assert (first.leads, second.leads) == (True, False)
    await them.close()


async def test_a_leader_that_has_paused_asks_for_more_silence_and_later_for_less() -> None:
    them, first, second = await two()
    assert (await them.lease()).silence_ms == 400
    first.keeper.note_pause(0.1)
    await first.keeper.renew_or_take()
    assert (await them.lease()).silence_ms == 400
    first.keeper.note_pause(1.4)
    await first.keeper.renew_or_take()
    assert (await them.lease()).silence_ms == 3_000
    await them.kill(first)
    await them.pass_time(2.9)
    assert not second.leads
    await them.pass_time(0.3)
    assert second.leads
    second.keeper.note_pause(60.0)
    await second.keeper.renew_or_take()
    assert (await them.lease()).silence_ms == 5_000
    for _ in range(60_000):
        second.keeper.note_pause(0.0)
    await second.keeper.renew_or_take()
    assert (await them.lease()).silence_ms == 497
    await them.close()


async def test_a_standby_takes_the_lease_as_soon_as_the_silence_that_it_names_is_over() -> None:
    them, first, second = await two()
    first.keeper.note_pause(0.4)
    await first.keeper.renew_or_take()
    await them.kill(first)
    await them.pass_time(0.9)
    pause_s = await second.keeper.renew_or_take()
    assert not second.leads
    assert 0 < pause_s <= 0.1
    await them.pass_time(0.2)
    assert second.leads
    await them.close()


async def test_a_leader_that_must_not_lead_gives_the_lease_back_and_takes_none() -> None:
    them, first, second = await two()
    for one in (first, second):
        one.standing.stand(is_candidate=False, refuses=True)
    await them.pass_time(1)
    assert (first.leads, second.leads) == (False, False)
    assert (await them.lease()).holder == ""
    await them.pass_time(10)
    assert (first.leads, second.leads) == (False, False)
    second.standing.stand(is_candidate=True)
    await them.pass_time(1)
    assert (first.leads, second.leads) == (False, True)
    await them.close()


async def test_a_standby_that_looks_late_counts_the_silence_during_which_it_listened() -> None:
    them, first, second = await two()
    await them.kill(first)
    for _ in range(3):
        them.server.clock.advance(0.3)
        await second.keeper.renew_or_take()
        assert not second.leads
    await them.pass_time(0.2)
    assert second.leads
    await them.close()
