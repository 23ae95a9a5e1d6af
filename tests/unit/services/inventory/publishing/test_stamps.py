"""Times in messages, while the clock by which the inventory waits does not agree with that of its host."""

from berth.schemas.columns import pack, unpack
from berth.schemas.facts import LedgerSeen
from berth.schemas.fault_facts import GroupSeen, ReplacementsSeen
from berth.services.inventory.publishing.stamps import restamped

HOUR_MS = 3_600_000


def test_messages_have_the_times_of_the_host() -> None:
    lost = ReplacementsSeen("team", "j", "u", pack([1, 4], 4), 5 * HOUR_MS, pack([2 * HOUR_MS, 3 * HOUR_MS], 8))
    for ahead_ms in (HOUR_MS, -HOUR_MS):
        found = restamped(lost, ahead_ms)
        assert isinstance(found, ReplacementsSeen)
        assert found.at_ms == 5 * HOUR_MS - ahead_ms
        assert unpack(found.since_ms, 8) == [2 * HOUR_MS - ahead_ms, 3 * HOUR_MS - ahead_ms]
    group = restamped(GroupSeen("team", "g", at_ms=5 * HOUR_MS, recover_ms=2 * HOUR_MS), HOUR_MS)
    assert isinstance(group, GroupSeen)
    assert (group.at_ms, group.recover_ms) == (4 * HOUR_MS, HOUR_MS)


def test_no_time_stays_no_time() -> None:
    group = restamped(GroupSeen("team", "g", at_ms=5 * HOUR_MS), HOUR_MS)
    assert isinstance(group, GroupSeen)
    assert group.recover_ms == 0
    for message in (GroupSeen("team", "g"), LedgerSeen("1")):
        assert restamped(message, HOUR_MS) is message


def test_clocks_that_agree_leave_messages_as_they_are() -> None:
    message = GroupSeen("team", "g", at_ms=HOUR_MS)
    for ahead_ms in (0, 999, -999):
        assert restamped(message, ahead_ms) is message


def test_a_time_stays_one() -> None:
    found = restamped(GroupSeen("team", "g", at_ms=HOUR_MS), 2 * HOUR_MS)
    assert isinstance(found, GroupSeen)
    assert found.at_ms == 1
