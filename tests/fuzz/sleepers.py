"""Nobody sleeps, or is held, who would be placed if everybody were tried anew."""

import msgspec

from berth.core.scheduling.turn import MissingShards
from berth.schemas.envelope import encode
from berth.schemas.facts import TimerSeen
from berth.schemas.ledger import Epoch
from tests.fuzz.failure import Failure
from tests.fuzz.seat import ROUNDS_MAX, Seat

_LOOKS = 4
_LOOK_MS = 2_000
_GANGS_MAX = 4_000
_BYTES_MAX = 4_000_000


def see_nobody_sleeps(snapshot: bytes, at_ms: int) -> None:
    """Settle from a snapshot on, then try everybody anew.

    Raises:
        Failure: Somebody is placed then.
    """
    seat = Seat.loaded(snapshot)
    at_ms = max(at_ms, seat.state.fold.at_ms)  # the clock of the dispatcher may be ahead
    for _ in range(_LOOKS):
        at_ms += _LOOK_MS
        if 0 < seat.scheduler.queue.retry_at_ms <= at_ms:
            seat.fact("berth.c.fact.timer", seat.state.facts_seq + 1, encode(TimerSeen(at_ms)))
        seat.settle(at_ms)
    waiting = {uid for uid, held in seat.state.fold.held.items() if held.is_reserved}  # for a place of their own
    if seat.scheduler.has_work:
        raise Failure("sleepers: there is work, and nothing is decided")
    anew = Seat.loaded(seat.snapshot())
    fold = anew.state.fold
    settings = msgspec.structs.replace(fold.settings, round_gangs_max=_GANGS_MAX, round_bytes_max=_BYTES_MAX)
    epoch = Epoch(fold.epoch + 1, fold.base_seq, anew.state.facts_seq, at_ms, "anew", settings, rules=[*fold.rules])
    anew.stored(fold.head + 1, anew.encoded(epoch))
    rounds = 0
    while (record := anew.decided(at_ms, MissingShards())) is not None:
        rounds += 1
        if rounds > ROUNDS_MAX:
            raise Failure("sleepers: the same moment is decided again and again")
        given = [verdict for verdict in record.verdicts if verdict.placement is not None]
        placed = [one.name for one in given if one.uid not in waiting]
        if placed:
            asleep = [one.uid for one in seat.scheduler.dump().sleeping]
            raise Failure("sleepers: somebody waits who could be placed", f"{placed}; asleep were classes of {asleep}")
        if record.admissions:
            raise Failure("sleepers: a decision on a PodGroup is missing", f"{record.admissions}")
        anew.stored(fold.head + 1, anew.encoded(record))
