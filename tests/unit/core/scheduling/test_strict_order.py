"""Strict order as the choice of a round sees it: which gang is behind which."""

from berth.core.placement.rules import Entry
from berth.core.scheduling.rules.strict_order import StrictOrderRound
from berth.schemas.refusal import Refusal
from tests.unit.core.scheduling.test_queue import a_gang

NO_ROOM = Refusal("no-room")


def test_the_head_is_not_behind_itself() -> None:
    head, behind = a_gang("head", 1), a_gang("behind", 2)
    gate = StrictOrderRound(head)
    assert gate.admit(Entry(head)) is None
    assert gate.admit(Entry(a_gang("urgent", 3, priority=1))) is None
    refusal = gate.admit(Entry(behind))
    assert refusal is not None
    assert (refusal.code, refusal.ahead) == ("behind", "default/head")


def test_the_first_gang_without_room_stays_the_head() -> None:
    gate = StrictOrderRound(None)
    second, first, third = a_gang("second", 2), a_gang("first", 1), a_gang("third", 3)
    gate.refused(Entry(a_gang("never", 0)), Refusal("larger-than-cluster"))
    assert gate.admit(Entry(second)) is None
    for gang in (second, first, third):
        assert gate.refused(Entry(gang), NO_ROOM) is NO_ROOM
    refusal = gate.admit(Entry(second))
    assert refusal is not None
    assert refusal.ahead == "default/first"
